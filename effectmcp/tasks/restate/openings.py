"""The messages with which the engine begins an attempt, as bytes arrive. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from . import frames
from .frames import Frame, FrameError, FrameReader, Start

__all__ = ["Opening"]


@define(eq=False)
class Opening:
    """The start of an attempt, its input, and what earlier attempts have journaled.

    Attributes:
        start: The first message; `None` before it has arrived.
        is_open: Whether all has arrived that the engine sends first.
        input: What the handler is sent.
        commands: How many commands the journal holds.
    """

    start: Start | None = field(default=None, init=False)
    is_open: bool = field(default=False, init=False)
    input: bytes = field(default=b"", init=False)
    commands: int = field(default=0, init=False)
    _reader: FrameReader = field(factory=FrameReader, init=False)
    _left: int = field(default=0, init=False)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes of the engine; yield the messages after the first one.

        Raises:
            FrameError: If they do not begin an attempt with its whole state.
        """
        for one in self._reader.feed(data):
            if self.start is None:
                self._begin(one)
                continue
            if one.kind == frames.INPUT:
                self.input = frames.input_value(one.body)
            if self._left:
                self._left -= 1
                self.commands += frames.is_command(one.kind)
                self.is_open = not self._left
            yield one

    def _begin(self, frame: Frame) -> None:
        if frame.kind != frames.START:
            raise FrameError("an attempt that does not start")
        start = Start.loads(frame.body)
        if start.is_partial or not start.known:
            raise FrameError("an attempt without its input, or its whole state")
        self.start, self._left = start, start.known
