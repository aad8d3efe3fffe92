"""Task groups for clients."""

from __future__ import annotations

from typing import Any

from anyio.abc import TaskGroup

__all__ = ["cancelled_at_end"]


class cancelled_at_end:
    """A task group that cancels its remaining tasks at the end of the block."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group

    async def __aenter__(self) -> TaskGroup:
        return await self._group.__aenter__()

    async def __aexit__(self, *exc: Any) -> None:
        self._group.cancel_scope.cancel()
        # Do not pass the exception that ends the block: the group would wrap it. Do not
        # return the group's result either: on trio, it would suppress the exception.
        await self._group.__aexit__(None, None, None)
