"""Choices, and the other metadata of `Annotated`.

A choice is sent by its value, or by its name if JSON has no such value.
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
    """Return the schema of a `Literal`.

    Raises:
        SchemaError: If JSON cannot express one of the values.
    """
    return _choices([_literal_value(value, of) for value in values])


def _literal_value(value: Any, of: str) -> JSON:
    if isinstance(value, enum.Enum) and is_by_value(type(value)):
        value = value.value
    if type(value) not in _TYPES:
        raise SchemaError(
            f"{of}: {value!r} in a Literal has no form in JSON; write strings,"
            " numbers, true, false or None, or use an Enum"
        )
    return value


def enum_of(class_: type[enum.Enum], of: str) -> JSONSchema:
    """Return the schema of an Enum.

    Raises:
        SchemaError: If the Enum has no members.
    """
    # Aliases collapse here, as they do everywhere in Python.
    members = [written(member)[0] for member in class_]
    if not members:
        raise SchemaError(f"{of}: the Enum {class_.__qualname__} has no members")
    return _choices(members)


# ---- metadata -----------------------------------------------------------------------


@frozen
class Header:
    """The HTTP header that repeats an argument: `Annotated[str, Header("Region")]`.

    HTTP clients send it as `Mcp-Param-Region`, so that proxies can route a tool's call
    without reading its body. Every proxy can read the value.
    """

    name: str


def annotate(schema: JSONSchema, item: Any, of: str) -> None:
    """Add the keywords of `item`, from an `Annotated`, to `schema`.

    Raises:
        SchemaError: If `item` belongs to another type.
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
    # Metadata of other libraries is ignored (PEP 593).


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
