"""A server whose tasks are on an engine, or on any other host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from effectmcp import Server, UsageError
from effectmcp.drivers import trio as loop
from effectmcp.server.changes import Change
from effectmcp.tasks.restate import RestateTasks
from effectmcp.transports.stores import keep_tasks
from effectmcp.transports.working import working

PLACE = "restate+http://127.0.0.1:1?admin=http://127.0.0.1:2"


class Host:
    """A host of an author, with the methods that a server without requests needs."""

    is_worked = True

    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return self.listeners.clear


def test_tasks_are_kept_at_a_url() -> None:
    app = Server("shop")
    keep_tasks(app, PLACE)
    assert isinstance(app.tasks, RestateTasks)
    keep_tasks(app, PLACE)
    with pytest.raises(UsageError, match="has a store of its own"):
        keep_tasks(app, f"{PLACE}&name=other")
    with pytest.raises(UsageError, match="has a store of its own"):
        keep_tasks(app, "tasks.db")


async def test_turns_run_elsewhere() -> None:
    tasks = RestateTasks.from_url(PLACE)
    app = Server("shop", tasks=tasks)
    async with working(loop, app) as stop:
        stop()
        needs = [one for _, one in tasks._watching._listeners.values()]
        found = [one() for one in needs]
        end = app.changes.listen(lambda change: None)
        assert [*found, *[one() for one in needs]] == [False, True]
        end()
    assert not tasks._watching._listeners


async def test_changes_of_any_host_are_published() -> None:
    host: Any = Host()
    app = Server("shop", tasks=host)
    heard: list[Change] = []
    app.changes.listen(heard.append)
    async with working(loop, app) as stop:
        stop()
        for listener in host.listeners:
            listener("3f2a")
    assert heard == [Change("task", "3f2a")]
    assert not host.listeners


async def test_a_server_without_tasks() -> None:
    async with working(loop, Server("shop")) as stop:
        stop()
