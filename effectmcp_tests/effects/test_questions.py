"""Questions, and what is around them."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any, Literal

import attrs
import pytest

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Effect,
    Elicit,
    ElicitUrl,
    FormError,
    InputRequest,
    ListRoots,
    Now,
    Outcome,
    Sample,
    Sampled,
    UsageError,
)

QUESTIONS: list[Callable[..., InputRequest[Any]]] = [
    functools.partial(Elicit, "Who?", str),
    functools.partial(Confirm, "Sure?"),
    functools.partial(ElicitUrl, "Pay", "https://pay.example"),
    functools.partial(Sample, "Write"),
    ListRoots,
]


@pytest.mark.parametrize("make", QUESTIONS)
def test_question_takes_key_and_otherwise(
    make: Callable[..., InputRequest[Any]],
) -> None:
    plain, named = make(), make(key="k", otherwise="o")
    assert (plain.key, plain.otherwise) == (None, attrs.NOTHING)
    assert (named.key, named.otherwise) == ("k", "o")


@pytest.mark.parametrize("make", QUESTIONS)
def test_question_may_fall_back_to_none(make: Callable[..., InputRequest[Any]]) -> None:
    """`otherwise=None` is a value like any other, not the lack of one."""
    assert make(otherwise=None).otherwise is None


def test_elicit_checks_its_form_at_once() -> None:
    with pytest.raises(FormError):
        Elicit("What?", complex)


def test_elicit_titles_a_single_field() -> None:
    schema = Elicit("Who?", str, title="Name").spec.schema
    assert schema["properties"]["value"] == {"type": "string", "title": "Name"}


def test_elicit_takes_a_raw_schema() -> None:
    raw = {"type": "object", "properties": {"age": {"type": "integer"}}}
    assert Elicit("How old?", raw).spec.schema == raw


def test_elicit_infers_special_forms() -> None:
    answer: Effect[Literal["s", "l"]] = Elicit("Size?", Literal["s", "l"])
    maybe: Effect[int | None] = Elicit("Age?", int | None)
    assert isinstance(answer, Elicit)
    assert maybe.spec.fields[0].required is False  # type: ignore[attr-defined]


def test_sample_wraps_a_prompt() -> None:
    assert Sample("Write").messages == (
        {"role": "user", "content": {"type": "text", "text": "Write"}},
    )


def test_sample_copies_messages_and_tools() -> None:
    """A list that the handler changes later must not change the question."""
    messages = [{"role": "user", "content": {"type": "text", "text": "Hi"}}]
    sample = Sample(messages, tools=[{"name": "t"}], stop_sequences=["."])
    messages[0]["role"] = "assistant"
    messages.clear()
    assert sample.messages[0]["role"] == "user"
    assert sample.tools == ({"name": "t"},)
    assert sample.stop_sequences == (".",)


def test_sample_refuses_an_unknown_keep() -> None:
    with pytest.raises(UsageError, match=r"keep='some'.*'all' or 'text'"):
        Sample("Write", keep="some")  # type: ignore[call-overload]


def test_sampled_text_joins_the_text_blocks() -> None:
    sampled = Sampled(
        [
            {"type": "text", "text": "One "},
            {"type": "image", "data": "…", "mimeType": "image/png"},
            {"type": "text", "text": "two"},
        ],
        "a-model",
    )
    assert sampled.text == "One two"
    assert sampled.stop_reason is None


def test_outcome_takes_a_question_only() -> None:
    given: Any = Now()
    with pytest.raises(UsageError, match=r"takes a question.*not Now\(\)"):
        Outcome(given)


@pytest.mark.parametrize("otherwise", [None, "x"])
def test_outcome_refuses_otherwise_inside(otherwise: Any) -> None:
    with pytest.raises(UsageError, match="would never be used"):
        Outcome(Elicit("Who?", str, otherwise=otherwise))


def test_outcome_values_can_be_matched() -> None:
    values: list[Accepted[int] | Declined] = [Accepted(3), Declined()]
    said = []
    for value in values:
        match value:
            case Accepted(number):
                said.append(number)
            case Declined():
                said.append(0)
    assert said == [3, 0]


def test_elicit_form_of_a_class() -> None:
    @attrs.frozen
    class Person:
        name: str
        born: dt.date | None = None

    elicit = Elicit("Who?", Person)
    assert elicit.spec.build({"name": "Ann"}) == Person("Ann")


def test_sample_with_everything_is_legal() -> None:
    sample = Sample("a", max_tokens=5, system="b", temperature=1)
    assert (sample.system, sample.temperature) == ("b", 1)
