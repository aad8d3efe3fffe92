"""The descriptions of tasks that servers send, valid and invalid, as values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import ProtocolError
from effectmcp.client import OngoingCall, Pending, ReplyError, Task, TaskCancelled
from effectmcp.client.rounds import Complete
from effectmcp.client.tasks import TaskStatus

from .strategies import json_values, keys, questions
from .ways import form

CALL = OngoingCall("tools/call", {"name": "build", "arguments": {}})
FOLLOWED = evolve(CALL, task=Task("t"))
DONE: dict[str, Any] = {"content": []}
STATUSES = st.sampled_from(
    ["working", "input_required", "completed", "failed", "cancelled"]
)


def described(status: str = "working", **more: Any) -> dict[str, Any]:
    """The result of `tasks/get`."""
    return {"resultType": "complete", "taskId": "t", "status": status, **more}


def announced(**more: Any) -> dict[str, Any]:
    """The result of a call that has become a task."""
    return described(**{"resultType": "task", **more})


def pending(call: OngoingCall, result: Any) -> Pending:
    came = call.received(result)
    assert isinstance(came, Pending)
    return came


#: Descriptions in which something may be of another type.
anything: st.SearchStrategy[Any] = (
    st.fixed_dictionaries(
        {"taskId": st.just("t") | json_values, "status": STATUSES | json_values},
        optional={
            "resultType": st.sampled_from(["complete", "task"]) | json_values,
            "statusMessage": st.text(max_size=8) | json_values,
            "pollIntervalMs": st.integers() | st.floats() | json_values,
            "inputRequests": questions | json_values,
            "result": st.just(DONE) | json_values,
            "error": st.just({"code": 1, "message": "no"}) | json_values,
        },
    )
    | json_values
)
tasks = st.builds(
    Task,
    st.text("abc", min_size=1),
    STATUSES,
    st.none() | st.text(max_size=8),
    st.integers(100, 60_000).map(lambda milliseconds: milliseconds / 1000),
    st.frozensets(keys, max_size=3),
)


# ---- a call that becomes a task -----------------------------------------------------


def test_call_that_becomes_a_task() -> None:
    """A state belongs to the rounds before the task."""
    asked = evolve(CALL, state="s", responses={"a": 1}, rounds=2)
    came = pending(asked, announced(statusMessage="starts", pollIntervalMs=500))
    assert came.task == Task("t", "working", "starts", 0.5)
    assert (came.call.method_now, came.call.params_now) == (
        "tasks/get",
        {"taskId": "t"},
    )
    assert (came.call.rounds, came.questions) == (2, {})


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "tools/list"])
def test_no_other_request_may_become_a_task(method: str) -> None:
    """Capability Negotiation: the client "MUST interpret this as an invalid response"."""
    with pytest.raises(ReplyError, match="unknown type 'task'"):
        OngoingCall(method, {}).received(announced())


@pytest.mark.parametrize("id_", [None, "", 1, ["t"], "\n", "\ud800", "t\0"])
def test_task_without_a_valid_id(id_: Any) -> None:
    with pytest.raises(ReplyError, match="a task without an id"):
        CALL.received(announced(taskId=id_))


def test_task_with_a_long_id() -> None:
    """A header repeats it."""
    assert pending(CALL, announced(taskId="t" * 1_024)).task
    with pytest.raises(ReplyError, match="has 1,025 characters"):
        CALL.received(announced(taskId="t" * 1_025))


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        (None, 1.0),
        (0, 0.1),
        (1, 0.1),
        (250, 0.25),
        (250.0, 0.25),
        (10**400, 60.0),
        (float("inf"), 60.0),
    ],
)
def test_poll_interval_has_limits(milliseconds: Any, seconds: float) -> None:
    task = Task("t").seen(described(pollIntervalMs=milliseconds))
    assert task.poll_interval == task.pause == seconds
    assert Task("t").seen(described()).poll_interval == 1.0


def test_announced_task_that_has_ended_is_polled_at_once() -> None:
    """The result that announces a task has no result of the call in it."""
    came = pending(CALL, announced(status="completed"))
    assert came.task is not None
    assert came.task.pause == 0
    assert isinstance(came.call.received(described("completed", result=DONE)), Complete)


# ---- a task that is followed --------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "a task is an object"),
        ([], "a task is an object"),
        (described(resultType="input_required"), "a task is an object"),
        (described(taskId="other"), "it describes another task"),
        (described(taskId=None), "it describes another task"),
        (described("sleeping"), "unknown status 'sleeping'"),
        (described("x" * 1_000), "unknown status 'xxx"),
        (described(None), "unknown status None"),  # type: ignore[arg-type]  # hostile
        (described(["working"]), "unknown status"),  # type: ignore[arg-type]  # hostile
        (described(statusMessage=1), "statusMessage is not a string"),
        (described(pollIntervalMs="1"), "pollIntervalMs is not a number"),
        (described(pollIntervalMs=True), "pollIntervalMs is not a number"),
        (described(pollIntervalMs=[]), "pollIntervalMs is not a number"),
        (described(pollIntervalMs=-1), "pollIntervalMs is not a number"),
        (described(pollIntervalMs=float("nan")), "pollIntervalMs is not a number"),
        (described("completed"), "without a complete result"),
        (described("completed", result=[]), "without a complete result"),
        (
            described("completed", result={"resultType": "input_required"}),
            "without a complete result",
        ),
        (described("completed", result=announced()), "without a complete result"),
        (described("failed"), "neither a result nor an error"),
        (described("failed", error={"code": "1"}), "has no code and message"),
        (described("input_required"), "inputRequests is a map of requests"),
        (described("input_required", inputRequests={"a": 1}), "inputRequests is a map"),
        (
            described(
                "input_required", inputRequests={f"{n}": form() for n in range(1_001)}
            ),
            "asks 1,001 questions at once",
        ),
        (
            described("input_required", inputRequests={"a" * 10_001: form()}),
            "a question whose key is too long",
        ),
    ],
)
def test_invalid_description(result: Any, problem: str) -> None:
    with pytest.raises(ReplyError, match=problem) as raised:
        FOLLOWED.received(result)
    assert len(str(raised.value)) < 200


@given(anything)
def test_any_description_is_an_end_or_followed_or_refused(result: Any) -> None:
    try:
        came = FOLLOWED.received(result)
    except (ReplyError, ProtocolError, TaskCancelled):
        return
    if isinstance(came, Complete):
        assert came.fields is result["result"]
        return
    assert came.task is not None
    assert came.task.id == "t"
    assert 0.1 <= came.task.pause <= 60
    assert came.call.rounds == bool(came.questions)


@pytest.mark.parametrize("ended", ["completed", "failed", "cancelled"])
def test_task_that_has_ended_stays_so(ended: TaskStatus) -> None:
    call = evolve(CALL, task=Task("t", ended))
    with pytest.raises(ReplyError, match=f"a task that was {ended} is working"):
        call.received(described())


def test_task_may_work_again_after_it_asked() -> None:
    call = evolve(CALL, task=Task("t", "input_required"))
    assert pending(call, described()).task == Task("t")


def test_completed_task_has_the_result_of_the_call() -> None:
    """The extension's own examples of `tasks/get` have the type "task", too."""
    for type_ in ("complete", "task"):
        result = {"content": [], "isError": True}
        came = FOLLOWED.received(
            described("completed", resultType=type_, result=result)
        )
        assert came == Complete(result)


def test_failed_task_raises_its_error() -> None:
    error = {"code": -32603, "message": "no power", "data": {"since": 1}}
    with pytest.raises(ProtocolError, match="no power") as raised:
        FOLLOWED.received(described("failed", error=error))
    assert (raised.value.code, raised.value.data) == (-32603, {"since": 1})


def test_cancelled_task_raises() -> None:
    with pytest.raises(TaskCancelled) as raised:
        FOLLOWED.received(described("cancelled", statusMessage="by its operator"))
    assert (raised.value.id, raised.value.message) == ("t", "by its operator")
    assert str(raised.value) == "the task t was cancelled: by its operator"
    assert str(TaskCancelled("t")) == "the task t was cancelled"


# ---- its questions ------------------------------------------------------------------


def asking(**questions: Any) -> dict[str, Any]:
    return described("input_required", inputRequests=questions)


def test_each_question_is_answered_once() -> None:
    """A client may send some of the answers before the others."""
    both = asking(a=form(), b=form())
    came = pending(FOLLOWED, both)
    assert (list(came.questions), came.call.rounds) == (["a", "b"], 1)
    update = came.answered({"a": 1, "unasked": 2})
    assert (update.method_now, update.params_now) == (
        "tasks/update",
        {"taskId": "t", "inputResponses": {"a": 1}},
    )
    after = pending(update, {"resultType": "complete"})
    assert (after.questions, after.call.method_now) == ({}, "tasks/get")
    # The server may not have seen the answer yet.
    second = pending(after.call, both)
    assert (list(second.questions), second.call.rounds) == (["b"], 2)
    third = pending(second.answered({"b": 2}), {})
    waits = pending(third.call, both)
    assert (waits.questions, waits.call.rounds) == ({}, 2)


def test_round_without_answers_is_a_poll() -> None:
    came = pending(FOLLOWED, asking(a=form()))
    assert came.answered({}).method_now == "tasks/get"
    assert came.answered({"b": 1}).method_now == "tasks/get"


@pytest.mark.parametrize("result", [None, [], "ok", {"resultType": "task"}])
def test_invalid_acknowledgement(result: Any) -> None:
    update = pending(FOLLOWED, asking(a=form())).answered({"a": 1})
    with pytest.raises(ReplyError, match="acknowledgement of answers is an object"):
        update.received(result)


# ---- storing ------------------------------------------------------------------------


@given(tasks, questions)
def test_pending_task_goes_through_json_and_back(
    task: Task, asked: dict[str, Any]
) -> None:
    stored = Pending(evolve(CALL, task=task, rounds=3), asked)
    assert Pending.from_json(json.loads(json.dumps(stored.to_json()))) == stored


@given(
    st.sampled_from(["id", "status", "message", "pollInterval", "answered"]),
    json_values,
)
def test_from_json_returns_only_tasks_that_can_be_followed(
    name: str, value: Any
) -> None:
    stored = {**Task("t", answered=frozenset({"a"})).to_json(), name: value}
    try:
        task = Task.from_json(stored)
    except ReplyError:
        return
    json.dumps(task.to_json())
    assert 0.1 <= task.poll_interval <= 60


@pytest.mark.parametrize(
    "value", [None, [], {}, {**Task("t").to_json(), "answered": [1]}]
)
def test_from_json_of_another_shape(value: Any) -> None:
    stored = {**Pending(CALL, {}).to_json(), "task": value}
    with pytest.raises(ReplyError, match="a stored task of another shape"):
        Pending.from_json(stored)
