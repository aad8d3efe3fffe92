"""Lines on a terminal: how wide they are, how they wrap, which of them fit. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from unicodedata import combining, east_asian_width

from attrs import frozen

__all__ = ["Spot", "columns", "one_line", "rows", "window", "wrapped"]


def one_line(text: str) -> str:
    """A server's text without what would move the cursor or change the screen."""
    return "".join(one if one.isprintable() else " " for one in text)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(
        0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1
        for one in text
    )


def rows(lines: Iterable[str], width: int) -> int:
    """How many rows lines take that were drawn before the terminal got this width."""
    # One that became narrower has wrapped them.
    return sum(max(1, -(-columns(line) // width)) for line in lines)


def wrapped(line: str, width: int) -> list[str]:
    """A line, in as many as it takes: nobody agrees to what they cannot read."""
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
    """Where somebody is, among lines.

    Attributes:
        question: The first line of the question.
        cursor: The line in which they type.
        end: The last line that tells about it.
    """

    question: int = 0
    cursor: int = 0
    end: int = 0


def window(
    lines: Sequence[str], spot: Spot, *, room: int, pages: int = 0
) -> tuple[list[str], int]:
    """As many lines as there is room for, with hints at those that are left out.

    Around the cursor: what is about it is shown too where that fits, and then what
    stands above it, from its question on.

    Args:
        lines: All lines.
        spot: Where the cursor is.
        room: How many may be shown.
        pages: How far to look beyond, down or up.

    Returns:
        The lines; and how many pages that was, where there are not as many.
    """
    if len(lines) <= room:
        return list(lines), 0
    hints = 2 if room > 2 else 0
    size = max(1, room - hints)
    last = len(lines) - size
    home = min(max(spot.question, spot.end - size + 1), spot.cursor, last)
    # No further than there is something, or it would take as many keys to come back.
    pages = max(-home // size, min(pages, -((home - last) // size)))
    top = max(0, min(home + pages * size, last))
    shown = list(lines[top : top + size])
    if hints:
        below = last - top
        shown.insert(0, f"↑ {top} more above (PgUp)" if top else "")
        shown.append(f"↓ {below} more below (PgDn)" if below else "")
    return shown, pages
