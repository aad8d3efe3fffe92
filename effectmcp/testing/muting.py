"""Keep a check quiet: a handler that is run many times logs and prints a lot.

The findings of the check report the same errors, once. Output of a handler is noted and
discarded: on the stdio transport it would corrupt the protocol's messages.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .sanitizer import watching_now

__all__ = ["without_logging", "without_output"]


@contextmanager
def without_logging() -> Iterator[None]:
    """Disable all logging in the `with` block."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def without_output() -> Iterator[None]:
    """Discard output in the `with` block, and note that a handler prints."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Sink(is_noted=True), _Sink(is_noted=False)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Sink(io.TextIOBase):
    def __init__(self, *, is_noted: bool) -> None:
        self._is_noted = is_noted
        self.buffer = _Bytes(self)

    def write(self, text: str) -> int:
        self.note()
        return len(text)

    def note(self) -> None:
        sanitizer = watching_now()
        if self._is_noted and sanitizer is not None:
            sanitizer.printed()


class _Bytes(io.RawIOBase):
    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def write(self, data: Any) -> int:
        self._sink.note()
        return len(data)
