"""Our own hosts keep the contract of a `TaskHost`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio

from effectmcp import Server
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import trio as on_trio
from effectmcp.tasks import Mail, SqliteTasks, TaskHost, TaskRow, tables
from effectmcp.testing import task_contract
from effectmcp.testing.contracts import ContractError
from effectmcp.testing.task_contract import (
    TASK_CHECKS,
    Ability,
    Fault,
    check_tasks,
)
from effectmcp.transports.stores import ensure_tasks
from effectmcp.transports.working import working


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
    check_tasks(bench, name)


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


# ---- hosts that break it ------------------------------------------------------------


class Forgetful(SqliteTasks):
    """A host that loses mail."""

    def post(self, id_: str, mail: Sequence[Mail]) -> None:
        """Lose it."""


class Twice(SqliteTasks):
    """A host that creates a task again."""

    def create(self, row: TaskRow) -> TaskRow:
        super().create(row)
        return row


class Careless(SqliteTasks):
    """A host whose failures are not of the declared kind."""

    is_away = False

    def create(self, row: TaskRow) -> TaskRow:
        if self.is_away:
            raise RuntimeError("away")
        return super().create(row)


class Open(SqliteTasks):
    """A host that lists the tasks of others."""

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        rows = sorted(self.find(), key=lambda row: row.id)
        return [row for row in rows if row.id > after][:limit]


class Boundless(SqliteTasks):
    """A host whose pages have no limit."""

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        return super().owned(owner, after=after, limit=1_000)


class Tidy(SqliteTasks):
    """A host that lists no task that has ended."""

    def owned(self, owner: str, *, after: str, limit: int) -> list[TaskRow]:
        rows = super().owned(owner, after=after, limit=limit)
        return [row for row in rows if not row.is_ended]


class Broken(Bench):
    """A bench for a host that breaks the contract."""

    def __init__(
        self, kind: type[SqliteTasks], *, works: bool = True, lacks: str = "restart"
    ) -> None:
        super().__init__(None)
        self._kind = kind
        self._works = works
        self.lacks -= {lacks}

    def open(self) -> TaskHost:
        return self._kind(is_worked=True)

    @contextmanager
    def working(self, app: Server) -> Iterator[None]:
        with super().working(app) if self._works else nullcontext():
            yield

    @contextmanager
    def failing(self, host: TaskHost, fault: Fault) -> Iterator[None]:
        assert isinstance(host, Careless)
        host.is_away = True
        yield
        host.is_away = False

    def refuse(self, ability: Ability) -> None:
        """Do not refuse it."""


@pytest.mark.parametrize(
    ("bench", "name", "problem"),
    [
        (
            Broken(Forgetful),
            "of_two_messages_with_one_id_the_first_counts",
            "nothing has changed for long",
        ),
        (Broken(Twice), "a_task_is_created_once_and_read_at_once", "expected TaskRow"),
        (Broken(Open), "tasks_of_an_owner_are_listed", "expected True"),
        (Broken(Boundless), "tasks_of_an_owner_are_listed", "expected True"),
        (Broken(Tidy), "tasks_of_an_owner_are_listed", r"expected \["),
        (
            Broken(SqliteTasks, works=False),
            "a_step_is_told_that_its_task_is_cancelled",
            "a step did not begin",
        ),
        (
            Broken(SqliteTasks),
            "a_timer_goes_on_across_a_restart",
            "ProtocolError",
        ),
        (
            Broken(SqliteTasks, lacks="faults"),
            "each_turn_runs_in_one_of_two_workers",
            "'workers' is lacking, and not refused",
        ),
    ],
)
def test_a_host_that_breaks_it_is_found(
    bench: Bench, name: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_contract, "_PATIENCE", 0.5)
    with pytest.raises(ContractError, match=problem) as caught:
        check_tasks(bench, name)
    assert caught.value.check == name


def test_a_failure_of_another_kind_is_one_too() -> None:
    """The host is wrong; but its client gets an error, and nothing is lost."""
    check_tasks(
        Broken(Careless, lacks="faults"), "a_storage_that_was_away_loses_nothing"
    )
