"""`TypedDict`s, of typing and of typing_extensions."""

from __future__ import annotations

import typing
from typing import Annotated, Any, Final, NotRequired, Required, get_args, get_origin

from typing_extensions import ReadOnly

from .source import Part, Source, hints_of

__all__ = ["source_of"]

#: The qualifiers of a TypedDict's key, and whether the key is required.
_QUALIFIERS: Final[dict[Any, bool | None]] = {
    Required: True,
    NotRequired: False,
    ReadOnly: None,
}


def source_of(class_: Any) -> Source | None:
    """Return the source of a `TypedDict`; `None` for any other class."""
    if not typing.is_typeddict(class_) and not _is_typeddict(class_):
        return None
    parts = []
    for name, hint in hints_of(class_, class_.__qualname__).items():
        required = name in class_.__required_keys__
        # `__required_keys__` is wrong if annotations are strings, as under `from
        # __future__ import annotations`: Python does not read them.
        notes: tuple[Any, ...] = ()
        while (origin := get_origin(hint)) in (*_QUALIFIERS, Annotated):
            if origin is Annotated:
                hint, *inner = get_args(hint)
                notes = (*inner, *notes)
                continue
            says = _QUALIFIERS[origin]
            required = required if says is None else says
            (hint,) = get_args(hint)
        if notes:
            made: Any = Annotated
            hint = made[(hint, *notes)]
        parts.append(Part(name=name, hint=hint, required=required, is_always=required))
    return Source(
        class_=class_,
        parts=tuple(parts),
        make=dict,
        read=dict.items,
        is_checked_around=True,
    )


def _is_typeddict(class_: type) -> bool:
    # From typing_extensions, which has its own class on older Pythons.
    return hasattr(class_, "__required_keys__") and issubclass(class_, dict)
