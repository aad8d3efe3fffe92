"""Words of messages about values: complaints, counts and paths."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

__all__ = [
    "complaint",
    "count",
    "is_finite",
    "is_text",
    "one_of",
    "path_step",
    "type_name",
]


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


_MAX_KEY: Final = 80


def path_step(key: str | int) -> str:
    """Return one step of a path: `.age`, `[1]`, `["two words"]`."""
    if isinstance(key, int):
        return f"[{key}]"
    if len(key) > _MAX_KEY:
        key = key[:_MAX_KEY] + "…"
    if key.isidentifier():
        return f".{key}"
    # Escaped if the message could not be encoded otherwise.
    return f"[{json.dumps(key, ensure_ascii=not is_text(key))}]"


def is_text(text: str) -> bool:
    """Whether a string has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_MODULES: Final = r"\b(?:[A-Za-z_]\w*\.)+(?:<locals>\.)?(?=[A-Za-z_])"


def type_name(type_: Any) -> str:
    """Return a type as its author wrote it, or nearly so."""
    if type_ is None or type_ is type(None):
        return "None"
    if type(type_) is type:
        return type_.__qualname__
    # A late import: registration fails seldom.
    import re

    shown = type_.__qualname__ if isinstance(type_, type) else repr(type_)
    return re.sub(_MODULES, "", shown).replace("NoneType", "None")
