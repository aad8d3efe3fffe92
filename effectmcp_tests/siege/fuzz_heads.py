"""Heads: our reader, with h11 for its referee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import h11

from effectmcp.transports.http1 import MalformedHttp, open_wire, read, split

from ..transports import heads

__all__ = ["try_heads"]


def try_heads(random: Random, count: int, seen: Counter[str]) -> Iterator[str]:
    """Read mutated requests; h11 is the referee."""
    for _ in range(count):
        data = _mutated_head(random)
        try:
            accepted = read(data, size=65536, count=100)
            if accepted is None:
                seen[_read_by_h11(data)] += 1
                continue
            seen["read"] += 1
            problem = _compare(data, random)
        except Exception as exc:
            problem = repr(exc)
        if problem:
            yield f"{problem}: {data!r}"


def _mutated_head(random: Random) -> bytes:
    lines = [*heads.GOOD, *random.sample(heads._HARMLESS, random.randrange(4))]
    rest = lines[1:]
    random.shuffle(rest)
    lines[1:] = rest
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        match random.randrange(8):
            case 0:
                lines[0] = random.choice(heads._FIRST)
            case 1 if len(lines) > 1:
                del lines[random.randrange(len(lines))]
            case 2 | 3:
                lines.insert(
                    random.randrange(len(lines) + 1), random.choice(heads._ODD)
                )
            case 4:
                lines.append(b"V:" + random.randbytes(random.randrange(4)))
            case 5:
                at = random.randrange(len(lines))
                lines[at] = lines[at].swapcase()
            case _:
                pass
    data = bytearray(b"".join(line + _end(random) for line in [*lines, b""]))
    for _ in range(random.choice((0, 0, 0, 1, 1, 2, 5))):
        at = random.randrange(len(data) + 1)
        data[at : at + random.randrange(3)] = random.choice(
            _PIECES
        ) or random.randbytes(random.randrange(3))
    return bytes(data) + random.choice(heads._BODIES) + random.choice(heads._NEXT)


_PIECES: Final = (
    b"",
    b"",
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"\r\n\r\n",
)


def _end(random: Random) -> bytes:
    return random.choice(heads._ENDS) if random.random() < 0.02 else b"\r\n"


def _read_by_h11(data: bytes) -> str:
    wire = open_wire(bytearray(data), max_head=65536, max_headers=100)
    try:
        if wire.head() is None:
            return "incomplete"
        while part := wire.part():
            pass
    except MalformedHttp:
        return "refused"
    return "h11 waits" if part is None else "h11"


def _compare(data: bytes, random: Random) -> str:
    """Return how h11 differs from our reader; empty if it does not."""
    found = read(data, size=65536, count=100)
    assert found is not None
    cut = split(data, size=65536)
    if cut is not None and (cut.end, int(cut.length)) != (found.end, found.length):
        return "split differs"
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    seen: list[Any] = []
    at = random.randrange(len(data))
    for piece in (data[:at], data[at:]):
        if piece:
            http.receive_data(piece)
        while (one := http.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            seen.append(one)
    first, *parts = seen
    method, target, headers = found.request
    assert isinstance(headers, dict)
    if (first.method.decode(), first.target.decode()) != (method, target):
        return "another request"
    if [(k.decode(), v.decode()) for k, v in first.headers] != list(headers.items()):
        return "other headers"
    body = data[found.end :][: found.length]
    if b"".join(one.data for one in parts if isinstance(one, h11.Data)) != body:
        return "another body"
    if http.trailing_data != (data[found.end + len(body) :], False):
        return "another end"
    if (len(body) < found.length) != (http.their_state is h11.SEND_BODY):
        return "another state"
    return ""
