"""Reading streams of the legacy era, and filling them, on whichever loop this runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ..canonical import JSON
from ..protocol.jsonrpc import Request, encode, internal_error
from .web import KEEP_ALIVE

if TYPE_CHECKING:
    from ..drivers.local import Ringing
    from ..exchange.commands import Reply
    from ..exchange.sessions import Session
    from .sessions import Sessions, Stream

__all__ = ["Calls", "Finish", "Loop", "pump", "run_call", "settle"]

logger = logging.getLogger("effectmcp.server")

#: Seconds in which an answer may come as one JSON object, before it is a stream.
_MOMENT: Final = 0.05


Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


class Loop(Protocol):
    """`asgi_asyncio` or `asgi_trio`."""

    @property
    def Bell(self) -> Callable[[], Ringing]: ...

    @property
    def within(self) -> Callable[[float, Callable[[], Awaitable[None]]], Any]: ...

    @property
    def now(self) -> Callable[[], float]: ...

    @property
    def sleep(self) -> Callable[[float], Awaitable[Any]]: ...

    @property
    def stoppable(
        self,
    ) -> Callable[
        [Callable[[], Awaitable[None]], Callable[[Callable[[], None]], None]],
        Awaitable[None],
    ]: ...

    @property
    def spawn(self) -> Spawn: ...


class Finish(Protocol):
    """A driver's `Begun`."""

    async def finish(
        self, send: Callable[[Mapping[str, JSON]], Awaitable[None]]
    ) -> Reply: ...


async def run_call(
    loop: Loop, begun: Finish, request: Request, session: Session, stream: Stream
) -> None:
    """Finish what a request began, whoever reads of it. Raises nothing."""

    async def send(message: Mapping[str, JSON]) -> None:
        stream.add(encode(message), is_question="id" in message)

    async def work() -> None:
        try:
            stream.end((await begun.finish(send)).body)
        except Exception:
            logger.exception("answering %s failed", request.method)
            stream.end(encode(internal_error(request.id)))

    try:
        await loop.stoppable(work, partial(session.stop_with, request.id))
    finally:
        session.stop_with(request.id, None)
        stream.end()


class Calls:
    """What a server does beside its connections: calls of sessions, and sweeping.

    Args:
        spawn: Starts work on the side; by default in the loop, as a host has no other
            place for it. Whoever gives one ends it, and sweeps.
    """

    def __init__(self, spawn: Spawn | None = None) -> None:
        self._spawn = spawn
        self._count = 0
        self._sweeps = spawn is not None
        self._ended: Callable[[], None] | None = None

    def start(
        self,
        loop: Loop,
        begun: Finish,
        request: Request,
        session: Session,
        stream: Stream,
    ) -> None:
        """Begin `run_call` beside the connection."""
        spawn = self._spawn or loop.spawn
        spawn(partial(self._run, loop, begun, request, session, stream))

    async def _run(
        self,
        loop: Loop,
        begun: Finish,
        request: Request,
        session: Session,
        stream: Stream,
    ) -> None:
        self._count += 1
        try:
            await run_call(loop, begun, request, session, stream)
        finally:
            self._count -= 1
            if self._ended is not None:
                self._ended()

    async def end(self, loop: Loop, seconds: float) -> None:
        """Wait until no call is left, for so long."""
        bell = loop.Bell()
        self._ended = bell.ring

        async def all_ended() -> None:
            while self._count:
                await bell.wait()

        await loop.within(seconds, all_ended)

    def sweep(self, loop: Loop, sessions: Sessions | None) -> None:
        """End sessions when it is time, as long as there are any."""
        if self._sweeps or sessions is None:
            return
        self._sweeps = True

        async def sweep() -> None:
            try:
                while sessions:
                    await loop.sleep(sessions.sweep())
            finally:
                self._sweeps = False

        loop.spawn(sweep)


async def settle(loop: Loop, stream: Stream) -> bytes | None:
    """The response of a request, if it comes in a moment and nothing before it."""
    bell = loop.Bell()
    reader = stream.read(0, bell.ring)
    if not stream.is_over:
        await loop.within(_MOMENT, bell.wait)
    reader.leave()
    return stream.only


async def pump(
    loop: Loop,
    sessions: Sessions,
    session: Session,
    stream: Stream,
    after: int,
    write: Callable[[bytes], Awaitable[None]],
) -> None:
    """Write what is in a stream and what comes, until it is over or long enough was read.

    Args:
        loop: Which one this runs on.
        sessions: Where the session is kept.
        session: Whose stream it is.
        stream: What to read.
        after: The event to read on from.
        write: Writes events.
    """
    bell = loop.Bell()
    reader = stream.read(after, bell.ring)
    leave = math.inf
    sessions.reading(session, +1)
    try:
        if session.revision.primes:
            await write(reader.first(sessions.limits.retry))
            if sessions.limits.leave is not None:
                leave = loop.now() + sessions.limits.leave
        else:
            await write(KEEP_ALIVE)  # so that the client knows that it is heard
        while True:
            sessions.collect(session, stream)
            is_over = reader.is_over  # before the last look, so that nothing is missed
            for event in reader.take():
                await write(event)
            left = leave - loop.now()
            if is_over or left <= 0:
                return
            await loop.within(left, bell.wait)
    finally:
        reader.leave()
        sessions.reading(session, -1)
