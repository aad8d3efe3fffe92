"""Honest and hostile traffic, mixed, for minutes: does memory grow, is an answer lost?

    python -m effectmcp_tests.siege.soak --minutes 10 --seed 1

Attacks come in bursts, in a random order that the seed repeats, as fast as two cores allow.
Each answer to an honest client is verified. At the end:

    no honest answer was lost, or belonged to another question
    none was refused
    the memory after the warm-up grows by less than `--slope` MB per minute
    every exception in the log was planned

Exits with 1 if one of these does not hold.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final

import trio
from attrs import define, field

from .attacks import ATTACKS
from .besiege import hostile
from .honest import KINDS, Crowd, first_answer
from .hosts import HOSTS, Host, Served, fit, serving

__all__ = ["Soaked", "floors", "main", "soak"]

#: The first part of the time, while memory settles.
_WARM_UP: Final = 0.25

#: Seconds of the windows whose least memory is compared.
_WINDOW: Final = 15.0

#: Seconds until an answer is lost: a burst may keep both cores busy.
_PATIENCE: Final = 20.0

#: The bursts: attacks, and how their orders differ from the short form.
_BURSTS: Final[dict[str, dict[str, Any]]] = {
    "1": {"count": 40},
    "1-many": {"count": 40},
    "2": {"count": 5, "each": 2, "size": 2_000_000},
    "4-listen": {"count": 60},
    "4-heads": {"count": 60},
    "4-bodies": {"count": 60},
    "5": {"count": 6, "size": 4_000_000},
    "6": {"count": 10, "size": 2_000_000},
    "10": {"count": 20, "seconds": 0.3},
    "11-1024": {"count": 60},
    "13": {"each": 1, "size": 100_000},
    "14-text": {"count": 1},
    "14-hosts": {"count": 1, "each": 20},
}


@define(kw_only=True)
class Soaked:
    """The result of a soak.

    Attributes:
        answered: The number of honest answers, by kind of client.
        refused: How honest requests were refused, and how often.
        full: How often an honest client got no new session, as there were too many.
        lost: How honest answers were lost, and how often.
        bursts: The number of bursts, by attack.
        slope: MB per minute after the warm-up.
        rss: MB at the start, at the end of the warm-up, and at the end.
        exceptions: The number of exceptions in the log that were not planned.
        problems: The claims that do not hold.
    """

    answered: dict[str, int] = field(factory=dict)
    refused: Counter[str] = field(factory=Counter)
    full: int = 0
    lost: Counter[str] = field(factory=Counter)
    bursts: Counter[str] = field(factory=Counter)
    slope: float = 0
    rss: tuple[float, float, float] = (0, 0, 0)
    exceptions: int = 0
    problems: list[str] = field(factory=list)


async def soak(
    host: Host, seconds: float, *, seed: int, slope: float, limit: float = 5_000
) -> Soaked:
    """Mix honest and hostile traffic for so long.

    Args:
        host: The host.
        seconds: How long.
        seed: The seed of the order and the timing of the bursts.
        slope: MB per minute that memory may grow by.
        limit: The MB at which the server is killed.
    """
    found = Soaked()
    with serving(host, "soak", limit=limit) as served:
        # Where each question takes a thread, hostile clients may leave none.
        kinds = [kind for kind in KINDS if host.has_streams or kind != "sessions"]
        crowd = Crowd(served.port, kinds, _PATIENCE)
        await first_answer(served.port)
        begin = served.rss()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(served.watch, 0.25))
            async with trio.open_nursery() as working:
                working.start_soon(crowd.run)
                with trio.move_on_after(seconds):
                    async with trio.open_nursery() as bursts:
                        for number in range(3):
                            random = Random(f"{seed} {number}")
                            bursts.start_soon(_bursts, served.port, random, found)
                crowd.stopping.set()
            nursery.cancel_scope.cancel()
        _judge(found, crowd, served, begin, slope)
    return found


async def _bursts(port: int, random: Random, found: Soaked) -> None:
    while True:
        name = random.choice(sorted(_BURSTS))
        orders = {**ATTACKS[name].orders("soak"), **_BURSTS[name], "port": port}
        hold, pause = random.uniform(0, 1.5), random.uniform(0, 0.5)
        found.bursts[name] += 1
        async with hostile() as enemy:
            await enemy.start(orders, 10)
            await trio.sleep(hold)
            await enemy.stop()
        await trio.sleep(pause)


def floors(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the least memory of each few seconds: bursts come and go."""
    found: dict[int, tuple[float, float]] = {}
    for at, size in samples:
        window = int(at // _WINDOW)
        if window not in found or size < found[window][1]:
            found[window] = at, size
    return [*found.values()]


def _judge(
    found: Soaked, crowd: Crowd, served: Served, begin: float, slope: float
) -> None:
    total = crowd.total("quiet")
    found.answered = {k: len(crowd.tally(k, "quiet").times) for k in crowd.kinds}
    found.refused, found.lost = total.refused, total.lost
    # While fifty addresses hold all sessions, a new session has to wait.
    of_sessions = crowd.tally("sessions", "quiet").refused
    found.full = of_sessions["503"]
    found.refused -= Counter({"503": found.full})
    samples = served.samples
    warm = floors(samples[int(len(samples) * _WARM_UP) :])
    found.slope = fit(warm)
    if warm:
        found.rss = begin, warm[0][1], warm[-1][1]
    # Forged lines make the log hard to read: count both, and compare.
    said = served.log.read_text("utf-8", "replace")
    planned = len(re.findall(r"^(?:  \| )?(?:\S*\.)?Planned: ", said, re.MULTILINE))
    found.exceptions = said.count("Traceback (most recent call last)") - planned
    problems = found.problems
    if served.killed or not served.is_running():
        problems.append(served.killed or "the server ended")
    problems += [f"lost: {how} ×{count}" for how, count in found.lost.items()]
    problems += [f"refused: {how} ×{count}" for how, count in found.refused.items()]
    problems += [f"{kind}: no answer" for kind, n in found.answered.items() if not n]
    if not found.slope <= slope:
        problems.append(f"memory grows by {found.slope:.1f} MB per minute")
    if found.exceptions:
        problems.append(f"{found.exceptions} exceptions in the log")


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, and print the result."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--host", default="own", choices=[*HOSTS])
    parser.add_argument(
        "--slope", type=float, default=1.0, help="MB per minute that are allowed"
    )
    options = parser.parse_args(arguments)
    found = trio.run(
        partial(
            soak,
            HOSTS[options.host],
            60 * options.minutes,
            seed=options.seed,
            slope=options.slope,
        )
    )
    answered = ", ".join(f"{kind} {n:,}" for kind, n in found.answered.items())
    bursts = ", ".join(f"{name} ×{n}" for name, n in sorted(found.bursts.items()))
    print(f"host: {options.host}, {options.minutes:g} minutes, seed {options.seed}")
    print(f"answered: {answered}")
    print(f"bursts: {found.bursts.total()}: {bursts}")
    print(f"refused: {dict(found.refused)}; lost: {dict(found.lost)}")
    print(f"new sessions refused while there were too many: {found.full}")
    print(
        "MB at the start, warm, at the end: {:.0f}, {:.0f}, {:.0f}".format(*found.rss)
    )
    print(f"slope after the warm-up: {found.slope:+.2f} MB per minute")
    print(f"unplanned exceptions in the log: {found.exceptions}")
    print("FAILS: " + "; ".join(found.problems) if found.problems else "holds")
    return 1 if found.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
