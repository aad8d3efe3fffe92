"""One property of a form: its schema is compiled to a check of answers.

The protocol's form subset has five kinds of property (2026-07-28, client/elicitation,
"Requested Schema"). Each kind lists the keywords it knows: the protocol's own schema
allows others, but clients ignore them, so an author would rely on a check that never
happens. Other keywords are refused by name.

A check returns the value to record, or raises `ValueError` with words that complete the
sentence "age …". Defaults are applied at delivery and are not checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import Factory, field, frozen

from ..canonical import JSON, MAX_SAFE_INTEGER
from ..errors import FormError
from ..shapes.formats import FORMATS
from ..shapes.words import count, is_finite, one_of

if TYPE_CHECKING:
    from ..shapes.constraints import Extra, Rule

__all__ = ["Check", "Field", "make_check"]

Check: TypeAlias = Callable[[JSON], JSON]

_COMMON: Final = {"type", "title", "description", "default"}
KEYWORDS: Final = {
    "string": _COMMON | {"minLength", "maxLength", "format"},
    "choice": _COMMON | {"enum", "enumNames", "oneOf"},
    "integer": _COMMON | {"minimum", "maximum"},
    "number": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"items", "minItems", "maxItems"},
}


def _takes_text(part: Field) -> bool:
    keywords = part.schema.keys() - {"title", "description", "default"}
    return keywords == {"type"} and part.schema["type"] == "string"


@frozen(eq=False, repr=False)
class Field:
    """One property of a form, between the client and the author's class.

    Attributes:
        name: The property on the wire, and the parameter of the author's class.
        schema: The schema that the client is shown.
        required: Whether the client must send it.
        check: Wire value to recorded value, or `ValueError`.
        build: Recorded value to Python value; `None` where the two are the same.
        fallback: Makes the value for the author's class if the client left the property
            out; `None` if the class has its own default.
        own_name: The name in the author's class; "" in a form without a class.
        converts: Whether `build` may refuse a recorded value.
        rules: The limits that the author wrote.
        extras: Checks of the limits that the schema cannot express.
    """

    name: str
    schema: Mapping[str, JSON]
    required: bool
    check: Check
    build: Callable[[Any], Any] | None = None
    fallback: Callable[[], Any] | None = None
    own_name: str = ""
    converts: bool = False
    rules: tuple[Rule, ...] = ()
    extras: tuple[Extra, ...] = ()
    #: Whether every text passes the check, so that `check` need not be called for most.
    takes_text: bool = field(default=Factory(_takes_text, takes_self=True), init=False)


def make_check(schema: JSON, *, of: str) -> Check:
    """Return the check for `schema`, the schema of one property.

    Raises:
        FormError: naming the field `of` and the keyword that the form subset refuses.
    """
    if not isinstance(schema, dict):
        raise FormError(f"{of}: a property's schema is an object, not {schema!r}")
    type_ = schema.get("type")
    if not isinstance(type_, str) or type_ not in KEYWORDS or type_ == "choice":
        raise FormError(
            f"{of}: the type {type_!r} cannot be shown as a form. Forms are flat:"
            " string, integer, number, boolean, or an array of choices"
        )
    is_choice = type_ == "string" and ("enum" in schema or "oneOf" in schema)
    kind = "choice" if is_choice else type_
    for keyword in schema:
        if keyword not in KEYWORDS[kind]:
            raise FormError(
                f"{of}: clients do not know {keyword!r} on a property of this kind"
            )
    for keyword in ("title", "description"):
        if not isinstance(schema.get(keyword, ""), str):
            raise FormError(f"{of}: {keyword!r} must be text")
    check = _MAKERS[kind](schema, of)
    if "default" in schema:
        try:
            check(schema["default"])
        except ValueError as exc:
            raise FormError(f"{of}: the default {schema['default']!r} {exc}") from None
    return check


def _string(schema: dict[str, JSON], of: str) -> Check:
    low, high = _bounds(schema, "minLength", "maxLength", of)
    check_format = None
    if "format" in schema:
        format_ = schema["format"]
        if not isinstance(format_, str) or format_ not in FORMATS:
            known = ", ".join(sorted(FORMATS))
            raise FormError(f"{of}: the format {format_!r} is not one of {known}")
        check_format = FORMATS[format_]

    def check(value: JSON) -> str:
        if type(value) is not str:
            raise ValueError("must be text")
        if not value.isascii():
            _refuse_surrogates(value)
        # Both sides count code points; clients that count UTF-16 units are stricter on
        # a few characters, which is a bug of those clients.
        if low is not None and len(value) < low:
            raise ValueError(f"must have at least {count(low, 'character')}")
        if high is not None and len(value) > high:
            raise ValueError(f"must have at most {count(high, 'character')}")
        if check_format is not None:
            check_format(value)
        return value

    return check


def _integer(schema: dict[str, JSON], of: str) -> Check:
    low, high = _limits(schema, of)
    least, most = -MAX_SAFE_INTEGER, MAX_SAFE_INTEGER
    least = least if low is None else max(least, math.ceil(low))
    most = most if high is None else min(most, math.floor(high))
    if least > most:
        raise FormError(
            f"{of}: no whole number that clients can send exactly, within"
            f" ±(2**53 - 1), is at least {low} and at most {high}"
        )

    def check(value: JSON) -> int:
        # 1.0 and -0.0 are integers in JSON Schema; True is an integer only in Python.
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise ValueError("must be a whole number")
        _check_range(value, low, high)
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise ValueError("must be a number of at most 15 digits")
        return value

    return check


def _number(schema: dict[str, JSON], of: str) -> Check:
    low, high = _limits(schema, of)

    def check(value: JSON) -> float:
        if type(value) not in (int, float):
            raise ValueError("must be a number")
        if not is_finite(value):
            raise ValueError("must be a number of at most 308 digits")
        _check_range(value, low, high)
        # A large integer is a legal number, but JavaScript would round it. Record the
        # rounded value, as for a float.
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return float(value)
        return value  # type: ignore[no-any-return]  # int or float, checked above

    return check


def _boolean(schema: dict[str, JSON], of: str) -> Check:
    def check(value: JSON) -> bool:
        if type(value) is not bool:
            raise ValueError("must be yes or no")
        return value

    return check


def _choice(schema: dict[str, JSON], of: str) -> Check:
    if "enum" in schema and "oneOf" in schema:
        raise FormError(f"{of}: give 'enum' or 'oneOf', not both")
    if "oneOf" in schema:
        if "enumNames" in schema:
            raise FormError(f"{of}: 'enumNames' belongs to 'enum'")
        choices = _titled(schema["oneOf"], of)
    else:
        choices = _untitled(schema["enum"], of)
        names = schema.get("enumNames")
        if names is not None:
            _check_titles(names, of)
            if len(names) != len(choices):
                raise FormError(f"{of}: 'enumNames' must name each choice once")
    allowed = frozenset(choices)

    def check(value: JSON) -> str:
        if type(value) is not str or value not in allowed:
            raise ValueError(one_of(choices))
        return value

    return check


def _array(schema: dict[str, JSON], of: str) -> Check:
    items = schema.get("items")
    if not isinstance(items, dict):
        raise FormError(f"{of}: an array in a form needs 'items' with its choices")
    known = {"type", "enum"} if "enum" in items else {"anyOf"}
    for keyword in items:
        if keyword not in known:
            raise FormError(f"{of}: clients do not know {keyword!r} inside 'items'")
    if "enum" in items:
        if items.get("type") != "string":
            raise FormError(f"{of}: 'items' with 'enum' needs the type 'string'")
        choices = _untitled(items["enum"], of)
    elif "anyOf" in items:
        choices = _titled(items["anyOf"], of)
    else:
        raise FormError(f"{of}: 'items' must list its choices in 'enum' or 'anyOf'")
    allowed = frozenset(choices)
    low, high = _bounds(schema, "minItems", "maxItems", of)

    def check(value: JSON) -> list[str]:
        if type(value) is not list:
            raise ValueError("must be a list of choices")
        for item in value:
            if type(item) is not str or item not in allowed:
                raise ValueError("may hold only " + ", ".join(map(repr, choices)))
        # `uniqueItems` is outside the subset, so a repeated choice is admitted and
        # kept.
        if low is not None and len(value) < low:
            raise ValueError(f"must have at least {count(low, 'choice')}")
        if high is not None and len(value) > high:
            raise ValueError(f"must have at most {count(high, 'choice')}")
        return value

    return check


_MAKERS: Final[dict[str, Callable[[dict[str, JSON], str], Check]]] = {
    "string": _string,
    "choice": _choice,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "array": _array,
}


# ---- parts --------------------------------------------------------------------------


def _bounds(
    schema: dict[str, JSON], least: str, most: str, of: str
) -> tuple[int | None, int | None]:
    for keyword in (least, most):
        value = schema.get(keyword, 0)
        if type(value) is not int or value < 0:
            raise FormError(f"{of}: {keyword!r} must be a whole number from 0 up")
    low, high = schema.get(least), schema.get(most)
    if low is not None and high is not None and low > high:
        raise FormError(f"{of}: {least} {low} is above {most} {high}")
    return low, high


def _limits(schema: dict[str, JSON], of: str) -> tuple[float | None, float | None]:
    for keyword in ("minimum", "maximum"):
        value = schema.get(keyword, 0)
        if type(value) not in (int, float) or not is_finite(value):
            raise FormError(f"{of}: {keyword!r} must be a number")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None and low > high:
        raise FormError(f"{of}: no number is at least {low} and at most {high}")
    return low, high


def _check_range(value: float, low: float | None, high: float | None) -> None:
    if low is not None and value < low:
        raise ValueError(f"must be at least {low}")
    if high is not None and value > high:
        raise ValueError(f"must be at most {high}")


def _untitled(choices: JSON, of: str) -> list[str]:
    if not isinstance(choices, list) or not all(type(c) is str for c in choices):
        raise FormError(f"{of}: choices must be a list of strings")
    _check_choices(choices, of)
    return choices


def _titled(choices: JSON, of: str) -> list[str]:
    if not isinstance(choices, list) or not all(
        isinstance(choice, dict)
        and set(choice) == {"const", "title"}
        and type(choice["const"]) is str
        for choice in choices
    ):
        raise FormError(f"{of}: titled choices are {{'const': text, 'title': text}}")
    values = [choice["const"] for choice in choices]
    _check_choices(values, of)
    _check_titles([choice["title"] for choice in choices], of)
    return values


def _check_choices(choices: list[str], of: str) -> None:
    if not choices:
        raise FormError(f"{of}: the list of choices is empty")
    if len(set(choices)) != len(choices):
        raise FormError(f"{of}: a choice is listed twice")


def _check_titles(titles: Iterable[JSON], of: str) -> None:
    if not isinstance(titles, list) or not all(type(t) is str for t in titles):
        raise FormError(f"{of}: titles must be strings")
    if len(set(titles)) != len(titles):
        raise FormError(f"{of}: two choices have one title; users could not tell them")


def _refuse_surrogates(text: str) -> None:
    # Checked first: every later encoder would fail on a surrogate.
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("must be readable text, without lone surrogates") from None
