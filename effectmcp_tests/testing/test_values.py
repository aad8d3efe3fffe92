from __future__ import annotations

import datetime as dt
import enum
from typing import Any, Literal

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Confirm,
    Elicit,
    ElicitUrl,
    ListRoots,
    Root,
    Sample,
    Sampled,
    UsageError,
)
from effectmcp.forms import Unfit, form_of
from effectmcp.testing.values import content_of, form_content
from effectmcp_tests.forms.test_forms_properties import classes, values_of

RAW: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
}


class Colour(enum.Enum):
    RED = "red"


class Level(enum.Enum):
    LOW = 1


@frozen
class Visit:
    day: dt.date
    levels: list[Level]
    _colour: Colour = Colour.RED
    note: str | None = None


def test_value_of_a_class_is_sent_by_its_names_on_the_wire() -> None:
    visit = Visit(dt.date(2026, 7, 28), [Level.LOW])
    content = {"day": "2026-07-28", "levels": ["LOW"], "colour": "red"}
    assert form_content(form_of(Visit), visit) == content


def test_values_in_an_object_are_sent_as_well() -> None:
    content = form_content(form_of(RAW), {"a": dt.date(2026, 7, 28), "b": 1})
    assert content == {"a": "2026-07-28", "b": 1}


def test_value_of_one_field() -> None:
    assert form_content(form_of(int), 3) == {"value": 3}
    assert form_content(form_of(int | None), None) == {}


@pytest.mark.parametrize("form", [Visit, RAW])
def test_value_of_something_else(form: Any) -> None:
    with pytest.raises(UsageError, match="3 is not an answer to the form"):
        form_content(form_of(form), 3)


@given(
    st.sampled_from(list(values_of)).flatmap(
        lambda type_: st.tuples(st.just(type_), values_of[type_])
    )
)
def test_law_of_one_field(pair: tuple[Any, Any]) -> None:
    """The handler receives the value that a test passes."""
    type_, value = pair
    made = form_of(type_)
    advice = f"plain() of testing/values.py does not give what clients send for {type_}"
    try:
        built = made.build(made.read(form_content(made, value)))
    except Unfit as exc:
        raise AssertionError(advice) from exc
    assert built == value, advice


@given(st.data(), classes())
def test_law_of_classes(data: st.DataObject, drawn: tuple[Any, dict[str, Any]]) -> None:
    class_, types = drawn
    values = {name: data.draw(values_of[type_]) for name, type_ in types.items()}
    try:
        value = class_(**values)
    except ValueError:
        return  # by a validator
    made = form_of(class_)
    assert made.build(made.read(form_content(made, value))) == value


@pytest.mark.parametrize(
    ("request_", "value", "content"),
    [
        (Elicit("A?", Literal["a", "b"]), "b", {"value": "b"}),
        (Confirm("A?"), True, {}),
        (Confirm("A?"), None, {}),
        (ElicitUrl("A", "https://a.example"), None, None),
        (ListRoots(), [Root("file:///a", "A")], [{"uri": "file:///a", "name": "A"}]),
        (ListRoots(), ["file:///a"], [{"uri": "file:///a"}]),
    ],
    ids=repr,
)
def test_content_of(request_: Any, value: Any, content: Any) -> None:
    if isinstance(request_, ListRoots):
        content = {"roots": content}
    assert content_of(request_, value) == content


def test_content_of_a_sample() -> None:
    text = [{"type": "text", "text": "Hi"}]
    assert content_of(Sample("?"), "Hi") == {
        "role": "assistant",
        "content": text,
        "model": "test-model",
        "stopReason": "endTurn",
    }
    sent: Any = content_of(Sample("?"), Sampled(text, "m"))
    assert (sent["model"], "stopReason" in sent) == ("m", False)


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        (Confirm("A?"), 1),
        (ElicitUrl("A", "https://a.example"), True),
        (Sample("?"), 3),
        (ListRoots(), "file:///a"),
        (ListRoots(), [3]),
    ],
    ids=repr,
)
def test_values_that_are_not_answers_are_refused(request_: Any, value: Any) -> None:
    with pytest.raises(UsageError, match="answer"):
        content_of(request_, value)
