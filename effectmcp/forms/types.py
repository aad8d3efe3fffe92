"""A Python annotation → one `Field`.

`Literal`, `Enum` and lists of them are choices; `date` and `datetime` are strings with a
format; the rest is itself. What attrs validators demand goes into the schema where the
form subset can say it, and into the description plus a check afterwards where not.

attrs keeps its validator classes private, so they are recognised by name and a test
pins the names.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from attrs import field, frozen

from ..canonical import JSON, dumps
from ..errors import CanonicalError, FormError
from .fields import Field, make_check
from .formats import FORMATS, parse_date, parse_datetime

__all__ = ["Choices", "Format", "Title", "make_field"]


@frozen
class Format:
    """`Annotated[str, Format("email")]`: one of email, uri, date, date-time."""

    name: str


@frozen
class Title:
    """`Annotated[int, Title("Your age")]`: the label a client shows for a field."""

    text: str


@frozen
class Choices:
    """`Annotated[Literal["s", "l"], Choices(s="Small", l="Large")]`: titled choices.

    Keys that are no Python names go in as a mapping: `Choices({"#f00": "Red"})`.
    """

    titles: Mapping[str, str] = field(hash=False)

    def __init__(self, titles: Mapping[str, str] | None = None, /, **more: str) -> None:
        object.__setattr__(self, "titles", {**(titles or {}), **more})


#: A default that is not there. `None` cannot say so: it is a legal default.
_NO_DEFAULT: Final = object()


def make_field(
    name: str,
    annotation: Any,
    *,
    of: str,
    default: Any = _NO_DEFAULT,
    has_hidden_default: bool = False,
    validator: Any = None,
    argument: str | None = None,
    title: str | None = None,
) -> Field:
    """The property that `annotation` describes.

    Args:
        name: The property on the wire.
        annotation: The field's type, resolved.
        of: Who is to be blamed in a message: `Person.age`.
        default: Shown to the user, when it is a value of the type.
        has_hidden_default: The class fills the field in, from a factory.
        validator: The attrs validator, if any.
        argument: The parameter of the class.
        title: A label given outside the annotation.

    Raises:
        FormError: naming what a form cannot show.
    """
    annotation, metadata = _strip(annotation)
    annotation, optional = _without_none(annotation, of)
    if optional:
        annotation, inner = _strip(annotation)
        metadata = [*metadata, *inner]
    schema, build, unbuild = _schema(annotation, of)
    _apply_metadata(schema, metadata, of)
    if title is not None:
        schema["title"] = title
    extras = _apply_validator(schema, validator, of)
    if default is not _NO_DEFAULT and default is not None:
        schema["default"] = _default(default, unbuild, of)
    return Field(
        name=name,
        schema=schema,
        required=not (optional or has_hidden_default or default is not _NO_DEFAULT),
        check=make_check(schema, of=of),
        build=build,
        argument=argument,
        extras=tuple(extras),
    )


# ---- annotations --------------------------------------------------------------------


def _strip(annotation: Any) -> tuple[Any, list[Any]]:
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return inner, metadata
    return annotation, []


def _without_none(annotation: Any, of: str) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    members = [arg for arg in get_args(annotation) if arg is not NoneType]
    optional = len(members) < len(get_args(annotation))
    if len(members) != 1:
        raise FormError(
            f"{of}: a form cannot offer a choice of types, {annotation}. Ask for text,"
            " or ask two questions"
        )
    return members[0], optional


def _schema(annotation: Any, of: str) -> tuple[dict[str, JSON], Any, Any]:
    if annotation in _PLAIN:
        schema, build, unbuild = _PLAIN[annotation]
        return dict(schema), build, unbuild
    if get_origin(annotation) is Literal:
        return _literal(get_args(annotation), of)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation, of)
    if get_origin(annotation) is list:
        return _list(annotation, of)
    raise FormError(f"{of}: {_advice(annotation)}")


def _advice(annotation: Any) -> str:
    if annotation is list:
        return "say of what: list[Literal['a', 'b']] or a list of an Enum"
    if isinstance(annotation, str):
        return f"the annotation {annotation!r} could not be resolved; define it first"
    if hasattr(annotation, "__attrs_attrs__"):
        return (
            f"forms are flat, so the class {annotation.__qualname__} cannot stand inside"
            " one; spread its fields out or ask for it in a question of its own"
        )
    if hasattr(annotation, "__dataclass_fields__"):
        return "a form is an attrs class; this is a dataclass"
    return (
        f"{annotation!r} cannot be shown as a form field. Fields are str, int, float,"
        " bool, date, datetime, an Enum, a Literal of texts, or a list of those two"
    )


# `bool` and `str` need nothing built; `float` does, as JSON has one kind of number.
_PLAIN: Final[dict[Any, tuple[dict[str, JSON], Any, Any]]] = {
    str: ({"type": "string"}, None, None),
    int: ({"type": "integer"}, None, None),
    float: ({"type": "number"}, float, None),
    bool: ({"type": "boolean"}, None, None),
    dt.date: (
        {"type": "string", "format": "date"},
        parse_date,
        dt.date.isoformat,
    ),
    dt.datetime: (
        {"type": "string", "format": "date-time"},
        parse_datetime,
        dt.datetime.isoformat,
    ),
}


def _literal(values: tuple[Any, ...], of: str) -> tuple[dict[str, JSON], Any, Any]:
    if not all(type(value) is str for value in values):
        raise FormError(
            f"{of}: the choices of a form are texts, and {values!r} are not; use an"
            " Enum, whose members travel by name"
        )
    return {"type": "string", "enum": list(values)}, None, None


def _enum(
    class_: type[enum.Enum], of: str
) -> tuple[dict[str, JSON], Callable[[str], Any], Callable[[Any], str]]:
    members = list(class_)  # aliases collapse here, as they do everywhere in Python
    # Texts travel by value, since that is what the author chose to call them. Anything
    # else travels by name: numbers mean nothing to a person choosing.
    if all(type(member.value) is str for member in members):
        by_text = {member.value: member for member in members}
    else:
        by_text = {str(member.name): member for member in members}
    texts = {member: text for text, member in by_text.items()}
    return (
        {"type": "string", "enum": list(by_text)},
        by_text.__getitem__,
        texts.__getitem__,
    )


def _list(annotation: Any, of: str) -> tuple[dict[str, JSON], Any, Any]:
    (item,) = get_args(annotation)
    inner, metadata = _strip(item)
    is_enum = isinstance(inner, type) and issubclass(inner, enum.Enum)
    if get_origin(inner) is not Literal and not is_enum:
        raise FormError(
            f"{of}: a list in a form is a choice of several, list[Literal['a', 'b']] or"
            f" a list of an Enum, not {annotation!r}"
        )
    items, build, unbuild = _schema(inner, of)
    _apply_metadata(items, metadata, of)
    if "oneOf" in items:
        items = {"anyOf": items["oneOf"]}
    schema = {"type": "array", "items": items}
    # A list is built anew even of plain texts, so that two deliveries never share one.
    if build is None:
        return schema, list, list
    return (
        schema,
        lambda values: [build(value) for value in values],
        lambda values: [unbuild(value) for value in values],
    )


# ---- what else the author said ------------------------------------------------------


def _apply_metadata(schema: dict[str, JSON], metadata: list[Any], of: str) -> None:
    for item in metadata:
        if isinstance(item, str):
            schema["description"] = item
        elif isinstance(item, Title):
            schema["title"] = item.text
        elif isinstance(item, Format):
            _apply_format(schema, item, of)
        elif isinstance(item, Choices):
            _apply_choices(schema, item, of)
        # Other people's metadata is none of our business (PEP 593).


def _apply_format(schema: dict[str, JSON], format_: Format, of: str) -> None:
    if schema.get("type") != "string" or "enum" in schema:
        raise FormError(f"{of}: Format() belongs to str")
    if format_.name not in FORMATS:
        raise FormError(
            f"{of}: the format {format_.name!r} is not one of"
            f" {', '.join(sorted(FORMATS))}"
        )
    schema["format"] = format_.name


def _apply_choices(schema: dict[str, JSON], choices: Choices, of: str) -> None:
    target, keyword = schema, "oneOf"
    if schema.get("type") == "array":
        target, keyword = schema["items"], "anyOf"
    values = target.pop("enum", None)
    if values is None or set(values) != set(choices.titles):
        raise FormError(
            f"{of}: Choices() must title each choice once; it titles"
            f" {sorted(choices.titles)} where the choices are {values}"
        )
    if keyword == "anyOf":
        del target["type"]
    target[keyword] = [
        {"const": value, "title": choices.titles[value]} for value in values
    ]


def _default(value: Any, unbuild: Callable[[Any], JSON] | None, of: str) -> JSON:
    try:
        wire = value if unbuild is None else unbuild(value)
        dumps(wire)
    except (TypeError, AttributeError, KeyError, ValueError, CanonicalError):
        raise FormError(f"{of}: the default {value!r} is not of the type") from None
    return wire


# ---- validators ---------------------------------------------------------------------


def _apply_validator(
    schema: dict[str, JSON], validator: Any, of: str
) -> Iterable[Callable[[Any], None]]:
    extras: list[Callable[[Any], None]] = []
    pending = [validator] if validator is not None else []
    while pending:
        one = pending.pop(0)
        match type(one).__name__:
            case "_AndValidator":
                pending[:0] = one._validators
            case "_OptionalValidator":
                inner = one.validator
                pending[:0] = inner if isinstance(inner, (list, tuple)) else [inner]
            case "_NumberValidator":
                extras += _apply_number(schema, one.compare_op, one.bound)
            case "_MinLengthValidator":
                _tighten(schema, _length_keyword(schema, "min"), one.min_length, max)
            case "_MaxLengthValidator":
                _tighten(schema, _length_keyword(schema, "max"), one.max_length, min)
            case "_InValidator":
                _apply_in(schema, one.options, of)
            case "_MatchesReValidator":
                extras.append(_apply_pattern(schema, one))
            case _:
                # `instance_of` and validators of the author's own run when the class
                # is built.
                pass
    return extras


def _length_keyword(schema: dict[str, JSON], which: str) -> str:
    return f"{which}Items" if schema.get("type") == "array" else f"{which}Length"


def _tighten(
    schema: dict[str, JSON],
    keyword: str,
    value: float,
    pick: Callable[[float, float], float],
) -> None:
    schema[keyword] = pick(schema[keyword], value) if keyword in schema else value


def _apply_number(
    schema: dict[str, JSON], operator: str, bound: float
) -> Iterable[Callable[[Any], None]]:
    strict = operator in ("<", ">")
    if schema.get("type") == "integer":
        # Rounded inwards, so that the schema says exactly what the validator means.
        if operator in (">", ">="):
            low = math.floor(bound) + 1 if strict else math.ceil(bound)
            _tighten(schema, "minimum", low, max)
        else:
            high = math.ceil(bound) - 1 if strict else math.floor(bound)
            _tighten(schema, "maximum", high, min)
        return []
    if not strict:
        keyword, pick = ("minimum", max) if operator == ">=" else ("maximum", min)
        _tighten(schema, keyword, bound, pick)
        return []
    words = f"must be {'more' if operator == '>' else 'less'} than {bound}"
    _describe(schema, words)

    def check(value: float) -> None:
        if not (value > bound if operator == ">" else value < bound):
            raise ValueError(words)

    return [check]


def _apply_in(schema: dict[str, JSON], options: Any, of: str) -> None:
    if "enum" not in schema:
        if schema != {"type": "string"} or not all(type(o) is str for o in options):
            # A set of numbers, say: checked when the class is built, told in words.
            _describe(schema, f"one of {', '.join(map(str, options))}")
            return
        schema["enum"] = list(options)


def _apply_pattern(schema: dict[str, JSON], validator: Any) -> Callable[[Any], None]:
    # Python and JavaScript differ on \d, \w, $ and \Z, so no client is shown a pattern
    # that means something else to it.
    words = f"must match {validator.pattern.pattern}"
    _describe(schema, words)

    def check(value: str) -> None:
        if not validator.match_func(value):
            raise ValueError(words)

    return check


def _describe(schema: dict[str, JSON], words: str) -> None:
    said = schema.get("description")
    schema["description"] = f"{said} ({words})" if said else words.capitalize()
