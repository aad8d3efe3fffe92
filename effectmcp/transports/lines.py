"""One JSON-RPC message per line, over any two-way channel: pipes, Unix sockets, TCP.

All messages share the channel, so ids are used where HTTP has streams:
`notifications/cancelled` names the request that the client has given up, and nothing is
sent for it afterwards (2026-07-28, stdio, Cancellation). A legacy client has one session,
which lasts as long as the channel or until the client sends `initialize` again.

One task reads, one writes, and each request runs in its own task. So cancellations and
the end of the input are read however many requests run, and a line that is being written
is not cut off when its request is cancelled. All of this is the same on trio and asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import evolve, field, frozen

from ..canonical import JSON
from ..drivers.loops import Doing, Loop, Stopper, running_loop
from ..errors import ProtocolError
from ..exchange.commands import Peer, Reply
from ..exchange.telling import tap
from ..logs import logger_for
from ..protocol.jsonrpc import (
    INVALID_REQUEST,
    Id,
    Malformed,
    Notification,
    Request,
    Response,
    encode,
    error_message,
    id_of,
    internal_error,
    notification,
    read_message,
)
from ..server.changes import Change

if TYPE_CHECKING:
    from ..exchange.sessions import Session
    from ..server.app import Server

__all__ = ["LineLimits", "Splitter", "TooLong", "serve_lines"]

logger = logger_for("effectmcp.server")

Send: TypeAlias = Callable[[bytes], Awaitable[None]]


@frozen(kw_only=True)
class LineLimits:
    """Limits on one channel.

    Attributes:
        line: The maximum size of a line in bytes.
        requests: The number of requests that run at once.
        waiting: The number of further requests that wait for one of those to end.
        patience: Seconds for which the server stops reading when there is one request
            more. Then that request is refused, and so are others until one ends: a
            server that does not read misses cancellations and the end of the input.
        grace: Seconds that running requests have to end once the input has ended.
    """

    line: int = 4 * 1024 * 1024
    requests: int = 1_000
    waiting: int = 1_000
    patience: float = 1
    grace: float = 5


@frozen
class TooLong:
    """A line longer than the limit. Its bytes were dropped."""


class Splitter:
    """Splits chunks of bytes into lines, and drops lines that are too long.

    Args:
        limit: The maximum size of a line in bytes, without the line end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that end in `data`."""
        *ended, rest = data.split(b"\n")
        found: list[bytes | TooLong] = []
        for piece in ended:
            self._add(piece)
            found.append(self._take())
        self._add(rest)
        return found

    def end(self) -> list[bytes | TooLong]:
        """Return the last line, if it has no line end. It cannot be mistaken for a whole
        message that was cut off: half a message is not valid JSON."""
        return [self._take()] if self._size else []

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._pieces = []
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> bytes | TooLong:
        line = TooLong() if self._size > self._limit else b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return line


class _Outbox:
    """The lines for the client. A sender waits until its line is being written."""

    def __init__(self, loop: Loop) -> None:
        self._lock = loop.Lock()
        self._line: bytes | None = None
        self._came, self._taken = loop.Bell(), loop.Bell()
        self._is_closed = False

    async def send(self, line: bytes) -> None:
        """Give a line to the writer."""
        async with self._lock:
            self._line = line
            self._came.ring_here()
            try:
                while self._line is not None:
                    await self._taken.wait()
            finally:
                self._line = None  # if the sender is cancelled

    async def take(self) -> bytes | None:
        """Return the next line; `None` once the outbox is closed."""
        while self._line is None:
            if self._is_closed:
                return None
            await self._came.wait()
        line, self._line = self._line, None
        self._taken.ring_here()
        return line

    def close(self) -> None:
        """Note that no line follows."""
        self._is_closed = True
        self._came.ring_here()


@frozen(eq=False)
class _OpenRequest:
    """A request that is not answered yet, and the session that it belongs to."""

    request: Request
    session: Session | None
    stop: Stopper = field(factory=Stopper)

    @property
    def key(self) -> tuple[type, Id]:
        # 1 and "1" are different ids.
        return type(self.request.id), self.request.id


class _LineChannel:
    def __init__(
        self,
        app: Server,
        peer: Peer,
        limits: LineLimits,
        loop: Loop,
        spawn: Callable[[Doing], None],
    ) -> None:
        self.app = app
        self.peer = peer
        self.limits = limits
        self.out = _Outbox(loop)
        self._loop = loop
        self._spawn = spawn
        self._room = loop.Semaphore(limits.requests)
        self._running: dict[tuple[type, Id], _OpenRequest] = {}
        self._tasks = 0
        self._ended = loop.Bell()
        self._is_stuck = False
        self._stop_news = Stopper()

    async def take(self, line: bytes | TooLong) -> None:
        """Handle a line. A request is only started: it runs in a new task."""
        if isinstance(line, TooLong):
            await self._refuse(None, f"a line has at most {self.limits.line:,} bytes")
            return
        if not line.strip():
            return
        match read_message(line):
            case Notification() as told:
                if self.app.taps:
                    tap(
                        self.app,
                        self.peer,
                        "in",
                        notification(told.method, told.params),
                    )
                # No other one has an effect.
                if told.method == "notifications/cancelled":
                    self._cancel(told.params)
            case Malformed() | Response() as other:
                await self._hear(other)
            case Request(method="initialize") as request:
                await self._shake(request)
            case request:
                await self._begin(_OpenRequest(request, self.peer.session))

    async def _hear(self, message: Malformed | Response) -> None:
        reply = self._loop.begin(self.app, message, self.peer)
        assert isinstance(reply, Reply)  # it never has to wait
        if reply.message is not None:
            await self._send(reply.message)

    async def _shake(self, request: Request) -> None:
        # Not in a new task: the next message may belong to the session already.
        reply = self._loop.begin(self.app, request, self.peer)
        assert isinstance(reply, Reply)  # it never has to wait
        assert reply.body is not None
        if reply.opened is not None:
            self._close()
            self.peer = evolve(self.peer, session=reply.opened)
        await self.out.send(reply.body + b"\n")
        if reply.opened is not None:
            self._stop_news = stop = Stopper()
            tell = partial(self._tell, reply.opened)
            self._start(partial(stop.run, self._loop, tell))

    async def _begin(self, running: _OpenRequest) -> None:
        if running.key in self._running:
            self._tap_unread(running.request)
            await self._refuse(running.request.id, "a request with this id is running")
        elif not await self._has_place():
            self._tap_unread(running.request)
            await self._refuse(running.request.id, "too many requests are running")
        else:
            # Register it before its task runs: the next line may cancel it.
            self._running[running.key] = running
            self._start(partial(self._answer, running))

    def _tap_unread(self, request: Request) -> None:
        """Show taps a request that no exchange reads."""
        if self.app.taps:
            tap(self.app, self.peer, "in", request.envelope)

    @property
    def _is_full(self) -> bool:
        return len(self._running) >= self.limits.requests + self.limits.waiting

    async def _has_place(self) -> bool:
        # Slow down a client that sends requests faster than they are answered.
        if self._is_full and not self._is_stuck:
            await self._loop.within(self.limits.patience, self._until_less)
        self._is_stuck = self._is_full
        return not self._is_full

    async def _until_less(self) -> None:
        while self._is_full:
            await self._ended.wait()

    def _start(self, work: Doing) -> None:
        self._tasks += 1
        self._spawn(partial(self._run, work))

    async def _run(self, work: Doing) -> None:
        try:
            await work()
        finally:
            self._tasks -= 1
            self._ended.ring_here()

    async def finished(self) -> None:
        """Wait until all requests have ended, and have given their lines to the writer."""
        while self._tasks:
            await self._ended.wait()

    async def _answer(self, running: _OpenRequest) -> None:
        line, is_read = None, False

        async def work() -> None:
            nonlocal line, is_read
            async with self._room:
                is_read = True
                line = await self._line_for(running.request)

        try:
            await running.stop.run(self._loop, work)
        finally:
            # A later cancellation has no effect.
            del self._running[running.key]
            self._ended.ring_here()
            if not is_read:
                self._tap_unread(running.request)
        # It may have ended just as it was cancelled.
        if line is not None and not running.stop.is_called:
            await self.out.send(line)

    async def _line_for(self, request: Request) -> bytes | None:
        try:
            reply = await self._loop.handle(
                self.app, request, self.peer, send=self._send
            )
            # A request has a response, unless it was cancelled meanwhile.
            return None if reply.body is None else reply.body + b"\n"
        except Exception:
            # A bug in this library, which must not affect the other requests.
            logger.exception("%s failed", request.method)
            return encode(internal_error(request.id)) + b"\n"

    async def _tell(self, session: Session) -> None:
        await self._loop.listen(self.app, session.news, self._send)

    def _close(self) -> None:
        self._stop_news()
        if self.peer.session is not None:
            self.peer.session.close()

    def _cancel(self, params: Mapping[str, JSON]) -> None:
        id_ = id_of({"id": params.get("requestId")})
        running = None if id_ is None else self._running.get((type(id_), id_))
        if id_ is None or running is None:
            return  # unknown or answered already: both must be ignored
        reason = params.get("reason")
        said = "" if reason is None else f": {reason!r}"
        logger.debug("request %r was cancelled%s", id_, said)
        self._end(running)

    def _end(self, running: _OpenRequest) -> None:
        session = running.session
        if session is None or not session.cancel(running.request.id):
            running.stop()

    def give_up(self) -> None:
        """End all requests, as the client has disconnected. Live flows clean up first."""
        for running in tuple(self._running.values()):
            self._end(running)

    def end_subscriptions(self, *, is_alone: bool) -> None:
        """End subscriptions and the session, which would not end by themselves."""
        self._close()
        if is_alone:
            self.app.changes.publish(Change("end"))
            return
        for running in self._running.values():
            if running.request.method == "subscriptions/listen":
                running.stop()

    async def _refuse(self, id_: Id | None, problem: str) -> None:
        words = f"Invalid request: {problem}"
        refusal = error_message(id_, ProtocolError(INVALID_REQUEST, words))
        if self.app.taps:
            tap(self.app, self.peer, "out", refusal)
        await self._send(refusal)

    async def _send(self, message: Mapping[str, JSON]) -> None:
        await self.out.send(encode(message) + b"\n")


#: The process that started this one: it may do everything.
_PEER: Final = Peer(scopes=None)


async def serve_lines(
    app: Server,
    lines: AsyncIterator[bytes | TooLong],
    send: Send,
    *,
    peer: Peer = _PEER,
    limits: LineLimits = LineLimits(),  # frozen
    is_alone: bool = True,
) -> None:
    """Answer the messages of one channel until its input ends, or its output breaks.

    When the input ends, running requests have `limits.grace` seconds to end;
    subscriptions end immediately.

    Args:
        app: The server, inside of `running(app)`.
        lines: The lines of the input; see `Splitter`.
        send: Sends a line. Only one task calls it, and it is cancelled only at the very
            end. If it raises `OSError`, or trio's error for a broken or closed channel,
            the client has disconnected, and all of its requests end.
        peer: The sender of the messages.
        limits: Limits on this channel.
        is_alone: Whether `app` serves no other channel, so that it shuts down with this
            one.

    Raises:
        Exception: Any other exception that `lines` or `send` raises.
    """
    loop = running_loop()
    stop_reading = Stopper()
    over = loop.Bell()
    is_read = is_written = False
    failure: Exception | None = None

    async def read() -> None:
        nonlocal is_read, failure

        async def take() -> None:
            async for line in lines:
                await channel.take(line)

        try:
            await stop_reading.run(loop, take)
        except Exception as exc:
            failure = exc
        finally:
            is_read = True
            over.ring_here()

    async def write() -> None:
        nonlocal is_written, failure
        is_gone = False
        try:
            while (line := await channel.out.take()) is not None:
                # Flows that clean up may send messages, and must not block.
                if not is_gone:
                    try:
                        await send(line)
                    except Exception as exc:
                        if isinstance(exc, loop.broken):
                            logger.info("the client is gone: %r", exc)
                        else:
                            failure = exc
                        is_gone = True
                        stop_reading()
                        channel.give_up()
        finally:
            is_written = True
            over.ring_here()

    async def finish() -> None:
        await channel.finished()
        channel.out.close()
        while not is_written:
            await over.wait()

    async with loop.crew() as spawn:
        channel = _LineChannel(app, peer, limits, loop, spawn)
        spawn(write)
        spawn(read)
        while not is_read:
            await over.wait()
        channel.end_subscriptions(is_alone=is_alone)
        if not await loop.within(limits.grace, finish):
            logger.warning("what still ran after %g s was cut off", limits.grace)
    if failure is not None:
        raise failure
