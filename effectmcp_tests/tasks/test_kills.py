"""Workers in processes of their own are killed, or frozen, at every command of a turn."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from effectmcp.tasks import SqliteTasks

from .killed_worker import Plan, written
from .kills import POINTS, Forks, check, forking, play, read_log

#: Seconds until a test gives up: nothing here takes more than one.
PATIENCE = 60.0


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """A process that forks workers."""
    with forking() as found:
        yield found


# ---- kills --------------------------------------------------------------------------


def test_kill_at_every_point(forks: Forks, tmp_path: Path) -> None:
    """The first worker is killed at its n-th point, and another one finishes."""
    for kill in range(POINTS):
        folder = tmp_path / str(kill)
        folder.mkdir()
        run = play(forks, folder, [kill], first=kill % 2)
        check(run)
        if not run.kills:
            break
    else:
        pytest.fail("it has more points than that")
    assert kill > 40  # it had that many points to be killed at


@pytest.mark.parametrize("first", [0, 1])
def test_kill_every_worker_but_the_last(
    forks: Forks, tmp_path: Path, first: int
) -> None:
    """Every worker is killed a little later than the one before."""
    run = play(forks, tmp_path, range(2, 40), first=first)
    check(run)
    assert run.kills > 5


# ---- two workers --------------------------------------------------------------------


@define(eq=False)
class Worker:
    """A process that works, and tells what it does."""

    process: subprocess.Popen[str]

    def until(self, what: str, **facts: Any) -> dict[str, Any]:
        """Read what it does, until it does this."""
        assert self.process.stdout is not None
        guard = threading.Timer(PATIENCE, self.process.kill)
        guard.start()
        try:
            for text in self.process.stdout:
                line: dict[str, Any] = json.loads(text)
                if line["what"] == what and facts.items() <= line.items():
                    return line
        finally:
            guard.cancel()
        raise AssertionError(f"it ended, or was too slow, before it {what}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)  # until it has stopped


class Gate:
    """A named pipe that the step of `blocked` reads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gate"
        os.mkfifo(self.path)
        self._file = os.open(self.path, os.O_RDWR)

    def open(self, processes: int = 1) -> None:
        """Let the step end in this many processes."""
        os.write(self._file, b"x" * processes)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A closed gate."""
    found = Gate(tmp_path)
    yield found
    found.close()


@contextmanager
def working(folder: Path, loop: str, *tools: str) -> Iterator[Worker]:
    """Yield a worker that creates the tasks of `tools` and runs what it finds."""
    path, log, gate = (str(folder / name) for name in ("tasks.db", "log", "gate"))
    plan = Plan(path, log, loop, -1, tools, gate)
    process = subprocess.Popen(
        [sys.executable, "-m", "effectmcp_tests.tasks.killed_worker", written(plan)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Worker(process)
    finally:
        process.kill()
        process.communicate()


def effects(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the performances of a step."""
    log = read_log(folder / "log")
    return [line for line in log if line["what"] == "effect" and line["name"] == name]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_frozen_worker_keeps_its_tasks_until_it_is_killed(
    tmp_path: Path, gate: Gate, loop: str
) -> None:
    with working(tmp_path, loop, "blocked") as frozen:
        frozen.until("effect", name="block")
        frozen.send(signal.SIGSTOP)
        with working(tmp_path, loop, "quick", "blocked") as other:
            # All other tasks continue.
            other.until("ended", task="quick")
            # The other process looks for holders that died, and finds none.
            store = SqliteTasks(tmp_path / "tasks.db")
            try:
                _after_sweeps(store)
                assert len(effects(tmp_path, "block")) == 1
            finally:
                store.close()
            frozen.send(signal.SIGKILL)
            found = other.until("effect", name="block")
            assert found["pid"] == other.process.pid
            gate.open()
            ended = other.until("ended", task="blocked")
    assert (ended["status"], ended["result"]) == ("completed", "open")
    assert len({str(one["about"]) for one in effects(tmp_path, "block")}) == 1


def _after_sweeps(store: SqliteTasks) -> None:
    """Wait until a store has looked for dead holders, like all others meanwhile."""
    opened = store._store()
    first = opened._swept
    _until(lambda: opened._swept > first)
    second = opened._swept
    _until(lambda: opened._swept > second)


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_write_of_a_turn_that_was_taken_over_is_refused(
    tmp_path: Path, gate: Gate, loop: str
) -> None:
    """As if the lock of a frozen worker had been lost: then only the fence is left."""
    with working(tmp_path, loop, "blocked") as frozen:
        frozen.until("effect", name="block")
        frozen.send(signal.SIGSTOP)
        with closing(sqlite3.connect(tmp_path / "tasks.db")) as db, db:
            db.execute("UPDATE tasks SET holder = NULL, fence = fence + 1, wake = 0")
        with working(tmp_path, loop, "blocked") as other:
            other.until("effect", name="block")
            # The worker whose turn was taken over must write first.
            other.send(signal.SIGSTOP)
            frozen.send(signal.SIGCONT)
            gate.open()
            assert frozen.until("refused")["error"] == "TakenOverError"
            other.send(signal.SIGCONT)
            gate.open()
            ended = other.until("ended", task="blocked")
    assert (ended["status"], ended["result"]) == ("completed", "open")
