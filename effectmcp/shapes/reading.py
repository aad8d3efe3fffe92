"""An annotation → its shape, one level deep: the parts of a shape are annotations.

    match shape_of(annotation, "order(title)"):
        case Items(item, make): ...

The dialects read shapes: `schema` for arguments and results, `forms` for questions.
None of them looks at an annotation itself.
"""

from __future__ import annotations

import collections.abc as cabc
import datetime as dt
import enum
import sys
import typing
from collections.abc import Callable, Iterable
from typing import (
    Any,
    Final,
    ForwardRef,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

from attrs import frozen

from ..errors import SchemaError
from .plain import Leaf, plain_of
from .sources import Source, leaf_of, source_of
from .unions import is_union, members_of, unwrapped
from .words import type_name

__all__ = [
    "Anything",
    "Choice",
    "Columns",
    "Entries",
    "Items",
    "Named",
    "Object",
    "Plain",
    "Shape",
    "Union",
    "alias_value",
    "find_shape",
    "shape_of",
]


@frozen(eq=False)
class Plain:
    """A single value."""

    type_: Any
    leaf: Leaf


@frozen(eq=False)
class Anything:
    """A value that may be any JSON."""


@frozen(eq=False)
class Choice:
    """One of some values: a `Literal`, or an `Enum` whose class is `enum`."""

    values: tuple[Any, ...]
    enum: type[enum.Enum] | None = None


@frozen(eq=False)
class Items:
    """A list of items of one type; `make` makes the value of such a list."""

    item: Any
    make: Callable[[Iterable[Any]], Any]
    is_set: bool = False


@frozen(eq=False)
class Columns:
    """A list in which each place has a type of its own."""

    items: tuple[Any, ...]


@frozen(eq=False)
class Entries:
    """Values by name; both types are `None` for a bare `dict`."""

    key: Any
    value: Any


@frozen(eq=False)
class Object:
    """A class with fields."""

    annotation: Any
    source: Source


@frozen(eq=False)
class Union:
    """A choice of types: the most specific first, `None` last."""

    members: tuple[Any, ...]


@frozen(eq=False)
class Named:
    """A type with a name: `type Size = Literal["s", "l"]`."""

    annotation: Any
    name: str
    value: Any


Shape: TypeAlias = (
    Plain | Anything | Choice | Items | Columns | Entries | Object | Union | Named
)

_ANYTHING: Final = (Any, object)
_LISTS: Final[dict[Any, Any]] = {
    list: list,
    cabc.MutableSequence: list,
    cabc.Sequence: tuple,
}
_SETS: Final[dict[Any, Any]] = {
    set: set,
    cabc.MutableSet: set,
    frozenset: frozenset,
    cabc.Set: frozenset,
}
_MAPPINGS: Final = (dict, cabc.Mapping, cabc.MutableMapping)
_BARE_TUPLES: Final = (tuple, typing.Tuple)  # noqa: UP006  # not `tuple[()]`


def shape_of(annotation: Any, of: str) -> Shape:
    """Return the shape of a bare annotation; messages name `of`.

    Raises:
        SchemaError: If JSON cannot express the type; names it.
    """
    shape = find_shape(annotation, of)
    if shape is None:
        raise SchemaError(f"{of}: {_advice(annotation)}")
    return shape


def find_shape(annotation: Any, of: str) -> Shape | None:
    """Return the shape of a bare annotation; `None` for an unknown type.

    Raises:
        SchemaError: If a known type is misused, such as a set of lists.
    """
    leaf = _plain(annotation)
    if leaf is not None:
        return Plain(annotation, leaf)
    if annotation in _ANYTHING:
        return Anything()
    if hasattr(annotation, "__value__") and not _is_enum(annotation):
        name = getattr(annotation, "__name__", "") or repr(annotation)
        return Named(annotation, name, alias_value(annotation))
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if not isinstance(origin, cabc.Hashable):
        raise SchemaError(f"{of}: {annotation!r} is not a type")
    if is_union(annotation):
        return Union(tuple(members_of(annotation)))
    if origin is Literal:
        return Choice(args)
    if origin in (*_LISTS, *_SETS) and len(args) > 1:
        raise SchemaError(f"{of}: {annotation} has one type of items; write a union")
    if origin in _LISTS:
        return Items(args[0] if args else Any, _LISTS[origin])
    if origin in _SETS:
        for arg in args or (Any,):
            _refuse_unhashable(arg, of)
        return Items(args[0] if args else Any, _SETS[origin], is_set=True)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis or annotation in _BARE_TUPLES:
            return Items(args[0] if args else Any, tuple)
        return Columns(args)
    if origin in _MAPPINGS:
        if not args:
            return Entries(None, None)
        if len(args) != 2:
            raise SchemaError(f"{of}: {annotation} needs two types, as dict[str, int]")
        return Entries(*args)
    if _is_enum(annotation):
        return Choice(_members(annotation, of), annotation)
    try:
        source = source_of(annotation)
    except SchemaError as exc:
        raise SchemaError(f"{of}, {exc.problem}") from None
    if source is not None:
        return Object(annotation, source)
    leaf = leaf_of(annotation)
    if leaf is not None:
        return Plain(annotation, leaf)
    return None


def _plain(annotation: Any) -> Leaf | None:
    try:
        return plain_of(annotation)
    except TypeError:  # something in its Annotated has no hash
        return None


def alias_value(annotation: Any) -> Any:
    """Return the type of an alias, with its type variables filled in."""
    args = get_args(annotation)
    value = annotation.__value__
    if not args:
        return value
    values = dict(zip(annotation.__type_params__, args, strict=False))
    inside = getattr(value, "__parameters__", ())
    return value[tuple(values.get(one, one) for one in inside)] if inside else value


def _is_enum(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def _members(class_: type[enum.Enum], of: str) -> tuple[enum.Enum, ...]:
    # Aliases collapse here, as they do everywhere in Python.
    members = tuple(class_)
    if not members:
        raise SchemaError(f"{of}: the Enum {class_.__qualname__} has no members")
    return members


# ---- refusals ----------------------------------------------------------------------


def _refuse_unhashable(annotation: Any, of: str) -> None:
    bare, _ = unwrapped(annotation)
    class_ = get_origin(bare) or bare
    if is_union(bare):
        for arg in get_args(bare):
            _refuse_unhashable(arg, of)
    elif class_ is tuple:
        for arg in get_args(bare) or (Any,):
            _refuse_unhashable(arg, of)
    elif (
        class_ is Any
        or getattr(class_, "__hash__", None) is None
        # Their __hash__ raises.
        or not getattr(getattr(class_, "__struct_config__", None), "frozen", True)
        or (class_ in (*_LISTS, *_SETS, *_MAPPINGS) and class_ is not frozenset)
    ):
        raise SchemaError(
            f"{of}: a set cannot hold {annotation!r}, which has no hash; write list[...]"
        )


_ADVICE: Final[dict[Any, str]] = {
    dt.timedelta: "take a number and name its unit: Annotated[float, 'in seconds']",
    complex: "take two floats",
    cabc.Callable: "a function cannot be sent; take its name, as a Literal",
    cabc.Iterator: "write list[...]",
    cabc.Iterable: "write list[...]",
    cabc.Collection: "write list[...]",
    bytearray: "write bytes",
}
_OFFSET: Final = "write datetime, which always has an offset here"
_BY_VALIDATOR: Final = "write date or datetime, and compare it in a validator"
_ADVICE_BY_NAME: Final[dict[str, str]] = {
    "collections.deque": "write list[...]",
    "pydantic.types.AwareDatetime": _OFFSET,
    "pydantic.types.NaiveDatetime": "write str: a datetime always has an offset here",
    **{
        f"pydantic.types.{name}": _BY_VALIDATOR
        for name in ("PastDate", "FutureDate", "PastDatetime", "FutureDatetime")
    },
    "pydantic.types.Json": "write the type that the JSON holds",
    "pydantic.types.SecretBytes": "write SecretStr",
}


def _advice(annotation: Any) -> str:
    if isinstance(annotation, (str, ForwardRef)):
        return f"the annotation {annotation!r} could not be resolved; define it first"
    if isinstance(annotation, TypeVar):
        return f"{annotation} is open; name its type, as in Box[int]"
    origin = get_origin(annotation) or annotation
    shown = type_name(annotation)
    name = f"{getattr(origin, '__module__', '')}.{getattr(origin, '__name__', '')}"
    advice = _ADVICE.get(origin) or _ADVICE_BY_NAME.get(name)
    if advice is None and isinstance(origin, type):
        if name.startswith("pathlib."):
            advice = "write str, and make the path in the function"
        elif name.partition(".")[0] not in (*sys.stdlib_module_names, "pydantic"):
            advice = "its fields are unknown: make it a dataclass, or @attrs.frozen"
    if advice is None:
        advice = (
            "write plain types, lists, dicts, unions, Literal, an Enum, or a class with"
            " annotated fields: attrs, dataclass, TypedDict, NamedTuple, a model of"
            " pydantic or a Struct of msgspec"
        )
    return f"{shown} has no schema; {advice}"
