from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import Declined, Dismissed, Root, UsageError
from effectmcp.client import Form, Link, ReplyError, Sampling
from effectmcp.client.questions import Answering

from ..helpers import finish
from .strategies import json_values, keys
from .ways import form

SAMPLE = {"method": "sampling/createMessage", "params": {"messages": []}}
ROOTS = {"method": "roots/list"}
LINK = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Go.", "url": "https://a.example"},
}


def everything(**others: Any) -> Answering:
    """A client that answers all there is."""
    return Answering(
        **{
            "elicit": lambda form: {},
            "open_url": lambda link: True,
            "sample": lambda sampling: "a text",
            "roots": (),
            **others,
        }
    )


def answer(answering: Answering, question: Any) -> Any:
    return finish(answering.answer("key", question))


@pytest.mark.parametrize("answered", ["Ann", None, 5])
def test_a_form_that_was_not_filled_in(answered: Any) -> None:
    with pytest.raises(
        UsageError, match=r"elicit= gave .*: give the fields, \{'value'"
    ):
        answer(everything(elicit=lambda form: answered), form("Who?", value={}))


@pytest.mark.parametrize(
    ("answering", "declared"),
    [
        (Answering(), {}),
        (Answering(elicit=lambda form: {}), {"elicitation": {"form": {}}}),
        (Answering(open_url=lambda link: True), {"elicitation": {"url": {}}}),
        (Answering(sample=lambda sampling: ""), {"sampling": {}}),
        (Answering(roots=[]), {"roots": {}}),
        (
            everything(),
            {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}},
        ),
    ],
)
def test_what_can_be_answered_is_declared(
    answering: Answering, declared: dict[str, Any]
) -> None:
    assert answering.capabilities == declared


@pytest.mark.parametrize(
    ("said", "response"),
    [
        ({"name": "Ann"}, {"action": "accept", "content": {"name": "Ann"}}),
        ({}, {"action": "accept", "content": {}}),
        (Declined(), {"action": "decline"}),
        (Dismissed(), {"action": "cancel"}),
    ],
)
def test_a_form_is_answered(said: Any, response: Any) -> None:
    forms: list[Form] = []

    async def elicit(form: Form) -> Any:
        forms.append(form)
        return said

    question = form("Who?", name={"type": "string"}, age={"default": None})
    assert answer(Answering(elicit=elicit), question) == response
    assert answer(Answering(elicit=lambda form: said), question) == response
    (asked,) = forms
    assert (asked.message, asked.key) == ("Who?", "key")
    assert list(asked.fields) == ["name", "age"]
    assert asked.defaults == {"age": None}


@pytest.mark.parametrize(
    ("said", "response"),
    [
        (True, {"action": "accept"}),
        (False, {"action": "decline"}),
        (Declined(), {"action": "decline"}),
        (Dismissed(), {"action": "cancel"}),
    ],
)
def test_a_link_is_answered(said: Any, response: Any) -> None:
    links: list[Link] = []

    def open_url(link: Link) -> Any:
        links.append(link)
        return said

    assert answer(Answering(open_url=open_url), LINK) == response
    assert links == [Link("Go.", "https://a.example", "key")]


def test_a_model_is_asked() -> None:
    found: list[Sampling] = []

    def sample(sampling: Sampling) -> Any:
        found.append(sampling)
        return "a text"

    assert answer(Answering(sample=sample), SAMPLE) == {
        "role": "assistant",
        "content": {"type": "text", "text": "a text"},
        "model": "unknown",
    }
    assert (found[0].params, found[0].messages) == ({"messages": []}, [])
    whole = {"role": "assistant", "content": [], "model": "m"}
    assert answer(Answering(sample=lambda sampling: whole), SAMPLE) == whole


async def async_roots() -> list[Root]:
    return [Root("file:///b")]


@pytest.mark.parametrize(
    ("roots", "response"),
    [
        ([], []),
        ([Root("file:///a", "A")], [{"uri": "file:///a", "name": "A"}]),
        (lambda: [Root("file:///a")], [{"uri": "file:///a"}]),
        (async_roots, [{"uri": "file:///b"}]),
    ],
)
def test_roots_are_listed(roots: Any, response: Any) -> None:
    assert answer(Answering(roots=roots), ROOTS) == {"roots": response}


def test_roots_are_listed_as_often_as_they_are_asked_for() -> None:
    """An `Iterable` may be used up by the first iteration."""
    answering = Answering(roots=iter([Root("file:///a")]))
    response = {"roots": [{"uri": "file:///a"}]}
    assert [answer(answering, ROOTS) for _ in range(2)] == [response] * 2


@pytest.mark.parametrize(
    ("answering", "question"),
    [
        (everything(elicit=None), form()),
        (everything(open_url=None), LINK),
        (everything(sample=None), SAMPLE),
        (everything(roots=None), ROOTS),
        (everything(), {"method": "tools/call"}),
        (everything(), {"method": "elicitation/create", "params": {"mode": "sms"}}),
        (everything(), {"method": "elicitation/create", "params": {"mode": None}}),
    ],
)
def test_undeclared_questions_are_not_answered(
    answering: Answering, question: Any
) -> None:
    with pytest.raises(ReplyError, match="did not say it can answer"):
        answer(answering, question)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({}, "the form 'key' has no schema"),
        ({"requestedSchema": "name"}, "the form 'key' has no schema"),
        ({"mode": "url"}, "the link 'key' has no url"),
        ({"mode": "url", "url": 1}, "the link 'key' has no url"),
    ],
)
def test_an_invalid_question(params: Any, problem: str) -> None:
    question = {"method": "elicitation/create", "params": params}
    with pytest.raises(ReplyError, match=problem):
        answer(everything(), question)


PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["form", "url"]) | json_values,
        "message": json_values,
        "url": st.text() | json_values,
        "requestedSchema": st.fixed_dictionaries(
            {"properties": st.dictionaries(keys, json_values) | json_values}
        )
        | json_values,
        "messages": json_values,
    },
)


@given(
    st.sampled_from(["elicitation/create", "sampling/createMessage", "roots/list"]),
    PARAMS,
)
def test_any_question_is_answered_or_refused(method: str, params: Any) -> None:
    """Handlers that read everything in their argument cause no other error."""

    def elicit(form: Form) -> dict[str, Any]:
        assert set(form.defaults) <= set(form.fields)
        return form.defaults

    def sample(sampling: Sampling) -> str:
        return f"{len(sampling.messages)}"

    answering = everything(elicit=elicit, sample=sample)
    try:
        response = answer(answering, {"method": method, "params": params})
    except ReplyError:
        return
    assert isinstance(response, dict)
