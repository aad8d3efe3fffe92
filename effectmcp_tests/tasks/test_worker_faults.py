"""A fault in one turn ends no other, and its own task is tried again."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
import trio

from effectmcp import Flow, Server, Sleep, step
from effectmcp.drivers import trio as loop
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.tasks import SqliteTasks, playing, worker
from effectmcp.tasks.turn import Turn, turn
from effectmcp.transports.working import working

from .simulated import new


def plain() -> Flow[str]:
    yield from ()
    return "done"


async def test_turn_that_fails_is_run_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = [2]

    def faulty(app: Server, row: TaskRow, is_stopping: Callable[[], bool]) -> Turn:
        if row.id == "bad" and left[0]:
            left[0] -= 1
            raise RuntimeError("a fault")
        return (yield from turn(app, row, is_stopping))

    monkeypatch.setattr(playing, "turn", faulty)
    monkeypatch.setattr(worker, "_PAUSE", 0.01)
    caplog.set_level(logging.ERROR, "effectmcp.tasks")
    tasks = SqliteTasks()
    app = Server("shop", tasks=tasks)
    app.tool(name="job")(plain)
    with trio.fail_after(60):
        async with loop.running(app), working(loop, app):
            rows: list[Any] = []
            for id_ in ("bad", "good"):
                tasks.create(new("job", id=id_, ttl=None))
            while not rows or not all(row.is_ended for row in rows):
                await trio.sleep(0.005)
                rows = tasks.find()
    assert {row.status for row in rows} == {"completed"}
    messages = [one.getMessage() for one in caplog.records]
    assert messages == ["the turn of task bad (job) failed"] * 2


async def test_task_that_becomes_too_large_is_parked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, and not every second: a further try could not help."""

    @step
    def read() -> str:
        return "x" * 50_000

    def reads() -> Flow[str]:
        text = yield from read()
        yield from Sleep(1)
        return text[:3]

    caplog.set_level(logging.ERROR, "effectmcp.tasks")
    tasks = SqliteTasks()
    tasks._store()._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 20_000)
    app = Server("shop", tasks=tasks)
    app.tool(name="job")(reads)
    with trio.fail_after(60):
        async with loop.running(app), working(loop, app):
            row = tasks.create(new("job", ttl=None))
            while row.report is None:
                await trio.sleep(0.005)
                (row,) = tasks.find()
    assert row.report == "the task cannot be stored: string or blob too big"
    assert row.wake is None
    assert [one.getMessage() for one in caplog.records] == [
        f"task {row.id} (job) is parked: {row.report}"
    ]
