from __future__ import annotations

import enum
from typing import Any

import pytest

from effectmcp import Choices, Format, SchemaError, Title
from effectmcp.schema.choices import Header, annotate, enum_of, literal_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"
    SKY = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "1"


class Place(enum.Enum):
    HERE = (1, 2)


class Nothing(enum.Enum):
    pass


@pytest.mark.parametrize(
    ("class_", "schema"),
    [
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Mixed, {"enum": [1, "1"]}),
        (Place, {"type": "string", "enum": ["HERE"]}),
    ],
)
def test_enums(class_: Any, schema: Any) -> None:
    assert enum_of(class_, "f(x)") == schema


def test_enum_without_members_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"f\(x\): the Enum Nothing has no members"):
        enum_of(Nothing, "f(x)")


def test_literals() -> None:
    assert literal_of((1, 2), "f(x)") == {"type": "integer", "enum": [1, 2]}
    assert literal_of((1, True, None), "f(x)") == {"enum": [1, True, None]}
    assert literal_of((Colour.RED,), "f(x)") == {"type": "string", "enum": ["red"]}


@pytest.mark.parametrize("value", [b"x", Place.HERE])
def test_literal_that_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match=r"f\(x\): .* has no form in JSON"):
        literal_of((value,), "f(x)")


def annotated(schema: dict[str, Any], *items: Any) -> Any:
    for item in items:
        annotate(schema, item, "f(x)")
    return schema


TEXT = {"type": "string"}


def test_labels() -> None:
    assert annotated({}, Title("A"), "one", object(), "two") == {
        "title": "A",
        "description": "two",
    }


def test_format() -> None:
    assert annotated({**TEXT}, "x", Format("email"))["format"] == "email"


def test_header() -> None:
    """Clients over HTTP mirror it; for everybody else it is no keyword at all."""
    assert annotated({**TEXT}, Header("Region")) == {**TEXT, "x-mcp-header": "Region"}


def test_titled_choices() -> None:
    titled = [{"const": "a", "title": "A"}]
    items = {**TEXT, "enum": ["a"]}
    assert annotated({**items}, Choices(a="A")) == {**TEXT, "oneOf": titled}
    assert annotated({"type": "array", "items": {**items}}, Choices(a="A")) == {
        "type": "array",
        "items": {**TEXT, "oneOf": titled},
    }


@pytest.mark.parametrize(
    ("schema", "item", "words"),
    [
        ({"type": "integer"}, Format("email"), "belongs to str, and once"),
        ({**TEXT, "format": "uri"}, Format("email"), "belongs to str, and once"),
        ({**TEXT}, Format("emil"), "'emil' is not one of date, date-time, email, uri"),
        ({**TEXT}, Choices(a="A"), "belongs to a Literal, an Enum or a list of one"),
        ({"items": False}, Choices(a="A"), "belongs to a Literal"),
        ({"enum": ["a"]}, Choices(b="B"), "must title each choice once"),
    ],
)
def test_labels_of_another_type_are_refused(schema: Any, item: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        annotate(schema, item, "f(x)")
