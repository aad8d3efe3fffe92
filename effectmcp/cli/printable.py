"""The characters that may be written on a terminal: one function decides it. No I/O.

A server chooses names, errors and logs, and a terminal obeys characters: escape sequences
clear it and change its title, and invisible characters reverse or hide what the user
agrees to. So:

    printable(text)    a line for people: unprintable characters are shown escaped
    json_text(value)   JSON that remains the same value: they are escaped as \\uXXXX
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from ..canonical import JSON
from ..errors import EffectMCPError

__all__ = ["is_printable", "json_text", "pieces", "printable"]

#: Letters and marks that are invisible: Unicode calls them ignorable, and Python
#: printable. With them, two names look alike, and text carries other text. The two
#: variation selectors that belong to emoji are not among them.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164"
    "\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)

#: Blanks, which Python does not call printable.
_BLANKS: Final = frozenset(
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u202f\u205f\u3000"
)

_JOINER: Final = "\u200d"
_EMOJI: Final = re.compile("[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f]")

#: In runs of limited length, as each character of a run becomes an object.
_IN_LINES: Final = re.compile(r"[^ -~\n\t]{1,4096}")
_IN_A_LINE: Final = re.compile(r"[^ -~]{1,4096}")
_IN_JSON: Final = re.compile(r"[^ -~\n]{1,4096}")

#: The number of characters that are escaped at once.
_PIECE: Final = 64 * 1024


def is_printable(one: str) -> bool:
    """Return whether a character may be written on a terminal.

    Control characters may not, nor characters that are invisible, that change the
    direction of others, that are private or unassigned, nor halves of surrogate pairs.
    """
    return one in _BLANKS or (one.isprintable() and not _INVISIBLE.match(one))


def printable(text: str, *, in_lines: bool = False) -> str:
    """Return `text` with its unprintable characters shown escaped, such as `\\x1b`.

    Args:
        text: A server's text.
        in_lines: Whether line ends and tabs stay; otherwise they become blanks.
    """
    if in_lines:
        return _IN_LINES.sub(_shown, text.replace("\r\n", "\n"))
    return _IN_A_LINE.sub(_shown, text.replace("\n", " ").replace("\t", " "))


def _shown(found: re.Match[str]) -> str:
    if found[0].isprintable() and not _INVISIBLE.search(found[0]):
        return found[0]
    text, start = found.string, found.start()
    return "".join(
        one
        if is_printable(one) or (one == _JOINER and _joins_emoji(text, start + place))
        else one.encode("unicode_escape").decode()
        for place, one in enumerate(found[0])
    )


def _joins_emoji(text: str, place: int) -> bool:
    """Return whether the joiner at a place makes one emoji of two."""
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    return bool(_EMOJI.match(before) and _EMOJI.match(after))


def json_text(value: JSON, *, indent: int | None = None) -> str:
    """Return JSON whose unprintable characters are escaped, inside of its strings.

    Raises:
        EffectMCPError: If the value is nested too deeply.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, indent=indent)
    except RecursionError:
        if indent is not None:
            return json_text(value)  # written by C, which takes fewer frames
        raise EffectMCPError("the value is nested too deeply to be printed") from None
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(_IN_JSON.sub(_escaped, piece) for piece in pieces(text))


def pieces(text: str) -> Iterator[str]:
    """Yield the pieces of a long text: replacing in one takes many times its memory."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def _escaped(found: re.Match[str]) -> str:
    return "".join(
        one if is_printable(one) else json.dumps(one)[1:-1].replace("\x7f", "\\u007f")
        for one in found[0]
    )
