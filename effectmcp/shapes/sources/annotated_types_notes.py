"""The limits of annotated-types: `Annotated[int, Ge(5)]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..constraints import Bound, Multiple, Other, Rule, Size
from .source import Note, Unknown

__all__ = ["notes_in"]


def notes_in(item: Any) -> Iterable[Note] | None:
    """Return what an object of annotated-types says; `None` for any other object."""
    library: Any = sys.modules.get("annotated_types")
    if library is None:
        return None
    match item:
        case library.Gt():
            return (Rule(Bound(">", item.gt)),)
        case library.Ge():
            return (Rule(Bound(">=", item.ge)),)
        case library.Lt():
            return (Rule(Bound("<", item.lt)),)
        case library.Le():
            return (Rule(Bound("<=", item.le)),)
        case library.MultipleOf():
            return (Rule(Multiple(item.multiple_of)),)
        case library.MinLen():
            # Every length is at least 0; `Len` has this limit where it leaves one open.
            return (Rule(Size("min", item.min_length)),) if item.min_length else ()
        case library.MaxLen():
            return (Rule(Size("max", item.max_length)),)
        case library.Predicate():
            rule = Other(item.func, f"must pass {_name(item.func)}")
            return (Rule(rule, is_code=True),)
        case library.DocInfo():
            return (item.documentation,)
        case library.Unit():
            return (f"in {item.unit}",)
        case library.GroupedMetadata():
            from . import notes_in as any_notes_in

            return [note for one in item for note in any_notes_in(one)]
        case library.BaseMetadata() | library.Not():
            advice = "its meaning is unknown here; write Predicate(...)"
            return (Unknown(advice, is_always=True),)
        case _:
            return None


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        return "a check"
    return name.rpartition(".")[2].strip("_")
