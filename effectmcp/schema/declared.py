"""Whether a result is of the type that its function declares.

A result with an `outputSchema` is checked against that (`results.py`). This is for all
others: text and blocks of tools, messages of prompts, contents of resources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Generator, Mapping
from inspect import unwrap
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from attrs import frozen

from ..errors import OutputError
from ..shapes.reading import alias_value
from ..shapes.unions import is_union, unwrapped
from ..shapes.words import type_name

__all__ = ["Declared", "declared_by", "final_type", "place_of"]


@frozen(eq=False)
class Declared:
    """The declared type of a result.

    Attributes:
        classes: Classes whose values fit without a further look.
        check: Raises `OutputError` for a value of another type.
    """

    classes: frozenset[type]
    check: Callable[[Any], None]


def final_type(annotation: Any) -> Any:
    """Return the type of the result: `Receipt` for `Flow[Receipt]`."""
    while (get_origin(annotation) or annotation) in (Generator, Coroutine):
        # A bare class has no arguments.
        annotation = (*get_args(annotation), Any, Any, Any)[2]
    return annotation


def declared_by(function: Callable[..., Any], annotation: Any) -> Declared | None:
    """Return the check of the results of `function`; `None` if any value fits.

    Args:
        function: The function, for messages.
        annotation: Its return annotation, resolved; `None` without one.
    """
    annotation = final_type(annotation)
    if _is_open(annotation):
        return None

    def check(value: Any) -> None:
        if not _is_of(value, annotation):
            made, says = type_name(type(value)), type_name(annotation)
            place = place_of(function)
            raise OutputError(
                [f"{place} returned {made}, and its annotation says {says}"]
            )

    parts = get_args(annotation) if is_union(annotation) else (annotation,)
    classes = {NoneType if one is None else one for one in parts}
    plain = frozenset(one for one in (str, bytes, NoneType) if one in classes)
    return Declared(plain, check)


def place_of(function: Any) -> str:
    """Return the name of a function, and where it is."""
    inner = function
    while hasattr(inner, "func"):
        inner = inner.func
    inner = unwrap(inner)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    code = getattr(inner, "__code__", None)
    if code is None:
        return f"{name}()"
    return f"{name}() ({code.co_filename}:{code.co_firstlineno})"


def _is_open(annotation: Any) -> bool:
    return annotation in (Any, object) or isinstance(annotation, (str, TypeVar))


def _is_of(value: Any, annotation: Any) -> bool:
    """Whether a value is of a type. Types that it does not know have every value."""
    annotation, _ = unwrapped(annotation)
    if hasattr(annotation, "__value__"):
        return _is_of(value, alias_value(annotation))
    if annotation in (None, NoneType):
        return value is None
    if _is_open(annotation):
        return True
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if is_union(annotation):
        return any(_is_of(value, one) for one in args)
    if origin is Literal:
        return value in args
    if origin is float and type(value) is int:
        return True
    # The class of a TypedDict has no instances.
    class_ = dict if hasattr(origin, "__required_keys__") else origin
    try:
        is_instance = isinstance(value, class_)
    except TypeError:  # a special form, or a protocol
        return True
    if not is_instance or not args:
        return is_instance
    if isinstance(value, Mapping) and len(args) == 2:
        return all(_is_of(one, args[1]) for one in value.values())
    if origin is tuple and args[-1] is not ...:
        return len(value) == len(args) and all(map(_is_of, value, args))
    if isinstance(value, Collection) and not isinstance(value, (str, bytes)):
        return all(_is_of(one, args[0]) for one in value)
    return True
