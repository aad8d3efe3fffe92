"""A Python annotation → one `Field`.

`Literal`, `Enum` and lists of them are choices; `date` and `datetime` are strings with
a format; all other types map to the property of the same type. An attrs converter
changes nothing: the form asks for the annotated type, and passes that to the converter.
"""

from __future__ import annotations

import datetime as dt
import enum
import sys
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from attrs import NOTHING, Attribute, Factory, field, frozen

from ..canonical import JSON
from ..errors import FormError
from .fields import Field, make_check
from .formats import parse_date, parse_datetime
from .validators import NO_DEFAULT, apply_validators

__all__ = ["Choices", "Format", "Title", "make_field"]


@frozen
class Format:
    """The format of a string, as in `Annotated[str, Format("email")]`.

    One of email, uri, date and date-time.
    """

    name: str


@frozen
class Title:
    """The label of a field in the client: `Annotated[int, Title("Your age")]`."""

    text: str


@frozen(init=False)
class Choices:
    """The titles of choices: `Annotated[Literal["s", "l"], Choices(s="S", l="L")]`.

    Pass keys that are not Python names in a mapping: `Choices({"#f00": "Red"})`.
    """

    titles: Mapping[str, str] = field(hash=False)

    def __init__(self, titles: Mapping[str, str] | None = None, /, **more: str) -> None:
        object.__setattr__(self, "titles", {**(titles or {}), **more})


def make_field(
    name: str,
    annotation: Any,
    *,
    of: str,
    attribute: Attribute[Any] | None = None,
    title: str | None = None,
) -> Field:
    """Return the property of a form that `annotation` describes.

    Args:
        name: The property on the wire.
        annotation: The field's type, resolved.
        of: The name of the field in messages: `Person.age`.
        attribute: The attribute of the author's class, if there is one.
        title: A label given outside the annotation.

    Raises:
        FormError: If a form cannot show the type; names the field.
    """
    annotation, metadata, optional = _unwrap(annotation, of)
    schema, build, unbuild = _schema(annotation, of)
    _apply_metadata(schema, metadata, of)
    if title is not None:
        schema["title"] = title
    default = NO_DEFAULT
    has_factory = False
    fallback: Callable[[], Any] | None = None
    extras: tuple[Callable[[Any, Any], None], ...] = ()
    if attribute is not None:
        # The value of a factory is not shown: it may read a clock.
        has_factory = isinstance(attribute.default, Factory)  # type: ignore[arg-type]
        if not has_factory and attribute.default is not NOTHING:
            default = attribute.default
        if optional and attribute.default is NOTHING:
            default, fallback = None, lambda: None
        if type(default) is list:
            # attrs would hand out this one list every time.
            fallback = default.copy
        extras = apply_validators(schema, attribute, build, default=default, of=of)
    if default is not NO_DEFAULT and default is not None:
        schema["default"] = _default(default, unbuild, of)
    return Field(
        name=name,
        schema=schema,
        required=not (optional or has_factory or default is not NO_DEFAULT),
        check=make_check(schema, of=of),
        build=build,
        fallback=fallback,
        attribute=attribute,
        extras=extras,
    )


#: `type X = X | None` has no end; real types nest a few levels.
_MAX_WRAPPERS: Final = 100


# ---- annotations --------------------------------------------------------------------


def _unwrap(annotation: Any, of: str) -> tuple[Any, list[Any], bool]:
    """Return the bare type, the metadata around it, and whether `None` is a choice."""
    metadata: list[Any] = []
    optional = False
    for _ in range(_MAX_WRAPPERS):
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *inner = get_args(annotation)
            metadata[:0] = inner  # applied in order, so the outermost has the last word
        elif origin is Union or origin is UnionType:
            members = [arg for arg in get_args(annotation) if arg is not NoneType]
            if len(members) != 1:
                raise FormError(
                    f"{of}: a form cannot offer a choice of types, {annotation}. Ask"
                    " for text, or ask two questions"
                )
            annotation, optional = members[0], True
        elif origin is Final:
            (annotation,) = get_args(annotation)
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__  # NewType
        elif hasattr(annotation, "__value__"):
            annotation = annotation.__value__  # type Size = Literal["s", "l"]
        else:
            return annotation, metadata, optional
    raise FormError(f"{of}: the type {annotation} is made of nothing but itself")


def _schema(annotation: Any, of: str) -> tuple[dict[str, JSON], Any, Any]:
    if isinstance(annotation, type):
        if annotation in _PLAIN:
            schema, build, unbuild = _PLAIN[annotation]
            return dict(schema), build, unbuild
        if issubclass(annotation, enum.Enum):
            return _enum(annotation, of)
    if get_origin(annotation) is Literal:
        return _literal(get_args(annotation), of)
    if get_origin(annotation) is list:
        return _list(annotation, of)
    raise FormError(f"{of}: {_advice(annotation)}")


def _advice(annotation: Any) -> str:
    if annotation is list:
        return "name its items: list[Literal['a', 'b']] or a list of an Enum"
    if isinstance(annotation, str):
        return f"the annotation {annotation!r} could not be resolved; define it first"
    if isinstance(annotation, TypeVar):
        return f"{annotation} is open; name its type, as in Box[int]"
    if hasattr(annotation, "__attrs_attrs__"):
        return (
            f"forms are flat, so the class {annotation.__qualname__} cannot stand inside"
            " one; spread its fields out or ask for it in a question of its own"
        )
    if hasattr(annotation, "__dataclass_fields__"):
        return f"{annotation!r} is a dataclass; decorate it with @attrs.frozen instead"
    module = getattr(annotation, "__module__", "").partition(".")[0]
    if isinstance(annotation, type) and module not in sys.stdlib_module_names:
        return (
            f"{annotation!r} is not an attrs class: decorate it with @attrs.frozen, below"
            " @form if that is there"
        )
    return (
        f"{annotation!r} cannot be shown as a form field. Fields are str, int, float,"
        " bool, date, datetime, an Enum, a Literal of strings, or a list of those two; a"
        " form of several fields is an attrs class of these"
    )


# `bool` and `str` are recorded as they are; `float` is built from a JSON number.
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
            f"{of}: the choices of a form are strings, and {values!r} are not; use an"
            " Enum, whose members travel by name"
        )
    return {"type": "string", "enum": list(values)}, None, None


def _enum(
    class_: type[enum.Enum], of: str
) -> tuple[dict[str, JSON], Callable[[str], Any], Callable[[Any], str]]:
    members = list(class_)  # aliases collapse here, as they do everywhere in Python
    # Strings are sent by value, which is the author's name for them. All others are
    # sent by name: a user who chooses cannot read numbers.
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
    inner, metadata, optional = _unwrap(item, of)
    is_enum = isinstance(inner, type) and issubclass(inner, enum.Enum)
    if optional or (get_origin(inner) is not Literal and not is_enum):
        raise FormError(
            f"{of}: a list in a form is a choice of several, list[Literal['a', 'b']] or"
            f" a list of an Enum, not {annotation!r}"
        )
    items, build, unbuild = _schema(inner, of)
    _apply_metadata(items, metadata, of)
    if "oneOf" in items:
        items["anyOf"] = items.pop("oneOf")
        del items["type"]
    schema = {"type": "array", "items": items}
    # A new list is built even from strings, so that two deliveries never share one.
    if build is None:
        return schema, list, list
    return (
        schema,
        lambda values: [build(value) for value in values],
        lambda values: [unbuild(value) for value in values],
    )


# ---- metadata -----------------------------------------------------------------------


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
        # Metadata of other libraries is ignored (PEP 593).


def _apply_format(schema: dict[str, JSON], format_: Format, of: str) -> None:
    if schema["type"] != "string" or schema.keys() - {"type", "title", "description"}:
        raise FormError(f"{of}: Format() belongs to str, and once")
    schema["format"] = format_.name


def _apply_choices(schema: dict[str, JSON], choices: Choices, of: str) -> None:
    target, keyword = schema, "oneOf"
    if schema["type"] == "array":
        target, keyword = schema["items"], "anyOf"
    if "enum" not in target:
        raise FormError(
            f"{of}: Choices() belongs to a Literal, an Enum or a list of one, and once"
        )
    values = target.pop("enum")
    if set(values) != set(choices.titles):
        raise FormError(
            f"{of}: Choices() must title each choice once; it titles"
            f" {list(choices.titles)} where the choices are {values}"
        )
    if keyword == "anyOf":
        del target["type"]
    target[keyword] = [
        {"const": value, "title": choices.titles[value]} for value in values
    ]


def _default(value: Any, unbuild: Callable[[Any], JSON] | None, of: str) -> JSON:
    try:
        return value if unbuild is None else unbuild(value)
    except (TypeError, AttributeError, KeyError, ValueError):
        raise FormError(f"{of}: the default {value!r} is not of the type") from None
