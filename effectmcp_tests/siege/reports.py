"""The measurements of one attack, and the tables that are printed of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from .honest import Tally

__all__ = ["Report", "table"]


@define(kw_only=True)
class Report:
    """The measurements of one attack.

    Attributes:
        attack: Its name.
        host: The name of the host.
        form: `long` or `short`.
        orders: What the hostile clients did.
        rss: MB of the server before, at most during, and after the attack.
        quiet: The honest clients before the attack, by kind.
        under: The same, during the attack.
        victims: How the sessions from before the attack have survived.
        seen: How the requests of the hostile clients were answered.
        killed: Why the server was killed; empty if it was not.
        is_running: Whether the server was there at the end.
        log_lines: The number of lines in its log that the attack caused.
        forged: The number of lines that the attack forged.
        parsing: Seconds of CPU that Python takes to parse the body of an attack.
        cpu: Seconds of CPU that the server took for each such body, beside its calls.
        facts: Further measurements.
        problems: The claims that do not hold.
    """

    attack: str
    host: str
    form: str
    orders: Mapping[str, Any] = field(factory=dict)
    rss: tuple[float, float, float] = (0, 0, 0)
    quiet: Mapping[str, Tally] = field(factory=dict)
    under: Mapping[str, Tally] = field(factory=dict)
    victims: Mapping[str, str] = field(factory=dict)
    seen: Mapping[str, int] = field(factory=dict)
    killed: str = ""
    is_running: bool = True
    log_lines: int = 0
    forged: int = 0
    parsing: float = math.inf
    cpu: float = 0.0
    facts: dict[str, Any] = field(factory=dict)
    problems: list[str] = field(factory=list)

    def cells(self) -> list[str]:
        """Return the row of this report."""
        kind = next(iter(self.under), "")
        quiet, under = (
            (tallies.get(kind) or Tally()) for tallies in (self.quiet, self.under)
        )
        refused = sum(sum(one.refused.values()) for one in self.under.values())
        lost = sum(sum(one.lost.values()) for one in self.under.values())
        answered = sum(len(one.times) for one in self.under.values())
        facts = [f"{key}: {value}" for key, value in self.facts.items()]
        facts += [f"{key}: {how}" for key, how in self.victims.items()]
        facts += [", ".join(f"{how} ×{n}" for how, n in self.seen.items())]
        return [
            self.attack,
            self.host,
            " / ".join(f"{mb:,.0f}" for mb in self.rss) if any(self.rss) else "",
            f"{quiet.p(50):.1f} / {quiet.p(99):.1f}",
            f"{under.p(50):.1f} / {under.p(99):.1f}",
            f"{under.p(99) / quiet.p(99) if quiet.times else math.nan:.1f}",
            f"{answered:,}",
            f"{refused:,}",
            f"{lost:,}",
            "FAILS: " + "; ".join(self.problems) if self.problems else "holds",
            "; ".join(filter(None, facts)),
        ]

    def line(self) -> str:
        """Return a line of JSON."""
        return json.dumps(dict(zip(HEADINGS, self.cells(), strict=True)))


HEADINGS = (
    "attack",
    "host",
    "MB before / peak / after",
    "quiet p50 / p99 ms",
    "attacked p50 / p99 ms",
    "p99 ratio",
    "answered",
    "refused",
    "lost",
    "verdict",
    "seen",
)


def table(reports: Iterable[Report]) -> str:
    """Return a table in Markdown, with a row for each report."""
    rows = [
        list(HEADINGS),
        *([one.replace("|", "/") for one in report.cells()] for report in reports),
    ]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-2]]
    widths += [0, 0]

    def line(row: list[str]) -> str:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return f"| {' | '.join(cells)} |"

    first, *others = rows
    return "\n".join([line(first), "|" + " --- |" * len(first), *map(line, others)])
