"""The table of attacks: who attacks, who works meanwhile, and what must hold.

The bounds are generous, because machines differ: honest work is never refused or lost, and
memory stays within a budget. Where time matters, it is compared with the same machine: with
a tool's own duration, or with the duration of the work that must not be done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from attrs import field, frozen

from .hosts import ASGI, HOSTS
from .reports import Report
from .server import Form

__all__ = ["ATTACKS", "Attack", "problems"]

Judge = Callable[[Report], Iterator[str]]


@frozen(kw_only=True)
class Attack:
    """A kind of attack.

    Attributes:
        name: Its number, and its variant.
        title: What the clients do.
        how: The function of `attackers` for one client.
        hosts: The names of the hosts that it is made on.
        briefly: The hosts of the short form.
        long: The orders of the full attack.
        short: The orders that differ in the short form.
        kinds: The honest clients beside it; the first of them is measured.
        has_victims: Whether two sessions exist before it.
        files: The limit of the server's open files.
        may_be_full: Whether honest clients may get the status 503.
        growth: MB that the server may grow by, in the full attack and in the short form.
        left: MB of these that it may keep once the clients have left.
        p99: MS that the first kind of honest clients may wait, except for one in a
            hundred: on a machine that does nothing else, and in the full attack.
        judge: Yields the further claims that do not hold.
    """

    name: str
    title: str
    how: str
    hosts: tuple[str, ...] = ("own",)
    briefly: tuple[str, ...] = ("own",)
    long: Mapping[str, Any]
    short: Mapping[str, Any] = field(factory=dict)
    kinds: tuple[str, ...] = ("calls", "newcomers")
    has_victims: bool = False
    files: int | None = None
    may_be_full: bool = False
    growth: tuple[float, float] = (400, 100)
    left: tuple[float, float] = (200, 60)
    p99: float | None = None
    judge: Judge = lambda report: iter(())

    def orders(self, form: Form) -> dict[str, Any]:
        """Return the orders of a form, without the port."""
        own = self.long if form == "long" else {**self.long, **self.short}
        return {"how": self.how, **own}


def problems(
    attack: Attack, report: Report, *, is_quiet: bool = False
) -> Iterator[str]:
    """Yield the claims that do not hold.

    Args:
        attack: The attack.
        report: Its report.
        is_quiet: Whether the machine does nothing else, so that times count.
    """
    is_long = report.form == "long"
    if report.killed:
        yield report.killed
        return
    if not report.is_running:
        yield "the server ended"
    for kind, tally in report.under.items():
        if tally.refused and not (attack.may_be_full and set(tally.refused) == {"503"}):
            yield f"{kind} refused: {dict(tally.refused)}"
        if attack.may_be_full:
            tally.lost = Counter(
                {
                    why: n
                    for why, n in tally.lost.items()
                    if "at once are being" not in why
                }
            )
        if tally.lost:
            yield f"{kind} lost: {dict(tally.lost)}"
        if not tally.times:
            yield f"{kind}: no answer at all"
    before, peak, after = report.rss
    growth, left = attack.growth[not is_long], attack.left[not is_long]
    if peak - before > growth:
        yield f"it grew by {peak - before:,.0f} MB, more than {growth:,.0f}"
    if after - before > left:
        yield f"it kept {after - before:,.0f} MB, more than {left:,.0f}"
    for name, how in report.victims.items():
        if how != "lives":
            yield f"the {name} session: {how}"
    if is_quiet and is_long and attack.p99 is not None:
        p99 = report.under[attack.kinds[0]].p(99)
        if not p99 <= attack.p99:
            yield f"the p99 is {p99:.0f} ms, more than {attack.p99:.0f}"
    yield from attack.judge(report)


# ---- further claims -----------------------------------------------------------------


def _waits_for_no_thread(report: Report) -> Iterator[str]:
    """Calls must not wait for the slow calls of a client that has left."""
    most = 0.6 * report.orders["seconds"]
    for kind in report.under:
        worst = max(report.under[kind].times, default=0)
        report.facts[f"{kind} worst"] = f"{worst:.2f} s"
        if worst > most:
            yield f"{kind} took {worst:.2f} s, more than {most:.2f}"


def _is_not_parsed(report: Report) -> Iterator[str]:
    """A body costs little more than it takes to parse it: so long, no client is served.

    Measured as CPU time, which other processes of the machine do not change.
    """
    report.facts["CPU a body"] = f"{report.cpu * 1e3:.0f} ms"
    report.facts["parsing alone"] = f"{report.parsing * 1e3:.0f} ms"
    # Reading takes up to half as much again; then the arguments are checked.
    if report.cpu > 3 * report.parsing:
        yield (
            f"a body takes {report.cpu * 1e3:.0f} ms of CPU; to parse it takes"
            f" {report.parsing * 1e3:.0f} ms"
        )


def _log_is_ours(report: Report) -> Iterator[str]:
    report.facts["forged lines"] = report.forged
    report.facts["log lines"] = report.log_lines
    if report.forged:
        yield f"{report.forged} forged lines in the log"


#: Lines of the log for thousands of refused requests.
_LINES: Final = 100


def _log_is_short(report: Report) -> Iterator[str]:
    report.facts["log lines"] = report.log_lines
    if report.log_lines > _LINES:
        yield f"{report.log_lines:,} lines in the log, more than {_LINES}"


# ---- the table ----------------------------------------------------------------------

_EVERY: Final = ("own", *(host.name for host in ASGI), "wsgiref", "gunicorn")
#: gunicorn has some threads, and reads and writes in them itself: without a proxy in front
#: of it, clients that send or read nothing stop it, in any application.
_UNBLOCKED: Final = tuple(name for name in _EVERY if name != "gunicorn")
_SESSIONS: Final = {"count": 1_000, "at_once": 20}

ATTACKS: Final[Mapping[str, Attack]] = {
    attack.name: attack
    for attack in (
        Attack(
            name="1",
            title="1,000 sessions that ask, from one address",
            how="sessions",
            hosts=_EVERY,
            briefly=("own", "uvicorn", "wsgiref"),
            long={**_SESSIONS},
            short={"count": 70},
            kinds=("sessions",),
            has_victims=True,
        ),
        Attack(
            name="1-many",
            title="1,000 sessions that ask, from 50 addresses",
            how="sessions",
            hosts=_EVERY,
            long={**_SESSIONS, "addresses": 50},
            short={"count": 70},
            kinds=("sessions",),
            has_victims=True,
            # Each of these clients may still resume, so none gives way to a new one.
            may_be_full=True,
        ),
        Attack(
            name="2",
            title="60 sessions × 5 streams of 4 MB, unread",
            how="kept",
            hosts=_UNBLOCKED,
            long={"count": 60, "each": 5, "size": 4_000_000, "at_once": 10},
            short={"count": 12, "each": 4, "size": 3_000_000},
            briefly=("own", "uvicorn"),
        ),
        *(
            Attack(
                name=f"4-{name}",
                title=f"1,100 × {title}, held open",
                how=how,
                long={"count": 1_100},
                short={"count": 120},
            )
            for name, how, title in (
                ("listen", "listeners", "subscriptions/listen"),
                ("heads", "half_heads", "half a head"),
                ("bodies", "half_bodies", "half a body"),
            )
        ),
        Attack(
            name="5",
            title="150 replies of 8 MB, unread",
            how="unread",
            long={"count": 150, "size": 8_000_000, "at_once": 10},
            short={"count": 20},
            growth=(500, 150),
            p99=50,
        ),
        Attack(
            name="6",
            title="250 bodies of 4 MB minus one byte",
            how="bodies",
            hosts=_UNBLOCKED,
            long={"count": 250, "size": 4 * 1024 * 1024, "at_once": 20},
            short={"count": 40},
            briefly=("own", "uvicorn", "wsgiref"),
            kinds=("posts", "calls"),
        ),
        Attack(
            name="10",
            title="60 calls of a slow plain tool, left at once",
            how="slow",
            hosts=_EVERY,
            long={"count": 60, "seconds": 5, "at_once": 60},
            short={"seconds": 2},
            briefly=("own", "uvicorn"),
            kinds=("calls", "slow"),
            judge=_waits_for_no_thread,
        ),
        *(
            Attack(
                name=f"11-{files}",
                title=f"{count} silent connections, and {files} files",
                how="silent",
                long={"count": count},
                short={"count": min(count, 200)},
                kinds=("calls", "newcomers", "opens"),
                files=files,
            )
            for files, count in ((64, 200), (1_024, 1_200))
        ),
        *(
            Attack(
                name=name,
                title=f"bodies with {title} of 1,300,000 objects",
                how=how,
                hosts=_EVERY,
                long={"count": 1, "each": 3, "size": 1_300_000, "seconds": 0.5},
                short={"seconds": 0.1},
                growth=(150, 150),
                judge=_is_not_parsed,
            )
            for name, how, title in (
                ("13", "objects", "an argument"),
                ("13-batch", "batch", "a list"),
            )
        ),
        Attack(
            name="14-text",
            title="exceptions with forged lines of the log",
            how="forgers",
            hosts=("serve", *_EVERY),
            briefly=("serve",),
            long={"count": 5},
            short={"count": 1},
            judge=_log_is_ours,
        ),
        Attack(
            name="14-hosts",
            title="5,000 requests with another Host",
            how="strangers",
            hosts=("serve", *_EVERY),
            briefly=("serve",),
            long={"count": 5, "each": 1_000},
            short={"each": 60},
            judge=_log_is_short,
        ),
    )
}

assert all(name in HOSTS for attack in ATTACKS.values() for name in attack.hosts)
