"""One JSON-RPC message a line, over any two-way channel: pipes, Unix sockets, TCP.

All messages share the channel, so what HTTP tells by its streams is told by ids here:
`notifications/cancelled` names the request that the client gave up on, and nothing is
sent for it afterwards (2026-07-28, stdio, Cancellation).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import trio
from attrs import frozen

from ..canonical import JSON
from ..drivers.trio import handle
from ..errors import ProtocolError
from ..exchange.commands import Peer
from ..protocol.jsonrpc import (
    INVALID_REQUEST,
    Id,
    Malformed,
    Notification,
    Request,
    encode,
    error_message,
    id_of,
    read_message,
)
from ..server import Change, Server

__all__ = ["Limits", "Splitter", "TooLong", "serve_lines"]

logger = logging.getLogger("effectmcp.server")

Send: TypeAlias = Callable[[bytes], Awaitable[None]]


@frozen(kw_only=True)
class Limits:
    """What one channel may ask of a server.

    Attributes:
        line: Bytes of a line.
        requests: Requests that run at once; more are read when one of them ends.
        grace: Seconds that running requests have when the input ends.
    """

    line: int = 4 * 1024 * 1024
    requests: int = 1_000
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
        self._is_dropping = False

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that end in `data`."""
        *ended, rest = data.split(b"\n")
        found: list[bytes | TooLong] = []
        for piece in ended:
            self._add(piece)
            found.append(TooLong() if self._is_dropping else b"".join(self._pieces))
            self._pieces, self._size, self._is_dropping = [], 0, False
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._pieces, self._is_dropping = [], True
        elif piece:
            self._pieces.append(piece)


_PEER: Final = Peer()


class _Channel:
    def __init__(self, app: Server, send: Send, peer: Peer, limits: Limits) -> None:
        self.app = app
        self.send = send
        self.peer = peer
        self.limits = limits
        self.room = trio.Semaphore(limits.requests)
        self._running: dict[tuple[type, Id], trio.CancelScope] = {}

    def begin(self, request: Request) -> trio.CancelScope | None:
        """What cancels the request from now on; `None` if there is one of its id."""
        key = (type(request.id), request.id)
        if key in self._running:
            return None
        self._running[key] = trio.CancelScope()
        return self._running[key]

    async def answer(self, request: Request, scope: trio.CancelScope) -> None:
        reply = None
        try:
            with scope:
                reply = await handle(self.app, request, self.peer, send=self._notify)
        finally:
            # Whatever cancels it from here on comes too late.
            del self._running[type(request.id), request.id]
            self.room.release()
        if reply is not None and reply.message is not None:
            await self.send(encode(reply.message) + b"\n")

    async def _notify(self, message: Mapping[str, JSON]) -> None:
        await self.send(encode(message) + b"\n")

    async def refuse(self, id_: Id | None, error: ProtocolError) -> None:
        await self.send(encode(error_message(id_, error)) + b"\n")

    def cancel(self, params: Mapping[str, JSON]) -> None:
        id_ = id_of({"id": params.get("requestId")})
        scope = None if id_ is None else self._running.get((type(id_), id_))
        if scope is None:
            return  # unknown or over: both are to be ignored
        logger.info("request %r was cancelled: %r", id_, params.get("reason"))
        scope.cancel()


async def serve_lines(
    app: Server,
    lines: AsyncIterator[bytes | TooLong],
    send: Send,
    *,
    peer: Peer = _PEER,
    limits: Limits = Limits(),  # frozen
) -> None:
    """Answer the messages of one channel until its input ends.

    What runs then has some seconds to end; subscriptions end at once.

    Args:
        app: The server, inside of `running(app)`.
        lines: The lines that come in; see `Splitter`.
        send: Sends a line, whole.
        peer: Who sends them.
        limits: What they may ask for.
    """
    channel = _Channel(app, send, peer, limits)
    async with trio.open_nursery() as nursery:
        async for line in lines:
            await _take(channel, line, nursery)
        app.changes.publish(Change("end"))
        nursery.cancel_scope.deadline = trio.current_time() + limits.grace


async def _take(
    channel: _Channel, line: bytes | TooLong, nursery: trio.Nursery
) -> None:
    if isinstance(line, TooLong):
        words = f"Invalid request: a line has at most {channel.limits.line:,} bytes"
        await channel.refuse(None, ProtocolError(INVALID_REQUEST, words))
        return
    if not line.strip():
        return
    message = read_message(line)
    if isinstance(message, Malformed):
        await channel.refuse(message.id, message.error)
        return
    if isinstance(message, Notification):
        if message.method == "notifications/cancelled":
            channel.cancel(message.params)
        return
    # Before the task runs: the next line may cancel it.
    scope = channel.begin(message)
    if scope is None:
        words = "Invalid request: a request with this id is running"
        await channel.refuse(message.id, ProtocolError(INVALID_REQUEST, words))
        return
    await channel.room.acquire()
    nursery.start_soon(channel.answer, message, scope)
