"""Errors on standard error, and the terminal below the streams that `guard` replaces."""

from __future__ import annotations

import sys
from typing import Any, Final, TextIO

from .printable import printable

__all__ = ["is_terminal", "raw", "say_error"]

#: The maximum number of characters of an error. Servers choose some of them.
_LONGEST_ERROR: Final = 10_000


def say_error(text: str) -> None:
    """Print why the command failed, in one line."""
    if len(text) > _LONGEST_ERROR:
        # Its end often has the advice.
        half = _LONGEST_ERROR // 2
        text = f"{text[:half]} … {text[-half:]}"
    print(printable(f"effectmcp: {' '.join(text.split())}"), file=sys.stderr)


def raw(stream: TextIO) -> TextIO:
    """Return the terminal below a guarded stream; any other stream is returned unchanged.

    It is only for the control sequences of `Terminal`.
    """
    found: Any = getattr(getattr(stream, "buffer", None), "guarded", stream)
    return found  # type: ignore[no-any-return]  # the stream that `guard` replaced


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal."""
    return raw(stream).isatty()
