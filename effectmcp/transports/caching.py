"""Cache functions of short strings that come with every request."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar

__all__ = ["cached"]

T = TypeVar("T")

#: Limits of each cache: clients choose the strings, and must not fill the memory.
TEXTS: Final = 256
LONGEST: Final = 256


def cached(judge: Callable[[str], T]) -> Callable[[str], T]:
    """Cache the results of `judge`, which must not return `None`.

    Long strings and exceptions are not cached.
    """
    known: dict[str, T] = {}

    @wraps(judge)
    def known_or_judged(text: str) -> T:
        found = known.get(text)
        if found is None:
            found = judge(text)
            if len(text) <= LONGEST:
                if len(known) >= TEXTS:
                    known.clear()
                known[text] = found
        return found

    return known_or_judged
