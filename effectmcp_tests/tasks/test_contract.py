"""Our own hosts keep the contract of a `TaskHost`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from effectmcp import Server
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import trio as on_trio
from effectmcp.tasks import SqliteTasks, TaskHost, tables
from effectmcp.testing.task_contract import (
    TASK_CHECKS,
    Ability,
    Fault,
    check_tasks,
    run_check,
)
from effectmcp.transports.working import ensure_tasks, working


class Unavailable:
    """A connection to a file that does not respond."""

    in_transaction = False

    def execute(self, *args: Any) -> Any:
        raise sqlite3.OperationalError("disk I/O error")


class Bench:
    """`SqliteTasks`, in memory or in a file."""

    def __init__(self, path: Path | None, driver: Any = on_trio) -> None:
        self._path = path
        self._driver = driver
        self.lacks: frozenset[Ability] = frozenset()
        if path is None:
            self.lacks = frozenset({"restart", "workers", "faults"})

    @contextmanager
    def fresh(self) -> Iterator[None]:
        yield

    def open(self) -> TaskHost:
        return SqliteTasks(self._path, is_worked=True)

    def close(self, host: TaskHost) -> None:
        assert isinstance(host, SqliteTasks)
        host.close()

    @contextmanager
    def working(self, app: Server) -> Iterator[None]:
        ready = threading.Event()
        ends: list[Any] = []
        failures: list[BaseException] = []

        async def main() -> None:
            bell = self._driver.Bell()
            ends.append(bell.ring)
            async with self._driver.running(app), working(self._driver, app):
                ready.set()
                await bell.wait()

        def run() -> None:
            try:
                if self._driver is on_trio:
                    trio.run(main)
                else:
                    import asyncio

                    asyncio.run(main())
            except BaseException as exc:
                failures.append(exc)
            finally:
                ready.set()

        thread = threading.Thread(target=run)
        thread.start()
        assert ready.wait(60)
        try:
            yield
        finally:
            for end in ends:
                end()
            thread.join(60)
        assert not failures, failures

    @contextmanager
    def failing(self, host: TaskHost, fault: Fault) -> Iterator[None]:
        assert isinstance(host, SqliteTasks)
        assert self._path is not None
        store = host._store()
        match fault:
            case "away":
                kept = store._writer, store._reader
                away: Any = Unavailable()
                with store._lock, store._reading:
                    store._writer = store._reader = away
                yield
                with store._lock, store._reading:
                    store._writer, store._reader = kept
            case "full":
                with store._lock:
                    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
                    store._writer.execute(f"PRAGMA max_page_count = {pages}")
                yield
                with store._lock:
                    store._writer.execute("PRAGMA max_page_count = 1000000000")
            case "locked":
                other = sqlite3.connect(self._path, isolation_level=None)
                other.execute("BEGIN EXCLUSIVE")
                yield
                other.execute("ROLLBACK")
                other.close()

    def refuse(self, ability: Ability) -> None:
        app = Server("contract")

        @app.tool(task="required")
        def tool() -> str:
            return "not reached"

        # A process that others join, or follow, has no tasks in memory.
        ensure_tasks(app, is_alone=False)


@pytest.fixture(params=["memory", "file"])
def bench(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setattr(tables, "BUSY", 100)
    return Bench(tmp_path / "tasks.db" if request.param == "file" else None)


@pytest.mark.parametrize("name", TASK_CHECKS)
def test_our_hosts_keep_the_contract(bench: Bench, name: str) -> None:
    run_check(bench, name)


@pytest.mark.parametrize("is_file", [False, True])
def test_they_keep_it_on_asyncio(
    is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BUSY", 100)
    path = tmp_path / "tasks.db" if is_file else None
    names = iter(range(100))

    class Fresh(Bench):
        @contextmanager
        def fresh(self) -> Iterator[None]:
            if path is not None:
                self._path = path.with_name(f"{next(names)}.db")
            yield

    check_tasks(Fresh(path, on_asyncio))
