"""What `asgi` needs of asyncio. `asgi_trio` has the same names."""

from __future__ import annotations

import asyncio
from asyncio import Lock, sleep
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from attrs import frozen

from ..canonical import JSON
from ..drivers.asyncio import handle
from ..exchange.commands import Peer, Reply
from ..server import Server

__all__ = ["Begun", "Lock", "begin", "sleep", "unless"]

Send: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[None]]
Doing: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@frozen(eq=False)
class Begun:
    """A message that has to be answered."""

    _app: Server
    _message: bytes
    _peer: Peer

    async def finish(self, send: Send) -> Reply:
        """Response it; `send` sends a notification."""
        return await handle(self._app, self._message, self._peer, send=send)


def begin(app: Server, message: bytes, peer: Peer) -> Reply | Begun:
    """As on trio. Nothing is gained by beginning here, since `unless` costs nothing."""
    return Begun(app, message, peer)


async def unless(gone: Doing, work: Doing, beside: Doing) -> None:
    """Do `work`, and end it where it is when `gone` returns first.

    Args:
        gone: Returns when nobody wants the work any more.
        work: What to do.
        beside: Is done meanwhile, and ended with it.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    cancellations = task.cancelling()
    others: list[asyncio.Task[None]] = []
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        await gone()
        is_gone = True
        task.cancel()

    def begin() -> None:
        others.extend([loop.create_task(watch()), loop.create_task(beside())])

    # Called when the work first waits. Most does not, and then there are no tasks.
    beginning = loop.call_soon(begin)
    try:
        await work()
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
