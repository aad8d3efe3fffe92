"""Choices, and labels: what each dialect shows of them."""

from __future__ import annotations

import enum
import math
from functools import cache
from types import NoneType
from typing import Any, Final, TypeAlias, assert_never

from ..canonical import JSON
from ..errors import SchemaError
from .constraints import Dialect
from .formats import FORMATS
from .labels import Choices, Format, Header, Label, Title
from .reading import Choice

__all__ = ["apply_label", "built_by", "choice_schema", "is_by_value", "pairs_of"]

JSONSchema: TypeAlias = dict[str, JSON]

#: A choice as JSON, and the value that Python code sees.
Pair: TypeAlias = tuple[JSON, Any]

_TYPES: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    NoneType: "null",
}


@cache
def is_by_value(class_: type[enum.Enum]) -> bool:
    """Whether the members of an Enum are sent by value: each is a scalar of JSON.

    Otherwise they are sent by name.
    """
    return all(
        type(member.value) in _TYPES
        and (type(member.value) is not float or math.isfinite(member.value))
        for member in class_
    )


def pairs_of(choice: Choice, dialect: Dialect, of: str) -> list[Pair]:
    """Return the choices, as a client sends them and as Python code sees them.

    Raises:
        SchemaError: If JSON, or a form, cannot express one of the values.
    """
    if choice.enum is None:
        return [
            (_literal(value, choice, dialect, of), value) for value in choice.values
        ]
    by_value = is_by_value(choice.enum)
    if dialect.is_form:
        # Strings are sent by value, which is the author's name for them. All others are
        # sent by name: a user who chooses cannot read numbers.
        by_value = all(type(member.value) is str for member in choice.values)
    return [
        (member.value if by_value else str(member.name), member)
        for member in choice.values
    ]


def _literal(value: Any, choice: Choice, dialect: Dialect, of: str) -> JSON:
    if isinstance(value, enum.Enum) and is_by_value(type(value)):
        value = value.value
    if dialect.is_form and type(value) is not str:
        raise SchemaError(
            f"{of}: the choices of a form are strings, and {choice.values!r} are not; use"
            " an Enum, whose members travel by name"
        )
    if type(value) not in _TYPES:
        raise SchemaError(
            f"{of}: {value!r} in a Literal has no form in JSON; write strings,"
            " numbers, true, false or None, or use an Enum"
        )
    return value


def choice_schema(pairs: list[Pair]) -> JSONSchema:
    """Return the schema of choices."""
    values = [text for text, _ in pairs]
    types = {_TYPES[type(value)] for value in values}
    return (
        {"type": types.pop(), "enum": values} if len(types) == 1 else {"enum": values}
    )


def built_by(pairs: list[Pair]) -> Any:
    """Return a function from JSON to the value; `None` where the two are the same."""
    if all(text is value for text, value in pairs):
        return None
    # 1 equals 1.0 in JSON, but not true.
    members = {(type(text) is bool, text): value for text, value in pairs}
    return lambda text: members[type(text) is bool, text]


# ---- labels -------------------------------------------------------------------------


def apply_label(schema: JSONSchema, label: Label, dialect: Dialect, of: str) -> None:
    """Add the keywords of a label to `schema`.

    Raises:
        SchemaError: If the label belongs to another type.
    """
    match label:
        case str():
            schema["description"] = label
        case Title():
            schema["title"] = label.text
        case Format():
            _apply_format(schema, label, of)
        case Choices():
            _apply_choices(schema, label, dialect, of)
        case Header() if dialect.is_form:
            raise SchemaError(
                f"{of}: Header() belongs to an argument: answers travel without headers"
            )
        case Header():
            schema["x-mcp-header"] = label.name
        case _:
            assert_never(label)


_LABELS: Final = frozenset({"type", "title", "description"})


def _apply_format(schema: JSONSchema, label: Format, of: str) -> None:
    if schema.get("type") != "string" or schema.keys() - _LABELS:
        raise SchemaError(f"{of}: Format() belongs to str, and once")
    if label.name not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise SchemaError(f"{of}: the format {label.name!r} is not one of {known}")
    schema["format"] = label.name


def _apply_choices(
    schema: JSONSchema, label: Choices, dialect: Dialect, of: str
) -> None:
    is_list = isinstance(schema.get("items"), dict)
    target = schema["items"] if is_list else schema
    values = target.pop("enum", None)
    if values is None:
        raise SchemaError(
            f"{of}: Choices() belongs to a Literal, an Enum or a list of one, and once"
        )
    if set(values) != set(label.titles):
        raise SchemaError(
            f"{of}: Choices() must title each choice once; it titles"
            f" {list(label.titles)} where the choices are {values}"
        )
    titled = [{"const": value, "title": label.titles[value]} for value in values]
    if is_list and dialect.is_form:
        # The form subset has another keyword there, and no type.
        del target["type"]
        target["anyOf"] = titled
    else:
        target["oneOf"] = titled
