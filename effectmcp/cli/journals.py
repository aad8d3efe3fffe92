"""The entries of a journal as lines for people. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from ..engine.journal import Entry
from .printable import json_text

__all__ = ["entry_lines"]


def entry_lines(entries: tuple[Entry, ...], indent: str) -> Iterator[str]:
    """Yield a line for each entry, and the lines of its branches below it."""
    for entry in entries:
        text = json_text(entry.value)
        text = text if len(text) <= 100 else f"{text[:97]}..."
        yield f"{indent}{entry.key} {entry.tag} {'' if entry.branches else text}".rstrip()
        for place, branch in enumerate(entry.branches):
            yield f"{indent}  branch {place}"
            yield from entry_lines(branch, f"{indent}    ")
