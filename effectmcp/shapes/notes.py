"""The metadata of `Annotated`: labels, and limits.

No limit is dropped: an unknown limit is refused by name. Other objects of other libraries
are ignored (PEP 593); docs/schemas.md lists them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from attrs import frozen

from ..errors import SchemaError
from .constraints import (
    FULL,
    Bound,
    Constraint,
    Multiple,
    Options,
    Other,
    Pattern,
    Rule,
    Size,
)
from .labels import Label
from .reading import (
    Anything,
    Choice,
    Columns,
    Entries,
    Items,
    Named,
    Object,
    Plain,
    Shape,
    Union,
    shape_of,
)
from .sources import Converted, Unknown, notes_in, shown_note
from .unions import unwrapped
from .words import type_name

__all__ = ["Notes", "check_rules", "notes_of"]


@frozen(eq=False)
class Notes:
    """The metadata of a type, sorted.

    Attributes:
        labels: Descriptions of the value.
        rules: Its limits.
        converts: Functions that change a value, or refuse it.
    """

    labels: tuple[Label, ...] = ()
    rules: tuple[Rule, ...] = ()
    converts: tuple[Callable[[Any], Any], ...] = ()


_NONE: Final = Notes()


def notes_of(
    metadata: Iterable[Any],
    bare: Any,
    shape: Shape,
    of: str,
    *,
    is_checked: bool = False,
) -> Notes:
    """Return the labels and limits in `metadata`.

    Args:
        metadata: The arguments of `Annotated`, the innermost first.
        bare: The type.
        shape: Its shape.
        of: The name of the value in messages.
        is_checked: Whether the class around checks the limits itself.

    Raises:
        SchemaError: If a limit is unknown, or not one of such values.
    """
    labels: list[Label] = []
    rules: list[Rule] = []
    converts: list[Callable[[Any], Any]] = []
    for item in metadata:
        for note in notes_in(item):
            match note:
                case Rule():
                    _check_rule(note, bare, shape, of, shown_note(item))
                    if is_checked and _is_of_msgspec(item):
                        advice = "pydantic does not know it; write Field"
                        raise SchemaError(f"{of}: {item!r}: {advice}")
                    if converts and not note.is_code:
                        raise SchemaError(
                            f"{of}: {shown_note(item)} follows a function that changes"
                            " the value, and limits the value that a client sends; put it"
                            " first"
                        )
                    rules.append(note)
                case Converted(make):
                    if not is_checked:
                        converts.append(_converter(make, bare, of))
                case Unknown(advice, is_always):
                    if is_always or not is_checked:
                        raise SchemaError(f"{of}: {shown_note(item)}: {advice}")
                case _:
                    labels.append(note)
    if not (labels or rules or converts):
        return _NONE
    return Notes(tuple(labels), tuple(rules), tuple(converts))


def _is_of_msgspec(item: Any) -> bool:
    return type(item).__module__.partition(".")[0] == "msgspec"


def check_rules(rules: Iterable[Rule], bare: Any, shape: Shape, of: str) -> None:
    """Check that the limits of a class's field are for values of its type.

    Raises:
        SchemaError: If one is not.
    """
    for rule in rules:
        if not rule.is_hidden:
            _check_rule(rule, bare, shape, of, "")


def _check_rule(rule: Rule, bare: Any, shape: Shape, of: str, shown: str) -> None:
    constraint = rule.constraint
    if constraint is None:
        return
    shown = shown or f'a limit, "{constraint.words({}, FULL)}",'
    if not constraint.is_possible:
        raise SchemaError(f"{of}: {shown} admits no value")
    if not _is_for(constraint, shape, of):
        raise SchemaError(
            f"{of}: {shown} does not limit values of {type_name(bare)};"
            f" {_advice(constraint)}"
        )


def _converter(
    make: Callable[[Any], Callable[[Any], Any]], bare: Any, of: str
) -> Callable[[Any], Any]:
    try:
        return make(bare)
    except Exception as exc:
        # pydantic's error is a page, whose last line has the reason.
        said = str(exc).strip().splitlines()[-1].strip()
        raise SchemaError(f"{of}: {said}") from exc


# ---- which limits are for which values ----------------------------------------------


def _is_for(constraint: Constraint, shape: Shape, of: str) -> bool:
    if isinstance(shape, Union):
        # Null has no limits.
        shapes = [shape_of(unwrapped(one)[0], of) for one in shape.members]
        return all(
            isinstance(one, Plain)
            and one.leaf.schema == {"type": "null"}
            or _is_for(constraint, one, of)
            for one in shapes
        )
    if isinstance(shape, Named):
        inside = unwrapped(shape.value)[0]
        return _is_for(constraint, shape_of(inside, of), of)
    if isinstance(shape, Anything):
        return True
    if isinstance(shape, Choice):
        return _is_for_all(constraint, shape.values)
    match constraint:
        case Bound(value=value):
            return isinstance(shape, Plain) and _is_like(shape.type_, value)
        case Multiple():
            return isinstance(shape, Plain) and shape.type_ in _numbers()
        case Size():
            if isinstance(shape, Plain):
                is_mail = shape.leaf.schema.get("format") == "email"
                return shape.type_ in (str, bytes) or _is_secret(shape) or is_mail
            if isinstance(shape, Object):
                return hasattr(shape.source.class_, "__len__")
            return isinstance(shape, (Items, Columns, Entries))
        case Pattern():
            return isinstance(shape, Plain) and shape.type_ is str
        case Other(types=types) if types:
            name = getattr(getattr(shape, "type_", None), "__name__", "")
            return name in types
        case _:
            return True


def _is_secret(shape: Plain) -> bool:
    return bool(shape.leaf.secret)


def _is_for_all(constraint: Constraint, values: Iterable[Any]) -> bool:
    if isinstance(constraint, (Options, Other)):
        return True
    try:
        for value in values:
            constraint.holds(value)
    except TypeError:
        return False
    return True


@cache
def _numbers() -> tuple[Any, ...]:
    from decimal import Decimal
    from fractions import Fraction

    return int, float, Decimal, Fraction


def _is_like(type_: Any, value: Any) -> bool:
    numbers = _numbers()
    if type_ in numbers:
        return isinstance(value, numbers) and not isinstance(value, bool)
    if type_ is dt.datetime and getattr(value, "tzinfo", None) is None:
        return False  # every datetime of a client has an offset
    return type_ is not bool and type(value) is type_


def _advice(constraint: Constraint) -> str:
    match constraint:
        case Bound():
            return (
                "bounds are for numbers, and for dates with a bound of their type; a"
                " bound of datetimes needs an offset"
            )
        case Multiple():
            return "multiples are of numbers"
        case Pattern():
            return "patterns are for str"
        case Other(types=types):
            return f"it is for {' and '.join(types)}"
        case _:
            return "lengths are for text, lists and dicts"
