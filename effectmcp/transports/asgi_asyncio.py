"""What `asgi` needs of asyncio. `asgi_trio` has the same names."""

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
    """Seconds, from anywhere on."""
    return asyncio.get_running_loop().time()


#: A loop knows its tasks by weak references.
_spawned: set[asyncio.Task[None]] = set()


def spawn(work: Doing) -> None:
    """Do it on the side. It raises nothing, and ends with the loop at the latest."""
    task = asyncio.get_running_loop().create_task(work())
    _spawned.add(task)
    task.add_done_callback(_spawned.discard)


async def stoppable(
    work: Callable[[], Awaitable[None]], give: Callable[[Callable[[], None]], None]
) -> None:
    """Do it, unless what `give` is given is called. For a task of its own."""
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
    """Do it, for so long. Returns whether it was done."""
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            await work()
    except TimeoutError:
        return False
    return True


async def unless(
    gone: Doing, work: Callable[[], Awaitable[T]], beside: Doing
) -> T | None:
    """Do `work`, and end it where it is when one of the others returns first.

    Args:
        gone: Returns when nobody wants the work any more.
        work: What to do.
        beside: Is done meanwhile, and returns when that is noticed there.

    Returns:
        What the work gives; `None` where it was ended.
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
        if not is_gone:  # `uncancel` takes back one
            is_gone = True
            task.cancel()

    def start() -> None:
        others.extend(loop.create_task(watch(one)) for one in (gone, beside))

    # Called when the work first waits. Most does not, and then there are no tasks.
    beginning = loop.call_soon(start)
    try:
        return await work()
    except asyncio.CancelledError:
        # Whoever else cancels this task means more than the work. See asyncio.timeout.
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
