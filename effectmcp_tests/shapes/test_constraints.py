from __future__ import annotations

import enum
from typing import Any

import attrs
import pytest
from attrs.validators import (
    and_,
    ge,
    gt,
    in_,
    instance_of,
    le,
    lt,
    matches_re,
    max_len,
    min_len,
    optional,
)

from effectmcp.shapes.constraints import FULL, apply_rules
from effectmcp.shapes.sources import source_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def applied(schema: dict[str, Any], validator: Any, converter: Any = None) -> Any:
    class_ = attrs.make_class(
        "Some", {"x": attrs.field(validator=validator, converter=converter)}
    )
    source = source_of(class_)
    assert source is not None
    (part,) = source.parts
    values = {one.value: one for one in Colour}
    apply_rules(schema, part.rules, FULL, lambda text: values.get(text, text))
    return schema


INT = {"type": "integer"}
NUMBER = {"type": "number"}
TEXT = {"type": "string"}
LIST = {"type": "array"}
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "validator", "more"),
    [
        (INT, ge(1), {"minimum": 1}),
        (INT, and_(ge(1), ge(3), ge(2)), {"minimum": 3}),
        (INT, ge(0.5), {"minimum": 1}),
        (INT, gt(0.5), {"exclusiveMinimum": 0}),
        (INT, lt(2.5), {"exclusiveMaximum": 3}),
        (INT, le(2.5), {"maximum": 2}),
        (
            NUMBER,
            [gt(0.5), lt(2), lt(3)],
            {"exclusiveMinimum": 0.5, "exclusiveMaximum": 2},
        ),
        (NUMBER, le(float("inf")), {"description": "Must be at most inf"}),
        (NUMBER, le("x"), {"description": "Must be at most x"}),
        (TEXT, le("x"), {"description": "Must be at most x"}),
        (TEXT, [min_len(1), max_len(3), max_len(5)], {"minLength": 1, "maxLength": 3}),
        (LIST, min_len(1), {"minItems": 1}),
        ({"type": "object"}, max_len(1), {"maxProperties": 1}),
        (
            {"type": "array", "prefixItems": []},
            min_len(1),
            {"description": "Must have at least 1 item"},
        ),
        (
            {"type": "string", "format": "date"},
            min_len(1),
            {"description": "Must have at least 1 character"},
        ),
        (
            {"type": "string", "pattern": "x"},
            min_len(1),
            {"description": "Must have at least 1 character"},
        ),
        (INT, min_len(1), {"description": "Must have at least 1 character"}),
        (TEXT, in_(["a", "b", "a"]), {"enum": ["a", "b"]}),
        (TEXT, in_([1]), {"description": "Must be one of 1"}),
        (TEXT, in_(range(3)), {"description": "Must be in range(0, 3)"}),
        (INT, in_([1, 2]), {"enum": [1, 2]}),
        ({"enum": ["red", "blue"]}, in_([Colour.RED]), {"enum": ["red"]}),
        ({"enum": ["red"]}, in_([Colour.BLUE]), {"enum": ["red"]}),
        (TEXT, matches_re("[a-z]"), {"description": "Must match [a-z]"}),
        ({"description": "A"}, matches_re("x"), {"description": "A (must match x)"}),
        (TEXT, instance_of(str), {}),
        (INT, None, {}),
        ({"$ref": "#/$defs/Size"}, in_(["a"]), {"description": "Must be one of 'a'"}),
    ],
)
def test_validators_become_keywords(schema: Any, validator: Any, more: Any) -> None:
    assert applied({**schema}, validator) == {**schema, **more}


def test_validators_behind_a_converter_do_not_change_the_schema() -> None:
    assert applied({**TEXT}, ge(3), int) == TEXT


def test_validators_of_what_may_be_null() -> None:
    schema = {"anyOf": [{**INT}, NULL]}
    assert applied(schema, optional(ge(3))) == {"anyOf": [{**INT, "minimum": 3}, NULL]}


def test_validators_that_refuse_null_speak_of_the_rest() -> None:
    """The schema shows the bound for the other values; the class checks null."""
    schema = {"anyOf": [INT, NULL]}
    assert applied(schema, ge(3)) == {"anyOf": [{**INT, "minimum": 3}, NULL]}


def test_validators_of_a_union_are_said_in_words() -> None:
    schema = {"anyOf": [{**INT}, {**NUMBER}]}
    assert applied(schema, ge(3)) == {
        "anyOf": [INT, NUMBER],
        "description": "Must be at least 3",
    }
