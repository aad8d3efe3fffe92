"""Restate's service protocol, version 6, as bytes: the part that tasks need.

A frame is one message: its type, flags and length in eight bytes, then its body in the
encoding of Protocol Buffers. No I/O.

    reader = FrameReader()
    for frame in reader.feed(data): ...
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from ...errors import TaskStoreError
from ...records import record

__all__ = [
    "COMMAND_ACK",
    "END",
    "ERROR",
    "INPUT",
    "SIGNAL",
    "START",
    "Frame",
    "FrameError",
    "FrameReader",
    "Start",
    "ack_index",
    "awaiting",
    "clear_all",
    "clear_state",
    "end",
    "error",
    "input_value",
    "is_command",
    "output",
    "send",
    "set_state",
    "signal_value",
]

START: Final = 0x0000
ERROR: Final = 0x0002
END: Final = 0x0003
COMMAND_ACK: Final = 0x0004
_AWAITING: Final = 0x0006
INPUT: Final = 0x0400
_OUTPUT: Final = 0x0401
_SET_STATE: Final = 0x0403
_CLEAR_STATE: Final = 0x0404
_CLEAR_ALL: Final = 0x0405
_ONE_WAY_CALL: Final = 0x040E
SIGNAL: Final = 0xFBFF

#: A flag: the engine sends a `COMMAND_ACK` when the command is durable.
_REQUIRES_ACK: Final = 0x8000

_HEAD: Final = struct.Struct(">HHI")
#: The longest body that is read: the state of a task with its mail is smaller.
LONGEST: Final = 64 * 2**20


class FrameError(TaskStoreError):
    """Raised for bytes that this protocol does not have."""


@record
class Frame:
    """One message.

    Attributes:
        kind: Its type.
        body: Its fields.
    """

    kind: int
    body: bytes


class FrameReader:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete with these bytes.

        Raises:
            FrameError: If a frame is too long.
        """
        left = self._left
        left += data
        while len(left) >= _HEAD.size:
            kind, _, length = _HEAD.unpack_from(left)
            if length > LONGEST:
                raise FrameError(f"a frame of {length:,} bytes")
            end = _HEAD.size + length
            if len(left) < end:
                return
            body = bytes(left[_HEAD.size : end])
            del left[:end]
            yield Frame(kind, body)


def is_command(kind: int) -> bool:
    """Return whether frames of this type are commands of the journal, which are counted."""
    return 0x0400 <= kind < 0x8000


# ---- reading ------------------------------------------------------------------------


@record
class Start:
    """The first message of an attempt.

    Attributes:
        invocation: The id of the invocation, as bytes.
        name: The same id, as operators and other requests write it.
        known: How many messages of earlier attempts follow, with the input.
        state: The state of the object now.
        is_partial: Whether `state` is not complete.
        key: The key of the object.
    """

    invocation: bytes
    name: str
    known: int
    state: Mapping[bytes, bytes]
    is_partial: bool
    key: str

    @classmethod
    def loads(cls, body: bytes) -> Start:
        """Return the message with this body.

        Raises:
            FrameError: If it is invalid.
        """
        state: dict[bytes, bytes] = {}
        for number, value in _fields(body):
            if number == 4:
                entry = dict(_fields(_bytes(value)))
                state[_bytes(entry.get(1, b""))] = _bytes(entry.get(2, b""))
        found = dict(_fields(body))
        return cls(
            invocation=_bytes(found.get(1, b"")),
            name=_text(found.get(2, b"")),
            known=_int(found.get(3, 0)),
            state=state,
            is_partial=bool(found.get(5, 0)),
            key=_text(found.get(6, b"")),
        )


def input_value(body: bytes) -> bytes:
    """Return the value of an `INPUT` message."""
    return _value(dict(_fields(body)).get(14, b""))


def signal_value(body: bytes) -> tuple[int, bytes]:
    """Return the number of a `SIGNAL`, and its value: empty if it has none."""
    found = dict(_fields(body))
    return _int(found.get(2, 0)), _value(found.get(5, b""))


def ack_index(body: bytes) -> int:
    """Return the number of the command that a `COMMAND_ACK` acknowledges."""
    return _int(dict(_fields(body)).get(1, 0))


_Field: TypeAlias = int | bytes


def _value(field: _Field) -> bytes:
    return _bytes(dict(_fields(_bytes(field))).get(1, b""))


def _fields(body: bytes) -> Iterator[tuple[int, _Field]]:
    at = 0
    while at < len(body):
        tag, at = _read_varint(body, at)
        match tag & 7:
            case 0:
                number, at = _read_varint(body, at)
                yield tag >> 3, number
            case 2:
                length, at = _read_varint(body, at)
                yield tag >> 3, body[at : at + length]
                at += length
            case 1:
                at += 8
            case 5:
                at += 4
            case wire:
                raise FrameError(f"a field of the unknown kind {wire}")
        if at > len(body):
            raise FrameError("a message that is cut off")


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(body):
            raise FrameError("a message that is cut off")
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 and number < 2**64:
            return number, at
    raise FrameError("a number that is too long")


def _bytes(field: _Field) -> bytes:
    if isinstance(field, int):
        raise FrameError("a number where bytes are due")
    return field


def _int(field: _Field) -> int:
    if not isinstance(field, int):
        raise FrameError("bytes where a number is due")
    return field


def _text(field: _Field) -> str:
    try:
        return _bytes(field).decode()
    except UnicodeDecodeError:
        raise FrameError("text that is not UTF-8") from None


# ---- writing ------------------------------------------------------------------------


def set_state(key: bytes, value: bytes, *, is_acknowledged: bool = False) -> bytes:
    """Return the frame that stores a value.

    Args:
        key: The name of the value.
        value: The value.
        is_acknowledged: Whether the engine is to tell when it is durable.
    """
    body = _put(1, key) + _put(3, _put(1, value))
    return _frame(_SET_STATE, body, flags=_REQUIRES_ACK if is_acknowledged else 0)


def clear_state(key: bytes) -> bytes:
    """Return the frame that removes a value."""
    return _frame(_CLEAR_STATE, _put(1, key))


def clear_all() -> bytes:
    """Return the frame that removes the state of the object."""
    return _frame(_CLEAR_ALL, b"")


def send(
    service: str,
    handler: str,
    key: str,
    value: bytes = b"",
    *,
    completion: int,
    at: int = 0,
) -> bytes:
    """Return the frame that invokes a handler, later perhaps, and waits for nothing.

    Args:
        service: The name of the service.
        handler: The handler.
        key: The key of the object.
        value: What it is sent.
        completion: A number that no other command of the journal has.
        at: When, in milliseconds since 1970; 0 for now.
    """
    body = _put(1, service.encode()) + _put(2, handler.encode())
    if value:
        body += _put(3, value)
    if at > 0:
        body += _put_number(4, at)
    body += _put(6, key.encode()) + _put_number(10, completion)
    return _frame(_ONE_WAY_CALL, body)


def output(value: bytes = b"") -> bytes:
    """Return the frame that gives the invocation its result."""
    return _frame(_OUTPUT, _put(14, _put(1, value) if value else b""))


def awaiting(name: str) -> bytes:
    """Return the frame that says that the attempt waits for a signal, and so lives."""
    return _frame(_AWAITING, _put(1, _put(3, name.encode()) + _put_number(5, 1)))


def end() -> bytes:
    """Return the frame that ends the invocation."""
    return _frame(END, b"")


def error(message: str, *, retry: float) -> bytes:
    """Return the frame that ends an attempt; the next one comes after `retry` seconds."""
    pause = _put_number(8, max(1, round(retry * 1000)))
    return _frame(ERROR, _put_number(1, 500) + _put(2, message.encode()) + pause)


def _frame(kind: int, body: bytes, *, flags: int = 0) -> bytes:
    return _HEAD.pack(kind, flags, len(body)) + body


def _put(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _put_number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
