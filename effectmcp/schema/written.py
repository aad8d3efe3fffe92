"""A Python value → plain JSON, according to the type of the value.

The annotation is not used: the check that follows compares the two, and names the place
where they differ. `build.py` does the reverse.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from ..canonical import JSON, MAX_DEPTH, dumps
from ..errors import CanonicalError
from ..shapes.choices import is_by_value
from ..shapes.problems import MAX_PROBLEMS, Problem, put_below
from ..shapes.sources import class_source, leaf_of

__all__ = ["written"]

#: Passed for a key, which must not be nested.
_NO_ROOM: Final = (0,) * MAX_DEPTH

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def written(value: Any) -> tuple[JSON, list[Problem]]:
    """Return `value` as plain JSON, and the problems of parts without such a form."""
    problems: list[Problem] = []
    return _written(value, problems, ()), problems


def _written(value: Any, problems: list[Problem], around: tuple[int, ...]) -> JSON:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, enum.Enum):
        return value.value if is_by_value(type(value)) else value.name
    match value:
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case uuid.UUID() | decimal.Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case _:
            return _container(value, problems, around)


def _container(value: Any, problems: list[Problem], around: tuple[int, ...]) -> JSON:
    if id(value) in around:  # if it holds itself twice, it would be visited 2⁶⁴ times
        problems.append(("", "is the object that contains it"))
        return None
    if len(around) >= MAX_DEPTH:
        problems.append(("", f"is nested deeper than {MAX_DEPTH} levels"))
        return None
    around = (*around, id(value))
    pairs: Iterable[tuple[str | int, Any]]
    class_: Any = type(value)
    try:
        source = class_source(class_)
        read = None if source is None else list(source.read(value))
    except Exception as exc:  # of a serializer, or of a class without a source
        problems.append(("", f"cannot be written: {exc}"))
        return None
    if source is not None and read is not None:
        if source.is_root:
            return _written(read[0][1], problems, around)
        if source.is_row:
            return _items([item for _, item in read], problems, around)
        pairs = read
    elif isinstance(value, Mapping):
        pairs = _entries(value, problems)
    elif isinstance(value, (list, tuple)):
        return _items(value, problems, around)
    elif isinstance(value, Set):
        # A set's order differs from process to process.
        return sorted(_items(value, problems, around), key=_order)
    elif (leaf := leaf_of(class_)) is not None and not leaf.secret:
        return str(value)
    else:
        words = f"is of type {type(value).__qualname__}, which JSON cannot express"
        problems.append(("", words))
        return None
    made = {}
    for name, item in pairs:
        before = len(problems)
        made[name] = _written(item, problems, around)
        put_below(problems, before, name)
        if len(problems) > MAX_PROBLEMS:
            break
    return made


def _entries(
    value: Mapping[Any, Any], problems: list[Problem]
) -> list[tuple[str, Any]]:
    pairs = []
    for key, item in value.items():
        name = _written(key, problems, _NO_ROOM)
        if type(name) is not str:
            words = f"has the key {key!r}, where JSON has only strings as keys"
            problems.append(("", words))
        else:
            pairs.append((name, item))
    return pairs


def _items(
    value: Iterable[Any], problems: list[Problem], around: tuple[int, ...]
) -> list[JSON]:
    made = []
    for index, item in enumerate(value):
        before = len(problems)
        made.append(_written(item, problems, around))
        put_below(problems, before, index)
        if len(problems) > MAX_PROBLEMS:
            break
    return made


def _order(item: JSON) -> bytes:
    try:
        return dumps(item)
    except CanonicalError:  # reported by the check that follows
        return b""
