from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from effectmcp import (
    Accepted,
    Checkpoint,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    InputRequest,
    ListRoots,
    Outcome,
    ProtocolError,
    Sample,
)
from effectmcp.engine import Question, Unread
from effectmcp.forms import Unfit
from effectmcp.protocol.modern import (
    MISSING_CAPABILITY,
    can_answer,
    input_required,
    missing_capability,
    read_answers,
    read_result,
)

from ..wire import ERRORS, EVERYTHING, fits

#: The words for a form, and for sampling.
USER = "asks its user a question"
MODEL = "asks its client's model for a message"

WITH_TOOLS = Sample("Hi", tools=[{"name": "t", "inputSchema": {"type": "object"}}])

#: A client's capabilities, and which of the questions it can be asked.
QUESTIONS: dict[str, Any] = {
    "form": Elicit("?", str),
    "confirm": Confirm("?"),
    "url": ElicitUrl("?", "https://x"),
    "sample": Sample("Hi"),
    "tools": WITH_TOOLS,
    "roots": ListRoots(),
}
CLIENTS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    (dict(EVERYTHING), set(QUESTIONS)),
    ({"elicitation": {}}, {"form", "confirm"}),
    ({"elicitation": {"form": {}}}, {"form", "confirm"}),
    ({"elicitation": {"url": {}}}, {"url"}),
    ({"elicitation": {"later": {}}}, set()),
    ({"sampling": {}}, {"sample"}),
    ({"sampling": {"tools": {}}}, {"sample", "tools"}),
    ({"roots": {"listChanged": True}}, {"roots"}),
    ({"roots": None, "sampling": True}, set()),
]


# ---- what a client can be asked ----


@pytest.mark.parametrize(
    ("capabilities", "asked"), CLIENTS, ids=[str(one) for one, _ in CLIENTS]
)
def test_can_answer(capabilities: Any, asked: set[str]) -> None:
    supports = partial(can_answer, capabilities)
    assert {name for name, one in QUESTIONS.items() if supports(one)} == asked
    outcomes = {name for name, one in QUESTIONS.items() if supports(Outcome(one))}
    assert outcomes == asked


@pytest.mark.parametrize(
    ("capabilities", "asked"), CLIENTS, ids=[str(one) for one, _ in CLIENTS]
)
def test_can_answer_of_classes(capabilities: Any, asked: set[str]) -> None:
    """Further needs of a class are checked when there is an instance."""
    supports = partial(can_answer, capabilities)
    for name, one in QUESTIONS.items():
        if name != "tools":
            assert supports(type(one)) is (name in asked)
    assert supports(Outcome)


def test_missing_capability_of_nothing() -> None:
    assert missing_capability([], {}, "tools/call") is None
    assert missing_capability(QUESTIONS.values(), EVERYTHING, "tools/call") is None


@pytest.mark.parametrize(
    ("what", "capabilities", "required", "asks"),
    [
        ([Sample], {}, {"sampling": {}}, f"{MODEL} (sampling)"),
        ([Sample], {"sampling": None}, {"sampling": {}}, f"{MODEL} (sampling)"),
        ([Elicit], {}, {"elicitation": {"form": {}}}, f"{USER} (elicitation)"),
        (
            [Elicit],
            {"elicitation": {"url": {}}},
            {"elicitation": {"form": {}}},
            f"{USER} (elicitation.form)",
        ),
        (
            [ElicitUrl],
            {"elicitation": {}},
            {"elicitation": {"url": {}}},
            "asks its user to open a page (elicitation.url)",
        ),
        (
            [WITH_TOOLS],
            {"sampling": {}},
            {"sampling": {"tools": {}}},
            f"{MODEL}, with tools (sampling.tools)",
        ),
        (
            [WITH_TOOLS],
            {},
            {"sampling": {"tools": {}}},
            f"{MODEL}, with tools (sampling)",
        ),
        (
            ["ListRoots"],
            {},
            {"roots": {}},
            "asks its client for the user's folders (roots)",
        ),
        (["Sample"], {}, {"sampling": {}}, f"{MODEL} (sampling)"),
        # It could not be asked, though it can sample: so it was with tools.
        (
            ["Sample"],
            {"sampling": {}},
            {"sampling": {"tools": {}}},
            f"{MODEL}, with tools (sampling.tools)",
        ),
        (
            [Confirm, ElicitUrl, Sample],
            {},
            {"elicitation": {"form": {}, "url": {}}, "sampling": {}},
            (
                f"{USER} (elicitation) and asks its user to open a page (elicitation)"
                f" and {MODEL} (sampling)"
            ),
        ),
    ],
    ids=repr,
)
def test_missing_capability_names_all(
    what: Any, capabilities: Any, required: Any, asks: str
) -> None:
    refusal = missing_capability(what, capabilities, "tools/call")
    assert refusal is not None
    assert (refusal.code, refusal.status) == (MISSING_CAPABILITY, 400)
    assert refusal.data == {"requiredCapabilities": required}
    assert refusal.message == (
        f"This tool {asks}, which this client did not say it can do. Use it from a"
        " client that can."
    )
    error = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
    fits(ERRORS[refusal.code], {"jsonrpc": "2.0", "id": 1, "error": error})


def test_missing_capability_of_an_unknown_name() -> None:
    """A handler may raise `Unsupported` itself, over something of its own."""
    assert missing_capability(["Telepathy"], {}, "tools/call") is None
    assert missing_capability(["Sample"], EVERYTHING, "tools/call") is None


# ---- questions ----


def asked(effect: InputRequest[Any], *problems: str) -> dict[str, Any]:
    fields = input_required([Question("k", effect, problems)], "token")
    fits("InputRequiredResult", fields)
    assert fields["requestState"] == "token"
    assert fields["resultType"] == "input_required"
    (one,) = fields["inputRequests"].values()
    found: dict[str, Any] = one
    return found


def test_input_required_of_nothing() -> None:
    """A client in the field takes its absence for a final result."""
    fields = input_required([], "token")
    assert fields["inputRequests"] == {}
    fits("InputRequiredResult", fields)


def test_elicit_on_the_wire() -> None:
    request = asked(Elicit("Who?", str))
    fits("ElicitRequest", request)
    assert request["method"] == "elicitation/create"
    assert request["params"]["mode"] == "form"
    assert request["params"]["message"] == "Who?"
    assert request["params"]["requestedSchema"]["required"] == ["value"]


def test_elicit_url_and_confirm_on_the_wire() -> None:
    request = asked(ElicitUrl("Pay", "https://pay.example/1"))
    fits("ElicitRequest", request)
    assert request["params"] == {
        "mode": "url",
        "message": "Pay",
        "url": "https://pay.example/1",
    }
    request = asked(Confirm("Sure?"))
    fits("ElicitRequest", request)
    assert request["params"]["requestedSchema"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "effect", [Elicit("Who?", str), ElicitUrl("Who?", "https://x"), Confirm("Who?")]
)
def test_question_that_is_asked_again_has_the_problems(
    effect: InputRequest[Any],
) -> None:
    message = asked(effect, "value: is required", "age: too low")["params"]["message"]
    assert message == (
        "Who?\n\nYour last answer did not fit:\n- value: is required\n- age: too low"
    )


def test_sample_on_the_wire() -> None:
    request = asked(Sample("Hi"))
    fits("CreateMessageRequest", request)
    assert request["params"] == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
        "maxTokens": 1024,
    }


def test_sample_with_everything_on_the_wire() -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    effect = Sample(
        [{"role": "assistant", "content": {"type": "text", "text": "Hi"}}],
        max_tokens=5,
        system="Be brief.",
        tools=[tool],
        tool_choice="required",
        temperature=0.5,
        stop_sequences=["\n"],
        preferences={"speedPriority": 1},
    )
    request = asked(effect)
    fits("CreateMessageRequest", request)
    assert request["params"] == {
        "messages": [{"role": "assistant", "content": {"type": "text", "text": "Hi"}}],
        "maxTokens": 5,
        "systemPrompt": "Be brief.",
        "temperature": 0.5,
        "stopSequences": ["\n"],
        "modelPreferences": {"speedPriority": 1},
        "tools": [tool],
        "toolChoice": {"mode": "required"},
    }


def test_list_roots_on_the_wire() -> None:
    request = asked(ListRoots())
    fits("ListRootsRequest", request)
    assert request == {"method": "roots/list"}


def test_input_required_refuses_other_effects() -> None:
    with pytest.raises(TypeError, match="is not a question"):
        input_required([Question("k", Checkpoint(), ())], "token")  # type: ignore[arg-type]


# ---- answers ----


def read(value: Any, effect: Any) -> Any:
    answer = read_answers({"inputResponses": {"k": value}})["k"]
    assert isinstance(answer, Unread)
    return read_result(effect, answer.value)


@pytest.mark.parametrize("params", [{}, {"inputResponses": None}])
def test_no_answers(params: Any) -> None:
    assert read_answers(params) == {}


@pytest.mark.parametrize("responses", [[], "x", 5, False, {"k": 5}, {"k": None}])
def test_answers_that_are_not_a_mapping(responses: Any) -> None:
    with pytest.raises(ProtocolError, match="inputResponses is a map") as caught:
        read_answers({"inputResponses": responses})
    assert caught.value.code == -32602


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (
            {"action": "accept", "content": {"value": "Ann"}},
            Accepted({"value": "Ann"}),
        ),
        ({"action": "accept"}, Accepted(None)),
        ({"action": "decline", "content": {"value": "Ann"}}, Declined()),
        ({"action": "cancel"}, Dismissed()),
    ],
)
@pytest.mark.parametrize("name", ["form", "confirm", "url"])
def test_answer_to_an_elicitation(name: str, value: Any, answer: Any) -> None:
    assert read(value, QUESTIONS[name]) == answer


@pytest.mark.parametrize(
    "value", [{}, {"action": "ok"}, {"action": True}, {"content": {"value": "Ann"}}]
)
def test_answer_without_a_known_action_is_not_consent(value: Any) -> None:
    answer = read(value, Confirm("?"))
    assert isinstance(answer, Unfit)
    assert "action: must be" in str(answer)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("value", [None, 5, "accept", [], 12345])
def test_answer_that_is_not_an_object(name: str, value: Any) -> None:
    """A live client's reply; beside a `requestState` the whole request is malformed."""
    assert isinstance(read_result(QUESTIONS[name], value), Unfit)


def test_answers_to_sampling_and_roots_are_content() -> None:
    """A value like an ended elicitation is content here, and fits or not."""
    value = {"action": "decline", "role": "assistant"}
    assert read(value, Sample("Hi")) == Accepted(value)
    assert read({"roots": []}, ListRoots()) == Accepted({"roots": []})
