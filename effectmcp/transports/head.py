"""Heads as MCP clients send them, read strictly or not at all; and of answers. Pure.

    read(data)               the one shape of request, or `None`: it is for h11
    write(status, fields)    the head of an answer

The shape is

    POST /path HTTP/1.1      origin-form, and nothing else (RFC 9112, section 3.2.1)
    name: value              each name once; visible ASCII, spaces and tabs
    Host, Content-Length     are there
    Connection               is not there, or says keep-alive
    Transfer-Encoding, Expect, Upgrade    are not there

and all of it is here already. Requests are smuggled where two readers of the same bytes
differ about where a message ends (RFC 9112, section 11.2), so nothing is repaired here
and nothing is guessed. Whatever is torn, folded, doubled, ended by a bare LF, or merely
unusual is h11's to read or to refuse, and a test has h11 read all that is accepted.
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
    """The head of a request: names in lower case, values without the spaces around.

    `headers` is a dict where it is known that no name came twice.
    """

    method: str
    target: str
    headers: dict[str, str] | list[tuple[str, str]]


class Found(NamedTuple):
    """A head of the one shape.

    Attributes:
        request: What it says.
        end: Where its body begins.
        length: Bytes that its body has.
    """

    request: Request
    end: int
    length: int


_TOKEN: Final = r"[-!#$%&'*+.^_`|~0-9A-Za-z]++"

# Within a line the quantifiers are possessive, so that no text takes more than one pass.
# A line cannot be a folded one (RFC 9112, section 5.2): no name begins with a space.
_FIRST: Final = re.compile(r"POST (/[!-~]*+) HTTP/1\.1\r\n")
_LINE: Final = re.compile(rf"^({_TOKEN}):[\t ]*+([\t -~]*+)\r\n", re.MULTILINE)

#: These change where a message ends, or who speaks next.
_FOREIGN: Final = frozenset({"transfer-encoding", "expect", "upgrade"})

#: Digits of a length. Ten are beyond any site, and within what every reader can count.
_DIGITS: Final = 10


def read(data: bytes | bytearray, *, size: int, count: int) -> Found | None:
    """The head that `data` begins with, if it is of the one shape.

    Args:
        data: What is here, from the start of a message.
        size: Bytes that a head may have.
        count: Headers that it may have.
    """
    end = data.find(b"\r\n\r\n", 0, size)
    if end < 0:
        return None
    # A replacement character is no part of any line.
    text = data[: end + 2].decode("ascii", "replace")
    first = _FIRST.match(text)
    if first is None:
        return None
    lines = text[first.end() :]
    found = _LINE.findall(lines)
    if not found or len(found) != lines.count("\n"):
        return None  # one of them is none
    headers = {name.lower(): value for name, value in found}
    if " \r" in lines or "\t\r" in lines:
        headers = {name: value.rstrip(" \t") for name, value in headers.items()}
    length = headers.get("content-length", "")
    if (
        len(headers) < len(found)  # a name came twice
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
        rest: All of it but the digits of its Content-Length.
        end: Where its body begins.
        length: The digits.
    """

    rest: bytes
    end: int
    length: bytes


_LENGTH: Final = re.compile(
    rb"\r\nContent-Length: ([0-9]{1,%d})(?=\r\n)" % _DIGITS, re.IGNORECASE
)


def split(data: bytes | bytearray, *, size: int) -> Split | None:
    """Take the digits of its length out of the head that `data` begins with.

    Two heads with the same rest differ in nothing else, so what `read` says of one it
    says of the other: there is one length in either, where `read` found one.

    Args:
        data: What is here, from the start of a message.
        size: Bytes that a head may have, to be looked at here.
    """
    end = data.find(b"\r\n\r\n", 0, size)
    found = _LENGTH.search(data, 0, end + 2) if end >= 0 else None
    if found is None:
        return None
    start, stop = found.span(1)
    return Split(bytes(data[:start] + data[stop:end]), end + 4, found[1])


# A line end within would make two fields of one, and spaces around are lost on the way.
_FIELD: Final = re.compile(rf"{_TOKEN}\n(?:[!-~]++(?:[\t ]++[!-~]++)*)?")


_STATUS: Final = {
    status: f"HTTP/1.1 {status} {phrase}\r\n" for status, phrase in PHRASES.items()
}


def write(status: int, fields: Iterable[tuple[str, str]]) -> bytes:
    """The head of an answer.

    Args:
        status: The status.
        fields: Its headers, in order.

    Raises:
        ValueError: One of them is none. Some have in them what a client sent.
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
