"""The keywords of JSON Schema that contain schemas, and not data.

`{"enum": [{"$ref": "x"}]}` refers to nothing, and `{"properties": {"$ref": …}}` has a
property of that name, so a walk must not treat every object as a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..canonical import JSON

__all__ = ["parts_below", "parts_in", "parts_of_same", "with_parts"]

# The keywords of all dialects in one table. A dialect ignores the keywords that it
# lacks, but a `$ref` can still reach the schemas under them.
_ONE: Final = frozenset(
    {"additionalItems", "additionalProperties", "contains", "contentSchema", "else"}
    | {"if", "items", "not", "propertyNames", "then", "unevaluatedItems"}
    | {"unevaluatedProperties"}
)
_MANY: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties"}
    | {"properties"}
)


def with_parts(
    schema: Mapping[str, JSON], change: Callable[[dict[str, JSON]], JSON]
) -> dict[str, JSON]:
    """Return `schema` with each of its direct subschemas changed.

    The schemas `true` and `false` are left unchanged.
    """

    def changed(one: JSON) -> JSON:
        return change(one) if isinstance(one, dict) else one

    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _ONE and isinstance(value, dict):
            result[keyword] = change(value)
        elif keyword in _MANY and isinstance(value, list):
            result[keyword] = [changed(one) for one in value]
        elif keyword in _NAMED and isinstance(value, dict):
            result[keyword] = {name: changed(one) for name, one in value.items()}
        else:
            result[keyword] = value
    return result


def parts_in(schema: Mapping[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield the direct subschemas of `schema` that are objects."""
    found: list[dict[str, JSON]] = []
    with_parts(schema, found.append)
    yield from found


#: Keywords whose subschemas apply to the same value as the schema around them.
_SAME: Final = frozenset(
    {"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf"}
    | {"then"}
)
_DEFINITIONS: Final = frozenset({"$defs", "definitions"})


def parts_of_same(schema: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    """Return the direct subschemas that apply to the same value as `schema`."""
    return [*parts_in({key: one for key, one in schema.items() if key in _SAME})]


def parts_below(schema: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    """Return the direct subschemas that apply to parts of the value."""
    others = _SAME | _DEFINITIONS
    return [*parts_in({key: one for key, one in schema.items() if key not in others})]
