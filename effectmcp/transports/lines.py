"""One JSON-RPC message a line, over any two-way channel: pipes, Unix sockets, TCP.

All messages share the channel, so what HTTP tells by its streams is told by ids here:
`notifications/cancelled` names the request that the client gave up on, and nothing is
sent for it afterwards (2026-07-28, stdio, Cancellation). A client that shakes hands has
one session, which lasts as long as the channel or until it shakes hands again.

One task reads, one writes, and each request has one of its own. The reader hears of
cancellations and of the end however much is running; and a line that is being written is
not cut off when its request is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import trio
from attrs import evolve, field, frozen

from ..canonical import JSON
from ..drivers.trio import begin, handle, listen
from ..errors import ProtocolError
from ..exchange.commands import Peer, Reply
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
    read_message,
)
from ..server.changes import Change

if TYPE_CHECKING:
    from ..exchange.sessions import Session
    from ..server.app import Server

__all__ = ["Limits", "Splitter", "TooLong", "serve_lines"]

logger = logging.getLogger("effectmcp.server")

Send: TypeAlias = Callable[[bytes], Awaitable[None]]


@frozen(kw_only=True)
class Limits:
    """What one channel may ask of a server.

    Attributes:
        line: Bytes of a line.
        requests: Requests that run at once.
        waiting: Requests that wait for one of those to end.
        patience: Seconds that one more than these has to wait, unread; it is refused then,
            and so are others until one ends. Whoever does not read does not hear of
            cancellations, and of the end.
        grace: Seconds that running requests have when the input ends.
    """

    line: int = 4 * 1024 * 1024
    requests: int = 1_000
    waiting: int = 1_000
    patience: float = 1
    grace: float = 5


@frozen
class TooLong:
    """A line longer than the limit, of which nothing was kept."""


class Splitter:
    """Bytes, cut anywhere → lines. A line that is too long is dropped as it comes.

    Args:
        limit: Bytes of a line, its end left out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that end in `data`."""
        *ended, rest = data.split(b"\n")
        found: list[bytes | TooLong] = []
        for piece in ended:
            self._add(piece)
            found.append(self._take())
        self._add(rest)
        return found

    def end(self) -> list[bytes | TooLong]:
        """The last line, if it came without an end. Half a message is none, so nothing
        is taken for one that was not sent."""
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


@frozen(eq=False)
class _Running:
    """A request that was not answered yet, and the session in which it came."""

    request: Request
    session: Session | None
    scope: trio.CancelScope = field(factory=trio.CancelScope)

    @property
    def key(self) -> tuple[type, Id]:
        # 1 and "1" are two ids.
        return type(self.request.id), self.request.id


class _Channel:
    def __init__(
        self,
        app: Server,
        peer: Peer,
        limits: Limits,
        out: trio.MemorySendChannel[bytes],
    ) -> None:
        self.app = app
        self.peer = peer
        self.limits = limits
        self._out = out
        self._room = trio.Semaphore(limits.requests)
        self._running: dict[tuple[type, Id], _Running] = {}
        self._ended = trio.Event()
        self._is_stuck = False
        self._news = trio.CancelScope()

    async def take(self, line: bytes | TooLong, nursery: trio.Nursery) -> None:
        """Begin what a line asks for; returns before it is done."""
        if isinstance(line, TooLong):
            await self._refuse(None, f"a line has at most {self.limits.line:,} bytes")
            return
        if not line.strip():
            return
        match read_message(line):
            case Malformed(error, id_):
                await self._send(error_message(id_, error))
            case Notification("notifications/cancelled", params):
                self._cancel(params)
            case Notification():
                pass  # nothing that has to be known
            case Response() as response:
                await self._hear(response)
            case Request(method="initialize") as request:
                await self._shake(request, nursery)
            case request:
                await self._begin(_Running(request, self.peer.session), nursery)

    async def _hear(self, response: Response) -> None:
        reply = begin(self.app, response, self.peer)
        assert isinstance(reply, Reply)  # nothing has to be done for it
        if reply.message is not None:
            await self._send(reply.message)

    async def _shake(self, request: Request, nursery: trio.Nursery) -> None:
        # Here and now: what comes next may belong to the session already.
        reply = begin(self.app, request, self.peer)
        assert isinstance(reply, Reply)  # nothing has to be done for it
        assert reply.body is not None
        if reply.opened is not None:
            self._close()
            self.peer = evolve(self.peer, session=reply.opened)
        await self._out.send(reply.body + b"\n")
        if reply.opened is not None:
            self._news = trio.CancelScope()
            nursery.start_soon(self._tell, reply.opened, self._news)

    async def _begin(self, running: _Running, nursery: trio.Nursery) -> None:
        if running.key in self._running:
            await self._refuse(running.request.id, "a request with this id is running")
        elif not await self._has_place():
            await self._refuse(running.request.id, "too many requests are running")
        else:
            # Before the task runs: the next line may cancel it.
            self._running[running.key] = running
            nursery.start_soon(self._answer, running)

    @property
    def _is_full(self) -> bool:
        return len(self._running) >= self.limits.requests + self.limits.waiting

    async def _has_place(self) -> bool:
        # A client that sends faster than we answer is slowed down.
        if not self._is_stuck:
            with trio.move_on_after(self.limits.patience):
                while self._is_full:
                    self._ended = trio.Event()
                    await self._ended.wait()
        self._is_stuck = self._is_full
        return not self._is_full

    async def _answer(self, running: _Running) -> None:
        line = None
        try:
            with running.scope:
                async with self._room:
                    line = await self._line_for(running.request)
        finally:
            # Whatever cancels it from here on comes too late.
            del self._running[running.key]
            self._ended.set()
        # It may have ended in the very moment in which it was cancelled.
        if line is not None and not running.scope.cancel_called:
            await self._out.send(line)

    async def _line_for(self, request: Request) -> bytes | None:
        try:
            reply = await handle(self.app, request, self.peer, send=self._send)
            # A request has a response, unless it was cancelled meanwhile.
            return None if reply.body is None else reply.body + b"\n"
        except Exception:
            # A bug of ours; but whoever else is served here has no part in it.
            logger.exception("%s failed", request.method)
            return encode(internal_error(request.id)) + b"\n"

    async def _tell(self, session: Session, scope: trio.CancelScope) -> None:
        with scope:
            await listen(self.app, session.news, self._send)

    def _close(self) -> None:
        self._news.cancel()
        if self.peer.session is not None:
            self.peer.session.close()

    def _cancel(self, params: Mapping[str, JSON]) -> None:
        id_ = id_of({"id": params.get("requestId")})
        running = None if id_ is None else self._running.get((type(id_), id_))
        if id_ is None or running is None:
            return  # unknown or over: both are to be ignored
        logger.info("request %r was cancelled: %r", id_, params.get("reason"))
        self._end(running)

    def _end(self, running: _Running) -> None:
        session = running.session
        if session is None or not session.cancel(running.request.id):
            running.scope.cancel()

    def give_up(self) -> None:
        """End what runs, as nobody waits for it: what asks live cleans up first."""
        for running in self._running.values():
            self._end(running)

    def end_subscriptions(self, *, is_alone: bool) -> None:
        """End what would never end by itself."""
        self._close()
        if is_alone:
            self.app.changes.publish(Change("end"))
            return
        for running in self._running.values():
            if running.request.method == "subscriptions/listen":
                running.scope.cancel()

    async def _refuse(self, id_: Id | None, problem: str) -> None:
        words = f"Invalid request: {problem}"
        await self._send(error_message(id_, ProtocolError(INVALID_REQUEST, words)))

    async def _send(self, message: Mapping[str, JSON]) -> None:
        await self._out.send(encode(message) + b"\n")


_PEER: Final = Peer()


async def serve_lines(
    app: Server,
    lines: AsyncIterator[bytes | TooLong],
    send: Send,
    *,
    peer: Peer = _PEER,
    limits: Limits = Limits(),  # frozen
    is_alone: bool = True,
) -> None:
    """Answer the messages of one channel until its input ends, or its output breaks.

    What runs when the input ends has some seconds to end; subscriptions end at once.

    Args:
        app: The server, inside of `running(app)`.
        lines: The lines that come in; see `Splitter`.
        send: Sends a line. It is called by one task only, and not cancelled but at the
            very end. Where it raises `OSError` or a trio error that says that the channel
            is closed, the client is gone, and all of its requests with it.
        peer: Who sends them.
        limits: What they may ask for.
        is_alone: Whether `app` serves no other channel, so that it shuts down with this
            one.
    """
    out, outbox = trio.open_memory_channel[bytes](0)
    channel = _Channel(app, peer, limits, out)
    reading = trio.CancelScope()

    def gone() -> None:
        reading.cancel()
        channel.give_up()

    async with trio.open_nursery() as whole:
        whole.start_soon(_write, outbox, send, gone)
        async with out, trio.open_nursery() as requests:
            with reading:
                async for line in lines:
                    await channel.take(line, requests)
            channel.end_subscriptions(is_alone=is_alone)
            whole.cancel_scope.deadline = trio.current_time() + limits.grace
    if whole.cancel_scope.cancelled_caught:
        logger.warning("what still ran after %g s was cut off", limits.grace)


async def _write(
    outbox: trio.MemoryReceiveChannel[bytes], send: Send, gone: Callable[[], None]
) -> None:
    async with outbox:
        try:
            async for line in outbox:
                await send(line)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            logger.info("the client is gone: %r", exc)
            gone()
            async for _ in outbox:
                pass  # who cleans up may have something to say, and must not wait
