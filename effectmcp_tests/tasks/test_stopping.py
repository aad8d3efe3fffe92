"""Turns end in a process that shuts down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from effectmcp import Caller, FirstOf, Flow, Gather, Server, Sleep, Step, UsageError
from effectmcp.drivers import trio as loop
from effectmcp.effects.local import CallerInfo
from effectmcp.engine.journal import Journal
from effectmcp.engine.stops import Done
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.tasks import SqliteTasks, turn
from effectmcp.tasks.turn import ReadMail, Save, Start, TellTime, Wait
from effectmcp.transports.stores import check_shared, ensure_tasks, keep_tasks
from effectmcp.transports.working import run_turns, working

ROW = TaskRow(
    id="a" * 40,
    tool="ship",
    arguments={},
    owner=None,
    capabilities={},
    caller=CallerInfo(),
    flow_id=bytes(16),
    is_whole=True,
    created=0.0,
    updated=0.0,
)


def server(function: Callable[[], Any], tasks: Any = None) -> Server:
    app = Server("yard", tasks=tasks)
    app.tool(name="ship", task="required")(function)
    return app


# ---- a turn -------------------------------------------------------------------------


class Host:
    """Plays a turn; stops when a command of this kind is executed."""

    def __init__(self, app: Server, stop_at: type | None, row: TaskRow = ROW) -> None:
        self.rows: list[TaskRow] = []
        self.started: list[str] = []
        self.running: list[str] = []
        self._is_stopping = stop_at is None
        self._stop_at = stop_at
        self._going = turn(app, row, lambda: self._is_stopping)

    def play(self) -> TaskRow:
        outcome: Any = None
        try:
            while True:
                command = self._going.send(outcome)
                if self._stop_at is type(command):
                    self._is_stopping = True
                outcome = self._execute(command)
        except StopIteration as stop:
            row: TaskRow = stop.value
            return row

    def _execute(self, command: Any) -> Any:
        match command:
            case TellTime():
                return 5.0
            case ReadMail():
                return []
            case Save(row):
                self.rows.append(row)
            case Start(wants):
                self.started += [want.key for want in wants]
                self.running += [want.key for want in wants]
            case Wait(until):
                # One at a time, so that a turn has to wait again.
                assert until is None or until > 5.0
                return {self.running.pop(0): Done("1")}
            case _:
                raise AssertionError(command)
        return None


def three_steps() -> Flow[str]:
    first = yield from Gather(Step(str, 1), Step(str, 2))
    yield from Caller()
    yield from Step(str, 3)
    return str(first)


def test_turn_that_stops_before_a_step_saves_no_mark() -> None:
    """The mark would cost an `at_most_once` step its only attempt."""
    host = Host(server(three_steps), None)
    row = host.play()
    assert host.started == []
    assert host.rows == [row]
    assert row.wake == 0.0
    assert Journal.loads(row.journal).places == {}


def test_turn_that_stops_waits_for_all_that_runs() -> None:
    """Values that need no step are still delivered, and outcomes are saved."""
    host = Host(server(three_steps), Start)
    row = host.play()
    assert host.started == ["gather-1/0/step-1", "gather-1/1/step-1"]
    assert host.running == []
    assert row.wake == 0.0
    journal = Journal.loads(row.journal)
    assert [one.key for one in journal.entries] == ["gather-1", "caller-1"]
    assert journal.places == {}


def test_turn_that_stops_keeps_values_beside_a_step_that_it_does_not_begin() -> None:
    def both() -> Flow[str]:
        caller, made = yield from Gather(Caller(), Step(str, 1))
        return f"{caller} {made}"

    host = Host(server(both), None)
    row = host.play()
    assert (host.started, row.wake) == ([], 0.0)
    (entry,) = Journal.loads(row.journal).entries
    assert [len(branch) for branch in entry.branches] == [1, 0]


def test_turn_that_stops_begins_nothing_beside_what_runs() -> None:
    """The turn waits for that, even if the next try of a step is due."""

    def both() -> Flow[Any]:
        return (yield from Gather(in_a_row(), FirstOf(Step(str, 3), Sleep(1_000))))

    def in_a_row() -> Flow[str]:
        yield from FirstOf(Step(str, 1), Sleep(1_000))
        return (yield from Step(str, 2))

    late = {"gather-1/0/step-1": (1, 3.0)}
    host = Host(server(both), Start, attrs.evolve(ROW, tries=late))
    row = host.play()
    races = ["gather-1/0/first-1/0/step-1", "gather-1/1/first-1/0/step-1"]
    assert (host.started, host.running, row.wake) == (races, [], 0.0)
    (entry,) = Journal.loads(row.journal).entries
    assert [one.tag for one in entry.branches[0]] == ["won"]


def test_turn_that_stops_can_end() -> None:
    def one_step() -> Flow[str]:
        yield from Step(str, 1)
        return "done"

    assert Host(server(one_step), Start).play().status == "completed"


def test_turn_that_waits_is_not_hurried() -> None:
    def sleep() -> Flow[str]:
        yield from Sleep(10)
        return "done"

    row = Host(server(sleep), TellTime).play()
    assert row.wake == 15.0


# ---- beside a transport -------------------------------------------------------------


class Yard:
    """A server whose step waits for an event."""

    def __init__(self, path: Path | None) -> None:
        self.began = trio.Event()
        self.go = trio.Event()
        self.store = SqliteTasks(path)
        self.app = server(self.ship, self.store)

    def ship(self) -> Flow[str]:
        yield from Step(self.build)
        yield from Step(self.build)
        return "done"

    async def build(self) -> str:
        self.began.set()
        await self.go.wait()
        return "built"

    def create(self) -> None:
        self.store.create(attrs.evolve(ROW, ttl=None))


def entries_in(path: Path) -> tuple[int, str | None]:
    store = SqliteTasks(path)
    (found,) = store.look_up()
    store.close()
    assert found.row.wake == 0.0
    return len(Journal.loads(found.row.journal).entries), found.holder


async def test_transport_that_ends_lets_the_running_step_end(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    yard = Yard(path)
    with trio.fail_after(60):
        async with loop.running(yard.app), working(loop, yard.app, grace=60) as stop:
            yard.create()
            await yard.began.wait()
            stop()
            stop()
            yard.go.set()
    assert entries_in(path) == (1, None)


async def test_step_that_outlives_the_grace_is_cancelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tasks.db"
    yard = Yard(path)
    with trio.fail_after(60):
        async with loop.running(yard.app), working(loop, yard.app, grace=0.01):
            yard.create()
            await yard.began.wait()
    assert "cancelled steps of tasks still running after 0.01 s" in caplog.text
    assert entries_in(path) == (0, None)


async def test_steps_of_tasks_in_memory_have_no_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    yard = Yard(None)
    with trio.fail_after(60):
        async with loop.running(yard.app), working(loop, yard.app, grace=1_000):
            yard.create()
            await yard.began.wait()
    assert caplog.text == ""


async def test_turns_without_a_transport(tmp_path: Path) -> None:
    """The work may be stopped as soon as the caller knows how."""
    path = tmp_path / "tasks.db"
    yard = Yard(path)
    with trio.fail_after(60):
        async with loop.running(yard.app):
            yard.create()
            await run_turns(loop, yard.app, give=lambda stop: stop())
            assert not yard.began.is_set()
            async with trio.open_nursery() as nursery:
                stops: list[Callable[[], None]] = []

                async def run() -> None:
                    await run_turns(loop, yard.app, give=stops.append, grace=60)

                nursery.start_soon(run)
                await yard.began.wait()
                stops[0]()
                yard.go.set()
    assert entries_in(path) == (1, None)


# ---- where tasks are kept -----------------------------------------------------------


def test_option_for_a_server_without_a_store(tmp_path: Path) -> None:
    app = server(three_steps)
    keep_tasks(app, None)
    with pytest.raises(UsageError, match="'ship' is always a task"):
        check_shared(app)
    keep_tasks(app, tmp_path / "tasks.db")
    check_shared(app)
    store = app.tasks
    assert isinstance(store, SqliteTasks)
    # The same file by another name.
    (tmp_path / "link.db").symlink_to("tasks.db")
    keep_tasks(app, tmp_path / "link.db")
    assert app.tasks is store
    store.close()
    with pytest.raises(UsageError, match="a store of its own"):
        keep_tasks(app, tmp_path / "other.db")


def test_memory_is_for_one_process() -> None:
    app = server(three_steps)
    ensure_tasks(app, is_alone=True)
    assert repr(app.tasks) == "SqliteTasks()"
    with pytest.raises(UsageError, match="in the memory of one process"):
        check_shared(app)
