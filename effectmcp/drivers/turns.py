"""Work that holds the event loop for long, such as encoding a large reply.

The requests of a party that caused such work run one at a time, with several turns of the
loop between them, so that other parties are answered. Other parties do not wait.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from ..exchange.commands import Peer

__all__ = ["LONG", "TURNS", "TurnLoop", "Turns"]

#: Seconds of work that count as long: of CPU time, as other threads may delay short work.
LONG: Final = 0.005

#: Turns of the loop between two pieces of long work: enough for a short request to be
#: received, performed in a thread and answered.
_TURNS: Final = 8

#: Seconds after which a party is forgotten.
_MEMORY: Final = 1.0

#: How many parties are remembered.
_MOST: Final = 1_000


class TurnLoop(Protocol):
    """`drivers.asyncio` or `drivers.trio`."""

    @property
    def pass_turn(self) -> Callable[[], Awaitable[Any]]:
        """Let all other tasks run, and their events arrive."""
        ...

    @property
    def turn_lock(self) -> Callable[[], AbstractAsyncContextManager[Any]]:
        """Return the lock of the loop for work that begins."""
        ...

    @property
    def end_lock(self) -> Callable[[], AbstractAsyncContextManager[Any]]:
        """Return the lock of the loop for outcomes."""
        ...


class Turns:
    """The parties whose requests were long work lately.

    Args:
        clock: Returns seconds from an arbitrary start.

    Attributes:
        is_needed: Whether there are any.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.is_needed = False
        self._clock = clock
        #: How many outcomes wait for a turn.
        self._ending = 0
        self._parties: dict[str | None, float] = {}

    def note(self, peer: Peer | None) -> None:
        """Note that a request of this peer has just held the loop for long."""
        party = None if peer is None else peer.party
        self._parties.pop(party, None)
        if len(self._parties) >= _MOST:
            del self._parties[next(iter(self._parties))]
        self._parties[party] = self._clock()
        self.is_needed = True

    def must_wait(self, peer: Peer | None) -> bool:
        """Return whether a request has to wait for a turn."""
        before = self._clock() - _MEMORY
        for party, since in tuple(self._parties.items()):
            if since > before:
                break
            self._parties.pop(party, None)
        self.is_needed = bool(self._parties)
        return (None if peer is None else peer.party) in self._parties

    async def begin(self, peer: Peer | None, loop: TurnLoop) -> None:
        """Wait for a turn to begin work, if this peer has to."""
        if not self.must_wait(peer):
            return
        async with loop.turn_lock():
            # Waiting outcomes hold memory, so no new work starts before they are sent.
            while self._ending:
                await loop.pass_turn()
            await self._pass(loop)

    async def end(self, peer: Peer | None, loop: TurnLoop) -> None:
        """Wait for a turn to make a reply of an outcome, if this peer has to."""
        if not self.must_wait(peer):
            return
        self._ending += 1
        try:
            async with loop.end_lock():
                await self._pass(loop)
        finally:
            self._ending -= 1

    async def _pass(self, loop: TurnLoop) -> None:
        for _ in range(_TURNS):
            await loop.pass_turn()


#: Shared by the loops of a process: they share its cores, too.
TURNS: Final = Turns()
