"""Checked arguments → the Python values that a function takes, by one cattrs converter.

The types are already checked, so only Python code can still refuse a value: validators,
converters, `__post_init__`, `_missing_`. attrs stops at the first validator that fails.
A model must see every problem, so the other validators run as well then.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Mapping, MutableSet
from functools import cache
from typing import Any, TypeAlias, get_args, get_origin

import attrs

from ..converter import new_converter
from ..forms.classes import make_judge
from ..forms.fields import Field
from ..forms.formats import parse_date, parse_datetime
from ..forms.words import complaint
from .checks import Picked, has_equals
from .classes import Part, parts_of
from .problems import Problem, path_step
from .types import MAPPINGS, SETS
from .unions import is_union, members_of
from .written import is_by_value

__all__ = ["Build", "make_build"]

#: Takes a checked value; returns the built value, and the problems found here.
Build: TypeAlias = Callable[[Any], tuple[Any, list[Problem]]]


class _Complaints(Exception):
    """The problems that a class reports, by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__(problems)
        self.problems = problems


def make_build(annotation: Any) -> Build:
    """Return a function that builds values of `annotation`."""
    hook = _converter().get_structure_hook(annotation)

    def build(value: Any) -> tuple[Any, list[Problem]]:
        try:
            return hook(value, annotation), []
        except Exception as exc:
            return None, list(_problems(exc))

    return build


@cache
def _converter() -> Any:
    made = new_converter()
    made.register_structure_hook(dt.date, lambda value, _: parse_date(value))
    made.register_structure_hook(dt.datetime, lambda value, _: parse_datetime(value))
    made.register_structure_hook_func(
        lambda type_: type_ is object, lambda value, _: value
    )
    made.register_structure_hook_func(_is_named_enum, _member)
    made.register_structure_hook_func(is_union, _picked(made))
    made.register_structure_hook_func(
        lambda type_: hasattr(type_, "__value__") and not _is_enum(type_),
        lambda value, type_: made.structure(value, type_.__value__),
    )
    made.register_structure_hook_factory(_has_parts, lambda t: _built(made, t))
    made.register_structure_hook_func(_is_set, _set_of(made))
    made.register_structure_hook_func(_has_keys, _dict_of(made))
    return made


# Values that differ in JSON may be equal in Python: a UUID can be written in two ways.
def _set_of(made: Any) -> Callable[[list[Any], Any], Any]:
    def structure(value: list[Any], type_: Any) -> Any:
        (item,) = get_args(type_)
        items = made.structure(value, list[item])  # type: ignore[valid-type]
        if has_equals(items):
            raise ValueError("must not have the same item twice")
        return (set if _origin(type_) in (set, MutableSet) else frozenset)(items)

    return structure


def _dict_of(made: Any) -> Callable[[Mapping[str, Any], Any], Any]:
    def structure(value: Mapping[str, Any], type_: Any) -> Any:
        key, item = get_args(type_)
        keys = [made.structure(name, key) for name in value]
        if has_equals(keys):
            raise ValueError("must not have the same key twice")
        items = _structured(made, dict.fromkeys(value, item), value, type_)
        return dict(zip(keys, items.values(), strict=True))

    return structure


def _is_set(type_: Any) -> bool:
    return _origin(type_) in SETS and bool(get_args(type_))


def _has_keys(type_: Any) -> bool:
    args = get_args(type_)
    return _origin(type_) in MAPPINGS and bool(args) and args[0] is not str


def _origin(type_: Any) -> Any:
    return get_origin(type_) or type_


def _is_enum(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, enum.Enum)


def _is_named_enum(type_: Any) -> bool:
    return _is_enum(type_) and not is_by_value(type_)


def _member(name: str, class_: Any) -> Any:
    return class_[name]


def _picked(made: Any) -> Callable[[Picked, Any], Any]:
    # The check has already chosen the member.
    def structure(picked: Picked, type_: Any) -> Any:
        member = members_of(type_)[picked.index]
        return made.structure(picked.value, member)

    return structure


def _has_parts(type_: Any) -> bool:
    # A NamedTuple is a list in JSON, and `converter.py` converts it.
    class_ = _origin(type_)
    return isinstance(class_, type) and (
        attrs.has(class_)
        or dataclasses.is_dataclass(class_)
        or hasattr(class_, "__required_keys__")
    )


# cattrs's own code for classes does not resolve the annotations of a TypedDict, and
# confuses a type variable that a class and its base both use. The schema is made from
# `parts_of`, so values are built from it as well.
def _built(made: Any, type_: Any) -> Callable[[Mapping[str, Any], Any], Any]:
    class_ = _origin(type_)
    parts = parts_of(type_) or []
    hints = {part.name: part.hint for part in parts}
    judge = None
    if attrs.has(class_):
        judge = make_judge(class_, tuple(map(_field, parts)))

    def structure(value: Mapping[str, Any], _: Any) -> Any:
        values = _structured(made, hints, value, type_)
        try:
            return class_(**values)
        except Exception as exc:
            problems: dict[str, str] = {}
            if judge is not None:
                judge(values, problems)
            if problems:
                raise _Complaints(problems) from exc
            raise

    return structure


def _structured(
    made: Any, hints: Mapping[str, Any], value: Mapping[str, Any], type_: Any
) -> dict[str, Any]:
    import cattrs

    result, errors = {}, []
    for name, item in value.items():
        try:
            result[name] = made.structure(item, hints[name])
        except Exception as exc:
            exc.add_note(cattrs.AttributeValidationNote("", name, hints[name]))
            errors.append(exc)
    if errors:
        # pyright reads `ExceptionGroup.__init__`, but cattrs replaces `__new__`.
        raise cattrs.ClassValidationError("", errors, type_)  # pyright: ignore[reportCallIssue]
    return result


# ---- validators of an attrs class ---------------------------------------------------


def _field(part: Part) -> Field:
    attribute = part.attribute
    assert attribute is not None

    def validate(instance: Any, value: Any) -> None:
        if attribute.validator is None:
            return
        try:
            attribute.validator(instance, attribute, value)
        except AttributeError:
            raise
        except Exception as exc:
            # attrs's own validators would report "'>=' not supported between …".
            is_null = value is None and isinstance(exc, TypeError)
            words = "must not be null" if is_null else complaint(exc, attribute.name)
            raise ValueError(words) from exc

    return Field(
        name=part.name,
        schema={},
        required=part.required,
        check=lambda value: value,
        attribute=attribute,
        extras=(validate,),
    )


# ---- an exception's problems --------------------------------------------------------


def _problems(exc: Exception) -> list[Problem]:
    if isinstance(exc, _Complaints):
        return [(path_step(name), words) for name, words in exc.problems.items()]
    grouped = getattr(exc, "group_exceptions", None)
    if grouped is None:
        return [("", complaint(exc))]
    inside, _ = grouped()
    found: list[Problem] = []
    for one, note in inside:
        key: str | int = note.name if hasattr(note, "name") else note.index
        here = path_step(key)
        found += [(here + path, words) for path, words in _problems(one)]
    return found or [("", complaint(exc))]
