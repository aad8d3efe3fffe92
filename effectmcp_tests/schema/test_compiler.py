from __future__ import annotations

import time
from typing import Any

import pytest

from effectmcp import SchemaError
from effectmcp.schema.checks import Picked
from effectmcp.schema.compiler import make_check
from effectmcp.shapes.problems import MAX_PROBLEMS

INT = {"type": "integer"}
TEXT = {"type": "string"}


def problems(schema: Any, value: Any) -> list[str]:
    return [f"{path}: {words}" for path, words in make_check(schema).find(value)[1]]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({}, [None, [1], {"a": 1}], []),
        ({"type": "null"}, [None], [0, False]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({"enum": [1, "a"]}, [1, 1.0, "a"], [True, "b"]),
        ({"oneOf": [{"const": "a", "title": "A"}]}, ["a"], ["A"]),
        ({"type": "array"}, [[]], [{}, "ab"]),
        ({"type": "array", "items": INT, "uniqueItems": True}, [[1]], [[1, 1.0], ["a"]]),
        ({"type": "array", "prefixItems": [INT], "items": False, "minItems": 1, "maxItems": 1}, [[1]], [[], ["a"], [1, 2]]),
        ({"type": "object"}, [{}, {"a": 1}], [[]]),
        ({"type": "object", "additionalProperties": INT, "maxProperties": 1}, [{"a": 1}], [{"a": "b"}, {"a": 1, "b": 2}]),
        ({"type": "object", "additionalProperties": INT, "propertyNames": {"enum": ["a"]}}, [{"a": 1}], [{"b": 1}]),
        ({"type": "object", "properties": {"a": INT}, "required": ["a"]}, [{"a": 1, "b": 2}], [{}]),
    ],
)  # fmt: skip
def test_checks(schema: Any, good: list[Any], bad: list[Any]) -> None:
    check = make_check(schema)
    assert [value for value in good if check.find(value)[1]] == []
    assert [value for value in bad if not check.find(value)[1]] == []


def test_every_problem_is_named() -> None:
    schema = {
        "type": "object",
        "properties": {"guests": {"type": "array", "items": INT}, "title": TEXT},
        "required": ["title"],
        "additionalProperties": False,
    }
    assert problems(schema, {"guests": [1, "a", None], "titel": 1, "x": 2}) == [
        ".title: is required",
        ".guests[1]: must be a whole number",
        ".guests[2]: must be a whole number",
        ".titel: is not known here; did you mean title?",
        ".x: is not known here",
    ]


def test_problems_do_not_pile_up() -> None:
    many = {str(number): "x" for number in range(1000)}
    schema = {"type": "object", "additionalProperties": INT}
    assert len(problems(schema, many)) == MAX_PROBLEMS + 1
    assert len(problems({"type": "array", "items": INT}, [*many])) == MAX_PROBLEMS + 1


def test_sizes_are_reported_in_words() -> None:
    schema = {"type": "object", "minProperties": 2}
    assert problems(schema, {}) == [": must have at least 2 entries"]
    assert problems({"type": "object", "minProperties": 1}, {}) == [
        ": must have at least 1 entry"
    ]


# ---- unions ----

LEAF = {
    "type": "object",
    "title": "Leaf",
    "properties": {"kind": {"enum": ["leaf"]}, "x": INT},
    "required": ["kind"],
}
NODE = {
    "type": "object",
    "title": "Node",
    "properties": {"kind": {"enum": ["node"]}, "x": TEXT},
    "required": ["kind"],
}


def test_union_returns_the_member_that_fits() -> None:
    check = make_check({"anyOf": [INT, TEXT]})
    assert check.find(1.0)[0] == Picked(0, 1)
    assert check.find("a")[0] == Picked(1, "a")


def test_union_of_types_names_them() -> None:
    schema = {"anyOf": [INT, TEXT, {"type": "null"}]}
    assert problems(schema, []) == [": must be a whole number or text or null"]


def test_union_speaks_of_the_member_of_that_type() -> None:
    schema = {"anyOf": [INT, {"type": "array", "items": INT}]}
    assert problems(schema, ["a"]) == ["[0]: must be a whole number"]


def test_union_speaks_of_the_member_with_that_tag() -> None:
    schema = {"anyOf": [LEAF, NODE]}
    assert problems(schema, {"kind": "node", "x": 1}) == [".x: must be text"]
    assert problems(schema, {"x": 1}) == [": must be Leaf or Node"]


def test_union_that_holds_itself_is_tried_once_per_place() -> None:
    """2⁶⁰ tries, otherwise: any client could ask for them."""
    either = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
    more = {
        "A": {"type": "object", "title": "A"},
        "B": {"type": "object", "title": "B"},
    }
    for one in more.values():
        one["properties"] = {"x": either}  # type: ignore[assignment]
        one["additionalProperties"] = False  # type: ignore[assignment]
    value: Any = "x"
    for _ in range(60):
        value = {"x": value}
    started = time.perf_counter()
    assert problems({**either, "$defs": more}, value) == [": must be A or B"]
    assert time.perf_counter() - started < 1


def test_union_of_nothing_but_itself_is_refused() -> None:
    schema = {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"anyOf": [INT, {"$ref": "#/$defs/A"}]}},
    }
    with pytest.raises(SchemaError, match="union of itself"):
        make_check(schema)


# ---- defaults ----


def test_defaults_that_do_not_fit_are_left_out() -> None:
    schema: Any = {
        "type": "object",
        "properties": {"a": {**INT, "default": None}, "b": {**INT, "default": 1}},
    }
    make_check(schema)
    assert schema["properties"] == {"a": INT, "b": {**INT, "default": 1}}


def test_union_of_two_with_one_name_speaks_of_the_nearer() -> None:
    """ "must be a list" was reported for a list."""
    items = [{"type": "array", "items": one} for one in (INT, {"type": "string"})]
    assert problems({"anyOf": items}, ["a", 1, "b"]) == ["[1]: must be text"]


def test_union_that_leads_to_itself_by_another_is_refused() -> None:
    """Wherever it stands: it was looked for at the top, where the arguments are."""
    schema = {
        "type": "object",
        "properties": {"x": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        "$defs": {
            "A": {"anyOf": [{"$ref": "#/$defs/B"}, {"$ref": "#/$defs/C"}]},
            "B": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/C"}]},
            "C": {"type": "array", "items": {"$ref": "#/$defs/C"}},
        },
    }
    with pytest.raises(SchemaError, match="A is a union of itself"):
        make_check(schema)
