"""Judgements about short texts that come with every request, made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar

__all__ = ["remembered"]

T = TypeVar("T")

#: Clients choose these texts: what is remembered of them must not add up to much.
TEXTS: Final = 256
LONGEST: Final = 256


def remembered(judge: Callable[[str], T]) -> Callable[[str], T]:
    """`judge`, which is asked about a text once, and never gives `None`.

    Long texts are judged each time, and nothing that is raised is remembered.
    """
    known: dict[str, T] = {}

    @wraps(judge)
    def judged(text: str) -> T:
        found = known.get(text)
        if found is None:
            found = judge(text)
            if len(text) <= LONGEST:
                if len(known) >= TEXTS:
                    known.clear()
                known[text] = found
        return found

    return judged
