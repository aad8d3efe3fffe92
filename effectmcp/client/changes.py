"""The changes that a server reports, until the program reads them; see `Client.listen`."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Self

import anyio

from .channels import Frame
from .errors import ReplyError
from .limits import LARGEST, MOST_TOLD, memory_of

__all__ = ["Changes"]


class Changes:
    """An iterator of the changes that arrive. The number that wait is limited."""

    def __init__(self) -> None:
        self._send, self._receive = anyio.create_memory_object_stream[
            tuple[Frame, int]
        ](math.inf)
        self._size = 0

    def add(self, told: Frame) -> None:
        """Add a change.

        Raises:
            ReplyError: If too many wait already.
        """
        size = memory_of(dict(told))
        waiting = self._send.statistics().current_buffer_used
        if waiting >= MOST_TOLD or self._size + size > LARGEST:
            raise ReplyError(f"{waiting + 1:,} changes wait, and are not read")
        self._size += size
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._send.send_nowait((told, size))

    def end(self) -> None:
        """End the iteration, after the changes that wait."""
        self._send.close()

    def close(self) -> None:
        """Drop the changes that wait."""
        self._send.close()
        self._receive.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        told, size = await anext(self._receive)
        self._size -= size
        return told
