"""Deadlines of waits for a server, and waits for room in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import anyio
from attrs import define

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
        token = _RUNNING.set((*_RUNNING.get(), _Clock(scope)))
        try:
            yield scope
        finally:
            _RUNNING.reset(token)
        return
    if scope.cancelled_caught and anyio.current_time() >= scope.deadline:
        raise TimeoutError(f"no {missing} within {seconds:g} s")


@define(eq=False)
class _Clock:
    """The clock of a deadline, which several tasks may stop at the same time.

    Attributes:
        scope: What the deadline cancels.
        pauses: How many tasks have stopped it.
        left: The seconds that were left when the first one did.
    """

    scope: anyio.CancelScope
    pauses: int = 0
    left: float = 0.0

    def stop(self, now: float) -> None:
        """Stop it, for one more task."""
        if not self.pauses:
            self.left = self.scope.deadline - now
            self.scope.deadline = math.inf
        self.pauses += 1

    def resume(self, now: float) -> None:
        """Let it run, if no other task has stopped it."""
        self.pauses -= 1
        if not self.pauses:
            self.scope.deadline = now + self.left


#: The deadlines of this task, and of the tasks that wait for it.
_RUNNING: Final[ContextVar[tuple[_Clock, ...]]] = ContextVar(
    "effectmcp_deadlines", default=()
)


@contextmanager
def paused() -> Iterator[None]:
    """Stop the clocks of all deadlines: the time is the user's, and not the server's."""
    clocks = _RUNNING.get()
    began = anyio.current_time()
    for one in clocks:
        one.stop(began)
    try:
        yield
    finally:
        ended = anyio.current_time()
        for one in clocks:
            one.resume(ended)


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
