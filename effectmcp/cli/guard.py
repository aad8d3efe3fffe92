"""Guard the terminal against output of all code: logs, warnings, tracebacks, print().

Where standard output and standard error are terminals, they are replaced by streams that
escape unprintable characters; see `printable`. Files and pipes get text unchanged.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TextIO, cast

from .printable import pieces, printable

__all__ = ["guard_terminal", "held"]

#: The maximum number of characters that are kept while a form is on the terminal.
_MOST_HELD: Final = 64 * 1024


class _Guard(io.RawIOBase):
    """Bytes that anything prints → escaped text on a terminal."""

    def __init__(self, guarded: TextIO) -> None:
        self.guarded = guarded
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode
        self._lock = threading.RLock()
        self._kept: list[str] | None = None
        self._size = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.guarded.fileno()

    def isatty(self) -> bool:
        # Programs ask this to learn whether control sequences are wanted.
        return False

    def write(self, data: Any) -> int:
        with self._lock:
            for piece in pieces(self._decode(bytes(data))):
                text = printable(piece, in_lines=True)
                if self._kept is None:
                    self.guarded.write(text)
                elif self._size < _MOST_HELD:
                    self._kept.append(text)
                self._size += len(text)
        return len(data)

    def flush(self) -> None:
        if not self.closed:
            self.guarded.flush()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            self._kept, self._size = [], 0
        try:
            yield
        finally:
            with self._lock:
                kept, self._kept = self._kept, None
                self.guarded.write("".join(kept))
                if self._size > _MOST_HELD:
                    self.guarded.write("effectmcp: more output was dropped\n")
                self.guarded.flush()


def _guard_of(stream: Any) -> _Guard | None:
    buffer = getattr(stream, "buffer", None)
    return buffer if isinstance(buffer, _Guard) else None


def guard_terminal() -> None:
    """Make standard output and standard error escape, where they are terminals.

    This is not undone: Python prints the traceback of an error after the command.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        # A terminal of another encoding cannot show each character.
        stream.reconfigure(errors="backslashreplace")
        if stream.isatty():
            escaping = io.TextIOWrapper(
                cast(Any, _Guard(stream)),  # the terminal below is the buffer
                encoding="utf-8",
                errors="backslashreplace",
                newline="\n",
                write_through=True,
            )
            setattr(sys, name, escaping)
            # Some parts of Python look at the file below, and would print colors.
            os.environ.setdefault("NO_COLOR", "1")


@contextmanager
def held() -> Iterator[None]:
    """Keep what others print on the terminal, and print it after the block.

    Otherwise a server that logs could push a question out of sight, and write another one
    below it.
    """
    with ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            guard = _guard_of(stream)
            if guard is not None:
                stack.enter_context(guard.held())
        yield
