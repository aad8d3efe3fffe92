"""`NamedTuple`s: lists in JSON."""

from __future__ import annotations

from typing import Any

from .source import Part, Source, hints_of

__all__ = ["source_of"]


def source_of(class_: Any) -> Source | None:
    """Return the source of a `NamedTuple`; `None` for any other class."""
    if not issubclass(class_, tuple) or not hasattr(class_, "_fields"):
        return None
    names: tuple[str, ...] = getattr(class_, "_fields")  # noqa: B009  # for pyright
    hints = hints_of(class_, class_.__qualname__)
    return Source(
        class_=class_,
        parts=tuple(
            Part(name=name, hint=hints.get(name, Any), required=True) for name in names
        ),
        make=lambda values: class_(**values),
        read=lambda value: zip(names, value, strict=True),
        is_row=True,
        is_checked_around=True,
    )
