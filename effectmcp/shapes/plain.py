"""The types of single values: their schemas, and their conversion from JSON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, TypeAlias

from attrs import frozen

from .formats import parse_date, parse_datetime

__all__ = ["PATTERNS", "Leaf", "plain_of"]

#: The patterns of strings, and the words for them. They mean the same to every engine
#: of regular expressions, except the anchors: Python's `$` also matches before a final
#: newline, so `fullmatch()` is used.
PATTERNS: Final = {
    r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?$": "a time such as 09:30:00",
    r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$": "a decimal number as text, such as "
    '"12.50"',
    r"^([0-9A-Fa-f]{2})*$": "bytes as pairs of hexadecimal digits, such as 48656c6c6f",
}
_TIME, _DECIMAL, _BYTES = PATTERNS

#: Makes a value of JSON that fits the schema, or raises an exception with words.
Make: TypeAlias = Callable[[Any], Any]


@frozen(eq=False)
class Leaf:
    """A type of single values.

    Attributes:
        schema: Its JSON Schema.
        make: JSON → value; `None` where the two are the same.
        write: Value → JSON, for defaults in forms; `None` where the two are the same.
        is_for_forms: Whether a form can ask for it.
        secret: The reason why a form must not ask for it, if there is one.
    """

    schema: Mapping[str, Any]
    make: Make | None = None
    write: Make | None = None
    is_for_forms: bool = False
    secret: str = ""


_NULL: Final = Leaf({"type": "null"})

_PLAIN: Final[dict[Any, Leaf]] = {
    str: Leaf({"type": "string"}, is_for_forms=True),
    int: Leaf({"type": "integer"}, is_for_forms=True),
    float: Leaf({"type": "number"}, float, is_for_forms=True),
    bool: Leaf({"type": "boolean"}, is_for_forms=True),
    NoneType: _NULL,
    None: _NULL,
    dt.date: Leaf(
        {"type": "string", "format": "date"},
        parse_date,
        dt.date.isoformat,
        is_for_forms=True,
    ),
    dt.datetime: Leaf(
        {"type": "string", "format": "date-time"},
        parse_datetime,
        dt.datetime.isoformat,
        is_for_forms=True,
    ),
    # The format `time` demands an offset, and Python's times rarely have one.
    dt.time: Leaf({"type": "string", "pattern": _TIME}, dt.time.fromisoformat),
    # As in the converter of step results (RFC 4648, section 8).
    bytes: Leaf(
        {"type": "string", "contentEncoding": "base16", "pattern": _BYTES},
        bytes.fromhex,
    ),
}


@cache
def _late() -> dict[Any, Leaf]:
    import decimal
    import uuid

    return {
        uuid.UUID: Leaf({"type": "string", "format": "uuid"}, uuid.UUID),
        decimal.Decimal: Leaf({"type": "string", "pattern": _DECIMAL}, decimal.Decimal),
    }


def plain_of(annotation: Any) -> Leaf | None:
    """Return a type that every dialect reads in one way; `None` for other types."""
    # These modules are slow to import, and who names such a type has imported them.
    if getattr(annotation, "__module__", None) in ("decimal", "uuid"):
        return _late().get(annotation)
    return _PLAIN.get(annotation)
