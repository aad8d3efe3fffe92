"""Note which suspicious lines run: they show a fault only then (`source_faults`).

A trace function sees only the functions that have such lines, so checking a handler
without suspects costs nothing. While it is set, the tracer that measures coverage sees
none of the code that runs, including this module's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeAlias

__all__ = ["LineWatcher", "Range"]

#: A file, and the first and the last line in it.
Range: TypeAlias = tuple[str, int, int]


class LineWatcher:
    """Notes which lines run.

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
        """Watch the code that this thread runs in the `with` block."""
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
        # A generator is called each time it is resumed, in the middle of a line. That
        # line does not run again.
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
