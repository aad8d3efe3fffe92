"""Notice clients that disconnect while they wait for a response, on trio.

Most responses are sent immediately. So no client is watched at first: one task checks all
waiting clients, and starts to watch each of them once it has waited for a moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio
from attrs import define, field

__all__ = ["Disconnects"]

from ..logs import logger_for

logger = logger_for("effectmcp.server")

T = TypeVar("T")

#: Seconds after which a client is watched.
_MOMENT: Final = 0.05

#: After so many checks without waiting clients, the task sleeps until there is one.
_PATIENCE: Final = 20


class Disconnects:
    """The clients that wait for a response of one server.

    Args:
        nursery: Runs the tasks that watch clients.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        #: Clients that are not watched yet, and when they started to wait, oldest first.
        self._new: dict[_WaitingClient, float] = {}
        self._came = trio.Event()

    async def run(self) -> None:
        """Start to watch each client that has waited for long enough, until cancelled."""
        while True:
            await self._came.wait()
            self._came = trio.Event()
            looks = 0
            while looks < _PATIENCE:
                looks = 0 if self._new else looks + 1
                await trio.sleep(_MOMENT)
                self._look()

    def _look(self) -> None:
        before = trio.current_time() - _MOMENT
        for waiting, since in tuple(self._new.items()):
            if since > before:
                return
            del self._new[waiting]
            waiting.start(self._nursery)

    async def unless(
        self, work: Callable[[], Awaitable[T]], *watching: Callable[[], Awaitable[None]]
    ) -> T | None:
        """Run `work()`; cancel it when one of the watches returns.

        Args:
            work: The work.
            watching: Functions that run beside the work, once that has taken a moment.

        Returns:
            The result of the work; `None` if it was cancelled.
        """
        waiting = _WaitingClient(watching)
        self._new[waiting] = trio.current_time()
        self._came.set()
        try:
            with waiting.scope:
                return await work()
        finally:
            self._new.pop(waiting, None)
            if waiting.watch is not None:
                await waiting.watch.end()
        return None


@define(eq=False)
class _WaitingClient:
    """A client that waits.

    Attributes:
        scope: The cancel scope of the work that it waits for.
        watch: Watches the client; `None` until it has waited for long enough.
    """

    _watching: tuple[Callable[[], Awaitable[None]], ...]
    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    watch: _Watch | None = field(default=None, init=False)

    def start(self, nursery: trio.Nursery) -> None:
        """Start to watch the client."""
        self.watch = _Watch(self._watching, self.scope)
        nursery.start_soon(self.watch.run)


@define(eq=False)
class _Watch:
    """The functions that watch a client while it waits.

    Args:
        watching: The functions.
        work: The cancel scope of the work that the client waits for.
    """

    _watching: tuple[Callable[[], Awaitable[None]], ...]
    _work: trio.CancelScope
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _ended: trio.Event = field(factory=trio.Event, init=False)

    async def run(self) -> None:
        """Cancel the work when one of the functions returns."""

        async def one(watching: Callable[[], Awaitable[None]]) -> None:
            await watching()
            self._work.cancel()

        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    for watching in self._watching:
                        nursery.start_soon(one, watching)
        except Exception:
            # A bug, which must not affect other clients.
            logger.exception("watching a client failed")
            self._work.cancel()
        finally:
            self._ended.set()

    async def end(self) -> None:
        """Stop watching; return once the watches no longer use the connection."""
        self._scope.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()
