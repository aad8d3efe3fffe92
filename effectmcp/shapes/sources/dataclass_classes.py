"""Dataclasses."""

from __future__ import annotations

from typing import Any

from ...errors import SchemaError
from .source import NO_DEFAULT, Part, Source, hints_of, refuse_field

__all__ = ["source_of"]


def source_of(class_: Any) -> Source | None:
    """Return the source of a dataclass; `None` for any other class."""
    if not hasattr(class_, "__dataclass_fields__"):
        return None
    import dataclasses  # late: it is slow to import

    hints = hints_of(class_, class_.__qualname__)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise SchemaError(
                f"{class_.__qualname__}.{name}: the value of an InitVar cannot be"
                " read back; make it a field"
            )
    missing = dataclasses.MISSING
    fields = [field for field in dataclasses.fields(class_) if field.init]
    for field in fields:
        refuse_field(field.default, f"{class_.__qualname__}.{field.name}")
    return Source(
        class_=class_,
        parts=tuple(
            Part(
                name=field.name,
                hint=hints[field.name],
                required=field.default is missing and field.default_factory is missing,
                default=NO_DEFAULT if field.default is missing else field.default,
            )
            for field in fields
        ),
        make=lambda values: class_(**values),
        read=lambda value: [(one.name, getattr(value, one.name)) for one in fields],
    )
