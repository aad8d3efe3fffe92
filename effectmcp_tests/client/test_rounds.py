from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.client import OngoingCall, Pending, ReplyError, RoundsError
from effectmcp.client.rounds import Complete

from .strategies import anything, interim, json_values, keys, questions
from .ways import asking, form

METHODS = st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list"])
CALL = OngoingCall("tools/call", {"name": "order", "arguments": {"title": "Dune"}})
CALLS = st.builds(
    OngoingCall,
    METHODS,
    st.dictionaries(keys, json_values),
    state=st.none() | st.text(),
    responses=st.none() | st.dictionaries(keys, json_values),
    rounds=st.integers(0, 9),
)


# ---- what a result means ------------------------------------------------------------


@given(CALLS, anything)
def test_received_any_result_is_one_of_three(call: OngoingCall, result: Any) -> None:
    """A call is complete, or it is pending, or the server's response is invalid."""
    try:
        came = call.received(result)
    except ReplyError:
        return
    if isinstance(came, Complete):
        assert came.fields is result
        assert result.get("resultType", "complete") == "complete"
        return
    assert isinstance(came, Pending)
    assert call.method != "tools/list"
    assert came.call.rounds == call.rounds + 1
    assert came.call.state == result.get("requestState")
    assert (came.call.method, came.call.params) == (call.method, call.params)
    assert came.questions == (result.get("inputRequests") or {})
    assert came.questions or came.call.state is not None or "inputRequests" in result


@given(CALLS.filter(lambda call: call.method != "tools/list"), interim)
def test_received_an_interim_result_waits(call: OngoingCall, result: Any) -> None:
    came = call.received(result)
    assert isinstance(came, Pending)
    assert came.call.responses is None


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "a result is an object"),
        ([], "a result is an object"),
        ({"resultType": "tasks"}, "a result of the unknown type 'tasks'"),
        ({"resultType": "task"}, "a task without an id"),
        ({"resultType": None}, "a result of the unknown type None"),
        ({"resultType": ["complete"]}, r"a result of the unknown type \['complete'\]"),
        (asking({}, requestState=1), "requestState is not a string"),
        (asking(None), "input_required, and neither inputRequests nor a state"),
        (asking(None, requestState=None), "input_required, and neither"),
        (asking([]), "inputRequests is a map of requests"),  # type: ignore[arg-type]
        (asking({"a": 1}), "inputRequests is a map of requests"),
        (asking({"a": {}}), "inputRequests is a map of requests"),
        (asking({"a": {"method": 1}}), "inputRequests is a map of requests"),
        (asking({"a": {"method": "m", "params": []}}), "inputRequests is a map"),
        (asking({"a": {"method": "m", "params": None}}), "inputRequests is a map"),
        (asking([{"method": "m"}], requestState="s"), "inputRequests is a map"),  # type: ignore[arg-type]
        (asking(""), "inputRequests is a map of requests"),  # type: ignore[arg-type]
        (asking(0), "inputRequests is a map of requests"),  # type: ignore[arg-type]
        (asking(False), "inputRequests is a map of requests"),  # type: ignore[arg-type]
    ],
)
def test_received_invalid_result(result: Any, problem: str) -> None:
    with pytest.raises(ReplyError, match=problem) as raised:
        CALL.received(result)
    words = f"the server's answer cannot be used: {raised.value.problem}"
    assert str(raised.value) == words


def test_received_no_type_is_complete() -> None:
    """Servers of earlier revisions send no type."""
    assert CALL.received({"content": []}) == Complete({"content": []})


@pytest.mark.parametrize("method", ["tools/list", "server/discover", "", "completion"])
def test_received_a_question_where_none_may_be_asked(method: str) -> None:
    with pytest.raises(ReplyError, match="is not a method that allows questions"):
        OngoingCall(method, {}).received(asking({"a": form()}, requestState="s"))


# ---- the next request ---------------------------------------------------------------


@given(CALLS)
def test_params_now_repeat_the_call(call: OngoingCall) -> None:
    params = call.params_now
    also = {"inputResponses": call.responses, "requestState": call.state}
    assert params == {**call.params, **{k: v for k, v in also.items() if v is not None}}


@given(st.text(), st.dictionaries(keys, json_values))
def test_state_is_sent_back_unchanged(state: str, responses: dict[str, Any]) -> None:
    came = CALL.received(asking({"a": form()}, requestState=state))
    assert isinstance(came, Pending)
    params = came.answered(responses).params_now
    assert params == {
        **CALL.params,
        "inputResponses": responses,
        "requestState": state,
    }


def test_state_is_not_sent_where_none_was_received() -> None:
    """The state of the round before is not sent either."""
    first = CALL.received(asking({"a": form()}, requestState="s"))
    assert isinstance(first, Pending)
    second = first.answered({"a": 1}).received(asking({"b": form()}))
    assert isinstance(second, Pending)
    params = second.answered({"b": 2}).params_now
    assert params == {**CALL.params, "inputResponses": {"b": 2}}
    assert second.call.rounds == 2


def test_responses_are_not_sent_where_nothing_was_asked() -> None:
    for result in (asking(None, requestState="s"), asking({}, requestState="s")):
        came = CALL.received(result)
        assert isinstance(came, Pending)
        params = came.answered({"a": 1}).params_now
        assert params == {**CALL.params, "requestState": "s"}


def test_calls_are_values() -> None:
    """Resuming a call does not change it, so it can be resumed again."""
    pending = CALL.received(asking({"a": form()}, requestState="s"))
    assert isinstance(pending, Pending)
    assert pending.answered({"a": 1}) == pending.answered({"a": 1})
    assert pending.answered({"a": 1}) != pending.answered({"a": 2})
    assert CALL == OngoingCall(
        "tools/call", {"name": "order", "arguments": {"title": "Dune"}}
    )


# ---- storing ------------------------------------------------------------------------


@given(CALLS, questions)
def test_pending_goes_through_json_and_back(
    call: OngoingCall, asked: dict[str, Any]
) -> None:
    """Only the responses of the round before are left out: they are not needed."""
    pending = Pending(call, asked)
    stored = json.loads(json.dumps(pending.to_json()))
    found = Pending.from_json(stored)
    assert found.to_json() == pending.to_json()
    assert found.questions == asked
    assert found.answered({"a": 1}).params_now == pending.answered({"a": 1}).params_now
    assert found.call.rounds == call.rounds


@given(anything)
def test_from_json_of_anything_else_raises(value: Any) -> None:
    try:
        found = Pending.from_json(value)
    except ReplyError:
        return
    assert found.to_json().items() <= value.items()


@given(
    st.sampled_from(["method", "params", "state", "rounds", "questions"]), json_values
)
def test_from_json_returns_only_calls_that_can_be_resumed(
    name: str, value: Any
) -> None:
    """For any value of one field, the result is a call like any other."""
    stored = Pending(CALL, {"a": form()}).to_json()
    try:
        found = Pending.from_json({**stored, name: value})
    except ReplyError:
        return
    call = found.answered({"a": 1})
    assert isinstance(call.method, str)
    assert isinstance(call.state, str | None)
    assert type(call.rounds) is int
    json.dumps(call.params_now)


@pytest.mark.parametrize("name", ["method", "params", "state", "rounds", "questions"])
def test_from_json_names_what_is_missing(name: str) -> None:
    stored = Pending(CALL, {}).to_json()
    del stored[name]
    with pytest.raises(ReplyError, match=f"without '{name}'"):
        Pending.from_json(stored)


@pytest.mark.parametrize(
    ("name", "value"),
    [("params", []), ("questions", []), ("questions", {"a": 1}), ("questions", None)],
)
def test_from_json_of_another_shape(name: str, value: Any) -> None:
    stored = Pending(CALL, {}).to_json()
    with pytest.raises(ReplyError, match="of another shape"):
        Pending.from_json({**stored, name: value})


def test_rounds_error_states_the_number_of_rounds() -> None:
    error = RoundsError(3)
    assert error.rounds == 3
    assert "asked 3 times" in str(error)
