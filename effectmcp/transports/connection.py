"""One connection of Streamable HTTP, on trio.

It is one task. It reads a head, asks `web.admit`, reads the body, begins the exchange,
and most rounds end right there: the answer is one JSON object. Only when the exchange has
to wait is a second task started, which looks out for a client that leaves, as that cancels
the request (Streamable HTTP, Cancellation), and for silence.

    the exchange ends at once           application/json
    ... or waits, but tells nothing     application/json
    ... or sends a notification,        text/event-stream from there on; the response is
        or is silent for long           its last event

Time is kept by one cancel scope a connection, whose deadline is set before each thing
that a client drags out; that of idle ones, by one task for all of them. What the client
was doing when it fires says what follows:

    nothing yet                         close
    sending a head or a body            408, close
    reading what it asked for           cut it off

A client that shook hands has a session, and what it asks for does not end with the
connection (`sessions`): it is begun on the side, and the connection reads its stream.

What the bytes mean is known to `wires`, which has one for each request. Memory is
bounded by what a wire keeps of a head, by `Site.max_body`, and by writing no event before
the one in front of it is with the kernel.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

import trio

from ..canonical import JSON
from ..drivers.trio import Begun, begin
from ..errors import ProtocolError
from ..exchange.commands import Peer, Reply
from ..exchange.sessions import Session
from ..protocol import jsonrpc
from ..protocol.jsonrpc import INTERNAL_ERROR, encode, error_message, read_message
from . import asgi_trio
from .head import Fields, Request
from .reading import pump, run_call
from .sessions import SESSION_ID, Stream
from .shared import Shared
from .sockets import Direct
from .web import (
    JSON_TYPE,
    KEEP_ALIVE,
    SSE_HEADERS,
    Head,
    Response,
    admit,
    cors,
    refusal,
    sse,
    too_large,
)
from .wires import Malformed, Plain, Wire, open_wire

__all__ = ["Connection"]

logger = logging.getLogger("effectmcp.server")

_RECEIVE: Final = 64 * 1024


class _TooLarge(Exception):
    """A body has more bytes than the site takes."""


class Connection:
    """A client's connection: requests in, answers out, one after the other."""

    def __init__(self, shared: Shared, stream: trio.abc.Stream) -> None:
        self.limits = shared.limits
        self._shared = shared
        self._bound_to, self._peer = _addresses(stream)
        self._stream = (
            Direct(stream) if isinstance(stream, trio.SocketStream) else stream
        )
        #: What the client sent of its next request already.
        self._rest = bytearray()
        self._wire: Wire = Plain(self._rest)
        self._scope = trio.CancelScope()
        self._is_timed = False
        self._sends: Literal["nothing", "head", "body", "all"] = "nothing"
        self._is_new = True
        self._closes = False

    def leave(self) -> bool:
        """Close it, for one that waits for a request; returns whether it still does."""
        if not isinstance(self._stream, Direct):
            self._scope.cancel()
        elif self._stream.is_readable():
            return False  # what has come is answered
        else:
            # At once: the kernel resets a connection that is closed later, when its
            # client may have asked again.
            self._stream.close()
        del self._shared.idle[self]
        return True

    async def run(self) -> None:
        """Answer requests until one of both hangs up."""
        lingers = False
        try:
            with self._scope:
                lingers = await self._talk()
            with trio.move_on_after(self.limits.linger):
                if self._scope.cancelled_caught:
                    lingers = await self._time_out()
                if lingers:
                    await self._hang_up()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            logger.debug("%s is gone: %r", self._peer, exc)
        finally:
            self._shared.idle.pop(self, None)
            await trio.aclose_forcefully(self._stream)

    async def turn_away(self) -> None:
        """Say that there is no room, and hang up."""
        wait = ("Retry-After", str(self.limits.retry_after))
        answer = refusal(503, "there are too many connections; come back later", wait)
        try:
            with trio.move_on_after(self.limits.linger):
                await self._refuse(answer)
                await self._hang_up()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            logger.debug("%s is gone: %r", self._peer, exc)
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _talk(self) -> bool:
        """Returns whether the client may have something left to read."""
        try:
            while True:
                asked = await self._head()
                if asked is None:
                    return False
                if not await self._answer(asked):
                    return False
                rest = self._wire.rest()
                if rest is None or self._closes:
                    return True
                self._rest = rest
        except Malformed as exc:
            logger.debug("%s sends no HTTP: %r", self._peer, str(exc))
            return await self._refuse(_malformed(exc.status))

    async def _time_out(self) -> bool:
        if self._sends in ("head", "body"):
            return await self._refuse(refusal(408, "it took too long to arrive"))
        return False

    async def _hang_up(self) -> None:
        """Close so that the client gets what we sent.

        Closing while something of the client is unread would have the kernel reset the
        connection, and what is under way to the client might get lost.
        """
        stream = self._stream
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
            while await stream.receive_some(_RECEIVE):
                pass
        await stream.aclose()

    # ---- time ----

    def _hurry(self, seconds: float) -> None:
        """What the client does now takes no longer than that."""
        self._scope.deadline = trio.current_time() + seconds
        self._is_timed = True

    def _take_time(self) -> None:
        if self._is_timed:
            self._scope.deadline = math.inf
            self._is_timed = False

    # ---- in ----

    async def _receive(self) -> bytes | bytearray:
        data = await self._stream.receive_some(_RECEIVE)
        if self._scope.cancel_called:
            # Too late by a hair. Nothing may begin whose answer could not be sent.
            await trio.lowlevel.checkpoint_if_cancelled()
        return data

    async def _head(self) -> Head | None:
        limits, idle = self.limits, self._shared.idle
        self._sends = "nothing"
        self._take_time()
        if not self._rest:
            if self._shared.is_closing:
                return None
            if self._is_new:
                idle[self] = math.inf
                self._hurry(limits.head_time)
            else:
                idle[self] = self._shared.now() + limits.idle
            self._rest = bytearray(await self._receive())
            idle.pop(self, None)
            self._is_new = False
            if not self._rest:
                return None
        else:
            # Others have their turn, however much a client sends ahead.
            await trio.lowlevel.checkpoint()
        self._wire = wire = open_wire(
            self._rest, max_head=limits.head, max_headers=limits.headers
        )
        request = wire.head()
        if request is None:
            self._sends = "head"
            self._hurry(limits.head_time)
            while request is None:
                wire.receive(await self._receive())
                request = wire.head()
        return _asked(request, self._bound_to, self._peer)

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        wire, limit = self._wire, self._shared.site.max_body
        if int(headers.get("content-length", 0)) > limit:
            raise _TooLarge
        self._sends = "body"
        invitation = wire.invitation()
        if invitation:
            await self._write(invitation)
        parts: list[bytes] = []
        size = 0
        is_waiting = False
        while True:
            part = wire.part()
            if part is None:
                if not is_waiting:
                    is_waiting = True
                    self._hurry(self.limits.body_time)
                wire.receive(await self._receive())
            elif part:
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise _TooLarge
            else:
                self._sends = "all"
                return parts[0] if len(parts) == 1 else b"".join(parts)

    # ---- out ----

    async def _write(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        if isinstance(self._stream, Direct):
            rest = self._stream.send_now(data)
        if rest:
            self._hurry(self.limits.write)
            await self._stream.send_all(rest)

    def _fields(self, fields: Fields, *, closes: bool = False) -> Fields:
        """The headers of an answer."""
        all_fields = [("Date", self._shared.date()), *fields]
        if closes or self._shared.is_closing:
            self._closes = True
            all_fields.append(("Connection", "close"))
        return all_fields

    def _response(
        self, status: int, fields: Fields, body: bytes, *, closes: bool = False
    ) -> bytes:
        """A whole answer."""
        if status != 204:
            fields = (*fields, ("Content-Length", str(len(body))))
        return self._wire.answer(status, self._fields(fields, closes=closes), body)

    async def _refuse(self, answer: Response, *, closes: bool = True) -> bool:
        """Answer with an error, if there is still a place for it."""
        if not self._wire.may_answer:
            return False
        await self._write(
            self._response(answer.status, answer.headers, answer.body, closes=closes)
        )
        return True

    # ---- one request ----

    async def _answer(self, asked: Head) -> bool:
        """Returns whether the client was still there."""
        shared = self._shared
        try:
            admitted = admit(
                shared.site, asked, has_sessions=shared.sessions is not None
            )
            if shared.sessions is not None and isinstance(admitted, Peer):
                admitted = shared.sessions.admit(admitted)
        except Exception:
            logger.exception("admitting a request failed")
            admitted = refusal(500, "it cannot be told whether you may ask")
        if isinstance(admitted, Response):
            return await self._refuse(admitted, closes=not self._wire.skip())
        assert admitted.headers is not None
        fields = cors(admitted.headers.get("origin"))
        try:
            body = await self._body(admitted.headers)
        except _TooLarge:
            answer = too_large(shared.site)
            return await self._refuse(
                Response(answer.status, (*answer.headers, *fields), answer.body)
            )
        try:
            if admitted.session is not None:
                return await self._in_session(asked.method, body, admitted, fields)
            begun = begin(shared.app, body, admitted)
            if isinstance(begun, Begun):
                return await self._finish(begun, fields)
            if begun.opened is not None and shared.sessions is not None:
                id_ = shared.sessions.keep(begun.opened)
                fields = (*fields, (SESSION_ID, id_))
            await self.send_reply(begun, fields)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        except Exception:
            logger.exception("answering a request failed")
            # Where the answer is a stream already, it breaks off.
            return await self._refuse(_failed(fields))
        return True

    async def _finish(self, begun: Begun, fields: Fields) -> bool:
        events = _Events(self, fields)

        async def work() -> None:
            await events.end(await begun.finish(events.send))

        return await self._while_there(work, events)

    async def _in_session(
        self, method: str, body: bytes, peer: Peer, fields: Fields
    ) -> bool:
        """Answer a client that shook hands."""
        shared, session, sessions = self._shared, peer.session, self._shared.sessions
        assert session is not None
        assert sessions is not None
        assert peer.headers is not None
        if method == "DELETE":
            sessions.close(session)
            await self.send_reply(Reply(None, 204), fields)
            return True
        if method == "GET":
            found = sessions.find_stream(session, peer.headers)
            if isinstance(found, Response):
                return await self._refuse(
                    Response(found.status, (*found.headers, *fields), found.body),
                    closes=False,
                )
            return await self._read(session, *found, fields)
        read = read_message(body)
        begun = begin(shared.app, read, peer)
        if isinstance(begun, Reply):
            await self.send_reply(begun, fields)
            return True
        assert isinstance(read, jsonrpc.Request)
        assert shared.nursery is not None
        stream = sessions.open_stream(session)
        # It did not end: nothing was waited for since the exchange began.
        assert isinstance(stream, Stream)
        shared.nursery.start_soon(run_call, asgi_trio, begun, read, session, stream)
        return await self._read(session, stream, 0, fields)

    async def _read(
        self, session: Session, stream: Stream, after: int, fields: Fields
    ) -> bool:
        sessions, events = self._shared.sessions, _Events(self, fields)
        assert sessions is not None

        async def work() -> None:
            await pump(asgi_trio, sessions, session, stream, after, events.write)
            await events.close()

        return await self._while_there(work, events)

    async def _while_there(
        self, work: Callable[[], Awaitable[None]], events: _Events
    ) -> bool:
        """Do `work`, and leave it when the client leaves."""
        self._take_time()
        is_answered = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, events, nursery.cancel_scope)
            try:
                await work()
                is_answered = True
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # it left while it was being told something
            nursery.cancel_scope.cancel()
        return is_answered

    async def _watch(self, events: _Events, scope: trio.CancelScope) -> None:
        """Notice when the client leaves, and do not let it think that we did."""
        ahead = 0
        try:
            while True:
                with trio.move_on_at(events.quiet_until):
                    if ahead > self.limits.head:
                        # Enough: it sends requests and does not wait for answers.
                        await trio.sleep_forever()
                    data = await self._stream.receive_some(_RECEIVE)
                    if not data:
                        break
                    self._wire.receive(data)
                    ahead += len(data)
                await events.break_silence()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        # Not sent to anybody, and nobody waits for it (Streamable HTTP, Cancellation).
        scope.cancel()

    # ---- for `_Events` ----

    async def send_event(self, data: bytes, fields: Fields | None) -> None:
        """Send a part of a stream; with `fields`, the first one."""
        head = b""
        if fields is not None:
            head = self._wire.open(200, self._fields((*SSE_HEADERS, *fields)))
        await self._write(head + self._wire.chunk(data))
        self._take_time()
        await trio.lowlevel.checkpoint()

    async def send_reply(self, reply: Reply, fields: Fields) -> None:
        """Send an answer that is one JSON object, or nothing."""
        if reply.body is None:
            data = self._response(reply.status, fields, b"")
        else:
            fields = (("Content-Type", JSON_TYPE), *fields)
            data = self._response(reply.status, fields, reply.body)
        await self._write(data)

    async def send_last(self, data: bytes) -> None:
        """Send the last event of a stream, or nothing, and end it."""
        last = self._wire.chunk(data) if data else b""
        await self._write(last + self._wire.end())


class _Events:
    """The answer to a request that waits: a stream once there is something to tell."""

    def __init__(self, connection: Connection, fields: Fields) -> None:
        self._connection = connection
        self._fields: Fields | None = fields
        # A comment may not get between the halves of an event.
        self._lock = trio.Lock()
        self._quiet = connection.limits.quiet
        self.quiet_until = trio.current_time() + self._quiet

    async def send(self, message: Mapping[str, JSON]) -> None:
        """Send a notification."""
        await self.write(sse(encode(message)))

    async def break_silence(self) -> None:
        """Send a comment, if there was nothing else for a while.

        Of a call that tells nothing it makes a stream: what is between us and the client
        would think the connection dead.
        """
        if trio.current_time() < self.quiet_until:
            return
        if self._lock.locked():  # the client is slow, but it is not quiet
            self.quiet_until = trio.current_time() + self._quiet
        else:
            await self.write(KEEP_ALIVE)

    async def write(self, data: bytes) -> None:
        """Send events."""
        async with self._lock:
            fields, self._fields = self._fields, None
            await self._connection.send_event(data, fields)
            self.quiet_until = trio.current_time() + self._quiet

    async def end(self, reply: Reply) -> None:
        """Send the response, and nothing after it."""
        async with self._lock:
            if self._fields is not None:
                await self._connection.send_reply(reply, self._fields)
            else:
                assert reply.body is not None
                await self._connection.send_last(sse(reply.body))

    async def close(self) -> None:
        """Send nothing more."""
        async with self._lock:
            await self._connection.send_last(b"")


def _failed(fields: Fields) -> Response:
    error = ProtocolError(INTERNAL_ERROR, "Internal error")
    body = encode(error_message(None, error))
    return Response(500, (("Content-Type", JSON_TYPE), *fields), body)


def _malformed(status: int) -> Response:
    if status == 431:
        return refusal(status, "the head of the request is too large")
    return refusal(status, "this is no HTTP that is understood here")


def _asked(request: Request, bound_to: str | None, peer: str | None) -> Head:
    method, target, headers = request
    if not target.startswith("/") and "://" in target:
        # As proxies are asked, and as servers must understand; its authority replaces
        # that of the header (RFC 9112, section 3.2.2).
        authority, slash, path = target.partition("://")[2].partition("/")
        target = slash + path
        assert not isinstance(headers, dict)  # it is h11 that reads such a target
        headers = [
            (name, authority if name == "host" else value) for name, value in headers
        ]
    path = target.partition("?")[0]
    return Head(method, path, headers, bound_to, peer)


def _addresses(stream: trio.abc.Stream) -> tuple[str | None, str | None]:
    """This end's address and the other's, where there are such things."""
    if isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if not isinstance(stream, trio.SocketStream):
        return None, None
    try:
        ends = stream.socket.getsockname(), stream.socket.getpeername()
    except OSError:
        return None, None  # gone already
    # Of the internet they are tuples; of a Unix socket, paths.
    bound_to, peer = (end[0] if isinstance(end, tuple) else None for end in ends)
    return bound_to, peer
