"""One request and its response, as bytes of HTTP/1.1. No I/O.

A `Wire` reads the request and writes the response. There are two kinds, chosen by the
first bytes of the message:

    Plain    for a head that `head.read` accepts, as MCP clients send it
    ByH11    for all others, and for bytes that are not HTTP at all

A wire is chosen again for each message; `rest` returns what has arrived of the next one.
`Plain` exists because h11 takes most of the time of a simple request. For a request that
both can read, their results and the bytes they write are the same; tests compare them.
"""

from __future__ import annotations

from typing import Final, Protocol

import h11

from .head import PHRASES, Fields, Found, Request, read, write
from .web import Send, length_of

__all__ = ["ByH11", "Malformed", "Plain", "Wire", "open_wire"]

#: A body with more chunks than this, and fewer bytes per chunk, is an attack: each chunk
#: costs the server a hundred times what it costs the sender.
_FREE_CHUNKS: Final = 4_096
_CHUNK_BYTES: Final = 256


class Malformed(Exception):
    """Raised when a client sends bytes that are not valid HTTP, or not supported.

    Attributes:
        status: The status of the response.
    """

    def __init__(self, problem: str, status: int = 400) -> None:
        super().__init__(problem)
        self.status = status


class Wire(Protocol):
    """Interface of one request and its response, as bytes."""

    def receive(self, data: bytes | bytearray) -> None:
        """Add bytes that the client sent; no bytes if it has closed its side."""

    def head(self) -> Request | None:
        """Return the head of the request; `None` until all of it has arrived.

        Raises:
            Malformed: If the head is invalid.
        """

    def ready(self) -> bytes | None:
        """Return the whole body; `None` if it must be read with `part`."""

    def invitation(self) -> bytes:
        """Return the 100 Continue that a client may wait for (RFC 9110, 10.1.1)."""

    def part(self) -> bytes | None:
        """Return the next bytes of the body; `None` if none have arrived; `b""` at its end.

        Raises:
            Malformed: If the body is invalid or incomplete.
        """

    def skip(self) -> bool:
        """Drop the bytes of the body that have arrived; return whether it is complete."""

    @property
    def may_answer(self) -> bool:
        """Whether no response has started yet."""

    def answer(self, status: int, fields: Fields, body: bytes, date: bytes) -> bytes:
        """Return a whole response, with its date and length."""

    def open(self, status: int, fields: Fields, date: bytes) -> bytes:
        """Return the head of a response whose length is not known yet."""

    def chunk(self, data: bytes) -> bytes:
        """Return a part of that response."""

    def end(self) -> bytes:
        """Return the end of that response."""

    def rest(self) -> bytearray | None:
        """Return the bytes of the next message; `None` if the connection must close."""


def open_wire(buffer: bytearray, *, max_head: int, max_headers: int) -> Wire:
    """Return the wire for the message that `buffer` starts with.

    Args:
        buffer: The first bytes of the message, or more. The wire owns it from now on.
        max_head: The maximum size of a head in bytes.
        max_headers: The maximum number of headers.
    """
    found = read(buffer, size=max_head, count=max_headers)
    if found is None:
        return ByH11(buffer, max_head=max_head, max_headers=max_headers)
    return Plain(buffer, found)


class Plain:
    """The wire of a request whose head `head.read` accepts.

    Without a request, it only writes a response, to refuse a connection.
    """

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
        self._has_begun = True  # do not try again if the head cannot be written
        length = b"" if status == 204 else b"Content-Length: %d\r\n" % len(body)
        data = b"%bDate: %b\r\n%b\r\n%b" % (_start(status, fields), date, length, body)
        self._has_ended = True
        return data

    def open(self, status: int, fields: Fields, date: bytes) -> bytes:
        self._has_begun = True
        chunked = b"Transfer-Encoding: chunked\r\n"
        return b"%bDate: %b\r\n%b\r\n" % (_start(status, fields), date, chunked)

    def chunk(self, data: bytes) -> bytes:
        # An empty chunk would be the last one (RFC 9112, section 7.1).
        assert data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def end(self) -> bytes:
        self._has_ended = True
        return b"0\r\n\r\n"

    def rest(self) -> bytearray | None:
        return self._buffer if self._has_ended and not self._missing else None


#: Heads of responses, without date and length. Few of them contain a client's values.
_starts: dict[tuple[int, Fields], bytes] = {}
_STARTS: Final = 64
_LONGEST: Final = 512


def _start(status: int, fields: Fields) -> bytes:
    """Return the head of a response, without its date, its length and its end."""
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
    """The wire of any other bytes: h11 reads them as a request, or refuses them."""

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
        # h11 checks the size of a head only while it is incomplete.
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
            # h11 obeys Transfer-Encoding. A proxy in front of us may obey Content-Length,
            # and forward as a body what is a request here (RFC 9112, section 6.3).
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
            return False  # a response is being sent, and nothing more is read
        return self._http.their_state is not h11.SEND_BODY

    @property
    def may_answer(self) -> bool:
        return self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def answer(self, status: int, fields: Fields, body: bytes, date: bytes) -> bytes:
        length = length_of(Send(status, fields, body))
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
