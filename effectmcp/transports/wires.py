"""One request and its answer, as bytes of HTTP/1.1. Pure.

A `Wire` reads the one and writes the other. There are two kinds, and the bytes that a
message begins with choose:

    Plain    a head that `head.read` knows, which is what MCP clients send
    ByH11    all others, and what is no HTTP at all

The next message chooses anew: `rest` is what the client sent of it already. h11 takes
most of the time that a bare request takes, and `Plain` is there to save it. Where both
can read a request they say the same, byte for byte, and tests hold them to that.
"""

from __future__ import annotations

from typing import Final, Protocol

import h11

from .head import PHRASES, Fields, Found, Request, read, write

__all__ = ["ByH11", "Malformed", "Plain", "Wire", "open_wire"]

#: A body in more chunks than this, and of fewer bytes a chunk, is no honest one: each
#: costs us a hundred times what it costs its sender.
_FREE_CHUNKS: Final = 4_096
_CHUNK_BYTES: Final = 256


class Malformed(Exception):
    """What a client sends is no HTTP that is understood here.

    Attributes:
        status: What to answer.
    """

    def __init__(self, problem: str, status: int = 400) -> None:
        super().__init__(problem)
        self.status = status


class Wire(Protocol):
    """One request, and the answer to it."""

    def receive(self, data: bytes | bytearray) -> None:
        """Take what else the client sent; nothing, where it sends no more."""

    def head(self) -> Request | None:
        """The head of the request, once all of it is here.

        Raises:
            Malformed: It is none.
        """

    def ready(self) -> bytes | None:
        """The whole body, if all of it is here and can be told at once."""

    def invitation(self) -> bytes:
        """What a client may want to hear before it sends a body (RFC 9110, 10.1.1)."""

    def part(self) -> bytes | None:
        """What is here of the body, `None` for nothing yet, and at its end no bytes.

        Raises:
            Malformed: It is none.
        """

    def skip(self) -> bool:
        """Drop what is here of the body; returns whether that was all of it."""

    @property
    def may_answer(self) -> bool:
        """Whether no answer has begun."""

    def answer(self, status: int, fields: Fields, body: bytes, date: bytes) -> bytes:
        """A whole answer, with its date and with how long it is."""

    def open(self, status: int, fields: Fields, date: bytes) -> bytes:
        """The head of an answer whose length nobody knows yet."""

    def chunk(self, data: bytes) -> bytes:
        """A part of that answer."""

    def end(self) -> bytes:
        """Its end."""

    def rest(self) -> bytearray | None:
        """What is here of the next message; `None` where there can be none."""


def open_wire(buffer: bytearray, *, max_head: int, max_headers: int) -> Wire:
    """The wire for the message that `buffer` begins with.

    Args:
        buffer: Some bytes of it, at least; the wire's from now on.
        max_head: Bytes that a head may have.
        max_headers: Headers that it may have.
    """
    found = read(buffer, size=max_head, count=max_headers)
    if found is None:
        return ByH11(buffer, max_head=max_head, max_headers=max_headers)
    return Plain(buffer, found)


class Plain:
    """A request of the one shape, with its head here; or none, to turn a client away."""

    def __init__(self, buffer: bytearray, found: Found | None = None) -> None:
        self._buffer = buffer
        self._request: Request | None = None
        self._missing = 0
        self._is_cut = False
        self._has_begun = self._has_ended = False
        if found is not None:
            self._request, end, self._missing = found
            del buffer[:end]

    @classmethod
    def known(cls, buffer: bytearray, end: int, length: int) -> Plain:
        """Return the wire of a request whose head was read before."""
        wire = cls(buffer)
        wire._missing = length
        del buffer[:end]
        return wire

    def receive(self, data: bytes | bytearray) -> None:
        if data:
            self._buffer += data
        else:
            self._is_cut = True

    def head(self) -> Request | None:
        return self._request

    def ready(self) -> bytes | None:
        if len(self._buffer) < self._missing:
            return None
        body = bytes(self._buffer[: self._missing])
        del self._buffer[: self._missing]
        self._missing = 0
        return body

    def invitation(self) -> bytes:
        return b""

    def part(self) -> bytes | None:
        if not self._missing:
            return b""
        part = bytes(self._buffer[: self._missing])
        del self._buffer[: self._missing]
        self._missing -= len(part)
        if not part and self._is_cut:
            raise Malformed("the body breaks off")
        return part or None

    def skip(self) -> bool:
        if self._missing:
            self.part()
        return not self._missing

    @property
    def may_answer(self) -> bool:
        return not self._has_begun

    def answer(self, status: int, fields: Fields, body: bytes, date: bytes) -> bytes:
        self._has_begun = True  # a head that cannot be written is not tried again
        length = b"" if status == 204 else b"Content-Length: %d\r\n" % len(body)
        data = b"%bDate: %b\r\n%b\r\n%b" % (_start(status, fields), date, length, body)
        self._has_ended = True
        return data

    def open(self, status: int, fields: Fields, date: bytes) -> bytes:
        self._has_begun = True
        chunked = b"Transfer-Encoding: chunked\r\n"
        return b"%bDate: %b\r\n%b\r\n" % (_start(status, fields), date, chunked)

    def chunk(self, data: bytes) -> bytes:
        # None is empty: that one would be the last (RFC 9112, section 7.1).
        assert data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def end(self) -> bytes:
        self._has_ended = True
        return b"0\r\n\r\n"

    def rest(self) -> bytearray | None:
        return self._buffer if self._has_ended and not self._missing else None


#: Heads of answers, but for what differs each time. Few of them have a client's words.
_starts: dict[tuple[int, Fields], bytes] = {}
_STARTS: Final = 64
_LONGEST: Final = 512


def _start(status: int, fields: Fields) -> bytes:
    """The head of an answer, less its end."""
    known = _starts.get((status, fields))
    if known is not None:
        return known
    start = write(status, fields).removesuffix(b"\r\n")
    if len(start) <= _LONGEST:
        if len(_starts) >= _STARTS:
            _starts.clear()
        _starts[status, fields] = start
    return start


class ByH11:
    """Any request, or what is none."""

    def __init__(self, buffer: bytearray, *, max_head: int, max_headers: int) -> None:
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=max_head)
        self._http.receive_data(bytes(buffer))
        self._received = len(buffer)
        self._max_head = max_head
        self._max_headers = max_headers
        self._is_head = False
        self._size = self._chunks = 0

    def receive(self, data: bytes | bytearray) -> None:
        self._http.receive_data(bytes(data))
        self._received += len(data)

    def _next(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as exc:
            raise Malformed(str(exc), exc.error_status_hint) from exc

    def head(self) -> Request | None:
        event = self._next()
        if event is h11.NEED_DATA:
            return None
        assert isinstance(event, h11.Request)
        # h11 looks at the size of a head only while it is incomplete.
        if self._received - len(self._http.trailing_data[0]) > self._max_head:
            raise Malformed("too large a head", 431)
        if len(event.headers) > self._max_headers:
            raise Malformed("too many headers", 431)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in event.headers
        ]
        names = {name for name, _ in headers}
        if "content-length" in names and "transfer-encoding" in names:
            # h11 believes the second. A proxy in front of us may believe the first, and
            # take for a body what is a request here (RFC 9112, section 6.3).
            raise Malformed("two lengths")
        method = event.method.decode("latin-1")
        self._is_head = method == "HEAD"
        return Request(method, event.target.decode("latin-1"), headers)

    def ready(self) -> bytes | None:
        return None

    def invitation(self) -> bytes:
        if not self._http.they_are_waiting_for_100_continue:
            return b""
        return self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def part(self) -> bytes | None:
        if self._chunks > _FREE_CHUNKS + self._size // _CHUNK_BYTES:
            raise Malformed("the chunks are too small")
        event = self._next()
        if event is h11.NEED_DATA:
            return None
        if isinstance(event, h11.Data):
            self._size += len(event.data)
            self._chunks += event.chunk_start
            return bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        return b""

    def skip(self) -> bool:
        try:
            while isinstance(self._next(), h11.Data):
                pass
        except Malformed:
            return False  # it is answered already, and nothing more is read
        return self._http.their_state is not h11.SEND_BODY

    @property
    def may_answer(self) -> bool:
        return self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def answer(self, status: int, fields: Fields, body: bytes, date: bytes) -> bytes:
        length = () if status == 204 else (("Content-Length", str(len(body))),)
        data = self._start(status, (*fields, ("Date", date.decode()), *length))
        if body and not self._is_head:
            data += self.chunk(body)
        return data + self.end()

    def open(self, status: int, fields: Fields, date: bytes) -> bytes:
        return self._start(status, (*fields, ("Date", date.decode())))

    def _start(self, status: int, fields: Fields) -> bytes:
        reason = PHRASES.get(status, "")
        return self._send(
            h11.Response(status_code=status, headers=list(fields), reason=reason)
        )

    def chunk(self, data: bytes) -> bytes:
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        return self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    def rest(self) -> bytearray | None:
        if not self._http.our_state is self._http.their_state is h11.DONE:
            return None
        return bytearray(self._http.trailing_data[0])
