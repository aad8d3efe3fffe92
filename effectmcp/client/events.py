"""The events in the bytes of a stream (HTML, Server-sent events). No I/O."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from attrs import frozen

from .channels import ChannelError
from .limits import LONGEST

__all__ = ["StreamEvent", "events"]

#: The maximum size of an event in bytes.
_LONGEST: Final = LONGEST

#: The maximum length of an event id, which a header repeats.
_LONGEST_ID: Final = 8_192


@frozen
class StreamEvent:
    """An event of a stream.

    Attributes:
        data: Its data; may be empty.
        id: The id to resume from after this event; `None` for no new id.
        retry: Seconds to wait before resuming; `None` for no new delay.
    """

    data: str
    id: str | None = None
    retry: float | None = None


async def events(parts: AsyncIterator[bytes]) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events of a stream, without comments and empty events."""
    # One object each, and not one for each line or piece: they may be very short.
    data = bytearray()
    torn = bytearray()  # the start of a line
    id_: str | None = None
    retry: float | None = None
    held = 0  # bytes received since the last event
    is_first, after_return = True, False
    async for part in parts:
        # Lines end with CR LF, LF or CR; a CR LF may be split between two parts.
        if after_return and part.startswith(b"\n"):
            part = part[1:]
            after_return = False
        if not part:
            continue
        after_return = part.endswith(b"\r")
        held += len(part)
        *lines, rest = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if lines:
            torn += lines[0]
            lines[0] = bytes(torn)
            torn.clear()
        torn += rest
        for line in lines:
            if is_first:
                line, is_first = line.removeprefix(b"\xef\xbb\xbf"), False
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                text = data[:-1].decode("utf-8", "replace")
                text = text if text.strip("\n") else ""
                if text or id_ is not None or retry is not None:
                    yield StreamEvent(text, id_, retry)
                data.clear()
                id_, retry, held = None, None, len(rest)
            elif name == b"data":
                data += value + b"\n"
            elif (
                name == b"id"
                and len(value) <= _LONGEST_ID
                and value.isascii()
                and value.decode().isprintable()
            ):
                # The client must be able to send it back in a header.
                id_ = value.decode()
            elif name == b"retry" and value.isdigit():
                retry = int(value[:9]) / 1000
        if held > _LONGEST:
            raise ChannelError(f"an event has more than {_LONGEST:,} bytes")
