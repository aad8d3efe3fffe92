"""A channel to an app in this process, beside which its tasks run."""

from __future__ import annotations

from typing import Self

from ..client import InMemory
from ..drivers.loops import running_loop
from ..tasks.sqlite import SqliteTasks
from ..transports.working import working

__all__ = ["InProcess"]


class InProcess(InMemory):
    """A channel to an app, which runs the tasks of this channel while it is open.

    They are kept in memory, unless a worker in another process runs the app's tasks.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        tasks = self._app.tasks
        if tasks is None or not tasks.is_worked:
            # Not in the app's own store: all tasks in it would run here, and the end of
            # this call would interrupt them.
            kept = SqliteTasks()
            kept._is_warned = True  # the advice to give a store would not help
            if tasks is not None:
                kept.ttl, kept.poll_interval = tasks.ttl, tasks.poll_interval
            self._app.tasks = kept
            await self._stack.enter_async_context(working(running_loop(), self._app))
        return self
