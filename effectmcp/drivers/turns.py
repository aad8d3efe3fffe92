"""Work that holds the event loop for long, such as encoding a large reply.

The requests of a party that caused such work run one at a time. After each, the loop is
free for several turns, and for as long as the work took, so that other parties are
answered: they do not wait for turns.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import frozen

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


@frozen
class TurnLoop:
    """An event loop, as `TURNS` needs it.

    Attributes:
        sleep: Lets all other tasks run, and their events arrive, for some seconds.
        locks: Returns two locks of the running loop: for work that begins, and for
            outcomes.
    """

    sleep: Callable[[float], Awaitable[Any]]
    locks: Callable[[], tuple[Lock, Lock]]


Lock: TypeAlias = AbstractAsyncContextManager[Any]


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
        #: Until when the loop is kept free.
        self._free = 0.0
        self._parties: dict[str | None, float] = {}

    def note(self, peer: Peer | None, seconds: float) -> None:
        """Note how long a request of this peer has just held the loop."""
        self._free = self._clock() + min(seconds, _MEMORY)
        party = None if peer is None else peer.party
        self._parties.pop(party, None)
        if len(self._parties) >= _MOST:
            self._parties.pop(next(iter(self._parties)), None)
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
        async with loop.locks()[0]:
            # Waiting outcomes hold memory, so no new work starts before they are sent.
            while self._ending:
                await loop.sleep(0)
            await self._pass(loop)

    async def end(self, peer: Peer | None, loop: TurnLoop) -> None:
        """Wait for a turn to make a reply of an outcome, if this peer has to."""
        if not self.must_wait(peer):
            return
        self._ending += 1
        try:
            async with loop.locks()[1]:
                await self._pass(loop)
        finally:
            self._ending -= 1

    async def _pass(self, loop: TurnLoop) -> None:
        for _ in range(_TURNS):
            await loop.sleep(0)
        rest = self._free - self._clock()
        if rest > 0:
            await loop.sleep(rest)


#: Shared by the loops of a process: they share its cores, too.
TURNS: Final = Turns()
