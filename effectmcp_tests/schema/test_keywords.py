from __future__ import annotations

from typing import Any

from effectmcp.schema.keywords import parts_below, parts_in, parts_of_same, with_parts

A, B, C, D, E = ({"title": name} for name in "ABCDE")
SCHEMA: dict[str, Any] = {
    "properties": {"$ref": A, "enum": B, "yes": True},
    "items": [C, False],
    "anyOf": [D],
    "$defs": {"x": E},
    "enum": [{"$ref": "x"}],
    "default": {"items": {}},
    "additionalProperties": False,
}


def test_parts_are_schemas_and_not_data() -> None:
    assert list(parts_in(SCHEMA)) == [A, B, C, D, E]


def test_parts_by_what_they_speak_of() -> None:
    assert parts_of_same(SCHEMA) == [D]
    assert parts_below(SCHEMA) == [A, B, C]


def test_parts_are_changed_in_a_copy() -> None:
    changed = with_parts({**SCHEMA, "not": A}, lambda part: part["title"])
    assert changed["properties"] == {"$ref": "A", "enum": "B", "yes": True}
    assert changed["items"] == ["C", False]
    assert changed["not"] == "A"
    assert changed["enum"] == SCHEMA["enum"]
    assert SCHEMA["anyOf"] == [D]
