"""The cattrs converter: values of annotated types ↔ plain JSON, without coercion.

Arguments and results of steps, and arguments of `Restart`, go through it. cattrs coerces
by default: it would accept `"3"` as an `int`. Here, a value whose type differs from its
annotation is refused, because it shows a bug.

It is made at first use, so that `import effectmcp` does not import cattrs.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from .canonical import JSON, dumps
from .shapes.reading import alias_value
from .shapes.sources import leaf_of, source_of

__all__ = ["converter", "explained", "is_made_whole", "new_converter", "plain"]


@cache
def converter() -> Any:
    """Return the shared converter."""
    return new_converter()


def new_converter() -> Any:
    """Return a new converter like `converter()`, to which the caller can add hooks."""
    import cattrs
    from cattrs.strategies import configure_union_passthrough

    made = cattrs.Converter()

    def text(value: object) -> str:
        return str(value)

    def isoformat(value: dt.date | dt.time) -> str:
        return value.isoformat()

    for class_ in (uuid.UUID, decimal.Decimal):
        made.register_unstructure_hook(class_, text)
        made.register_structure_hook(class_, _from_text(class_))
    for timed in (dt.datetime, dt.date, dt.time):
        made.register_unstructure_hook(timed, isoformat)
        made.register_structure_hook(timed, _from_iso(timed))
    # Whole microseconds: float seconds would be rounded.
    made.register_unstructure_hook(
        dt.timedelta, lambda value: value // dt.timedelta(microseconds=1)
    )
    made.register_structure_hook(
        dt.timedelta, lambda value, _: dt.timedelta(microseconds=value)
    )
    made.register_unstructure_hook(bytes, lambda value: value.hex())
    made.register_structure_hook(bytes, lambda value, _: bytes.fromhex(value))
    for exact in (str, int, float, bool, NoneType):
        made.register_structure_hook(exact, _exactly(exact))
    made.register_unstructure_hook_func(_is_set, _sorted_set(made))
    made.register_unstructure_hook_func(_is_named_tuple, _unstructure_row(made))
    made.register_structure_hook_factory(
        _is_named_tuple, lambda type_: _structure_row(made, type_)
    )
    made.register_unstructure_hook_factory(
        is_made_whole, lambda type_: _taken_apart(made, type_)
    )
    made.register_structure_hook_factory(
        is_made_whole, lambda type_: _put_together(made, type_)
    )
    made.register_structure_hook_func(_is_union_of_made_whole, _first_of(made))
    made.register_structure_hook_func(
        lambda type_: hasattr(type_, "__value__") and not isinstance(type_, type),
        lambda value, type_: made.structure(value, alias_value(type_)),
    )
    made.register_unstructure_hook_func(_is_text_like, str)
    made.register_structure_hook_func(_is_text_like, _from_leaf)
    configure_union_passthrough(str | int | float | bool | None, made)
    return made


def is_made_whole(type_: Any) -> bool:
    """Whether a class validates or renames its fields itself: cattrs does not know it."""
    class_ = get_origin(type_) or type_
    return hasattr(class_, "__pydantic_fields__") or hasattr(
        class_, "__struct_config__"
    )


def _taken_apart(made: Any, type_: Any) -> Callable[[Any], Any]:
    source = source_of(type_)
    assert source is not None
    fields = source.fields or source.read
    return lambda value: {name: made.unstructure(item) for name, item in fields(value)}


def _put_together(made: Any, type_: Any) -> Callable[[Any, Any], Any]:
    source = source_of(type_)
    assert source is not None
    hints = {part.name: part.hint for part in source.parts}

    def structure(value: Any, type_: Any) -> Any:
        # A hint is missing where a model takes fields that it does not name.
        return source.make(
            {
                name: made.structure(item, hints[name]) if name in hints else item
                for name, item in value.items()
            }
        )

    return structure


def _is_union_of_made_whole(type_: Any) -> bool:
    return get_origin(type_) in (Union, UnionType) and any(
        is_made_whole(one) for one in get_args(type_)
    )


def _first_of(made: Any) -> Callable[[Any, Any], Any]:
    def structure(value: Any, type_: Any) -> Any:
        for one in get_args(type_):
            try:
                found = made.structure(value, one)
                if made.unstructure(found) == value:
                    return found
            except Exception:
                continue
        raise TypeError(f"{value!r} does not fit {type_}")

    return structure


def _is_text_like(type_: Any) -> bool:
    leaf = leaf_of(type_)
    return leaf is not None and not leaf.secret


def _from_leaf(value: Any, type_: Any) -> Any:
    leaf = leaf_of(type_)
    assert leaf is not None
    assert leaf.make is not None
    return leaf.make(value)


def plain(value: Any) -> JSON:
    """Return `value` with lists for tuples and values for enum members, recursively."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return plain(value.value) if isinstance(value, enum.Enum) else value


def explained(exc: Exception) -> str:
    """Return the message of an exception; for a cattrs group, its paths and reasons."""
    import cattrs

    if isinstance(exc, cattrs.BaseValidationError):
        return "; ".join(cattrs.transform_error(exc))
    return str(exc)


def _from_text(class_: Any) -> Callable[[Any, Any], Any]:
    return lambda value, _: class_(value)


def _from_iso(class_: Any) -> Callable[[Any, Any], Any]:
    return lambda value, _: class_.fromisoformat(value)


def _exactly(class_: Any) -> Callable[[Any, Any], Any]:
    def check(value: Any, type_: Any) -> Any:
        if type_ is not class_:
            # cattrs also calls the hook of `int` for every IntEnum.
            return type_(value)
        if class_ is float and type(value) is int:
            return float(value)
        if type(value) is not class_:
            raise TypeError(f"{value!r} is not {class_.__name__}")
        return value

    return check


def _is_named_tuple(type_: Any) -> bool:
    return (
        isinstance(type_, type)
        and issubclass(type_, tuple)
        and hasattr(type_, "_fields")
    )


# cattrs does not resolve a NamedTuple's annotations, which are strings under `from
# __future__ import annotations`.
def _unstructure_row(made: Any) -> Callable[[Any], list[Any]]:
    return lambda row: [made.unstructure(item) for item in row]


def _structure_row(made: Any, type_: Any) -> Callable[[Any, Any], Any]:
    source = source_of(type_)
    assert source is not None
    hints = [part.hint for part in source.parts]

    def structure(value: Any, type_: Any) -> Any:
        pairs = zip(value, hints, strict=True)
        return type_(*(made.structure(one, hint) for one, hint in pairs))

    return structure


def _is_set(type_: Any) -> bool:
    return (get_origin(type_) or type_) in (set, frozenset)


def _sorted_set(made: Any) -> Callable[[Any], list[Any]]:
    # A set's order differs from process to process, and these bytes are compared.
    def unstructure(value: Any) -> list[Any]:
        return sorted((made.unstructure(item) for item in value), key=dumps)

    return unstructure
