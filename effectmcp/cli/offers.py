"""What a server says of its tools, as far as it makes sense. Pure.

It may say anything: what is not as the protocol has it is as good as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..canonical import JSON

__all__ = ["dict_in", "list_in", "properties_of", "takes_text"]


def dict_in(value: JSON) -> dict[str, JSON]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def list_in(value: JSON) -> list[JSON]:
    """An array, or an empty one."""
    return value if isinstance(value, list) else []


def properties_of(schema: JSON) -> Mapping[str, JSON]:
    """The properties of a schema of an object."""
    return dict_in(dict_in(schema).get("properties"))


def takes_text(schema: JSON) -> bool:
    """Whether a text may fit a schema."""
    schema = dict_in(schema)
    if any(map(takes_text, list_in(schema.get("anyOf")))):
        return True
    type_ = schema.get("type")
    is_text = type_ == "string" or "string" in list_in(type_)
    return is_text or "enum" in schema or "const" in schema
