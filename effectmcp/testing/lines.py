"""Note which lines run, of those that show a fault if they do (`suspects`).

A trace function sees the functions that have such lines and no others, so a check of a
handler without suspects costs nothing. What runs while it is set is hidden from the
tracer that measures coverage, this module's own lines among it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

__all__ = ["Lines", "Range"]

#: A file, the first and the last line.
Range: TypeAlias = tuple[str, int, int]


class Lines:
    """Lines to look out for.

    Args:
        wanted: Files, with the first and the last line of each range.

    Attributes:
        seen: The ranges with a line that has run.
    """

    def __init__(self, wanted: Iterable[Range]) -> None:
        self.seen: set[Range] = set()
        self._wanted = sorted(set(wanted))
        self._files = {file for file, _, _ in self._wanted}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the code that this thread runs meanwhile."""
        if not self._wanted:
            yield
            return
        before: Any = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:  # pragma: no cover  # still traced
            sys.settrace(before)

    def _trace(  # pragma: no cover  # traces
        self, frame: FrameType, event: str, argument: Any
    ) -> Any:
        # A generator is called once for each time it is resumed, in the middle of a
        # line: that line does not run again.
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(  # pragma: no cover  # traces
        self, frame: FrameType, event: str, argument: Any
    ) -> Any:
        if event == "line":
            file, line = frame.f_code.co_filename, frame.f_lineno
            for one in self._wanted:
                if one[0] == file and one[1] <= line <= one[2]:
                    self.seen.add(one)
        return self._line
