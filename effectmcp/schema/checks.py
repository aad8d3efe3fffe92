"""The class of checks, and the checks of single values: numbers, strings, choices.

Only the keywords that `types.py` writes are known here; `raw.py` checks schemas written
by hand. A check returns the value that Python should use: `1` for the `1.0` of a client
that has one kind of number, and a `Picked` for a union, so that `build.py` knows the
member.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from ..canonical import JSON
from ..shapes.formats import FORMATS
from ..shapes.plain import PATTERNS
from ..shapes.problems import Problem
from ..shapes.words import count, is_finite, one_of

__all__ = [
    "Check",
    "Found",
    "Picked",
    "check_choice",
    "check_number",
    "check_simple",
    "check_string",
    "equality_key",
    "has_equals",
    "has_twins",
    "size_check",
    "type_of",
]


@frozen
class Picked:
    """A value of a union, and the member that it fits.

    Attributes:
        index: The index of the member in `anyOf`.
        value: The value.
    """

    index: int
    value: Any


@define
class Found:
    """The findings of one check of one value.

    Attributes:
        problems: The problems so far.
        tried: Members of unions that were tried on a part of the value. Without it,
            each level of nested unions would double the work: 2⁶⁴ tries at the maximum
            depth.
    """

    problems: list[Problem] = field(factory=list)
    tried: dict[tuple[int, int], tuple[Any, list[Problem]]] = field(factory=dict)

    def add(self, words: str) -> None:
        """Add a problem of the part of the value that is being checked."""
        self.problems.append(("", words))


Run: TypeAlias = Callable[[Any, Found], Any]

_EVERYTHING: Final = frozenset(
    {"null", "boolean", "integer", "number", "string", "array", "object"}
)
_NOUNS: Final = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}


@define(eq=False)
class Check:
    """A compiled schema.

    Attributes:
        run: Adds the problems of a value to a `Found`; returns the value.
        noun: The expected kind of value, in words that follow `must be`.
        types: The JSON types that can fit.
        tags: Properties that can have only these values, to choose the member of a
            union.
    """

    run: Run
    noun: str
    types: Collection[str] = _EVERYTHING
    tags: Mapping[str, Collection[Any]] = field(factory=dict)

    def find(self, value: JSON) -> tuple[Any, list[Problem]]:
        """Return the value that Python should use, and all its problems."""
        found = Found()
        value = self.run(value, found)
        return value, found.problems


# ---- single values ------------------------------------------------------------------


def check_simple(type_: str, fits: Callable[[Any], bool]) -> Check:
    """Return the check of a type without further keywords."""
    words = f"must be {_NOUNS[type_]}"

    def run(value: Any, found: Found) -> Any:
        if not fits(value):
            found.add(words)
        return value

    return Check(run, _NOUNS[type_], (type_,))


def check_number(schema: Mapping[str, JSON], *, is_integer: bool) -> Check:
    """Return the check of a number, with its bounds."""
    type_ = "integer" if is_integer else "number"
    words = f"must be {_NOUNS[type_]}"
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    multiple = schema.get("multipleOf")

    def run(value: Any, found: Found) -> Any:
        # 1.0 is an integer in JSON Schema; True is an integer only in Python.
        if is_integer and type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int and (is_integer or type(value) is not float):
            found.add(words)
            return value
        if not is_integer and not is_finite(value):
            found.add("must be a number of at most 308 digits")
        if low is not None and value < low:
            found.add(f"must be at least {low}")
        if high is not None and value > high:
            found.add(f"must be at most {high}")
        if above is not None and value <= above:
            found.add(f"must be more than {above}")
        if below is not None and value >= below:
            found.add(f"must be less than {below}")
        if multiple is not None and value % multiple:
            found.add(f"must be a multiple of {multiple}")
        return value

    types = ("integer",) if is_integer else ("integer", "number")
    return Check(run, _NOUNS[type_], types)


_UUID: Final = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _check_uuid(text: str) -> None:
    if _expression(_UUID).fullmatch(text) is None:
        raise ValueError(
            "must be a UUID, 32 hexadecimal digits in groups of 8-4-4-4-12"
        )


_FORMATS: Final[dict[str, Callable[[str], None]]] = {**FORMATS, "uuid": _check_uuid}


def check_string(schema: Mapping[str, JSON]) -> Check:
    """Return the check of a string: its length, format or pattern."""
    check_size = size_check(
        schema.get("minLength", 0), schema.get("maxLength"), "character"
    )
    check_format = _FORMATS[schema["format"]] if "format" in schema else None
    pattern = schema.get("pattern")
    words = f"must be {PATTERNS[pattern]}" if pattern is not None else ""

    def run(value: Any, found: Found) -> Any:
        if type(value) is not str:
            found.add(words or "must be text")
            return value
        check_size(value, found)
        if check_format is not None:
            try:
                check_format(value)
            except ValueError as exc:
                found.add(str(exc))
        if pattern is not None and _expression(pattern).fullmatch(value) is None:
            found.add(words)
        return value

    return Check(run, "text", ("string",))


def size_check(low: int, high: int | None, noun: str) -> Callable[[Any, Found], None]:
    """Return the part of a check that counts."""

    def check(value: Any, found: Found) -> None:
        if len(value) < low:
            found.add(f"must have at least {_counted(low, noun)}")
        if high is not None and len(value) > high:
            found.add(f"must have at most {_counted(high, noun)}")

    return check


def _counted(number: int, noun: str) -> str:
    return (
        f"{number} entries" if noun == "entry" and number != 1 else count(number, noun)
    )


def check_choice(choices: list[JSON]) -> Check:
    """Return the check of a choice."""
    by_key = {equality_key(choice): choice for choice in choices}
    words = one_of([_shown(choice) for choice in choices])

    def run(value: Any, found: Found) -> Any:
        key = equality_key(value)
        if key not in by_key:
            found.add(words)
            return value
        return by_key[key]

    types = {type_of(choice) for choice in choices}
    return Check(run, words.removeprefix("must be "), types)


def _shown(choice: JSON) -> Any:
    return (
        choice if isinstance(choice, str) else _WORDS.get(equality_key(choice), choice)
    )


def equality_key(value: JSON) -> Any:
    """Return a key that equal JSON values share: 1 equals 1.0, but not true."""
    type_ = type(value)
    if type_ is dict:
        return (
            "object",
            frozenset((key, equality_key(item)) for key, item in value.items()),
        )
    if type_ is list:
        return ("array", *map(equality_key, value))
    return (type_ is bool, value)


class _Word:
    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


_WORDS: Final = {
    equality_key(None): _Word("null"),
    equality_key(True): _Word("true"),
    equality_key(False): _Word("false"),
}


#: The maximum number of unequal values with the same hash. Random values stay below it.
#: A client could choose numbers with one hash, and a set of those takes quadratic time.
_MAX_ALIKE: Final = 64


def has_equals(values: Collection[Hashable]) -> bool:
    """Whether two of the values are equal, or too many have the same hash."""
    hashes = Counter(map(hash, values))
    if len(hashes) == len(values):
        return False
    return max(hashes.values()) > _MAX_ALIKE or len(set(values)) < len(values)


def has_twins(items: list[JSON]) -> bool:
    """Whether two of the items are equal in JSON."""
    return has_equals([equality_key(item) for item in items])


def type_of(value: JSON) -> str:
    """Return the JSON type of a value; `integer` for a whole number."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
