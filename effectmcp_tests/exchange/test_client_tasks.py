"""Clients of 2025-11-25 that answer a question as a task of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import (
    Elicit,
    FirstOf,
    Flow,
    Gather,
    ListRoots,
    Outcome,
    Sample,
    Within,
    step,
)
from effectmcp.exchange.client_tasks import with_task

from ..wire import EVERYTHING, Wire, text_of
from .test_task_wires import DRAFT, NEWEST, OLDER, Older, World, world

#: All that a client can declare of tasks.
TASKS: Wire = {
    "cancel": {},
    "list": {},
    "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}},
}
DECLARED: Wire = {**EVERYTHING, "tasks": TASKS}


# ---- a client with tasks ------------------------------------------------------------


@attrs.define(eq=False)
class Desk:
    """Answers questions as tasks, each after some polls.

    Attributes:
        here: The world.
        polls: How often a task is `working`, by default.
        said: Results or errors of the tasks, by the message of the question.
        interval: The `pollInterval` of each description, if any.
        is_ignoring: Whether it ignores `task`.
        before: Called before each reply, with the request.
        questions: The questions that came.
        requests: The other requests, as (time, method, task).
    """

    here: World
    polls: int = 2
    said: dict[str, Wire] = attrs.field(factory=dict)
    interval: Any = None
    is_ignoring: bool = False
    before: Callable[[Wire], object] = lambda question: None
    questions: list[Wire] = attrs.field(factory=list)
    requests: list[tuple[float, str, str]] = attrs.field(factory=list)
    _left: dict[str, int] = attrs.field(factory=dict)
    _messages: dict[str, str] = attrs.field(factory=dict)

    @property
    def methods(self) -> list[str]:
        """The methods of the requests about tasks."""
        return [method for _, method, _ in self.requests]

    def __call__(self, question: Wire) -> Wire | None:
        self.before(question)
        method, params = question["method"], question.get("params", {})
        if not method.startswith("tasks/"):
            self.questions.append(question)
            message = params.get("message", method)
            if "task" not in params or self.is_ignoring:
                return self._end(message)
            id_ = f"desk-{len(self.questions)}"
            self._left[id_], self._messages[id_] = self.polls, message
            return {"result": {"task": self._task(id_, "working")}}
        id_ = params["taskId"]
        self.requests.append((self.here.host.now, method, id_))
        if method == "tasks/get":
            self._left[id_] -= 1
            ended = "failed" if "error" in self._end(self._messages[id_]) else None
            status = "working" if self._left[id_] > 0 else ended or "completed"
            return {"result": self._task(id_, status)}
        if method == "tasks/result":
            return self._end(self._messages[id_])
        return {"result": self._task(id_, "cancelled")}

    def _end(self, message: str) -> Wire:
        if message == "sampling/createMessage":
            content = {"type": "text", "text": "sampled"}
            said: Wire = {"role": "assistant", "content": content, "model": "m"}
        elif message == "roots/list":
            said = {"roots": []}
        else:
            said = {"action": "accept", "content": {"value": message.lower()}}
        return self.said.get(message, {"result": said})

    def _task(self, id_: str, status: str) -> Wire:
        more = {} if self.interval is None else {"pollInterval": self.interval}
        return {
            "taskId": id_,
            "status": status,
            "createdAt": "2027-01-15T08:00:00Z",
            "lastUpdatedAt": "2027-01-15T08:00:00Z",
            "ttl": None,
            **more,
        }


def seat(
    tool: Callable[..., Any], wire: str = NEWEST, capabilities: Any = DECLARED
) -> tuple[Older, Desk]:
    """A client, and the desk that answers its questions; `tool` runs without a task."""
    here = world()
    here.app.tool(name="tool", task="optional")(tool)
    user = here.user(wire, capabilities=capabilities)
    assert isinstance(user, Older)
    return user, Desk(here)


def called(user: Older, desk: Any, *, id: Any = None) -> Any:
    """The message that answers a call of the tool."""
    params = {"name": "tool", "arguments": {}}
    return user.client.send("tools/call", params, desk, id=id).message


def text(user: Older, desk: Any) -> str:
    """The text of a call's result."""
    return text_of(called(user, desk)["result"])


def ask() -> Flow[str]:
    """Ask one question."""
    return (yield from Elicit("Who?", str))


def sample() -> Flow[str]:
    """Ask for a message."""
    return (yield from Sample("Hi", max_tokens=5)).text


def both() -> Flow[str]:
    """Ask two questions at once."""
    one, other = yield from Gather(Elicit("One?", str), Elicit("Other?", str))
    return f"{one} {other}"


def outcome() -> Flow[str]:
    """Ask, and return what kind of outcome that has."""
    return type((yield from Outcome(Elicit("Who?", str)))).__name__


def impatient() -> Flow[str]:
    """Ask two questions, one of them with a limit.

    The limit ends the wait for both; the other one is then asked again. A question with a
    limit is in a race, and so it has no task.
    """
    who, soon = yield from Gather(Elicit("Who?", str), Within(10, Elicit("Soon?", str)))
    return f"{who} {soon}"


# ---- declared or not ----------------------------------------------------------------


def is_augmented(user: Older) -> bool:
    return "task" in user.client.asked[0].get("params", {})


#: Capabilities of a client, and whether forms and samplings may become tasks.
DECLARATIONS: Mapping[str, tuple[Any, bool, bool]] = {
    "nothing": (None, False, False),
    "no requests": ({"cancel": {}}, False, False),
    "empty": ({"requests": {}}, False, False),
    "both": (TASKS, True, True),
    "elicitation": ({"requests": {"elicitation": {"create": {}}}}, True, False),
    "sampling": ({"requests": {"sampling": {"createMessage": {}}}}, False, True),
    "tools, which are for servers": (
        {"requests": {"tools": {"call": {}}}},
        False,
        False,
    ),
    "null": ({"requests": {"elicitation": {"create": None}}}, False, False),
    "true": ({"requests": {"elicitation": {"create": True}}}, False, False),
    "a list": ({"requests": ["elicitation"]}, False, False),
    "a string": ("requests", False, False),
    "one level": ({"requests": {"elicitation": {}}}, False, False),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_question_has_task_where_the_client_declares_it(name: str) -> None:
    """ "Requestors SHOULD only augment requests with a task if the corresponding
    capability has been declared by the receiver" (Tasks, Capability Negotiation).
    """
    declared, elicits, samples = DECLARATIONS[name]
    for tool, is_wanted, said in ((ask, elicits, "who?"), (sample, samples, "sampled")):
        user, desk = seat(tool, capabilities={**EVERYTHING, "tasks": declared})
        assert text(user, desk) == said
        assert is_augmented(user) == is_wanted
        assert ("tasks/get" in desk.methods) == is_wanted


@pytest.mark.parametrize("wire", [OLDER, "2025-03-26"])
def test_question_of_an_older_revision_has_no_task(wire: str) -> None:
    tool = sample if wire == "2025-03-26" else ask
    user, desk = seat(tool, wire)
    assert text(user, desk) in ("sampled", "who?")
    assert not is_augmented(user)


def test_draft_is_asked_by_retry() -> None:
    """A question that is asked by retry cannot become a task of the client."""
    user, desk = seat(ask, DRAFT)
    found = called(user, desk)["result"]
    (question,) = found["inputRequests"].values()
    assert "task" not in question["params"]


def roots() -> Flow[str]:
    """Ask for roots, which are never a task."""
    return str(len((yield from ListRoots())))


@pytest.mark.parametrize("requests", [TASKS["requests"], {"": {}}, {"roots": {}}])
def test_question_of_another_kind_has_no_task(requests: Any) -> None:
    """The protocol has no such task, so the declaration of a client is ignored."""
    user, desk = seat(
        roots, capabilities={**EVERYTHING, "tasks": {"requests": requests}}
    )
    assert text(user, desk) == "0"


def test_question_keeps_its_other_params() -> None:
    message = {"id": 1, "method": "elicitation/create", "params": {"message": "Who?"}}
    found = with_task(message, DECLARED)
    assert found == {**message, "params": {"message": "Who?", "task": {}}}
    assert message["params"] == {"message": "Who?"}


# ---- following ----------------------------------------------------------------------


@pytest.mark.parametrize("tool", [ask, sample])
def test_task_is_polled_until_it_ends(tool: Callable[..., Any]) -> None:
    user, desk = seat(tool)
    assert text(user, desk) in ("who?", "sampled")
    assert desk.methods == ["tasks/get", "tasks/get", "tasks/result"]
    assert {id_ for _, _, id_ in desk.requests} == {"desk-1"}
    assert user.told == []
    times = [at for at, method, _ in desk.requests if method == "tasks/get"]
    assert times[1] - times[0] == pytest.approx(1.0)
    assert user.client.session._asked == {}


def test_client_that_ignores_task_is_not_polled() -> None:
    """ "Receivers that do not declare the task capability … ignoring any
    task-augmentation metadata": also some that do.
    """
    user, desk = seat(ask)
    desk.is_ignoring = True
    assert text(user, desk) == "who?"
    assert desk.requests == []


@pytest.mark.parametrize("is_mixed", [False, True])
def test_questions_of_a_gather_are_polled_together(is_mixed: bool) -> None:
    """Each batch of polls has one request for each task."""
    user, desk = seat(both)
    lives = {"One?": 1, "Other?": 4}
    desk.before = lambda question: setattr(
        desk, "polls", lives.get(question.get("params", {}).get("message"), 0)
    )
    if is_mixed:

        def answer(question: Wire) -> Wire | None:
            if question.get("params", {}).get("message") == "Other?":
                content = {"value": "at once"}
                return {"result": {"action": "accept", "content": content}}
            return desk(question)

        assert text(user, answer) == "one? at once"
        return
    assert text(user, desk) == "one? other?"
    ids = [id_ for _, method, id_ in desk.requests if method == "tasks/result"]
    assert ids == ["desk-1", "desk-2"]
    times = [at for at, method, id_ in desk.requests if id_ == "desk-2"]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ({"result": {"action": "decline"}}, "Declined"),
        ({"result": {"action": "cancel"}}, "Dismissed"),
        ({"error": {"code": -1, "message": "User rejected"}}, "Declined"),
        ({"result": {"action": "accept", "content": {"value": "x"}}}, "Accepted"),
    ],
    ids=repr,
)
def test_task_ends_as_the_question_would(said: Wire, ends: str) -> None:
    """ "exactly what the underlying request would have returned" (Result Retrieval)."""
    user, desk = seat(outcome)
    desk.said["Who?"] = said
    assert text(user, desk) == ends
    assert desk.methods[-1] == "tasks/result"


def test_answer_that_does_not_fit_is_asked_again_as_a_task() -> None:
    user, desk = seat(ask)
    content = {"other": 5}
    desk.said["Who?"] = {"result": {"action": "accept", "content": content}}

    def correct(question: Wire) -> None:
        if len(desk.questions) == 1 and question["method"] == "elicitation/create":
            desk.said.clear()

    desk.before = correct
    found = called(user, desk)["result"]
    assert not found.get("isError"), found
    assert len(desk.questions) == 2
    assert [one["params"]["task"] for one in desk.questions] == [{}, {}]


@pytest.mark.parametrize("code", [-32602, -32603, -1])
def test_error_of_a_poll_is_the_reply(code: int) -> None:
    """A client may forget its task; the server must not poll for ever."""
    user, desk = seat(outcome)

    def answer(question: Wire) -> Wire | None:
        if question["method"] == "tasks/get":
            desk(question)
            return {"error": {"code": code, "message": "Task not found"}}
        return desk(question)

    called(user, answer)
    assert desk.methods == ["tasks/get"]


# ---- intervals ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [
        (None, 1.0),
        (2_000, 2.0),
        (1, 0.1),
        (0, 1.0),
        (-5, 1.0),
        (0.5, 0.1),
        (10**15, 60.0),
        (1e300, 60.0),
        ("5", 1.0),
        (True, 1.0),
        ([], 1.0),
        ({}, 1.0),
    ],
    ids=repr,
)
def test_interval_is_that_of_the_client_within_limits(
    interval: Any, seconds: float
) -> None:
    """ "Requestors SHOULD respect the `pollInterval`": but it must not flood, nor stop,
    the server.
    """
    user, desk = seat(ask)
    desk.interval, desk.polls = interval, 3
    assert text(user, desk) == "who?"
    first, second, third = (
        at for at, method, _ in desk.requests if method == "tasks/get"
    )
    assert second - first == pytest.approx(seconds)
    assert third - second == pytest.approx(seconds)


@pytest.mark.parametrize("interval", [float("nan"), float("inf"), 10**400], ids=str)
def test_interval_that_no_json_has_is_not_a_reply(interval: Any) -> None:
    """The message is malformed, so the server waits for another one, until a cancel."""
    user, desk = seat(ask)

    def answer(question: Wire) -> Wire | None:
        desk.interval = interval if question["method"] == "tasks/get" else None
        return desk(question)

    desk.here.later.append(lambda: None)
    desk.here.later.append(
        lambda: user.client.notify("notifications/cancelled", {"requestId": 77})
    )
    assert called(user, answer, id=77) is None
    assert desk.methods in (["tasks/get", "tasks/cancel"], ["tasks/cancel"])


# ---- hostile clients ----------------------------------------------------------------

HOSTILE: tuple[Any, ...] = (
    {"task": {}},
    {"task": None},
    {"task": 5},
    {"task": []},
    {"task": {"taskId": None}},
    {"task": {"taskId": 5}},
    {"task": {"taskId": ["x"]}},
    {"taskId": "x"},
    5,
    [],
    None,
    {},
)


@pytest.mark.parametrize("said", HOSTILE, ids=repr)
def test_reply_without_an_id_is_a_plain_reply(said: Any) -> None:
    """The reply is not an answer, so the question is asked again; then it is answered."""
    user, desk = seat(ask)
    answers = iter([{"result": said}])
    desk.is_ignoring = True
    found = called(user, lambda one: next(answers, None) or desk(one))
    assert "result" in found
    assert desk.requests == []


@pytest.mark.parametrize(
    "described",
    [
        {"status": "unknown"},
        {"status": None},
        {"status": []},
        {"status": "cancelled"},
        {},
        5,
        None,
        [],
    ],
    ids=repr,
)
def test_unknown_status_ends_the_polling(described: Any) -> None:
    """Then the result tells: a client without one sends an error."""
    user, desk = seat(outcome)

    def answer(question: Wire) -> Wire | None:
        said = desk(question)
        return {"result": described} if question["method"] == "tasks/get" else said

    assert text(user, answer) == "Accepted"
    assert desk.methods == ["tasks/get", "tasks/result"]


@pytest.mark.parametrize("status", ["working", "input_required"])
def test_open_status_is_polled_further(status: str) -> None:
    user, desk = seat(ask)

    def answer(question: Wire) -> Wire | None:
        said = desk(question)
        if question["method"] == "tasks/get" and len(desk.requests) < 3:
            return {"result": {"status": status}}
        return said

    assert text(user, answer) == "who?"
    assert desk.methods == ["tasks/get"] * 3 + ["tasks/result"]


def test_result_that_names_a_task_again_is_not_followed() -> None:
    """Otherwise a client could keep a request alive with tasks of tasks."""
    user, desk = seat(outcome)

    def answer(question: Wire) -> Wire | None:
        said = desk(question)
        if question["method"] == "tasks/result":
            return {"result": {"task": {"taskId": "again"}}}
        return said

    called(user, lambda one: answer(one) if len(desk.questions) < 9 else {"error": {}})
    assert "again" not in {id_ for _, _, id_ in desk.requests}


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-5, 5)
        | st.sampled_from(["working", ""]),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["task", "taskId", "status", "pollInterval", "action"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    )
)
def test_any_reply_leaves_the_call_to_its_owner(said: Any) -> None:
    """A client may send anything to any request: the call fails, or waits, and a cancel
    ends it.
    """
    user, desk = seat(ask)

    def cancel() -> None:
        user.client.notify("notifications/cancelled", {"requestId": 77})

    desk.here.later.extend([*[lambda: None] * 5, cancel])
    found = called(user, lambda question: {"result": said}, id=77)
    assert found is None or "result" in found
    assert user.client.session._asked == {}
    assert not user.client.session.is_busy


# ---- time, and cancels --------------------------------------------------------------


def quick_again(desk: Desk) -> None:
    """Let the first task of a desk never end, and the others soon."""

    lives = iter([1_000])

    def before(question: Wire) -> None:
        if "task" in question["params"]:
            desk.polls = next(lives, 1)

    desk.before = before


def test_task_whose_time_is_up_is_cancelled() -> None:
    """The question is asked again, as any other question that is still needed."""
    user, desk = seat(impatient)
    quick_again(desk)
    began = desk.here.host.now
    assert text(user, desk) == "who? soon?"
    (cancelled,) = [one for one in desk.requests if one[1] == "tasks/cancel"]
    assert cancelled[0] - began == pytest.approx(10)
    assert cancelled[2] == "desk-1"
    messages = [one["params"]["message"] for one in desk.questions]
    assert messages == ["Who?", "Soon?", "Who?"]
    # The question itself was answered: with the task.
    assert user.told == []


def test_task_of_a_client_without_cancel_is_left() -> None:
    """ "`capabilities.tasks.cancel` controls if the `tasks/cancel` operation is supported
    by the party"; parties "only use capabilities that were successfully negotiated".
    """
    capabilities = {**EVERYTHING, "tasks": {"requests": TASKS["requests"]}}
    user, desk = seat(impatient, capabilities=capabilities)
    quick_again(desk)
    assert text(user, desk) == "who? soon?"
    assert "tasks/cancel" not in desk.methods


def test_only_the_tasks_that_run_are_cancelled() -> None:
    """An answer that is in counts, even if other answers are late."""

    def two() -> Flow[str]:
        one, other, _ = yield from Gather(
            Elicit("One?", str), Elicit("Other?", str), Within(10, Elicit("Soon?", str))
        )
        return f"{one} {other}"

    user, desk = seat(two)
    lives = iter([1, 1_000, 1])

    def before(question: Wire) -> None:
        if "task" in question["params"]:
            desk.polls = next(lives)

    desk.before = before
    assert text(user, desk) == "one? other?"
    cancelled = [id_ for _, method, id_ in desk.requests if method == "tasks/cancel"]
    assert cancelled == ["desk-2"]
    messages = [one["params"]["message"] for one in desk.questions]
    assert messages == ["One?", "Other?", "Soon?", "Other?"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result"])
def test_client_that_does_not_reply_to_a_poll_is_out_of_time(method: str) -> None:
    user, desk = seat(impatient)

    def answer(question: Wire) -> Wire | None:
        said = desk(question)
        is_first = len(desk.questions) == 2
        return None if question["method"] == method and is_first else said

    assert text(user, answer) == "who? soon?"
    mine = [name for _, name, id_ in desk.requests if id_ == "desk-1"]
    assert mine.count(method) == 1
    assert mine[-1] == "tasks/cancel"


@pytest.mark.parametrize("when", ["elicitation/create", "tasks/get", "tasks/result"])
def test_cancel_of_the_call_cancels_the_task(when: str) -> None:
    """While the server waits to poll, and while it polls."""
    ended: list[str] = []

    @step
    def note() -> None:
        ended.append("cleanup")

    def tidy() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            yield from note()

    user, desk = seat(tidy)

    def answer(question: Wire) -> Wire | None:
        said = desk(question)
        if question["method"] == when:
            user.client.notify("notifications/cancelled", {"requestId": 77})
            return said if when == "elicitation/create" else None
        return said

    assert called(user, answer, id=77) is None
    assert ended == ["cleanup"]
    if when != "elicitation/create":
        assert desk.methods[-1] == "tasks/cancel"
    assert user.client.session._asked == {}
    assert not user.client.session.is_busy


def test_cancel_between_two_polls_cancels_the_task() -> None:
    user, desk = seat(ask)
    desk.polls = 1_000

    def cancel() -> None:
        user.client.notify("notifications/cancelled", {"requestId": 77})

    desk.here.later.append(cancel)
    assert called(user, desk, id=77) is None
    assert desk.methods == ["tasks/cancel"]


def test_session_that_ends_ends_the_polling() -> None:
    user, desk = seat(ask)
    desk.polls = 1_000
    desk.here.later.append(user.client.session.close)
    assert called(user, desk) is None


# ---- races --------------------------------------------------------------------------


def racing() -> Flow[str]:
    """Ask two users; the first answer wins."""
    index, value = yield from FirstOf(Elicit("One?", str), Elicit("Other?", str))
    return f"{index}: {value}"


def test_races_are_never_augmented() -> None:
    """The first reply decides a race, and the reply of a task has no answer yet."""
    user, desk = seat(racing)

    def answer(question: Wire) -> Wire | None:
        return desk(question) if question["params"]["message"] == "Other?" else None

    assert text(user, answer) == "1: other?"
    for one in user.client.asked:
        assert "task" not in one["params"]
    assert desk.requests == []


def test_question_beside_a_race_is_augmented() -> None:
    def mixed() -> Flow[str]:
        found = yield from Gather(
            FirstOf(Elicit("One?", str), Elicit("Other?", str)), Elicit("Who?", str)
        )
        return str([*found])

    user, desk = seat(mixed)
    assert text(user, desk) == "[(0, 'one?'), 'who?']"
    with_tasks = {
        one["params"]["message"]
        for one in user.client.asked
        if "task" in one["params"] and "message" in one["params"]
    }
    assert with_tasks == {"Who?"}


# ---- the law ------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4))
def test_tasks_of_a_client_change_no_answer(lives: list[tuple[int, bool]]) -> None:
    """Each question is answered at once or after some polls: the result is the same, and
    the polls of a task are as many as it needs.
    """

    def many() -> Flow[str]:
        questions = [Elicit(f"Q{number}", str) for number in range(len(lives))]
        return " ".join((yield from Gather(*questions)))

    user, desk = seat(many)

    def before(question: Wire) -> None:
        message = question.get("params", {}).get("message")
        if message is not None:
            desk.polls, is_task = lives[int(message[1:])]
            desk.is_ignoring = not is_task

    desk.before = before
    assert text(user, desk) == " ".join(f"q{number}" for number in range(len(lives)))
    for number, (polls, is_task) in enumerate(lives):
        mine = [one for _, one, id_ in desk.requests if id_ == f"desk-{number + 1}"]
        assert mine == (["tasks/get"] * polls + ["tasks/result"] if is_task else [])
