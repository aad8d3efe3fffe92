"""Task groups, as clients need them."""

from __future__ import annotations

from typing import Any

from anyio.abc import TaskGroup

__all__ = ["cancelled_at_end"]


class cancelled_at_end:
    """A task group whose tasks need not end by themselves."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group

    async def __aenter__(self) -> TaskGroup:
        return await self._group.__aenter__()

    async def __aexit__(self, *exc: Any) -> None:
        self._group.cancel_scope.cancel()
        # What ends the block is no affair of the group's, which would wrap it; and goes
        # on from here: what the group returns would end it, on trio.
        await self._group.__aexit__(None, None, None)
