"""Protocol Buffers and frames, for tests: written from the public rules alone.

A message is a list of fields: a number, and an integer or bytes. Readers here accept
nothing that the rules forbid, and nothing that Restate's protocol does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from attrs import frozen

__all__ = ["Field", "Message", "decode", "encode", "frame", "unframe", "varint"]

Field: TypeAlias = tuple[int, int | bytes]


@frozen
class Message:
    """A frame, read.

    Attributes:
        kind: Its type.
        flags: Its flags.
        fields: Its fields, in order.
    """

    kind: int
    flags: int
    fields: list[Field]


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; all but one have the high bit."""
    count = max(1, -(-number.bit_length() // 7))
    groups = [number >> 7 * at & 0x7F for at in range(count)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def encode(fields: Iterable[Field]) -> bytes:
    """Return the message with these fields."""
    body = b""
    for number, value in fields:
        if isinstance(value, int):
            body += varint(number * 8) + varint(value)
        else:
            body += varint(number * 8 + 2) + varint(len(value)) + value
    return body


def decode(body: bytes) -> list[Field]:
    """Return the fields of a message."""
    left = list(reversed(body))

    def number() -> int:
        found, weight = 0, 1
        while True:
            byte = left.pop()
            found += byte % 128 * weight
            weight *= 128
            if byte < 128:
                assert found < 2**64
                return found

    fields: list[Field] = []
    while left:
        key, wire = divmod(number(), 8)
        assert 0 < key < 2**29
        assert wire in (0, 2)
        if wire == 0:
            fields.append((key, number()))
        else:
            fields.append((key, bytes(left.pop() for _ in range(number()))))
    return fields


def frame(kind: int, fields: Sequence[Field] | bytes = (), *, flags: int = 0) -> bytes:
    """Return a message of this type with its head."""
    body = fields if isinstance(fields, bytes) else encode(fields)
    return b"".join(
        (
            kind.to_bytes(2, "big"),
            flags.to_bytes(2, "big"),
            len(body).to_bytes(4, "big"),
            body,
        )
    )


def unframe(data: bytes) -> list[Message]:
    """Return all messages in these bytes."""
    found = []
    while data:
        length = int.from_bytes(data[4:8], "big")
        assert len(data) >= 8 + length, "it is cut off"
        kind, flags = (int.from_bytes(data[at : at + 2], "big") for at in (0, 2))
        found.append(Message(kind, flags, decode(data[8 : 8 + length])))
        data = data[8 + length :]
    return found
