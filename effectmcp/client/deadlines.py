"""Deadlines of waits for a server, and waits for room in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import anyio

__all__ = ["Room", "deadline", "paused", "shortest"]


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
        token = _RUNNING.set((*_RUNNING.get(), scope))
        try:
            yield scope
        finally:
            _RUNNING.reset(token)
        return
    if scope.cancelled_caught and anyio.current_time() >= scope.deadline:
        raise TimeoutError(f"no {missing} within {seconds:g} s")


#: The deadlines of this task, and of the tasks that wait for it.
_RUNNING: Final[ContextVar[tuple[anyio.CancelScope, ...]]] = ContextVar(
    "effectmcp_deadlines", default=()
)


@contextmanager
def paused() -> Iterator[None]:
    """Stop the clocks of all deadlines: the time is the user's, and not the server's."""
    began = anyio.current_time()
    left = [(scope, scope.deadline - began) for scope in _RUNNING.get()]
    for scope, _ in left:
        scope.deadline = math.inf
    try:
        yield
    finally:
        now = anyio.current_time()
        for scope, seconds in left:
            scope.deadline = now + seconds


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
