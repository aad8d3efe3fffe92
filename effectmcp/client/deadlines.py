"""Deadlines of waits for a server, and waits for room in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

__all__ = ["Room", "deadline", "shortest"]


def shortest(*seconds: float | None) -> float | None:
    """Return the shortest of some times; `None` means no limit."""
    return min((one for one in seconds if one is not None), default=None)


@contextmanager
def deadline(seconds: float | None, missing: str) -> Iterator[anyio.CancelScope]:
    """Cancel the block after some seconds.

    Args:
        seconds: The time; `None` for no limit.
        missing: What has not arrived by then, for the message of the error.

    Raises:
        TimeoutError: If the time has passed.
    """
    with anyio.move_on_after(seconds) as scope:
        yield scope
        return
    if scope.cancelled_caught and anyio.current_time() >= scope.deadline:
        raise TimeoutError(f"no {missing} within {seconds:g} s")


class Room:
    """Room for messages that wait: adding one waits until enough others are gone.

    Args:
        size: The number of bytes.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._freed = anyio.Event()

    async def take(self, size: int) -> None:
        """Wait until there is any room, and take some. A message is taken whole."""
        while self._left <= 0:
            self._freed = anyio.Event()
            await self._freed.wait()
        self._left -= size

    def give_back(self, size: int) -> None:
        """Give back some room."""
        self._left += size
        self._freed.set()
