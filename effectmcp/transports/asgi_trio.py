"""What `asgi` needs of trio. `asgi_asyncio` has the same names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeAlias, TypeVar

import trio
from trio import Lock, sleep

from ..drivers.trio import Bell, is_cancel, obey

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
    return trio.current_time()


def spawn(work: Doing) -> None:
    """Do it on the side. It raises nothing, and ends with the loop at the latest."""
    # In the context of who asked: a host's middleware may have left something there.
    trio.lowlevel.spawn_system_task(work, context=copy_context())


async def stoppable(
    work: Callable[[], Awaitable[None]], give: Callable[[Callable[[], None]], None]
) -> None:
    """Do it, unless what `give` is given is called."""
    with trio.CancelScope() as scope:
        give(scope.cancel)
        await work()


async def within(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Do it, for so long. Returns whether it was done."""
    with trio.move_on_after(seconds):
        await work()
        return True
    return False


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

    async def watch(one: Doing) -> None:
        await one()
        nursery.cancel_scope.cancel()

    failure: Exception | None = None
    found: T | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, gone)
        nursery.start_soon(watch, beside)
        try:
            found = await work()
        except Exception as exc:
            failure = exc  # raised below: who called us knows nothing of this nursery
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found
