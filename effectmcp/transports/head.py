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

__all__ = ["PHRASES", "Fields", "Found", "Request", "read", "write"]

Fields: TypeAlias = Iterable[tuple[str, str]]

PHRASES: Final = {one.value: one.phrase for one in HTTPStatus}


class Request(NamedTuple):
    """The head of a request: names in lower case, values without the spaces around."""

    method: str
    target: str
    headers: list[tuple[str, str]]


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
_HEAD: Final = re.compile(
    rf"POST (/[!-~]*+) HTTP/1\.1\r\n((?:{_TOKEN}:[\t -~]*+\r\n)+)\r\n".encode()
)

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
    match = _HEAD.match(data, 0, size)
    if match is None:
        return None
    lines = match[2].decode("ascii").split("\r\n")
    lines.pop()
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" \t")
    length = headers.get("content-length", "")
    if (
        len(headers) < len(lines)  # a name came twice
        or len(lines) > count
        or "host" not in headers
        or not length.isdigit()
        or len(length) > _DIGITS
        or not _FOREIGN.isdisjoint(headers)
        or headers.get("connection", "keep-alive").lower() != "keep-alive"
    ):
        return None
    request = Request("POST", match[1].decode("ascii"), list(headers.items()))
    return Found(request, match.end(), int(length))


# A line end within would make two fields of one, and spaces around are lost on the way.
_FIELD: Final = re.compile(rf"{_TOKEN}\n(?:[!-~]++(?:[\t ]++[!-~]++)*)?")


def write(status: int, fields: Fields) -> bytes:
    """The head of an answer.

    Args:
        status: The status.
        fields: Its headers, in order.

    Raises:
        ValueError: One of them is none. Some have in them what a client sent.
    """
    lines = [f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\n"]
    for name, value in fields:
        if not _FIELD.fullmatch(f"{name}\n{value}"):
            raise ValueError(f"{name!r}: {value!r} is no header")
        lines.append(f"{name}: {value}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("ascii")
