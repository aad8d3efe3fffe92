"""Read the usual heads of MCP clients, and write heads of responses. No I/O.

    read(data)               the head, or `None` if h11 must read it
    write(status, fields)    the head of a response

The one accepted form of head is

    POST /path HTTP/1.1      origin-form, and nothing else (RFC 9112, section 3.2.1)
    name: value              each name once; visible ASCII, spaces and tabs
    Host, Content-Length     are present
    Connection               is absent, or keep-alive
    Transfer-Encoding, Expect, Upgrade    are absent

and `data` must contain all of it. Requests are smuggled where two readers of the same
bytes differ about where a message ends (RFC 9112, section 11.2), so nothing is repaired
or guessed here. h11 reads or refuses every other head: incomplete, with folded lines,
repeated names or bare LFs, or merely unusual. A test has h11 read all heads that are
accepted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from .remembered import remembered

__all__ = ["PHRASES", "Fields", "Found", "Request", "Split", "read", "split", "write"]

Fields: TypeAlias = tuple[tuple[str, str], ...]

PHRASES: Final = {one.value: one.phrase for one in HTTPStatus}


class Request(NamedTuple):
    """The head of a request: names in lower case, values without surrounding spaces.

    `headers` is a dict if it is known that no name was repeated.
    """

    method: str
    target: str
    headers: dict[str, str] | list[tuple[str, str]]


class Found(NamedTuple):
    """A head of the accepted form.

    Attributes:
        request: The parsed head.
        end: The index where the body starts.
        length: The length of the body in bytes.
    """

    request: Request
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


def read(data: bytes | bytearray, *, size: int, count: int) -> Found | None:
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
    return Found(Request("POST", first[1], headers), end + 4, int(length))


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


@remembered
def _line(field: str) -> str:
    name, _, value = field.partition("\n")
    if not _FIELD.fullmatch(field):
        raise ValueError(f"{name!r}: {value!r} is no header")
    return f"{name}: {value}\r\n"
