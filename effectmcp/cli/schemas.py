"""Read a server's schemas, and ignore invalid parts. No I/O.

A server may send anything: parts that the protocol does not define count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..canonical import JSON

__all__ = ["dict_in", "list_in", "properties_of", "takes_text"]


def dict_in(value: JSON) -> dict[str, JSON]:
    """Return `value` if it is an object, or else an empty object."""
    return value if isinstance(value, dict) else {}


def list_in(value: JSON) -> list[JSON]:
    """Return `value` if it is an array, or else an empty array."""
    return value if isinstance(value, list) else []


def properties_of(schema: JSON) -> Mapping[str, JSON]:
    """Return the properties of the schema of an object."""
    return dict_in(dict_in(schema).get("properties"))


def takes_text(schema: JSON) -> bool:
    """Whether a string may fit a schema."""
    schema = dict_in(schema)
    if any(map(takes_text, list_in(schema.get("anyOf")))):
        return True
    type_ = schema.get("type")
    is_text = type_ == "string" or "string" in list_in(type_)
    return is_text or "enum" in schema or "const" in schema
