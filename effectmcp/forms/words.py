"""Helpers for the checks of forms and of arguments: words for messages, and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

__all__ = ["complaint", "count", "is_finite", "one_of"]


def complaint(exc: Exception, name: str | None = None) -> str:
    """Return the message of an exception that an author's class raised, for the user.

    Args:
        exc: An exception of a validator, a converter or the class's constructor.
        name: The attribute, which the caller puts in front of the message.
    """
    # attrs's own validators raise (message, attribute, …), where the message begins
    # with the attribute in quotes.
    first = exc.args[0] if exc.args else ""
    text = first if isinstance(first, str) else str(exc)
    return text.removeprefix(f"'{name}' ") or type(exc).__name__


def one_of(choices: Iterable[Any]) -> str:
    """Return `must be one of 'a', 'b'`."""
    return "must be one of " + ", ".join(
        repr(choice) if isinstance(choice, str) else str(choice) for choice in choices
    )


def count(number: int, noun: str) -> str:
    """Return `1 choice`, `2 choices`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def is_finite(value: float) -> bool:
    """Whether a double can hold `value`, perhaps rounded."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of more than 308 digits
        return False
