from __future__ import annotations

import enum
from typing import Any, Literal

import pytest

from effectmcp import Choices, Format, SchemaError, Title
from effectmcp.shapes.choices import apply_label, choice_schema, pairs_of
from effectmcp.shapes.constraints import FORM, FULL
from effectmcp.shapes.labels import Header
from effectmcp.shapes.reading import Choice, shape_of


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


def choices(annotation: Any) -> Any:
    shape = shape_of(annotation, "f(x)")
    assert isinstance(shape, Choice)
    return choice_schema(pairs_of(shape, FULL, "f(x)"))


@pytest.mark.parametrize(
    ("class_", "schema"),
    [
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Mixed, {"enum": [1, "1"]}),
        (Place, {"type": "string", "enum": ["HERE"]}),
    ],
)
def test_enums(class_: Any, schema: Any) -> None:
    assert choices(class_) == schema


def test_enum_without_members_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"f\(x\): the Enum Nothing has no members"):
        choices(Nothing)


def test_literals() -> None:
    assert choices(Literal[(1, 2)]) == {"type": "integer", "enum": [1, 2]}
    assert choices(Literal[(1, True, None)]) == {"enum": [1, True, None]}
    assert choices(Literal[(Colour.RED,)]) == {"type": "string", "enum": ["red"]}


@pytest.mark.parametrize("value", [b"x", Place.HERE])
def test_literal_that_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match=r"f\(x\): .* has no form in JSON"):
        choices(Literal[(value,)])


def annotated(schema: dict[str, Any], *items: Any) -> Any:
    for item in items:
        apply_label(schema, item, FULL, "f(x)")
    return schema


TEXT = {"type": "string"}


def test_labels() -> None:
    assert annotated({}, Title("A"), "one", "two") == {
        "title": "A",
        "description": "two",
    }


def test_format() -> None:
    assert annotated({**TEXT}, "x", Format("email"))["format"] == "email"


def test_header() -> None:
    """HTTP clients mirror the argument; all other readers ignore the keyword."""
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
        apply_label(schema, item, FULL, "f(x)")


def test_header_of_an_answer_is_refused() -> None:
    with pytest.raises(SchemaError, match="answers travel without headers"):
        apply_label({**TEXT}, Header("Region"), FORM, "this form")
