"""A channel to an app in this process, beside which its tasks run."""

from __future__ import annotations

from typing import Self

from ..client import InMemory
from ..drivers import trio as loop
from ..transports.working import ensure_tasks, working

__all__ = ["InProcess"]


class InProcess(InMemory):
    """A channel to an app, which runs the turns of its tasks while it is open.

    Tasks of an app without a store are kept in memory, and end with this process.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            ensure_tasks(self._app, is_alone=True)
            await self._stack.enter_async_context(working(loop, self._app))
        except BaseException:
            await self.__aexit__()
            raise
        return self
