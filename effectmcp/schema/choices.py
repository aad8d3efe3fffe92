"""Choices, and what else an author says of a type in `Annotated`.

A choice travels by its value, or by its name where the value is nothing that JSON knows.
"""

from __future__ import annotations

import enum
from types import NoneType
from typing import Any, Final

from attrs import frozen

from ..canonical import JSON
from ..errors import SchemaError
from ..forms.formats import FORMATS
from ..forms.types import Choices, Format, Title
from .written import is_by_value, written

__all__ = ["Header", "annotate", "enum_of", "literal_of"]

JSONSchema = dict[str, JSON]


def _choices(values: list[JSON]) -> JSONSchema:
    types = {_TYPES[type(value)] for value in values}
    return (
        {"type": types.pop(), "enum": values} if len(types) == 1 else {"enum": values}
    )


_TYPES: Final = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    NoneType: "null",
}


def literal_of(values: tuple[Any, ...], of: str) -> JSONSchema:
    """The schema of a `Literal`.

    Raises:
        SchemaError: when it holds what JSON cannot say.
    """
    return _choices([_literal_value(value, of) for value in values])


def _literal_value(value: Any, of: str) -> JSON:
    if isinstance(value, enum.Enum) and is_by_value(type(value)):
        value = value.value
    if type(value) not in _TYPES:
        raise SchemaError(
            f"{of}: {value!r} in a Literal is nothing that JSON can say; write texts,"
            " numbers, true, false or None, or use an Enum"
        )
    return value


def enum_of(class_: type[enum.Enum], of: str) -> JSONSchema:
    """The schema of an Enum.

    Raises:
        SchemaError: when there is nothing to choose from.
    """
    # Aliases collapse here, as they do everywhere in Python.
    members = [written(member)[0] for member in class_]
    if not members:
        raise SchemaError(f"{of}: the Enum {class_.__qualname__} has no members")
    return _choices(members)


# ---- what else the author said ------------------------------------------------------


@frozen
class Header:
    """`Annotated[str, Header("Region")]`: HTTP clients send it as `Mcp-Param-Region`, too.

    For a tool's arguments, so that proxies can route a call without reading it. What it
    holds is there for all of them to see.
    """

    name: str


def annotate(schema: JSONSchema, item: Any, of: str) -> None:
    """Add to `schema` what an `item` of `Annotated` says.

    Raises:
        SchemaError: when it belongs to another type.
    """
    if isinstance(item, str):
        schema["description"] = item
    elif isinstance(item, Title):
        schema["title"] = item.text
    elif isinstance(item, Format):
        if schema.get("type") != "string" or schema.keys() - _LABELS:
            raise SchemaError(f"{of}: Format() belongs to str, and once")
        if item.name not in FORMATS:
            known = ", ".join(sorted(FORMATS))
            raise SchemaError(f"{of}: the format {item.name!r} is not one of {known}")
        schema["format"] = item.name
    elif isinstance(item, Header):
        schema["x-mcp-header"] = item.name
    elif isinstance(item, Choices):
        _apply_choices(schema, item, of)
    # Other people's metadata is none of our business (PEP 593).


_LABELS: Final = frozenset({"type", "title", "description"})


def _apply_choices(schema: JSONSchema, choices: Choices, of: str) -> None:
    target = schema.get("items", schema)
    values = target.pop("enum", None) if isinstance(target, dict) else None
    if values is None:
        raise SchemaError(
            f"{of}: Choices() belongs to a Literal, an Enum or a list of one, and once"
        )
    if set(values) != set(choices.titles):
        raise SchemaError(
            f"{of}: Choices() must title each choice once; it titles"
            f" {list(choices.titles)} where the choices are {values}"
        )
    target["oneOf"] = [
        {"const": value, "title": choices.titles[value]} for value in values
    ]
