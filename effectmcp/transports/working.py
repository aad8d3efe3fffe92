"""Run the turns of tasks beside a transport; without a store, keep tasks in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..server.changes import Change
from ..tasks.sqlite import SqliteTasks
from ..tasks.worker import WorkLoop, work

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["ensure_tasks", "working"]


def ensure_tasks(app: Server, *, is_alone: bool) -> None:
    """Keep the tasks of `app` in memory, unless it has a store.

    Args:
        app: The server.
        is_alone: Whether no other process serves it: another one would not find them.

    Raises:
        UsageError: If there is no store, and a tool cannot do without.
    """
    if app.tasks is None and is_alone:
        app.tasks = SqliteTasks()
    needing = [tool.name for tool in app.tools.values() if tool.task == "required"]
    if app.tasks is None and needing:
        raise UsageError(
            f"the tool {needing[0]!r} is always a task, and this server keeps none: give"
            " Server(tasks=SqliteTasks(path)), or --tasks PATH"
        )


@asynccontextmanager
async def working(loop: WorkLoop, app: Server) -> AsyncIterator[None]:
    """Run the turns of the server's tasks while the block runs.

    Args:
        loop: `drivers.trio` or `drivers.asyncio`.
        app: The server, inside of `running(app)`.

    Raises:
        UsageError: If the store cannot be opened.
    """
    tasks = app.tasks
    if not isinstance(tasks, SqliteTasks):
        yield  # turns of another host run elsewhere
        return
    tasks.is_worked = True
    end = tasks.watch(lambda id_: app.changes.publish(Change("task", id_)))
    try:
        async with loop.crew() as spawn:
            spawn(partial(work, loop, app, tasks))
            yield
    finally:
        end()
        tasks.is_worked = False
        tasks.close()
