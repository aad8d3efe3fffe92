"""One request and its response, as bytes of HTTP/1.1. No I/O.

A `Wire` reads the request and writes the response. There are two kinds, chosen by the
first bytes of the message:

    Plain    for a head that `read` accepts, as MCP clients send it
    ByH11    for all others, and for bytes that are not HTTP at all

A wire is chosen again for each message; `rest` returns what has arrived of the next one.
`Plain` exists because h11 takes most of the time of a simple request. For a request that
both can read, their results and the bytes they write are the same; tests compare them.

The one form of head that `read` accepts is

    POST /path HTTP/1.1      origin-form, and nothing else (RFC 9112, section 3.2.1)
    name: value              each name once; visible ASCII, spaces and tabs
    Host, Content-Length     are present
    Connection               is absent, or keep-alive
    Transfer-Encoding, Expect, Upgrade    are absent

and the data must contain all of it. Requests are smuggled where two readers of the same
bytes differ about where a message ends (RFC 9112, section 11.2), so nothing is repaired
or guessed here. h11 reads or refuses every other head: incomplete, with folded lines,
repeated names or bare LFs, or merely unusual. A test has h11 read all heads that are
accepted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import h11
from attrs import define, field

from .caching import cached
from .web import Send, length_of

__all__ = [
    "PHRASES",
    "ByH11",
    "Fields",
    "FoundHead",
    "MalformedHttp",
    "Plain",
    "RequestHead",
    "Seen",
    "SeenHeads",
    "Split",
    "Wire",
    "open_wire",
    "read",
    "split",
    "write",
]

# ---- heads --------------------------------------------------------------------------


T = TypeVar("T")

Fields: TypeAlias = tuple[tuple[str, str], ...]

PHRASES: Final = {one.value: one.phrase for one in HTTPStatus}


class RequestHead(NamedTuple):
    """The head of a request: names in lower case, values without surrounding spaces.

    `headers` is a dict if it is known that no name was repeated.
    """

    method: str
    target: str
    headers: dict[str, str] | list[tuple[str, str]]


class FoundHead(NamedTuple):
    """A head of the accepted form.

    Attributes:
        request: The parsed head.
        end: The index where the body starts.
        length: The length of the body in bytes.
    """

    request: RequestHead
    end: int
    length: int


_TOKEN: Final = r"[-!#$%&'*+.^_`|~0-9A-Za-z]++"

# Within a line the quantifiers are possessive, so that every input takes one pass.
# No folded line matches (RFC 9112, section 5.2): names do not start with a space.
_FIRST: Final = re.compile(r"POST (/[!-~]*+) HTTP/1\.1\r\n")
_LINE: Final = re.compile(rf"^({_TOKEN}):[\t ]*+([\t -~]*+)\r\n", re.MULTILINE)

#: These change where a message ends, or which side sends next.
_FOREIGN: Final = frozenset({"transfer-encoding", "expect", "upgrade"})

#: Digits of a length. Ten are more than any site needs, and no reader overflows.
_DIGITS: Final = 10


def read(data: bytes | bytearray, *, size: int, count: int) -> FoundHead | None:
    """Return the head that `data` starts with, if it has the accepted form.

    Args:
        data: The bytes received so far, from the start of a message.
        size: The maximum size of a head in bytes.
        count: The maximum number of headers.
    """
    end = data.find(b"\r\n\r\n", 0, size)
    if end < 0:
        return None
    # No line matches with a replacement character.
    text = data[: end + 2].decode("ascii", "replace")
    first = _FIRST.match(text)
    if first is None:
        return None
    lines = text[first.end() :]
    found = _LINE.findall(lines)
    if not found or len(found) != lines.count("\n"):
        return None  # a line is not a header
    headers = {name.lower(): value for name, value in found}
    if " \r" in lines or "\t\r" in lines:
        headers = {name: value.rstrip(" \t") for name, value in headers.items()}
    length = headers.get("content-length", "")
    if (
        len(headers) < len(found)  # a name was repeated
        or len(found) > count
        or "host" not in headers
        or not length.isdigit()
        or len(length) > _DIGITS
        or not _FOREIGN.isdisjoint(headers)
        or headers.get("connection", "keep-alive").lower() != "keep-alive"
    ):
        return None
    return FoundHead(RequestHead("POST", first[1], headers), end + 4, int(length))


class Split(NamedTuple):
    """A head in two parts.

    Attributes:
        rest: The bytes of the head, without the digits of its Content-Length.
        end: The index where the body starts.
        length: The digits.
    """

    rest: bytes
    end: int
    length: bytes


_LENGTH: Final = re.compile(
    rb"\r\nContent-Length: ([0-9]{1,%d})(?=\r\n)" % _DIGITS, re.IGNORECASE
)


def split(data: bytes | bytearray, *, size: int) -> Split | None:
    """Split the head that `data` starts with: the digits of its length, and the rest.

    Two heads with the same rest differ only in these digits. So `read` accepts both or
    none, and its results differ only in the length: it accepts no head with two lengths.

    Args:
        data: The bytes received so far, from the start of a message.
        size: The maximum size of a head in bytes; `None` is returned for a longer one.
    """
    end = data.find(b"\r\n\r\n", 0, size)
    found = _LENGTH.search(data, 0, end + 2) if end >= 0 else None
    if found is None:
        return None
    start, stop = found.span(1)
    return Split(bytes(data[:start] + data[stop:end]), end + 4, found[1])


#: How many heads of a connection are kept, and how many bytes each may have.
_HEADS: Final = 8
_LONGEST_HEAD: Final = 2_048


class Seen(NamedTuple, Generic[T]):
    """A request whose head came before.

    Attributes:
        value: What was kept for this head.
        length: The Content-Length, as it was sent.
        wire: The wire that reads the rest of the request.
        body: The body, if all of it has arrived.
    """

    value: T
    length: str
    wire: Plain
    body: bytes | None


class SeenHeads(Generic[T]):
    """The heads that came before on a connection, as clients send few different ones.

    A head is known by its bytes without the digits of its Content-Length.

    Args:
        size: The maximum size of a head in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = min(size, _LONGEST_HEAD)
        self._known: dict[bytes, T] = {}
        self._latest: bytes | None = None

    def take(self, data: bytearray) -> Seen[T] | None:
        """Take a request with a known head from the start of `data`, if there is one."""
        found = split(data, size=self._size)
        self._latest = None if found is None else found.rest
        value = None if found is None else self._known.get(found.rest)
        if found is None or value is None:
            return None
        length = int(found.length)
        body, end = None, found.end + length
        if len(data) >= end:
            body, length = bytes(data[found.end : end]), 0
            del data[:end]
        else:
            del data[: found.end]
        return Seen(value, found.length.decode(), Plain(data, missing=length), body)

    def keep(self, value: T) -> None:
        """Keep a value for the head that `take` has looked at last."""
        if self._latest is not None:
            if len(self._known) >= _HEADS:
                self._known.clear()
            self._known[self._latest] = value


# A line end in a value would start another header, and readers drop spaces around it.
_FIELD: Final = re.compile(rf"{_TOKEN}\n(?:[!-~]++(?:[\t ]++[!-~]++)*)?")


_STATUS: Final = {
    status: f"HTTP/1.1 {status} {phrase}\r\n" for status, phrase in PHRASES.items()
}


def write(status: int, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of a response.

    Args:
        status: The status.
        fields: Its headers, in order.

    Raises:
        ValueError: If a header is invalid. Some repeat a value that a client sent.
    """
    lines = [_STATUS.get(status) or f"HTTP/1.1 {status} \r\n"]
    lines += [_line(f"{name}\n{value}") for name, value in fields]
    lines.append("\r\n")
    return "".join(lines).encode("ascii")


@cached
def _line(field: str) -> str:
    name, _, value = field.partition("\n")
    if not _FIELD.fullmatch(field):
        raise ValueError(f"{name!r}: {value!r} is no header")
    return f"{name}: {value}\r\n"


# ---- messages -----------------------------------------------------------------------


#: A body with more chunks than this, and fewer bytes per chunk, is an attack: each chunk
#: costs the server a hundred times what it costs the sender.
_FREE_CHUNKS: Final = 4_096
_CHUNK_BYTES: Final = 256


class MalformedHttp(Exception):
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
        ...

    def head(self) -> RequestHead | None:
        """Return the head of the request; `None` until all of it has arrived.

        Raises:
            MalformedHttp: If the head is invalid.
        """
        ...

    def invitation(self) -> bytes:
        """Return the 100 Continue that a client may wait for (RFC 9110, 10.1.1)."""
        ...

    def part(self) -> bytes | None:
        """Return the next bytes of the body; `None` if none have arrived; `b""` at its end.

        Raises:
            MalformedHttp: If the body is invalid or incomplete.
        """
        ...

    def skip(self) -> bool:
        """Drop the bytes of the body that have arrived; return whether it is complete."""
        ...

    @property
    def may_answer(self) -> bool:
        """Whether no response has started yet."""
        ...

    def answer(
        self, status: int, fields: Fields, body: bytes, date: bytes, left: int = 0
    ) -> bytes:
        """Return a whole response, with its date and length.

        Args:
            status: The status.
            fields: The headers.
            body: The body.
            date: The date.
            left: How many bytes of the body follow in `more`.
        """
        ...

    def more(self, data: bytes) -> bytes:
        """Return further bytes of the body of an answer."""
        ...

    def open(self, status: int, fields: Fields, date: bytes) -> bytes:
        """Return the head of a response whose length is not known yet."""
        ...

    def chunk(self, data: bytes) -> bytes:
        """Return a part of that response."""
        ...

    def end(self) -> bytes:
        """Return the end of that response."""
        ...

    def rest(self) -> bytearray | None:
        """Return the bytes of the next message; `None` if the connection must close."""
        ...


def open_wire(buffer: bytearray, *, max_head: int, max_headers: int) -> Wire:
    """Return the wire for the message that `buffer` starts with.

    Args:
        buffer: The first bytes of the message, or more. The wire owns it afterwards.
        max_head: The maximum size of a head in bytes.
        max_headers: The maximum number of headers.
    """
    found = read(buffer, size=max_head, count=max_headers)
    if found is None:
        return ByH11(buffer, max_head=max_head, max_headers=max_headers)
    del buffer[: found.end]
    return Plain(buffer, found.request, found.length)


@define(eq=False)
class Plain:
    """The wire of a request whose head `read` accepts.

    Without a request, it only writes a response, to refuse a connection.
    """

    _buffer: bytearray
    _request: RequestHead | None = None
    _missing: int = field(default=0, alias="missing")
    _is_cut: bool = False
    _has_begun: bool = False
    _has_ended: bool = False
    _left: int = 0

    def receive(self, data: bytes | bytearray) -> None:
        if data:
            self._buffer += data
        else:
            self._is_cut = True

    def head(self) -> RequestHead | None:
        return self._request

    def invitation(self) -> bytes:
        return b""

    def part(self) -> bytes | None:
        if not self._missing:
            return b""
        part = bytes(self._buffer[: self._missing])
        del self._buffer[: self._missing]
        self._missing -= len(part)
        if not part and self._is_cut:
            raise MalformedHttp("the body breaks off")
        return part or None

    def skip(self) -> bool:
        if self._missing:
            self.part()
        return not self._missing

    @property
    def may_answer(self) -> bool:
        return not self._has_begun

    def answer(
        self, status: int, fields: Fields, body: bytes, date: bytes, left: int = 0
    ) -> bytes:
        self._has_begun = True  # do not try again if the head cannot be written
        size = len(body) + left
        length = b"" if status == 204 else b"Content-Length: %d\r\n" % size
        data = b"%bDate: %b\r\n%b\r\n%b" % (_start(status, fields), date, length, body)
        self._left = left
        self._has_ended = not left
        return data

    def more(self, data: bytes) -> bytes:
        self._left -= len(data)
        self._has_ended = not self._left
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
        self._size = self._chunks = self._left = 0

    def receive(self, data: bytes | bytearray) -> None:
        self._http.receive_data(bytes(data))
        self._received += len(data)

    def _next(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as exc:
            raise MalformedHttp(str(exc), exc.error_status_hint) from exc

    def head(self) -> RequestHead | None:
        event = self._next()
        if event is h11.NEED_DATA:
            return None
        assert isinstance(event, h11.Request)
        # h11 checks the size of a head only while it is incomplete.
        if self._received - len(self._http.trailing_data[0]) > self._max_head:
            raise MalformedHttp("too large a head", 431)
        if len(event.headers) > self._max_headers:
            raise MalformedHttp("too many headers", 431)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in event.headers
        ]
        names = {name for name, _ in headers}
        if "content-length" in names and "transfer-encoding" in names:
            # h11 obeys Transfer-Encoding. A proxy in front of us may obey Content-Length,
            # and forward as a body what is a request here (RFC 9112, section 6.3).
            raise MalformedHttp("two lengths")
        method = event.method.decode("latin-1")
        self._is_head = method == "HEAD"
        return RequestHead(method, event.target.decode("latin-1"), headers)

    def invitation(self) -> bytes:
        if not self._http.they_are_waiting_for_100_continue:
            return b""
        return self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def part(self) -> bytes | None:
        if self._chunks > _FREE_CHUNKS + self._size // _CHUNK_BYTES:
            raise MalformedHttp("the chunks are too small")
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
        except MalformedHttp:
            return False  # a response is being sent, and nothing more is read
        return self._http.their_state is not h11.SEND_BODY

    @property
    def may_answer(self) -> bool:
        return self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def answer(
        self, status: int, fields: Fields, body: bytes, date: bytes, left: int = 0
    ) -> bytes:
        length = length_of(Send(status, fields, body))
        if left:
            length = (("Content-Length", str(len(body) + left)),)
        data = self._start(status, (*fields, ("Date", date.decode()), *length))
        if body and not self._is_head:
            data += self.chunk(body)
        self._left = left
        return data if left else data + self.end()

    def more(self, data: bytes) -> bytes:
        self._left -= len(data)
        sent = self.chunk(data)
        return sent if self._left else sent + self.end()

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
