"""Problems of a JSON value, with their paths: `guests[1].age: must be …`.

`unreadable()` finds the problems that do not depend on a schema. It runs before any
recursive code reads the value: it bounds the nesting, and it refuses lone surrogates,
which would make every later encoder fail, jsonschema-rs included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from typing import Any, Final, TypeAlias

from ..canonical import JSON, MAX_DEPTH
from .words import is_text, path_step

__all__ = [
    "MAX_PROBLEMS",
    "Problem",
    "put_below",
    "rendered",
    "unreadable",
]

#: A path, and words that complete the sentence.
Problem: TypeAlias = tuple[str, str]

#: Bounds the message for a list of a million bad items.
MAX_PROBLEMS: Final = 100

#: Python does not write or read numbers of more than 4,300 digits.
_MAX_BITS: Final = 4_000 * 10 // 3
_PLAIN: Final = 2**64


def put_below(problems: list[Problem], start: int, key: str | int) -> None:
    """Put `key` in front of the paths of the problems since index `start`."""
    if len(problems) > start:
        here = path_step(key)
        problems[start:] = [(here + path, words) for path, words in problems[start:]]


def rendered(problems: Iterable[Problem], *, root: str) -> list[str]:
    """Return the problems as strings, at most `MAX_PROBLEMS` of them.

    Args:
        problems: The problems.
        root: The name of the whole value in messages: `the arguments`.
    """
    texts = [f"{path.removeprefix('.') or root}: {words}" for path, words in problems]
    texts = list(dict.fromkeys(texts))
    if len(texts) > MAX_PROBLEMS:
        texts[MAX_PROBLEMS:] = ["there may be more: these are the first"]
    return texts


def unreadable(value: JSON) -> list[Problem]:
    """Return the problems of a value that do not depend on a schema."""
    found: list[Problem] = []
    _look_at(value, MAX_DEPTH, found)
    return found


def _look_at(value: JSON, room: int, found: list[Problem]) -> None:
    type_ = type(value)
    if type_ is str:
        if not is_text(value):
            found.append(("", "must be readable text, without lone surrogates"))
    elif type_ is float:
        if not math.isfinite(value):
            found.append(("", "must be a finite number"))
    elif type_ is int:
        if value.bit_length() > _MAX_BITS:
            found.append(("", "must be a number of at most 4,000 digits"))
    elif type_ is dict or type_ is list:
        if room <= 0:
            found.append(("", f"must not be nested deeper than {MAX_DEPTH} levels"))
            return
        if len(value) > _MANY and _is_plain(value, room):
            return
        for key, item in value.items() if type_ is dict else enumerate(value):
            if len(found) > MAX_PROBLEMS:
                return
            if type_ is list:
                pass
            elif type(key) is not str:
                words = f"has the key {key!r}, where JSON has only strings as keys"
                found.append(("", words))
                continue
            elif not (key.isascii() or is_text(key)):
                words = "must have a readable name, without lone surrogates"
                found.append((path_step(key), words))
            kind = type(item)
            if item.isascii() if kind is str else kind is int and -1 < item < _PLAIN:
                continue  # most values: checked without a call
            before = len(found)
            _look_at(item, room - 1, found)
            if len(found) > before:
                put_below(found, before, key)
    elif type_ is not bool and value is not None:
        found.append(("", f"is of type {type_.__qualname__}, which JSON does not know"))


#: Containers with more items are looked at as a whole first: a request of a few MiB may
#: have a million items, and a look at each of them would hold the event loop.
_MANY: Final = 1_000

_KINDS: Final = {str, int, float, bool, type(None), list, dict}


def _is_plain(value: JSON, room: int) -> bool:
    """Return whether a container certainly has no problems, by checks that run in C."""
    level: list[Any] = [value]
    while level:
        kinds = set(map(type, level))
        if not kinds <= _KINDS:
            return False
        # Also empty containers need room.
        if room <= 0 and (list in kinds or dict in kinds):
            return False
        room -= 1
        level = list(filter(None, level))  # no empty value has a problem
        lists = [one for one in level if type(one) is list] if list in kinds else []
        dicts = [one for one in level if type(one) is dict] if dict in kinds else []
        texts = [one for one in level if type(one) is str] if str in kinds else []
        keys = list(chain.from_iterable(dicts))
        if not set(map(type, keys)) <= {str}:
            return False
        if not all(map(str.isascii, texts)) or not all(map(str.isascii, keys)):
            return False
        if float in kinds and not all(
            map(math.isfinite, [one for one in level if type(one) is float])
        ):
            return False
        if int in kinds:
            numbers = [one for one in level if type(one) is int]
            if numbers and (max(numbers) >= _PLAIN or min(numbers) < 0):
                return False
        level = [
            *chain.from_iterable(lists),
            *chain.from_iterable(map(dict.values, dicts)),
        ]
    return True
