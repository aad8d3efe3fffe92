"""Look out for clients that leave while they wait for an answer, on trio.

Most answers come at once. So nobody is watched before it has waited for a moment: one
task looks at all who wait, and begins to watch those who have waited for long enough.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

__all__ = ["Lookout"]

logger = logging.getLogger("effectmcp.server")

T = TypeVar("T")

#: Seconds after which a client is watched.
_MOMENT: Final = 0.05

#: After so many looks at nobody, the one who looks rests until somebody waits.
_PATIENCE: Final = 20


class Lookout:
    """Who waits for an answer of one server.

    Args:
        nursery: For watching.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        #: Those that nobody watches yet, the one that has waited longest first, and
        #: since when.
        self._new: dict[_Waiting, float] = {}
        self._came = trio.Event()

    async def run(self) -> None:
        """Begin to watch clients when it is time, until cancelled."""
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
            waiting.watch(self._nursery)

    async def unless(
        self, work: Callable[[], Awaitable[T]], *watching: Callable[[], Awaitable[None]]
    ) -> T | None:
        """Do `work`, and end it where it is when a watch returns.

        Args:
            work: What to do.
            watching: Are done meanwhile, once it takes long.

        Returns:
            What the work gives; `None` where it was ended.
        """
        waiting = _Waiting(watching)
        self._new[waiting] = trio.current_time()
        self._came.set()
        try:
            with waiting.scope:
                return await work()
        finally:
            self._new.pop(waiting, None)
            if waiting.is_watched:
                await waiting.end()
        return None


class _Waiting:
    """One who waits.

    Attributes:
        scope: What to end when it does not wait any more.
        is_watched: Whether somebody watches it.
    """

    def __init__(self, watching: tuple[Callable[[], Awaitable[None]], ...]) -> None:
        self.scope = trio.CancelScope()
        self.is_watched = False
        self._watching = watching
        self._watch = trio.CancelScope()
        self._ended = trio.Event()

    def watch(self, nursery: trio.Nursery) -> None:
        """Begin to watch."""
        self.is_watched = True
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        async def one(watching: Callable[[], Awaitable[None]]) -> None:
            await watching()
            self.scope.cancel()

        try:
            with self._watch:
                async with trio.open_nursery() as nursery:
                    for watching in self._watching:
                        nursery.start_soon(one, watching)
        except Exception:
            # A bug; but whoever else is served here has no part in it.
            logger.exception("watching a client failed")
            self.scope.cancel()
        finally:
            self._ended.set()

    async def end(self) -> None:
        """Watch no more. Whoever watched has let go of the connection then."""
        self._watch.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()
