"""Facts about a JSON text, found in C: its depth, twin keys, infinities, surrogates.

A message may have 4 MB and a million values, and its reader holds the event loop. So no
function here takes a step of Python for each value or character: strings and brackets
are removed with `bytes.translate` and `bytes.replace`, and values are visited level by
level with `gc.get_referents`.
"""

from __future__ import annotations

import gc
import re
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

__all__ = ["JsonText", "lone_surrogate"]

# Brackets of both kinds become `[` and `]`: a decoder refuses pairs that do not match.
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NO_QUOTES: Final = bytes(set(_NO_BRACKETS) - set(b'"'))
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
_SHAPE: Final = bytes.maketrans(b"123456789E", b"000000000e")

# Other interpreters than CPython may also count keys, or what is inside of a dict.
_KNOWS_ITEMS: Final = gc.get_referents({"key": "item"}, ["item"], "") == ["item"] * 2


class JsonText:
    """The bytes of a JSON value, before and after it was decoded.

    Args:
        data: JSON in UTF-8, which may be invalid.
    """

    def __init__(self, data: bytes) -> None:
        # Blanks in strings do not matter here; those in `{ }` do.
        self._data = data = data.translate(None, b" \t\r\n")
        self._opened = data.count(b"[") + data.count(b"{")

    @cached_property
    def _empty(self) -> int:
        return self._data.count(b"[]") + self._data.count(b"{}")

    @cached_property
    def _unescaped(self) -> bytes:
        """The text without escaped quotes."""
        if b"\\" not in self._data:
            return self._data
        return self._data.replace(b"\\\\", b"").replace(b'\\"', b"")

    @cached_property
    def _outside(self) -> bytes:
        """The text with a quote for each string, so that `["a"]` is not like `[]`."""
        # As `str`: `bytes.join` takes four times as long for short pieces.
        pieces = self._unescaped.decode("latin-1").split('"')
        return '"'.join(pieces[::2]).encode("latin-1")

    def is_deeper(self, max_depth: int) -> bool:
        """Return whether brackets outside of strings are nested beyond `max_depth`.

        After an escape outside of a string it may be wrong, but there a decoder stops.
        """
        # An empty pair of brackets adds at most one level, however many there are.
        # Pairs in strings come with a bracket in a string, so they hide nothing.
        if self._opened < max_depth or self._opened - self._empty < max_depth:
            return False
        brackets = rest = self._brackets()
        room = max_depth
        # Remove the innermost pairs, and thus a level, until few are left or most stay.
        while (left := rest.count(b"[")) > room > 0:
            rest = rest.replace(b"[]", b"")
            room -= 1
            if rest.count(b"[") > left * 3 // 4:
                break
        else:
            if left <= room:
                return False
        # Only brackets that do not match can make the first of these true by mistake.
        return _rises_above(room, rest) and _rises_above(max_depth, brackets)

    def _brackets(self) -> bytes:
        kept = self._unescaped.translate(_ONE_KIND, _NO_QUOTES)
        # Strings without brackets are pairs of quotes by now. If a pair is the end of
        # one string and the start of the next, what is in strings does not change.
        kept = kept.replace(b'""', b"")
        return (
            self._outside.translate(_ONE_KIND, _NO_BRACKETS) if b'"' in kept else kept
        )

    def has_twins(self, value: Any) -> bool:
        """Return whether an object has the same key twice.

        Of twins a decoder keeps one. So there are twins exactly if the objects and
        arrays in `value` have fewer items than those in the text: one more than commas,
        or none.

        Args:
            value: The decoded value of the text, which is valid.
        """
        # Commas and brackets in strings make it too high, and never too low.
        most = self._data.count(b",") + self._opened - self._empty
        found = _items_of(value, most)
        if found == most:
            return False
        text = JsonText(self._outside)
        items = text._data.count(b",") + text._opened - text._empty
        return found != items

    def may_have_infinities(self) -> bool:
        """Return whether a number may be too large for a float, as 1e400 is.

        Then it has an exponent of three digits, or at least 200 digits: with an exponent of
        two digits, 211 are enough. The search for those reads each 40th character: five of
        them. Strings and other numbers may look so.
        """
        shape = self._data.translate(_SHAPE, b"+")
        return (b"e" in shape and b"e000" in shape) or b"00000" in shape[::40]


def _rises_above(limit: int, brackets: bytes) -> bool:
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    return any(map(limit.__lt__, accumulate(steps)))


def _items_of(value: Any, most: int) -> int:
    """Count the items of all objects and arrays in `value`, up to `most`."""
    found = 0
    level = [value]
    while level and found < most:
        level = _items_below(level)
        found += len(level)
    return found


def _items_below(level: list[Any]) -> list[Any]:
    if _KNOWS_ITEMS:
        return gc.get_referents(*level)
    below: list[Any] = []
    for one in level:
        if type(one) is dict:
            below += one.values()
        elif type(one) is list:
            below += one
    return below


# ---- lone surrogates ----------------------------------------------------------------

_LONE: Final = re.compile(
    r"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F])"
)


def lone_surrogate(text: str) -> int | None:
    """Return the index of the first escaped surrogate without its other half.

    Args:
        text: Valid JSON.
    """
    if "\\" not in text or "\\u" not in text:
        return None
    # An escaped backslash is not the start of an escape. Two other characters replace
    # it, so that what is around it does not become a pair, and the index stays.
    found = _LONE.search(text.replace("\\\\", "--") if "\\\\" in text else text)
    return None if found is None else found.start()
