"""The members of a union, in an order that does not depend on the source code.

`int | str == str | int` in Python, and both `typing` and cattrs cache by equality: they
may return one of them for the other, if the process used it first. So the order in the
source means nothing. Instead, the most specific member that fits is chosen: a date
before a string, a whole number before a number.
"""

from __future__ import annotations

import enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
)

from .labels import Format

__all__ = ["identity_of", "is_union", "members_of", "unwrapped"]

#: A string that equal types share.
Identity: TypeAlias = str


def is_union(annotation: Any) -> bool:
    """Whether `annotation` offers a choice of types."""
    return get_origin(annotation) in (Union, UnionType)


def unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the bare type, without NewType and Final, and the metadata around it."""
    metadata: list[Any] = []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *inner = get_args(annotation)
            metadata[:0] = inner  # applied in order: the outermost takes precedence
        elif origin is Final:
            (annotation,) = get_args(annotation)
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        else:
            return annotation, metadata


def members_of(annotation: Any) -> list[Any]:
    """Return the members of a union: the most specific first, `None` last."""
    return sorted(get_args(annotation), key=lambda one: (_rank(one), identity_of(one)))


_CHOICE: Final = 0
#: By name, as some of their modules are slow to import.
_SINGLE: Final = (
    *("builtins.bool", "builtins.int", "builtins.float", "datetime.datetime"),
    *("datetime.date", "datetime.time", "uuid.UUID", "decimal.Decimal"),
    "builtins.bytes",
)
_FORMATTED, _TEXT, _OTHER, _ANYTHING, _NULL = range(20, 25)  # beyond the single ones


def _rank(annotation: Any) -> int:
    bare, metadata = unwrapped(annotation)
    if get_origin(bare) is Literal:
        return _CHOICE
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return _CHOICE
    name = f"{bare.__module__}.{bare.__name__}" if isinstance(bare, type) else ""
    if name in _SINGLE:
        return 1 + _SINGLE.index(name)
    if bare is str:
        is_formatted = any(isinstance(one, Format) for one in metadata)
        return _FORMATTED if is_formatted else _TEXT
    if bare is Any or bare is object:
        return _ANYTHING
    if name.startswith("pydantic.") and name.endswith(("Str", "Url")):
        return _FORMATTED
    return _NULL if bare in (None, NoneType) else _OTHER


def identity_of(annotation: Any) -> Identity:
    """Return a string that is the same for equal types."""
    bare, metadata = unwrapped(annotation)
    if metadata:
        return f"Annotated[{identity_of(bare)}, {metadata!r}]"
    origin, args = get_origin(bare), get_args(bare)
    if origin is Literal:
        return f"Literal[{', '.join(sorted(map(repr, args)))}]"
    if is_union(bare):
        return f"Union[{', '.join(sorted(map(identity_of, args)))}]"
    if origin is not None:
        return f"{identity_of(origin)}[{', '.join(map(identity_of, args))}]"
    if isinstance(bare, type):
        # Two classes made by one function have the same name.
        return f"{bare.__module__}.{bare.__qualname__} {id(bare)}"
    return repr(bare)
