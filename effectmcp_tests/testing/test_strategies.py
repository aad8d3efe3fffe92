"""The laws of a drawn value: it fits, the referee agrees, and it shrinks to little.

The referee is jsonschema-rs, as for the forms and schemas themselves.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import re
import uuid
from typing import Annotated, Any, Literal

import attrs
import pytest
from attrs import field, frozen
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
from hypothesis import assume, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from effectmcp import (
    Accepted,
    Choices,
    Confirm,
    Elicit,
    ElicitUrl,
    Format,
    ListRoots,
    Sample,
    UsageError,
)
from effectmcp.engine.answers import read_answer
from effectmcp.engine.effect_table import KINDS
from effectmcp.errors import FormError
from effectmcp.forms import form_of
from effectmcp.schema import input_of
from effectmcp.testing import play
from effectmcp.testing.strategies import (
    answers_for,
    arguments_for,
    contents_for,
    roots,
    sampled,
    values_for,
)
from effectmcp_tests.forms.test_forms_properties import classes, forms, referee
from effectmcp_tests.schema.test_schema_properties import (
    TYPES,
    Node,
    any_type,
    function_of,
)


@frozen
class Guest:
    name: str = field(validator=min_len(1))
    age: int = field(validator=ge(18))
    mail: Annotated[str, Format("email")] | None = None
    size: Annotated[Literal["s", "l"], Choices(s="Small", l="Large")] = "s"


# ---- the laws -----------------------------------------------------------------------


@given(st.data(), forms())
def test_law_of_contents(data: st.DataObject, schema: dict[str, Any]) -> None:
    try:
        made = form_of(schema)
    except FormError:  # bounds that nothing fits
        assume(False)
    content = data.draw(contents_for(made))
    made.read(content)
    assert referee(schema)(content)


@given(st.data(), classes())
def test_law_of_contents_of_a_class(data: st.DataObject, drawn: Any) -> None:
    class_, _ = drawn
    made = form_of(class_)
    content = data.draw(contents_for(class_))
    made.build(made.read(content))
    assert referee(dict(made.schema))(content)


@given(st.data(), any_type)
def test_law_of_arguments(data: st.DataObject, annotation: Any) -> None:
    function = function_of(annotation)
    arguments = data.draw(arguments_for(function))
    takes = input_of(function)
    assert takes.read(arguments).keys() == arguments.keys()
    assert referee(dict(takes.schema))(arguments)


QUESTIONS = [
    Elicit("A?", Guest),
    Elicit("A?", dt.date),
    Confirm("A?"),
    ElicitUrl("A", "https://a.example"),
    Sample("A"),
    Sample("A", keep="text"),
    ListRoots(),
]


@given(st.data(), st.sampled_from(QUESTIONS))
def test_law_of_answers(data: st.DataObject, question: Any) -> None:
    answer = data.draw(answers_for(question))
    tag, _ = read_answer(question, KINDS[type(question)], answer)
    assert tag == "accepted"


@given(answers_for(Guest))
def test_answers_are_for_the_engine(answer: Accepted[Any]) -> None:
    def welcome() -> Any:
        guest = yield from Elicit("Who?", Guest)
        return guest.age >= 18

    assert play(welcome).expect(Elicit).send(answer).result


# ---- what it shrinks to -------------------------------------------------------------


def least(strategy: st.SearchStrategy[Any]) -> Any:
    return find(strategy, lambda value: True, settings=settings(database=None))


def test_least_contents() -> None:
    assert least(contents_for(Guest)) == {"name": "0", "age": 18}
    assert least(answers_for(dt.date)) == Accepted({"value": "2000-01-01"})
    assert least(answers_for(Confirm("A?"))) == Accepted({})
    assert least(roots()) == {"roots": []}
    assert least(sampled(st.just("Hi")))["content"] == {"type": "text", "text": "Hi"}


def test_least_contents_that_are_of_interest() -> None:
    found = find(
        contents_for(Guest), lambda content: "mail" in content and content["age"] > 40
    )
    assert found == {"name": "0", "age": 41, "mail": "0@example.com"}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, ""),
        (int, 0),
        (float, 0.0),
        (bool, False),
        (dt.datetime, "2000-01-01T00:00:00+00:00"),
        (dt.time, "00:00:00"),
        (uuid.UUID, "00000000-0000-0000-0000-000000000000"),
        (decimal.Decimal, "0.00"),
        (bytes, ""),
        (Any, None),
        (Node, {"kind": "node", "parts": []}),
        (list[int], []),
        (set[float], []),
        (tuple[int, str], [0, ""]),
        (dict[str, int], {}),
        (dict[Literal["a", "b"], int], {}),
        (Literal["b", "a"], "b"),
        (Annotated[str, Format("uri")], "https://example.com/0"),
    ],
    ids=repr,
)
def test_least_arguments(annotation: Any, value: Any) -> None:
    assert least(arguments_for(function_of(annotation))) == {"value": value}


# ---- what authors demand ------------------------------------------------------------


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    A = "a"


def even(instance: Any, attribute: Any, value: int) -> None:
    if value % 2:
        raise ValueError("must be even")


@pytest.mark.parametrize(
    ("type_", "validator"),
    [
        (dt.date, in_([dt.date(2026, 7, 28)])),
        (dt.date, and_(ge(dt.date(2026, 7, 1)), ge(dt.date(2026, 1, 1)))),
        (dt.date, [gt(dt.date(2026, 7, 1)), lt(dt.date(2026, 7, 3))]),
        (dt.date | None, optional(le(dt.date(1, 1, 2)))),
        (dt.datetime, ge(dt.datetime(1990, 1, 1, tzinfo=dt.UTC))),
        (int, in_([7, 1000])),
        (int, in_(range(10**6, 10**6 + 3))),
        (int, in_({1: "a"}.keys())),
        (int, even),
        (str, in_("abc")),
        (float, gt(0)),
        (float, [gt(1.5), lt(1.5000001), ge(0)]),
        (float, le(-(10**300))),
        (str, matches_re(r"[A-Z]-\d{3}")),
        (str, matches_re(r"\d{4}", func=re.search)),
        (str, [min_len(1000)]),
        (str, instance_of(str)),
        (Annotated[str, Format("email")], max_len(5)),
        (Annotated[str, Format("email")], min_len(60)),
        (Annotated[str, Format("uri")], max_len(4)),
        (Annotated[str, Format("uri")], min_len(200)),
        (Level, in_([Level.HIGH])),
        (list[Literal["a", "b"]], [min_len(5), max_len(6)]),
    ],
)
def test_contents_by_validators(type_: Any, validator: Any) -> None:
    """The strategies find values that random draws would never find."""
    default = None if "None" in str(type_) else attrs.NOTHING
    made_of = {"a": field(validator=validator, default=default)}
    class_ = attrs.make_class("Made", made_of)
    class_.__annotations__ = {"a": type_}
    made = form_of(class_)

    @settings(max_examples=20)
    @given(contents_for(class_))
    def check(content: Any) -> None:
        made.build(made.read(content))

    check()


def test_contents_where_one_field_is_compared_with_another() -> None:
    @frozen
    class Stay:
        start: dt.date
        end: dt.date = field()

        @end.validator
        def check(self, attribute: Any, value: dt.date) -> None:
            if value < self.start:
                raise ValueError("must not be before the start")

    # Its annotations are strings that only this function could resolve.
    Stay.__annotations__ = {"start": dt.date, "end": dt.date}
    assert least(contents_for(Stay)) == {"start": "2000-01-01", "end": "2000-01-01"}


def test_contents_of_a_field_that_is_converted() -> None:
    class_ = attrs.make_class(
        "Made", {"a": field(converter=str.strip, validator=max_len(3))}
    )
    class_.__annotations__ = {"a": str}
    assert least(contents_for(class_)) == {"a": ""}


@frozen
class Pair:
    of: int = field(validator=[ge(3), even])


def test_arguments_by_custom_validators() -> None:
    assert least(arguments_for(function_of(Pair))) == {"value": {"of": 4}}


def test_custom_strategies() -> None:
    anns = contents_for(Guest, name=st.just("Ann"), size=st.sampled_from(["l"]))
    assert least(anns) == {"name": "Ann", "age": 18}
    day = answers_for(Elicit("A?", dt.date), value=st.just(dt.date(2026, 7, 28)))
    assert least(day) == Accepted({"value": "2026-07-28"})
    tool = function_of(Level)
    assert least(arguments_for(tool, value=st.just(Level.HIGH))) == {"value": 2}


def test_custom_strategies_must_fit_the_form() -> None:
    with pytest.raises(Unsatisfiable):
        least(contents_for(Guest, age=st.just(3)))


def test_strategies_for_what_is_not_there() -> None:
    with pytest.raises(UsageError, match="no field or parameter nmae"):
        contents_for(Guest, nmae=st.just("Ann"))
    with pytest.raises(UsageError, match="no field or parameter a"):
        answers_for(Confirm("A?"), a=st.none())
    with pytest.raises(UsageError, match="no field or parameter a"):
        arguments_for(function_of(int), a=st.none())


# ---- schemas ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "exclusiveMinimum": 1.5, "exclusiveMaximum": 2.5},
        {"type": "integer", "minimum": 3, "exclusiveMinimum": 3, "maximum": 4},
        {"type": "number", "minimum": 2**53 + 1, "maximum": 2**53 + 3},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-300},
        {"type": "number", "minimum": 0.0, "maximum": -0.0},
        {"type": "string", "minLength": 5000},
        {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
        {"type": "object", "minProperties": 5, "additionalProperties": {}},
        {"type": "array"},
        {"type": "object", "additionalProperties": False},
        {"const": 3},
        {"enum": [1, "a", None]},
        {},
    ],
    ids=repr,
)
def test_values_for(schema: dict[str, Any]) -> None:
    is_valid = referee(schema)

    @settings(max_examples=20)
    @given(values_for(schema))
    def check(value: Any) -> None:
        assert is_valid(value)

    check()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "number", "minimum": 3, "maximum": 2},
        {"type": "number", "exclusiveMinimum": 2, "maximum": 2},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "array", "minItems": 3, "maxItems": 2},
        {"type": "object", "minProperties": 3, "maxProperties": 2},
    ],
    ids=repr,
)
def test_values_for_what_nothing_fits(schema: dict[str, Any]) -> None:
    assert values_for(schema).is_empty


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"allOf": [], "not": {}}, "allOf, not"),
        ({"type": "string", "pattern": "a+"}, "a pattern of your own"),
    ],
    ids=repr,
)
def test_values_for_schemas_of_others(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        values_for(schema)


@frozen
class Leaf:
    value: int


@frozen
class Tree:
    pair: tuple[Tree | Leaf, Tree | Leaf]
    more: list[Tree | Leaf] = field(validator=min_len(1))
    names: dict[str, Tree] = field(factory=dict)
    other: Tree | None = None


@settings(max_examples=20)
@given(arguments_for(function_of(Tree)))
def test_classes_that_hold_themselves_come_to_an_end(arguments: Any) -> None:
    input_of(function_of(Tree)).read(arguments)


def test_every_type_is_drawn_without_filtering_much() -> None:
    """No health check complains, which Hypothesis does of slow and of rare examples."""
    for annotation in TYPES:

        @settings(max_examples=20, suppress_health_check=[])
        @given(arguments_for(function_of(annotation)))
        def check(arguments: Any) -> None:
            assert arguments.keys() == {"value"}

        check()
