"""Kill workers of tasks, and check what is left: `python -m effectmcp_tests.tasks.kills`.

Each run is one task in a file of its own. Workers are killed at points that are chosen,
one after the other; the last one gets through. Then the log is judged, and not the code:

    the result is right, and has the first answers that were acknowledged
    a step that is `at_most_once` began once at most
    a step began only between a save that has its beginning and the save of its outcome
    a step that began again had the same arguments, and so the same idempotency key
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, field, frozen

from .killed_worker import Plan, written

__all__ = ["Forks", "Run", "campaign", "check", "forking", "play", "read_log"]

#: The most points of the task, and a few more.
POINTS = 70


@define(eq=False)
class Forks:
    """A process that forks workers."""

    _process: subprocess.Popen[str]

    def work(self, plan: Plan) -> int:
        """Let a worker work until it ends; return its status, negative for a signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(written(plan) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "it has died"
        _, status = json.loads(line)
        return int(status)


@contextmanager
def forking() -> Iterator[Forks]:
    """Yield a process that forks workers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "effectmcp_tests.tasks.killed_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Forks(process)
    finally:
        process.kill()
        process.communicate()


@frozen
class Run:
    """One task, and the workers that it took.

    Attributes:
        log: What happened, in order.
        statuses: How the workers ended.
    """

    log: list[dict[str, Any]]
    statuses: list[int] = field(factory=list)

    @property
    def kills(self) -> int:
        """The number of workers that were killed."""
        return sum(status != 0 for status in self.statuses)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def play(
    forks: Forks,
    folder: Path,
    kills: Iterable[int],
    *,
    first: int = 0,
    place: str | None = None,
) -> Run:
    """Run a task to its end: a worker is killed at each of some points.

    Args:
        forks: Where the workers come from.
        folder: An empty folder.
        kills: The points.
        first: 0 to begin with asyncio, 1 with trio; they take turns.
        place: The URL of an engine; by default, the tasks are in a file.
    """
    log = folder / "log"
    loops = ("asyncio", "trio")
    statuses = []
    for number, kill in enumerate([*kills, -1]):
        loop = loops[(first + number) % 2]
        plan = Plan(place or str(folder / "tasks.db"), str(log), loop, kill)
        statuses.append(forks.work(plan))
        if statuses[-1] == 0:
            break
    return Run(read_log(log), statuses)


def check(run: Run) -> None:
    """Judge a run."""
    assert run.statuses[-1] == 0, run.statuses
    assert all(status in (0, -9) for status in run.statuses), run.statuses
    (ended,) = [line for line in run.log if line["what"] == "ended"]
    assert ended["status"] == "completed", ended
    effects = [line for line in run.log if line["what"] == "effect"]
    paid = [line for line in effects if line["name"] == "pay"]
    assert len(paid) <= 1, paid
    is_interrupted = ended["result"]["paid"] == "interrupted"
    assert not is_interrupted or run.kills, ended
    assert is_interrupted or paid, ended
    assert ended["result"] == {
        "first": 10,
        "paid": ended["result"]["paid"],
        "name": _answer(run, "elicit-1"),
        "second": 20,
        "age": _answer(run, "gather-1/1/within-1/0/elicit-1"),
        "news": "the news",
    }
    _check_arguments(effects)
    _check_beginnings(run)


def _answer(run: Run, key: str) -> Any:
    """Return the answer that counts: the first that was stored."""
    (ended,) = [line for line in run.log if line["what"] == "ended"]
    used = {ended["result"]["name"], ended["result"]["age"]}
    # An answer without an acknowledgement may have been stored, or not.
    for line in run.log:
        if line["what"] in ("answers", "answered") and line["key"] == key:
            if line["what"] == "answered" or line["value"] in used:
                return line["value"]
    raise AssertionError(f"{key} was never answered")


#: The places of the steps, by name and amount.
PLACES = {
    ("charge", 10): "step-1",
    ("pay", 7): "step-2",
    ("charge", 20): "gather-1/0/step-1",
    ("fetch", "news"): "step-3",
}


def _identity(effect: dict[str, Any]) -> tuple[str, Any]:
    about = effect["about"]
    return effect["name"], about[1] if effect["name"] == "charge" else about[0]


def _check_arguments(effects: list[dict[str, Any]]) -> None:
    known: dict[Any, Any] = {}
    for effect in effects:
        name = _identity(effect)
        assert known.setdefault(name, effect["about"]) == effect["about"], effect
    assert set(known) >= set(PLACES) - {("pay", 7)}, known


def _check_beginnings(run: Run) -> None:
    """A step begins only if the last save has its beginning, once for each of these."""
    begun: set[str] = set()
    known: set[str] = set()
    settled: set[str] = set()
    seen: set[tuple[int, str]] = set()
    for line in run.log:
        if line["what"] == "saved":
            begun = set(line["begun"])
            known |= begun
            settled |= known - begun - set(line["tries"])
            assert not settled & begun, f"{settled & begun} begins after its outcome"
            # What a save has ended may begin again only by another save.
            seen = {(pid, place) for pid, place in seen if place in begun}
        elif line["what"] == "effect":
            place = PLACES[_identity(line)]
            assert place in begun, f"{place} began without a save"
            assert (line["pid"], place) not in seen, f"{place} began twice in a process"
            seen.add((line["pid"], place))


def campaign(runs: int, seed: int, *, place: str | None = None) -> None:
    """Run tasks whose workers are killed at random points; print how it went.

    Args:
        runs: The number of tasks.
        seed: Decides the points.
        place: The URL of an engine; by default, the tasks are in files.
    """
    kills, began = 0, time.monotonic()
    with forking() as forks:
        for number in range(runs):
            dice = Random(seed + number)
            points = [dice.randrange(POINTS) for _ in range(dice.randint(1, 5))]
            with tempfile.TemporaryDirectory() as folder:
                run = play(forks, Path(folder), points, first=number % 2, place=place)
                try:
                    check(run)
                except Exception:
                    print(*run.log, sep="\n")
                    print(f"seed {seed + number}, 1 run: {points}")
                    raise
            kills += run.kills
    seconds = time.monotonic() - began
    print(f"{runs} tasks, {kills} kills, {seconds:.0f} s: every task is right")


def main() -> None:
    """Run a campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    campaign(args.runs, args.seed)


if __name__ == "__main__":
    main()
