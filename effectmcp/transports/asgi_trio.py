"""The trio functions that `asgi` uses. `asgi_asyncio` has the same names."""

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
    """Return the loop's time, in seconds from an arbitrary start."""
    return trio.current_time()


def spawn(work: Doing) -> None:
    """Run `work()` as a background task, which ends with the loop. It must not raise."""
    # In the caller's context: a host's middleware may have set context variables.
    trio.lowlevel.spawn_system_task(work, context=copy_context())


async def stoppable(
    work: Callable[[], Awaitable[None]], give: Callable[[Callable[[], None]], None]
) -> None:
    """Run `work()`; pass `give` a function that cancels it."""
    with trio.CancelScope() as scope:
        give(scope.cancel)
        await work()


async def within(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work()` for at most so many seconds; return whether it finished."""
    with trio.move_on_after(seconds):
        await work()
        return True
    return False


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
            failure = exc  # raised below: here the nursery would put it in a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found
