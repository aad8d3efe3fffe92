"""Run attacks, and print a row for each.

    python -m effectmcp_tests.siege.run --attack all --host all
    python -m effectmcp_tests.siege.run --attack 1 4-heads --host own uvicorn --short

An attack is a number of the table (`1`, with all its variants) or one variant (`1-many`).
The exit status is the number of rows that fail, at most 100.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import trio

from .attacks import ATTACKS, Attack
from .besiege import besiege
from .hosts import HOSTS, Unavailable
from .reports import Report, table
from .server import Form
from .shutdown import SHUTDOWNS, shut_down

__all__ = ["chosen", "main"]


def chosen(names: Sequence[str]) -> list[str]:
    """Return the names of attacks that `names` mean."""
    known = [*ATTACKS, *SHUTDOWNS]
    return [
        one
        for one in known
        if "all" in names or one in names or one.partition("-")[0] in names
    ]


def _runs(
    attacks: Sequence[str], hosts: Sequence[str], form: Form, more: dict[str, Any]
) -> Iterator[Callable[[], Any]]:
    for name in attacks:
        if name in SHUTDOWNS:
            if "all" in hosts or SHUTDOWNS[name] in hosts:
                yield partial(shut_down, name, form)
            continue
        attack: Attack = ATTACKS[name]
        for host in attack.hosts:
            if "all" in hosts or host in hosts:
                yield partial(besiege, attack, HOSTS[host], form, **more)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attacks that the command line names."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attack", nargs="+", default=["all"])
    parser.add_argument("--host", nargs="+", default=["all"])
    parser.add_argument("--short", action="store_true", help="the form for every push")
    parser.add_argument("--count", type=int, help="the number of hostile clients")
    parser.add_argument("--addresses", type=int, help="the number of their addresses")
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="this machine does nothing else: judge times",
    )
    parser.add_argument("--limit", type=float, default=5_000, help="MB, then kill")
    options = parser.parse_args(arguments)
    form: Form = "short" if options.short else "long"
    more = {"limit": options.limit, "is_quiet": options.quiet}
    more |= {
        name: value
        for name in ("count", "addresses")
        if (value := getattr(options, name)) is not None
    }
    names = chosen(options.attack)
    if not names:
        parser.error(f"--attack: known are {', '.join([*ATTACKS, *SHUTDOWNS])}")
    reports: list[Report] = []
    for run in _runs(names, options.host, form, more):
        try:
            report = trio.run(run)
        except Unavailable as exc:
            print(f"not run: {exc}", file=sys.stderr)
            continue
        reports.append(report)
        print(*table([report]).split("\n")[2:], sep="\n", flush=True)
    print()
    print(table(reports))
    return min(100, sum(bool(one.problems) for one in reports))


if __name__ == "__main__":
    raise SystemExit(main())
