"""Read the streams of legacy sessions, and write to them, on asyncio or trio."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ..canonical import JSON
from ..logs import logger_for
from ..protocol.jsonrpc import Request, encode, internal_error
from .web import KEEP_ALIVE

if TYPE_CHECKING:
    from ..drivers.loops import Doing, Loop
    from ..exchange.commands import Reply
    from ..exchange.sessions import Session
    from .sessions import Sessions, Stream

__all__ = ["Calls", "Finish", "pump", "run_call", "settle"]

logger = logger_for("effectmcp.server")

#: Seconds after which a pending response becomes a stream instead of one JSON object.
_MOMENT: Final = 0.05


class Finish(Protocol):
    """A driver's `Begun`."""

    async def finish(
        self, send: Callable[[Mapping[str, JSON]], Awaitable[None]]
    ) -> Reply: ...


async def run_call(
    loop: Loop, begun: Finish, request: Request, session: Session, stream: Stream
) -> None:
    """Finish a started exchange; add its messages to `stream`. Errors are only logged."""

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
    """A server's background work: the calls of sessions, and ending idle sessions.

    Args:
        spawn: Starts a background task. By default the loop does, for hosts without a
            nursery. A caller that passes `spawn` ends these tasks and sweeps the
            sessions itself.
    """

    def __init__(self, spawn: Callable[[Doing], None] | None = None) -> None:
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
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Start `run_call` in a background task, which calls `ended` at its end."""
        spawn = self._spawn or loop.spawn
        spawn(partial(self._run, loop, begun, request, session, stream, ended))

    async def _run(
        self,
        loop: Loop,
        begun: Finish,
        request: Request,
        session: Session,
        stream: Stream,
        ended: Callable[[], None] | None,
    ) -> None:
        self._count += 1
        try:
            await run_call(loop, begun, request, session, stream)
        finally:
            self._count -= 1
            if ended is not None:
                ended()
            if self._ended is not None:
                self._ended()

    async def end(self, loop: Loop, seconds: float) -> None:
        """Wait for all calls to end, for at most so many seconds."""
        bell = loop.Bell()
        self._ended = bell.ring

        async def all_ended() -> None:
            while self._count:
                await bell.wait()

        await loop.within(seconds, all_ended)

    def sweep(self, loop: Loop, sessions: Sessions | None) -> None:
        """Start a task that ends idle sessions, for as long as there are any sessions."""
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
    """Return the response, if it comes within a moment and before any other message."""
    bell = loop.Bell()
    reader = stream.read(0, bell.ring)
    try:
        if not stream.is_over:
            await loop.within(_MOMENT, bell.wait)
    finally:
        reader.leave()
    return stream.only


async def pump(
    loop: Loop,
    sessions: Sessions,
    session: Session,
    stream: Stream,
    after: int,
    write: Callable[[bytes], Awaitable[None]],
    *,
    lasts: float | None = None,
) -> None:
    """Write a stream's events, old and new, until it is over or the connection must close.

    Args:
        loop: The loop that runs this.
        sessions: The sessions of the server, with their limits.
        session: The session that the stream belongs to.
        stream: The stream.
        after: The number of the last event that the client has.
        write: Writes events.
        lasts: Seconds after which the client has to come back; `None` for no limit.
    """
    bell = loop.Bell()
    reader = stream.read(after, bell.ring)
    leave = math.inf if lasts is None else loop.now() + lasts
    is_done = False
    sessions.reading(session, +1)
    try:
        if session.revision.primes:
            await write(reader.first(sessions.limits.retry))
            if sessions.limits.leave is not None:
                leave = min(leave, loop.now() + sessions.limits.leave)
        else:
            await write(KEEP_ALIVE)  # shows the client that the stream is open
        while True:
            sessions.collect(session, stream)
            is_over = reader.is_over  # read before `take()`, so that nothing is missed
            events = reader.take()
            while event := next(events, b""):
                writing = write(event)
                del event  # the client may take a minute to read it
                await writing
            left = leave - loop.now()
            if is_over or left <= 0:
                is_done = is_over
                return
            await loop.within(left, bell.wait)
    finally:
        reader.leave(is_done=is_done)
        sessions.reading(session, -1)
