"""The asyncio functions that `asgi` uses. `asgi_trio` has the same names."""

from __future__ import annotations

import asyncio
import math
from asyncio import Lock, sleep
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from ..drivers.asyncio import Bell, is_cancel, obey

__all__ = [
    "Bell",
    "Lock",
    "is_cancel",
    "now",
    "obey",
    "sleep",
    "spawn",
    "stoppable",
    "unless",
    "within",
]

T = TypeVar("T")
Doing: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


def now() -> float:
    """Return the loop's time, in seconds from an arbitrary start."""
    return asyncio.get_running_loop().time()


#: Keeps tasks alive: the loop has only weak references to them.
_spawned: set[asyncio.Task[None]] = set()


def spawn(work: Doing) -> None:
    """Run `work()` as a background task, which ends with the loop. It must not raise."""
    task = asyncio.get_running_loop().create_task(work())
    _spawned.add(task)
    task.add_done_callback(_spawned.discard)


async def stoppable(
    work: Callable[[], Awaitable[None]], give: Callable[[Callable[[], None]], None]
) -> None:
    """Run `work()`; pass `give` a function that cancels it. Call this in a new task."""
    task = asyncio.current_task()
    assert task is not None
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        task.cancel()

    give(stop)
    try:
        await work()
    except asyncio.CancelledError:
        if not is_stopped:
            raise


async def within(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work()` for at most so many seconds; return whether it finished."""
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            await work()
    except TimeoutError:
        return False
    return True


async def unless(
    gone: Doing, work: Callable[[], Awaitable[T]], beside: Doing
) -> T | None:
    """Run `work()`; cancel it if `gone()` or `beside()` returns first.

    Args:
        gone: Returns when the client has disconnected.
        work: The work.
        beside: Runs beside the work; returns if it notices that the client has
            disconnected.

    Returns:
        The result of the work; `None` if it was cancelled.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    cancellations = task.cancelling()
    others: list[asyncio.Task[None]] = []
    is_gone = False

    async def watch(one: Doing) -> None:
        nonlocal is_gone
        await one()
        if not is_gone:  # cancel once: `uncancel` below undoes only one
            is_gone = True
            task.cancel()

    def start() -> None:
        others.extend(loop.create_task(watch(one)) for one in (gone, beside))

    # Called when the work first waits. Most work never waits, and needs no tasks.
    beginning = loop.call_soon(start)
    try:
        return await work()
    except asyncio.CancelledError:
        # A cancellation by other code must not be suppressed here. See asyncio.timeout.
        if not is_gone or task.cancelling() > cancellations + 1:
            raise
    finally:
        if is_gone:
            task.uncancel()
        beginning.cancel()
        for other in others:
            other.cancel()
        if others:
            await asyncio.gather(*others, return_exceptions=True)
    return None
