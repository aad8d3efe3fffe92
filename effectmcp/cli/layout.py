"""Lines on a terminal: how wide they are, how they wrap, which of them fit. No I/O."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from unicodedata import combining, east_asian_width

from attrs import frozen

from .printable import printable

__all__ = ["Spot", "columns", "fitting", "rows", "window", "wrapped"]


def columns(text: str) -> int:
    """Return the number of columns that `text` takes on a terminal."""
    return sum(
        0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1
        for one in text
    )


def fitting(line: str, width: int) -> str:
    """Return the beginning of a line that fits into so many columns."""
    taken = 0
    for index, one in enumerate(line):
        taken += columns(one)
        if taken > width:
            return line[:index]
    return line


def rows(lines: Iterable[str], width: int) -> int:
    """Return how many rows the drawn lines take after the terminal got this width."""
    # A terminal that became narrower has wrapped them.
    return sum(max(1, -(-columns(line) // width)) for line in lines)


def wrapped(line: str, width: int) -> list[str]:
    """Wrap a line, because users must not agree to text that they cannot read.

    Its unprintable characters are escaped first, as they take columns then.
    """
    line = printable(line)
    if columns(line) <= width:
        return [line]
    indent = " " * min(6, len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line,
        # Wide characters take two columns each.
        width if columns(line) <= len(line) else max(5, width // 2),
        subsequent_indent=indent if len(indent) < width // 4 else "",
        replace_whitespace=False,
    )


@frozen
class Spot:
    """The position of the cursor, among lines.

    Attributes:
        question: The first line of the question.
        cursor: The line with the cursor.
        end: The last line of the same field.
    """

    question: int = 0
    cursor: int = 0
    end: int = 0


def window(
    lines: Sequence[str], spot: Spot, *, room: int, pages: int = 0
) -> tuple[list[str], int]:
    """Return the lines that fit, with hints at the hidden ones.

    The line with the cursor is always shown; next come the other lines of its field,
    and then the lines above it, back to its question.

    Args:
        lines: All lines.
        spot: Where the cursor is.
        room: The maximum number of lines.
        pages: Pages to scroll, down or up.

    Returns:
        The lines; and the number of pages scrolled, which is smaller at an end.
    """
    if len(lines) <= room:
        return list(lines), 0
    hints = 2 if room > 2 else 0
    size = max(1, room - hints)
    last = len(lines) - size
    home = min(max(spot.question, spot.end - size + 1), spot.cursor, last)
    # Stop at the end, or the user would need as many keys to scroll back.
    pages = max(-home // size, min(pages, -((home - last) // size)))
    top = max(0, min(home + pages * size, last))
    shown = list(lines[top : top + size])
    if hints:
        below = last - top
        shown.insert(0, f"↑ {top} more above (PgUp)" if top else "")
        shown.append(f"↓ {below} more below (PgDn)" if below else "")
    return shown, pages
