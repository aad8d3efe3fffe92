"""One connection of Streamable HTTP, on trio.

A connection is one task. It reads a head and plays a `Conversation`, for which it reads
the body and writes the response. Most rounds need no more: the response is one JSON
object. Only when the exchange has to wait are other tasks started, which watch for a
disconnect and send comments during silence.

Each connection has one cancel scope, whose deadline is set before everything that a
client can delay. One task closes idle connections, for all of them. When the deadline
passes, the reaction depends on what the client was doing:

    nothing yet                         close
    sending a head or a body            408, close
    reading the response                break it off

`http1` interprets the bytes, with one wire for each request. Memory is bounded by what a
wire keeps of a head, by the budget for bodies (`Site.bodies`), by `Site.unsent`, and by
writing no event before the kernel has accepted the previous one.

A client that takes its time gives way to others: its connection closes while it sends a
request and the connections are needed, or while it reads and the memory is needed.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import trio
from attrs import field, frozen, validators

from ..exchange.shares import Holding, Shares, party_of
from ..logs import logger_for
from .conversation import Conversation, Endpoint, Judged, judge, tell_refusal
from .hosting import Gone, Work, converse
from .http1 import MalformedHttp, Plain, RequestHead, SeenHeads, Wire, open_wire
from .open_files import files
from .web import Head, Send, client_address, refusal

if TYPE_CHECKING:
    from ..drivers.loops import Doing, Event, Loop
    from ..server.app import Server
    from .disconnects import Disconnects
    from .reading import Calls
    from .sessions import Sessions
    from .web import Site

__all__ = [
    "Connection",
    "Direct",
    "Limits",
    "Shared",
    "connections_of",
    "drained",
    "endpoint_of",
]

T = TypeVar("T")

logger = logger_for("effectmcp.server")

_RECEIVE: Final = 64 * 1024

_LINE_END: Final = b"\r\n"

#: What an empty line before a request may look like until the request follows.
_PREFIXES: Final = (b"", b"\r", b"\n", b"\r\n")

#: Seconds that a request may still take to arrive when the server shuts down, and that a
#: client may take to notice that. Busy clients send their next request within it, and
#: learn with its response that the connection closes: so none is reset.
_LAST: Final = 0.25


@frozen(kw_only=True)
class Limits:
    """Limits on connections and requests. Times are in seconds.

    Attributes:
        head: The maximum size of a request's head in bytes.
        headers: The maximum number of headers of a request.
        connections: The maximum number of connections; `None` for 1,000, or fewer if the
            process may not open as many files. A further connection closes the connection
            that is idle for longest, or else the connection whose request has been
            incomplete for longest. If all are busy, it gets status 503.
        head_time: Time for a client to send a head, and, on a new connection, to start.
        body_time: Time for a client to send a body.
        idle: Time between two requests of a connection.
        write: Time for a client to read a response, or one event of a stream.
        quiet: Time of silence after which a waiting client gets a comment.
        linger: Time for a client to disconnect after the last response of a connection.
        drain: Time to serve clients as before when the server has to shut down, while
            `/readyz` reports it, so that a balancer sends clients elsewhere first.
        grace: Time for running requests to end after that.
        retry_after: The `Retry-After` of that status 503.
    """

    head: int = field(default=64 * 1024, validator=validators.ge(1_024))
    headers: int = field(default=100, validator=validators.ge(10))
    connections: int | None = field(
        default=None, validator=validators.optional(validators.ge(1))
    )
    head_time: float = field(default=10, validator=validators.gt(0))
    body_time: float = field(default=60, validator=validators.gt(0))
    idle: float = field(default=75, validator=validators.gt(0))
    write: float = field(default=60, validator=validators.gt(0))
    quiet: float = field(default=15, validator=validators.gt(0))
    linger: float = field(default=2, validator=validators.ge(0))
    drain: float = field(default=0, validator=validators.ge(0))
    grace: float = field(default=20, validator=validators.ge(0))
    retry_after: int = field(default=5, validator=validators.ge(0))

    @property
    def most_connections(self) -> int:
        """The maximum number of connections in this process."""
        return connections_of(files()) if self.connections is None else self.connections


#: The most connections that are accepted unless an operator asks for more.
_CONNECTIONS: Final = 1_000

#: A client may have so many connections, also where few files can be opened: as browsers
#: and development tools do. But no more than half of them.
_FEW: Final = 12

#: Files that the server and its tools open beside the connections. The tools also get a
#: quarter of the others.
_FILES: Final = 32


def connections_of(files: int) -> int:
    """Return how many connections a process may have that may open so many files."""
    return min(_CONNECTIONS, max(1, (files - _FILES) * 3 // 4))


def endpoint_of(
    app: Server, site: Site, limits: Limits, sessions: Sessions | None
) -> Endpoint:
    """Return the endpoint of a process that accepts the connections itself."""
    # Each waiting request has a connection, and some are left for the others.
    waiting = max(1, min(site.waiting, limits.most_connections // 2))
    return Endpoint(
        app=app,
        site=site,
        sessions=sessions,
        quiet=limits.quiet,
        has_pieces=True,
        seats=Shares(waiting, site.share),
        places=Shares(limits.most_connections, site.share),
    )


async def drained(
    loop: Loop, endpoint: Endpoint, shutdown: Event, limits: Limits
) -> None:
    """Wait for `shutdown`, and then until a balancer sends no further clients here."""
    await shutdown.wait()
    endpoint.readiness.is_draining = True
    if limits.drain:
        logger.info("draining: clients are served for %g s more", limits.drain)
        await loop.sleep(limits.drain)


class Shared:
    """The objects that the connections of a server share.

    Args:
        endpoint: The server and its site.
        loop: `drivers.trio`.
        limits: Limits on connections and requests.
        disconnects: Notices clients that disconnect.
        calls: Runs calls that outlive a connection.

    Attributes:
        seats: The connections, by address.
        idle: Idle connections, and when to close them, the longest idle first. The time
            of new connections is infinite, as they have a deadline of their own.
        arriving: Connections whose request is incomplete, the slowest first.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        loop: Loop,
        limits: Limits,
        disconnects: Disconnects,
        calls: Calls,
    ) -> None:
        self.endpoint = endpoint
        self.loop = loop
        self.limits = limits
        self.disconnects = disconnects
        self.calls = calls
        self.is_closing = False
        self.readiness = endpoint.readiness
        #: `trio.current_time`, without its lookups.
        self.now = trio.lowlevel.current_clock().current_time
        share = endpoint.site.share
        most = limits.most_connections
        self.seats = Shares(most, max(share, min(0.5, _FEW / most)))
        self.idle: dict[Connection, float] = {}
        self.arriving: dict[Connection, None] = {}
        self._date = (0, b"")

    def date(self) -> bytes:
        """Return the current time, as a value of the HTTP header `Date`."""
        second = int(time.time())
        if second != self._date[0]:
            self._date = second, formatdate(second, usegmt=True).encode()
        return self._date[1]

    def make_room(self, party: str | None = None) -> bool:
        """Close a connection whose client keeps the server waiting.

        Args:
            party: The address whose connection to close; `None` for any.

        Returns:
            Whether there was one.
        """
        for connection in tuple(self.idle):
            if party in (None, connection.party) and connection.leave():
                connection.vacate()
                return True
        for connection in self.arriving:
            if party in (None, connection.party):
                connection.give_way()
                return True
        return False

    def close_idle(self) -> float:
        """Close connections that were idle for too long; return when to check again."""
        now = trio.current_time()
        for connection, due in tuple(self.idle.items()):
            if due <= now:
                connection.leave()
        # Connections that become idle later are due later. A connection that is due but
        # was not closed has received bytes, and its task is about to read them.
        return min([now + self.limits.idle, *self.idle.values()])


class Direct(trio.abc.HalfCloseableStream):
    """A `trio.SocketStream`, for one reader and one writer, without trio's checkpoints.

    trio's own suits every protocol: it tries to read before it waits, and goes through
    the scheduler after each send. Here that would take a fifth of the time of a request.
    It is not needed: after a response, a connection waits for its next request, and other
    tasks run then.

    Args:
        stream: The stream, which must not be used any more: its socket is taken over.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        # Take the standard socket out of trio's wrapper, which does not expose it. Pass
        # the family and so on: if the client has disconnected, they cannot be queried.
        old = stream.socket
        self._socket = socket.socket(
            old.family, old.type, old.proto, fileno=old.detach()
        )
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket))

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes, and return them; return no bytes at the end."""
        number = self._socket.fileno()
        if number < 0:
            raise trio.ClosedResourceError("this end of the connection was closed")
        while True:
            try:
                await trio.lowlevel.wait_readable(number)
                return self._socket.recv(max_bytes or 65536)
            except (BlockingIOError, InterruptedError):
                pass  # the task was woken without data
            except OSError as exc:
                raise trio.BrokenResourceError(f"the client is gone: {exc}") from exc

    def is_readable(self) -> bool:
        """Return whether there is something to receive: bytes, the end, or an error."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass
        return True

    def send_now(self, data: bytes | memoryview) -> bytes | memoryview:
        """Send the bytes that the kernel accepts without waiting; return the rest."""
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return data
        except OSError as exc:
            # The client has disconnected, or we have closed the socket.
            raise trio.BrokenResourceError(f"the client is gone: {exc}") from exc
        return b"" if sent == len(data) else memoryview(data)[sent:]

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    def close(self) -> None:
        """Close the socket now. Tasks that wait for it get an error."""
        self._stream.socket.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Connection:
    """A client's connection: it answers requests one after the other.

    Attributes:
        party: The client's address; `None` for a trusted proxy, which has many clients.
    """

    reads_ahead = True

    def __init__(self, shared: Shared, stream: trio.abc.Stream) -> None:
        self.limits = shared.limits
        self._shared = shared
        self._bound_to, self._peer = _addresses(stream)
        site = shared.endpoint.site
        self.party = party_of(None, client_address(site, self._peer, {}))
        self._has_seat = self._gives_way = False
        self._unsent: Holding | None = None
        self._stream = (
            Direct(stream) if isinstance(stream, trio.SocketStream) else stream
        )
        #: Bytes of the next request that were received already.
        self._rest = bytearray()
        self._wire: Wire = Plain(self._rest)
        self._conversation: Conversation | None = None
        self._scope = trio.CancelScope()
        self._is_timed = False
        self._sends: Literal["nothing", "head", "body", "all"] = "nothing"
        self._is_new = True
        self._closes = self._has_left = self._is_read = False
        #: The body of the request, if it has arrived with a known head.
        self._data: bytes | None = None
        self._judged = SeenHeads[Judged](shared.limits.head)

    def sit_down(self) -> bool:
        """Take a place among the connections; return whether there was one."""
        seats = self._shared.seats
        while not seats.take(self.party):
            spent = self.party if seats.is_spent(self.party) else None
            if not self._shared.make_room(spent):
                if spent is not None:
                    logger.warning("%s has its share of the connections", spent)
                return False
        self._has_seat = True
        return True

    def vacate(self) -> None:
        """Leave that place, if this connection still has it."""
        if self._has_seat:
            self._has_seat = False
            self._shared.seats.give(self.party)

    def give_way(self) -> None:
        """Close the connection, whose request is incomplete, for another one."""
        self._gives_way = True
        self._shared.arriving.pop(self, None)
        self.vacate()
        self._scope.cancel()

    def leave(self) -> bool:
        """Close the connection, which is idle; return False if a request is arriving."""
        if not isinstance(self._stream, Direct):
            self._scope.cancel()
        elif self._stream.is_readable():
            return False  # answer the bytes that have arrived
        else:
            # Close now. Until a later close the client might send a request, and the
            # kernel would reset the connection.
            self._stream.close()
        del self._shared.idle[self]
        return True

    def finish(self) -> None:
        """Close the connection, which is idle, after a request that is arriving."""
        self._hurry(_LAST)

    async def run(self) -> None:
        """Answer requests until the client or the server closes the connection."""
        lingers = False
        try:
            with self._scope:
                lingers = await self._talk()
            linger = self.limits.linger
            if self._shared.is_closing and self._sends == "nothing":
                linger, lingers = min(linger, _LAST), not self._has_left
            with trio.move_on_after(linger):
                if self._scope.cancelled_caught and self._sends != "nothing":
                    lingers = await self._time_out()
                if lingers and not self._gives_way:
                    await self._hang_up()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            logger.debug("%s is gone: %r", self._peer, exc)
        finally:
            self.vacate()
            self._shared.idle.pop(self, None)
            self._shared.arriving.pop(self, None)
            await trio.aclose_forcefully(self._stream)

    async def turn_away(self) -> None:
        """Answer that there are too many connections, and close this one."""
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
        """Answer requests; return whether the client may have something left to read."""
        try:
            while True:
                head = await self._head()
                if head is None:
                    return False
                if not await self._answer(head):
                    return False
                rest = self._wire.rest()
                if rest is None or self._closes:
                    return True
                self._rest = rest
        except MalformedHttp as exc:
            logger.debug("%s sends no HTTP: %r", self._peer, str(exc))
            return await self._refuse(_malformed(exc.status))

    async def _time_out(self) -> bool:
        if self._sends in ("head", "body"):
            return await self._refuse(refusal(408, "it took too long to arrive"))
        return False

    async def _hang_up(self) -> None:
        """Close the connection in such a way that the client receives all data.

        Closing it while bytes of the client are unread would make the kernel reset the
        connection, and data that is still on its way to the client might get lost.
        """
        stream = self._stream
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
            while await stream.receive_some(_RECEIVE):
                pass
        await stream.aclose()

    # ---- time ----

    def _hurry(self, seconds: float) -> None:
        """Give the client so many seconds for what it does now."""
        self._scope.deadline = trio.current_time() + seconds
        self._is_timed = True

    def _take_time(self) -> None:
        """Give the client as much time as it takes."""
        self._scope.deadline = math.inf
        self._is_timed = False

    # ---- in ----

    async def _receive(self) -> bytes | bytearray:
        data = await self._stream.receive_some(_RECEIVE)
        if self._scope.cancel_called:
            # The deadline has just passed. Do not start a request that could not be
            # answered.
            await trio.lowlevel.checkpoint_if_cancelled()
        return data

    async def _head(self) -> Judged | Head | None:
        limits, idle = self.limits, self._shared.idle
        self._sends = "nothing"
        self._is_read = False
        self._conversation = None
        if self._is_timed:
            self._take_time()
        if not self._rest:
            if self._shared.is_closing:
                self._hurry(_LAST)  # answer only the bytes that have arrived
            elif self._is_new:
                idle[self] = math.inf
                self._hurry(limits.head_time)
            else:
                idle[self] = self._shared.now() + limits.idle
            self._rest = bytearray(await self._receive())
            idle.pop(self, None)
            self._is_new = False
            if not self._rest:
                return None
            if self._rest[0] in _LINE_END and not await self._skip_line():
                return None
        else:
            # Let other tasks run, however many requests a client sends ahead.
            await trio.lowlevel.checkpoint()
        seen = self._judged.take(self._rest)
        head: Judged | Head
        if seen is None:
            head = await self._read()
        else:
            self._wire, self._data = seen.wire, seen.body
            self._is_read = seen.body is not None
            judged = seen.value
            headers = {**judged.headers, "content-length": seen.length}
            head = Judged(judged.head, headers, judged.fields)
        # Authentication takes time that the client is not responsible for.
        self._sends = "all"
        if self._is_timed:
            self._take_time()
        return head

    async def _skip_line(self) -> bool:
        """Skip one empty line before a request (RFC 9112, section 2.2).

        Returns:
            Whether something follows.
        """
        self._sends = "head"
        self._hurry(self.limits.head_time)
        self._shared.arriving[self] = None
        while bytes(self._rest) in _PREFIXES:
            data = await self._receive()
            if not data:
                return False
            self._rest += data
        del self._shared.arriving[self]
        for end in (b"\r\n", b"\n"):
            if self._rest.startswith(end):
                del self._rest[: len(end)]
                break
        return True

    async def _read(self) -> Head:
        limits = self.limits
        self._wire = wire = open_wire(
            self._rest, max_head=limits.head, max_headers=limits.headers
        )
        request = wire.head()
        if request is None:
            self._sends = "head"
            self._hurry(limits.head_time)
            self._shared.arriving[self] = None
            while request is None:
                wire.receive(await self._receive())
                request = wire.head()
            del self._shared.arriving[self]
        return _asked(request, self._bound_to, self._peer)

    def _judge(self, head: Head) -> Judged | Send:
        """Judge a head, and remember the result if the same head may come again."""
        judged = judge(self._shared.endpoint, head)
        if isinstance(judged, Send):
            tell_refusal(self._shared.endpoint, judged, head)
        elif isinstance(self._wire, Plain):
            self._judged.keep(judged)
        return judged

    async def receive(self, add: Callable[[bytes], Send | None]) -> Send | None:
        """Pass the body of this request to `add`; return its refusal."""
        try:
            return await self._body(add)
        except (
            trio.BrokenResourceError,
            trio.ClosedResourceError,
            MalformedHttp,
        ) as exc:
            raise Gone from exc

    async def _body(self, add: Callable[[bytes], Send | None]) -> Send | None:
        wire = self._wire
        self._sends = "body"
        invitation = wire.invitation()
        if invitation:
            await self._write(invitation)
        is_waiting = False
        refused = None
        while refused is None:
            part = wire.part()
            if part is None:
                if not is_waiting:
                    is_waiting = True
                    self._shared.arriving[self] = None
                    self._hurry(self.limits.body_time)
                wire.receive(await self._receive())
            elif part:
                refused = add(part)
            else:
                self._sends = "all"
                break
        if is_waiting:
            del self._shared.arriving[self]
        if self._is_timed:
            self._take_time()
        return refused

    # ---- out ----

    async def _write(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        if isinstance(self._stream, Direct):
            rest = self._stream.send_now(data)
        if not rest:
            return
        self._hurry(self.limits.write)
        if self._unsent is not None:
            await self._stream.send_all(rest)
            return
        talk = self._conversation
        party = self.party if talk is None else talk.party
        holding = self._shared.endpoint.unsent.open(party, self._scope.cancel)
        try:
            if not holding.add(len(rest)):
                self._scope.cancel()
            await self._stream.send_all(rest)
        finally:
            holding.close()

    async def _write_large(self, part: Send, *, closes: bool) -> None:
        """Send a large response in pieces; free each piece that is sent."""
        more, wire, is_whole = part.more, self._wire, part.status is not None
        talk = self._conversation
        assert more is not None
        assert talk is not None  # refusals are small
        with talk.holding_unsent(more, self._scope.cancel) as holding:
            self._unsent = holding
            try:
                await self._write(self._bytes_of(part, closes=closes))
                while more:
                    piece = more.popleft()
                    size = len(piece)
                    is_chunk = not (is_whole and part.is_last)
                    data = wire.chunk(piece) if is_chunk else wire.more(piece)
                    del piece
                    await self._write(data)
                    del data
                    holding.remove(size)
                    # Other clients wait while the kernel copies.
                    await trio.lowlevel.checkpoint()
            finally:
                self._unsent = None
        if part.is_last and not is_whole:
            await self._write(wire.end())

    def _bytes_of(self, part: Send, *, closes: bool = False) -> bytes:
        wire, status = self._wire, part.status
        if status is None:
            data = wire.chunk(part.data) if part.data else b""
            return data + wire.end() if part.is_last and not part.more else data
        fields, date = part.headers, self._shared.date()
        if closes or self._shared.readiness.is_draining:
            self._closes = True
            fields = (*fields, ("Connection", "close"))
        if part.is_last:
            if part.more:
                left = part.length - len(part.data)
                return wire.answer(status, fields, part.data, date, left)
            return wire.answer(status, fields, part.data, date)
        return wire.open(status, fields, date) + wire.chunk(part.data)

    async def _refuse(self, answer: Send) -> bool:
        """Send an error as the last response; return false if it is too late for one."""
        if not self._wire.may_answer:
            return False
        fields = () if self._conversation is None else self._conversation.fields
        answer = Send(answer.status, (*answer.headers, *fields), answer.data)
        await self._write(self._bytes_of(answer, closes=True))
        return True

    # ---- one request: a `Host` ----

    async def _answer(self, head: Judged | Head) -> bool:
        """Answer one request; return whether the client is still connected."""
        shared = self._shared
        self._has_left = False
        judged = head if isinstance(head, Judged) else self._judge(head)
        data, self._data = self._data, None  # an idle connection keeps no body
        talk = Conversation(shared.endpoint, judged, data=data, clock=shared.now)
        self._conversation = talk
        try:
            await converse(shared.loop, talk, self, shared.calls)
        except Gone as exc:
            if isinstance(exc.__cause__, MalformedHttp):
                raise exc.__cause__ from None
            return False
        except Exception:
            logger.exception("answering a request failed")
            return False
        return not self._has_left

    async def send(self, part: Send) -> None:
        """Send a response, or a part of one."""
        # A response before the end of the request's body announces the close.
        closes = not (part.status is None or self._is_read or self._wire.skip())
        try:
            if part.more:
                await self._write_large(part, closes=closes)
            else:
                await self._write(self._bytes_of(part, closes=closes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self._has_left = True
            raise Gone from exc
        if not part.is_last:
            if self._is_timed:
                self._take_time()
            await trio.lowlevel.checkpoint()

    async def wait(self, work: Work[T], beside: Doing) -> T | None:
        """Run `work()`; cancel it and return `None` if the client disconnects first."""
        found = await self._shared.disconnects.unless(work, self._gone, beside)
        if found is None:
            self._has_left = True
        return found

    async def _gone(self) -> None:
        ahead = 0
        try:
            while True:
                if ahead > self.limits.head:
                    # Read no more of a client that sends requests without waiting for
                    # responses.
                    await trio.sleep_forever()
                data = await self._stream.receive_some(_RECEIVE)
                if not data:
                    break
                self._wire.receive(data)
                ahead += len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


def _malformed(status: int) -> Send:
    if status == 431:
        return refusal(status, "the head of the request is too large")
    return refusal(status, "the request is not valid HTTP/1.1")


def _asked(request: RequestHead, bound_to: str | None, peer: str | None) -> Head:
    method, target, headers = request
    if not target.startswith("/") and "://" in target:
        # The absolute form, meant for proxies, which servers must accept. Its authority
        # replaces the Host header (RFC 9112, section 3.2.2).
        authority, slash, path = target.partition("://")[2].partition("/")
        target = slash + path
        assert not isinstance(headers, dict)  # only h11 reads such a target
        headers = [
            (name, authority if name == "host" else value) for name, value in headers
        ]
    path = target.partition("?")[0]
    return Head(method, path, headers, bound_to, peer)


def _addresses(stream: trio.abc.Stream) -> tuple[str | None, str | None]:
    """Return the server's and the client's address; `None` for streams without them."""
    if isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if not isinstance(stream, trio.SocketStream):
        return None, None
    try:
        ends = stream.socket.getsockname(), stream.socket.getpeername()
    except OSError:
        return None, None  # the client has disconnected already
    # Internet addresses are tuples; addresses of Unix sockets are paths.
    bound_to, peer = (end[0] if isinstance(end, tuple) else None for end in ends)
    return bound_to, peer
