from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
import weakref
from collections.abc import Callable, Generator
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Caller,
    CallerInfo,
    Checkpoint,
    Confirm,
    Declined,
    Detach,
    DivergenceError,
    Effect,
    Elicit,
    Flow,
    Gather,
    ListRoots,
    Log,
    Now,
    Outcome,
    Progress,
    Sample,
    Sleep,
    StateError,
    Status,
    Step,
    StepError,
    ToolError,
    UsageError,
    Version,
    step,
)
from effectmcp.drivers import sync
from effectmcp.engine import Done, Failure
from effectmcp.errors import KeysError, StateSizeError
from effectmcp.exchange.commands import (
    Invoke,
    Notify,
    Overdue,
    Peer,
    PerformAll,
    Reply,
)
from effectmcp.exchange.handle import handle
from effectmcp.lowlevel import InputRequired
from effectmcp.server import (
    Event,
    RequestBegan,
    RequestEnded,
    RoundBegan,
    RoundEnded,
    RoundRefused,
    Salvaged,
    Server,
    StepBegan,
    StepPerformed,
)

from ..wire import (
    EVERYTHING,
    KEYS,
    Wire,
    call,
    call_params,
    error,
    fits,
    fits_reply,
    meta,
    refused,
    request,
    result,
    said,
    send,
    text_of,
)

SAMPLED = {
    "role": "assistant",
    "content": {"type": "text", "text": "4"},
    "model": "test-model",
    "stopReason": "endTurn",
}
ROOTS = {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}


def serving(function: Callable[..., Any], **options: Any) -> Server:
    """A server with one tool, `tool`; options of either."""
    of_tool = {"requires", "timeout", "version", "input_schema"}
    app = Server(
        "shop",
        **{
            "keys": KEYS,
            **{name: one for name, one in options.items() if name not in of_tool},
        },
    )
    options = {name: one for name, one in options.items() if name in of_tool}
    app.tool(name="tool", **options)(function)
    return app


def interim(reply: Reply) -> Wire:
    fits_reply("tools/call", reply)
    found = result(reply)
    assert found["resultType"] == "input_required", found
    return found


def complete(reply: Reply) -> Wire:
    fits_reply("tools/call", reply)
    found = result(reply)
    assert found["resultType"] == "complete", found
    return found


def again(app: Server, asked: Wire, *contents: Any, **more: Any) -> Reply:
    """Return the same call, with the answers and the state."""
    answers = said(asked, *contents)
    state = asked["requestState"]
    return call(app, "tool", **{"answers": answers, "state": state, **more})


# ---- in several rounds --------------------------------------------------------------


def ask_name() -> Flow[str]:
    name = yield from Elicit("Who?", str, key="user_name")
    return f"Hello, {name}!"


def test_rounds_elicitation() -> None:
    app = serving(ask_name)
    asked = interim(call(app, "tool"))
    assert list(asked["inputRequests"]) == ["user_name"]
    assert asked["inputRequests"]["user_name"]["method"] == "elicitation/create"
    found = complete(again(app, asked, {"value": "Alice"}))
    assert text_of(found) == "Hello, Alice!"


def test_rounds_sampling() -> None:
    def think() -> Flow[str]:
        return (yield from Sample("2 + 2?")).text

    app = serving(think)
    asked = interim(call(app, "tool"))
    (key,) = asked["inputRequests"]
    assert asked["inputRequests"][key]["method"] == "sampling/createMessage"
    state = asked["requestState"]
    assert text_of(
        complete(call(app, "tool", answers={key: SAMPLED}, state=state))
    ) == ("4")


def test_rounds_list_roots() -> None:
    def roots() -> Flow[str]:
        return (yield from ListRoots())[0].uri

    app = serving(roots)
    asked = interim(call(app, "tool"))
    (key,) = asked["inputRequests"]
    assert asked["inputRequests"][key] == {"method": "roots/list"}
    found = call(app, "tool", answers={key: ROOTS}, state=asked["requestState"])
    assert text_of(complete(found)) == "file:///test/root"


def test_rounds_of_several_questions_at_once() -> None:
    def all_at_once() -> Flow[str]:
        name, sampled, roots = yield from Gather(
            Elicit("Who?", str), Sample("Hm."), ListRoots()
        )
        return f"{name} {sampled.text} {len(roots)}"

    app = serving(all_at_once)
    asked = interim(call(app, "tool"))
    assert isinstance(asked["requestState"], str)
    by_method = {one["method"]: key for key, one in asked["inputRequests"].items()}
    answers = {
        by_method["elicitation/create"]: {
            "action": "accept",
            "content": {"value": "Ann"},
        },
        by_method["sampling/createMessage"]: SAMPLED,
        by_method["roots/list"]: ROOTS,
    }
    found = call(app, "tool", answers=answers, state=asked["requestState"])
    assert text_of(complete(found)) == "Ann 4 1"


def test_rounds_of_a_partial_answer() -> None:
    """Received answers are kept, and only missing ones are asked again."""

    def both() -> Flow[list[str]]:
        return list((yield from Gather(Elicit("A?", str), Elicit("B?", str))))

    app = serving(both)
    asked = interim(call(app, "tool"))
    (a, ka), (b, _) = said(asked, {"value": "1"}, {"value": "2"}).items()
    asked = interim(call(app, "tool", answers={a: ka}, state=asked["requestState"]))
    assert list(asked["inputRequests"]) == [b]
    found = complete(again(app, asked, {"value": "2"}))
    assert found["structuredContent"] == ["1", "2"]


def test_rounds_one_after_the_other_have_states_of_their_own() -> None:
    def colours() -> Flow[str]:
        name = yield from Elicit("Who?", str)
        colour = yield from Elicit(f"Which colour, {name}?", str)
        return f"{name}: {colour}"

    app = serving(colours)
    first = interim(call(app, "tool"))
    second = interim(again(app, first, {"value": "Ann"}))
    assert first["requestState"] != second["requestState"]
    found = complete(again(app, second, {"value": "blue"}))
    assert text_of(found) == "Ann: blue"
    # The first state is still good: another answer to it is another call.
    other = interim(again(app, first, {"value": "Bob"}))
    assert "Bob" in str(other["inputRequests"])


def test_rounds_of_a_state_alone() -> None:
    def pause() -> Flow[str]:
        yield from Checkpoint()
        return "done"

    app = serving(pause)
    asked = interim(call(app, "tool"))
    assert asked["inputRequests"] == {}
    assert text_of(complete(call(app, "tool", state=asked["requestState"]))) == "done"


def test_round_with_answers_to_unasked_questions() -> None:
    """Cold: no earlier round, no state. Unknown keys are ignored."""
    app = serving(ask_name)
    answer = {"action": "accept", "content": {"value": "Ann"}}
    interim(call(app, "tool", answers={"wrong_key": answer}))
    answers = {"user_name": answer, "x": {}, "y": answer}
    assert text_of(complete(call(app, "tool", answers=answers))) == "Hello, Ann!"
    app = serving(ask_name, early_answers=False)
    interim(call(app, "tool", answers=answers))


@pytest.mark.parametrize("answer", [{}, {"action": "accept"}, {"action": "perhaps"}])
def test_round_with_an_answer_that_does_not_fit(answer: Any) -> None:
    app = serving(ask_name)
    interim(call(app, "tool", answers={"user_name": answer}))
    asked = interim(call(app, "tool"))
    state = asked["requestState"]
    asked = interim(call(app, "tool", answers={"user_name": answer}, state=state))
    (question,) = asked["inputRequests"].values()
    assert "Your last answer did not fit:" in question["params"]["message"]


@pytest.mark.parametrize("answers", [[1], {"user_name": 12345}, {"user_name": None}])
def test_round_with_answers_of_invalid_types_is_refused(answers: Any) -> None:
    app = serving(ask_name)
    assert refused(call(app, "tool", answers=answers)) == (200, -32602)
    params = {"name": "tool", "inputResponses": None}
    interim(send(app, "tools/call", params))


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "server/discover"])
def test_round_of_a_method_that_may_not_ask(method: str) -> None:
    """Answers and a state are ignored."""
    app = serving(ask_name)
    app.prompt(ask_name)
    asked = interim(call(app, "tool"))
    more = {"inputResponses": {}, "requestState": asked["requestState"]}
    reply = send(app, method, more)
    fits_reply(method, reply)
    assert result(reply)["resultType"] == "complete"


def test_round_with_an_answer_nested_too_deep() -> None:
    """Within the message's limit and beyond the journal's."""
    deep: Any = {}
    for _ in range(62):
        deep = {"a": deep}

    def think() -> Flow[str]:
        return (yield from Sample("Hm.", key="s")).text

    app = serving(think)
    sampled = {**SAMPLED, "content": {"type": "text", "text": "", "a": deep}}
    asked = interim(call(app, "tool", answers={"s": sampled}))
    state = asked["requestState"]
    asked = interim(call(app, "tool", answers={"s": sampled}, state=state))
    assert "did not fit" not in str(asked["inputRequests"])  # sampling has no words


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("[" * 64 + "]" * 64, "must not be nested deeper than 64 levels"),
        ("9" * 4100, "a: must be a number of at most 4,000 digits"),
    ],
    ids=["deep", "long"],
)
def test_arguments_that_are_json_and_could_not_be_kept(
    argument: str, words: str
) -> None:
    """The frame around them is allowed more than what a state has room for."""

    def ask(a: Any) -> Flow[str]:
        return (yield from Elicit("Sure?", str))

    message = request("tools/call", call_params("tool", {"a": "it"}))
    text = json.dumps(message).replace('"it"', argument)
    got = complete(sync.handle(serving(ask), text))
    assert got["isError"]
    assert words in text_of(got)


def test_round_of_a_user_who_declines() -> None:
    app = serving(ask_name)
    for action, words in (("decline", "declined"), ("cancel", "dismissed")):
        asked = interim(call(app, "tool"))
        answers = {"user_name": {"action": action}}
        state = asked["requestState"]
        found = complete(call(app, "tool", answers=answers, state=state))
        assert found["isError"] is True
        assert words in text_of(found)


def test_rounds_beyond_the_limit() -> None:
    def forever() -> Flow[str]:
        for number in range(99):
            yield from Confirm(f"{number}?")
        return "never"

    app = serving(forever, rounds=2)
    asked = interim(call(app, "tool"))
    asked = interim(again(app, asked, None))
    found = complete(again(app, asked, None))
    assert found["isError"] is True
    assert "A call may ask in 2 rounds" in text_of(found)


# ---- states -------------------------------------------------------------------------


def test_state_that_was_tampered_with() -> None:
    app = serving(ask_name)
    asked = interim(call(app, "tool"))
    state = asked["requestState"]
    wrongs: list[Any] = [f"{state}-TAMPERED", state[:-1], "", "x", 5, [state], {}]
    for wrong in wrongs:
        reply = again(app, asked, {"value": "Ann"}, state=wrong)
        assert refused(reply) == (200, -32602)
        assert error(reply) == {
            "code": -32602,
            "message": "Invalid or expired requestState",
        }


def test_state_of_another_user() -> None:
    app = serving(ask_name)
    params = call_params("tool")
    asked = interim(send(app, "tools/call", params, peer=Peer(principal="ann")))
    params = {**params, "requestState": asked["requestState"]}
    for peer in (Peer(principal="bob"), Peer(), None):
        assert refused(send(app, "tools/call", params, peer=peer)) == (200, -32602)
    interim(send(app, "tools/call", params, peer=Peer(principal="ann")))


def test_state_of_another_call() -> None:
    def greet(greeting: str = "Hello") -> Flow[str]:
        return greeting + (yield from Elicit("Who?", str))

    app = serving(greet)
    app.tool(name="other")(greet)
    asked = interim(call(app, "tool", arguments={"greeting": "Hi"}))
    state = asked["requestState"]
    assert refused(call(app, "tool", state=state)) == (200, -32602)
    other = call(app, "other", arguments={"greeting": "Hi"}, state=state)
    assert refused(other) == (200, -32602)
    interim(call(app, "tool", arguments={"greeting": "Hi"}, state=state))


def test_state_for_a_function_that_never_asks() -> None:
    app = serving(lambda: "x")
    assert refused(call(app, "tool", state="x")) == (200, -32602)


def test_state_without_keys() -> None:
    app = serving(ask_name, keys=None)
    assert refused(call(app, "tool", state="x")) == (200, -32602)


def test_question_without_keys(caplog: pytest.LogCaptureFixture) -> None:
    """The log informs the operator; the client learns no details."""
    app = serving(ask_name, keys=None)
    with caplog.at_level(logging.ERROR):
        found = complete(call(app, "tool"))
    assert found["isError"] is True
    assert text_of(found).startswith("Internal error: tool failed")
    assert "effectmcp keygen" in caplog.text


# ---- what a client can be asked -----------------------------------------------------


def test_client_that_lacks_what_a_tool_requires() -> None:
    app = serving(ask_name, requires=[Sample])
    reply = call(app, "tool", capabilities={"elicitation": {}})
    assert refused(reply) == (400, -32021)
    assert error(reply)["data"]["requiredCapabilities"] == {"sampling": {}}
    interim(call(app, "tool", capabilities=EVERYTHING))


def test_client_that_lacks_what_a_handler_asks() -> None:
    """Q4: uncaught, it becomes -32021."""
    app = serving(ask_name)
    reply = call(app, "tool", capabilities={"sampling": {}})
    assert refused(reply) == (400, -32021)
    required: Wire = {"elicitation": {"form": {}}}
    assert error(reply)["data"]["requiredCapabilities"] == required


def test_client_that_samples_without_tools() -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}}

    def think() -> Flow[str]:
        return (yield from Sample("Hm.", tools=[tool])).text

    reply = call(serving(think), "tool", capabilities={"sampling": {}})
    assert refused(reply) == (400, -32021)
    assert error(reply)["data"]["requiredCapabilities"] == {"sampling": {"tools": {}}}


def test_client_is_asked_only_what_it_can_be() -> None:
    def any_way() -> Flow[str]:
        sampled = yield from Sample("Hm.", otherwise=None)
        name = yield from Elicit("Who?", str, otherwise="nobody")
        return f"{name} {sampled and sampled.text}"

    app = serving(any_way)
    asked = interim(call(app, "tool", capabilities={"sampling": {}}))
    methods = [one["method"] for one in asked["inputRequests"].values()]
    assert methods == ["sampling/createMessage"]
    answers = dict.fromkeys(asked["inputRequests"], SAMPLED)
    state = asked["requestState"]
    reply = call(
        app, "tool", answers=answers, state=state, capabilities={"sampling": {}}
    )
    assert text_of(complete(reply)) == "nobody 4"


def test_detach_is_for_tools() -> None:
    """A prompt cannot become a task."""

    def detached() -> Flow[str]:
        yield from Detach()
        return "x"

    app = serving(detached)
    app.prompt(name="prompt")(detached)
    assert text_of(complete(call(app, "tool"))) == "x"
    assert refused(send(app, "prompts/get", {"name": "prompt"})) == (200, -32603)


# ---- events for handlers ------------------------------------------------------------


def test_caller_describes_the_client() -> None:
    heard: list[CallerInfo] = []

    def tool() -> Flow[None]:
        heard.append((yield from Caller()))

    app = serving(tool)
    client = {"name": "c", "version": "1"}
    send(
        app,
        "tools/call",
        {"name": "tool"},
        peer=Peer(principal="ann"),
        client=client,
        progressToken="t",
    )
    (caller,) = heard
    assert attrs.evolve(caller, flow_id="") == CallerInfo(
        principal="ann",
        client="c 1",
        era="modern",
        protocol_version="2026-07-28",
        progress_token="t",
        flow_id="",
    )
    assert len(caller.flow_id or "") == 32


def test_caller_beside_a_step() -> None:
    """One is answered here, the other performed; they are one wave."""

    def tool() -> Flow[list[Any]]:
        one, two = yield from Gather(Caller(), Step(len, "abc"))
        return [one.era, two]

    app = serving(tool)
    assert complete(call(app, "tool"))["structuredContent"] == ["modern", 3]


# ---- notifications ------------------------------------------------------------------


def heard_of(app: Server, **more: Any) -> list[Wire]:
    """The notifications of one call."""
    heard: list[Any] = []
    call(app, "tool", notify=heard.append, **more)
    for message in heard:
        fits("ServerNotification", message)
    return [message["params"] for message in heard]


def test_progress_needs_a_progress_token() -> None:
    def tool() -> Flow[None]:
        for done in (0, 50, 100):
            yield from Progress(done, 100, f"{done} %")

    app = serving(tool)
    assert heard_of(app) == []
    assert heard_of(app, progressToken="t") == [
        {"progressToken": "t", "progress": done, "total": 100, "message": f"{done} %"}
        for done in (0, 50, 100)
    ]
    assert heard_of(app, progressToken=0)[0]["progressToken"] == 0


def test_progress_only_rises() -> None:
    def tool() -> Flow[None]:
        for done in (1.0, 1.0, 0.5, 2.0):
            yield from Progress(done)
        with pytest.raises(UsageError):
            yield from Progress(float("nan"))  # nothing is more than that
        yield from Progress(1.5)

    said_ = heard_of(serving(tool), progressToken="t")
    assert [one["progress"] for one in said_] == [1.0, 2.0]
    assert "total" not in said_[0]


def logs() -> Flow[None]:
    yield from Log("debug", "a")
    yield from Log("warning", {"b": [1, (2, 3)]}, "mine")
    yield from Log("emergency", None)


def test_logs_are_for_who_asked_at_what_level() -> None:
    app = serving(logs)
    assert heard_of(app) == []
    assert heard_of(app, log_level="debug")[0] == {"level": "debug", "data": "a"}
    assert heard_of(app, log_level="warning") == [
        {"level": "warning", "data": {"b": [1, [2, 3]]}, "logger": "mine"},
        {"level": "emergency", "data": None},
    ]
    assert len(heard_of(app, log_level="emergency")) == 1


def test_status_is_a_log_without_tasks() -> None:
    def tool() -> Flow[None]:
        yield from Detach()
        yield from Status("packing")

    app = serving(tool)
    assert heard_of(app, log_level="info") == [{"level": "info", "data": "packing"}]
    assert heard_of(app, log_level="notice") == []


def test_notification_that_cannot_be_sent_does_not_fail_the_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def tool() -> Flow[str]:
        yield from Log("info", "\ud800")
        yield from Log("info", float("nan"))
        yield from Progress(1, message="\ud800")
        yield from Log("info", "fine")
        return "done"

    with caplog.at_level(logging.WARNING):
        heard = heard_of(serving(tool), log_level="info", progressToken="t")
    assert heard == [{"level": "info", "data": "fine"}]
    assert caplog.text.count("is not sent") == 3


def test_notifications_are_muted_in_a_replay() -> None:
    """V5: until the first new answer."""

    def tool() -> Flow[str]:
        yield from Log("info", "before")
        name = yield from Elicit("Who?", str)
        yield from Log("info", "after")
        return name

    app = serving(tool)
    heard: list[Any] = []
    asked = interim(call(app, "tool", notify=heard.append, log_level="info"))
    again(app, asked, {"value": "Ann"}, notify=heard.append, log_level="info")
    again(app, asked, {"value": 5}, notify=heard.append, log_level="info")
    assert [one["params"]["data"] for one in heard] == ["before", "after"]


def test_notifications_come_before_what_follows_them() -> None:
    order: list[Any] = []

    def tool() -> Flow[None]:
        yield from Log("info", "first")
        yield from Step(order.append, "step")
        yield from Log("info", "last")

    def note(message: Any) -> None:
        order.append(message["params"]["data"])

    call(serving(tool), "tool", notify=note, log_level="info")
    assert order == ["first", "step", "last"]


def test_effect_without_a_notification_is_a_type_error() -> None:
    """The engine emits three kinds; another one would be a bug in effectmcp."""
    from effectmcp.exchange.rounds import _Progress
    from effectmcp.protocol.meta import Meta

    with pytest.raises(TypeError, match="cannot be sent to a client"):
        _Progress(Meta("2026-07-28", {})).message(Now())


# ---- the commands, one by one -------------------------------------------------------


def exchange_of(
    function: Callable[..., Any], *, clock: float = 0.0, **options: Any
) -> Generator[Any, Any, Reply]:
    app = serving(function, **options)
    message = request("tools/call", {"name": "tool"})
    return handle(app, message, clock=lambda: clock, entropy=lambda n: bytes(n))


def end_of(exchange: Generator[Any, Any, Reply], outcome: Any) -> Reply:
    go_on = exchange.throw if isinstance(outcome, Exception) else exchange.send
    with pytest.raises(StopIteration) as end:
        go_on(outcome)
    reply: Reply = end.value.value
    return reply


@pytest.mark.parametrize("kind", ["effect", "flow"])
def test_plain_function_that_returns_an_effect_or_a_flow(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an annotation the server cannot know that it must be replayed."""

    def ask() -> Any:
        return Elicit("Who?", str) if kind == "effect" else ask_name()

    found = complete(
        sync.handle(serving(ask), request("tools/call", call_params("tool")))
    )
    assert found["isError"]
    assert "a forgotten `yield from`? A function that asks is annotated" in caplog.text


def test_plain_function_that_gives_no_value(caplog: pytest.LogCaptureFixture) -> None:
    """A generator is not always a flow."""
    app = serving(lambda: (one for one in "abc"))
    assert complete(sync.handle(app, request("tools/call", call_params("tool"))))[
        "isError"
    ]
    assert "is of type generator, which JSON cannot express" in caplog.text


def test_plain_function_is_invoked() -> None:
    exchange = exchange_of(lambda: "x", timeout=5, clock=100.0)
    command = next(exchange)
    assert isinstance(command, Invoke)
    assert (command.kwargs, command.is_async, command.deadline) == ({}, False, 105.0)
    assert text_of(complete(end_of(exchange, Done("x")))) == "x"


def test_async_function_is_invoked_on_the_loop() -> None:
    async def tool() -> str:
        raise AssertionError("nobody awaits it")

    command = next(exchange_of(tool))
    assert isinstance(command, Invoke)
    assert (command.is_async, command.deadline) == (True, None)


@pytest.mark.parametrize(
    ("options", "deadline"),
    [
        ({}, None),
        ({"timeout": 5}, 105.0),
        ({"timeout": 0.5}, 100.5),
    ],
)
def test_deadline_of_a_feature(options: Any, deadline: float | None) -> None:
    def tool() -> Flow[int]:
        return (yield from Step(len, ""))

    command = next(exchange_of(tool, clock=100.0, **options))
    assert isinstance(command, PerformAll)
    assert command.deadline == deadline


def test_deadline_of_a_server_and_of_a_feature() -> None:
    app = Server("shop", timeout=7)
    app.tool(name="a")(lambda: "")
    app.tool(name="b", timeout=0.5)(lambda: "")
    for name, deadline in (("a", 107.0), ("b", 100.5)):
        message = request("tools/call", {"name": name})
        command = next(handle(app, message, clock=lambda: 100.0, entropy=bytes))
        assert isinstance(command, Invoke)
        assert command.deadline == deadline


def test_deadline_passed() -> None:
    for function in (lambda: "x", steps):
        exchange = exchange_of(function, timeout=1)
        next(exchange)
        found = complete(end_of(exchange, Overdue()))
        assert found["isError"] is True
        assert text_of(found) == "tool took too long, and was ended."


def test_timeout_error_that_is_not_the_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For example the database's: the log reports it."""
    for outcome in (TimeoutError("database"), Failure(TimeoutError("database"))):
        exchange = exchange_of(lambda: "x", timeout=1)
        next(exchange)
        found = complete(end_of(exchange, outcome))
        assert text_of(found).startswith("Internal error: tool failed")
    assert caplog.text.count("TimeoutError: database") == 2


def steps() -> Flow[int]:
    return (yield from Step(len, "abc"))


def test_step_that_cannot_be_performed_here(caplog: pytest.LogCaptureFixture) -> None:
    """The driver handles it: thrown into the exchange, not an outcome of the step."""
    caught: list[BaseException] = []

    def tool() -> Flow[int]:
        try:
            return (yield from Step(len, "abc"))
        except Exception as exc:
            caught.append(exc)
            return 0

    exchange = exchange_of(tool)
    next(exchange)
    with caplog.at_level(logging.ERROR):
        found = complete(end_of(exchange, StepError("nothing is provided")))
    assert text_of(found).startswith("Internal error: tool failed")
    assert "nothing is provided" in caplog.text
    assert caught == []


def test_function_that_raises() -> None:
    exchange = exchange_of(lambda: "x")
    next(exchange)
    found = complete(end_of(exchange, Failure(ToolError("sold out"))))
    assert (text_of(found), found["isError"]) == ("sold out", True)


@step
def pay(amount: int) -> str:
    return f"paid {amount}"


class Witness:
    """Lives as long as the generator that holds it."""


@pytest.mark.parametrize(
    "error", [StepError("nothing is provided"), OSError("oh"), RuntimeError("a bug")]
)
def test_driver_that_cannot_perform(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler receives no exception that it raises."""
    caught: list[BaseException] = []

    def tool() -> Flow[int]:
        try:
            return (yield from Step(len, "abc"))
        except Exception as exc:
            caught.append(exc)
            return 0

    for function in (tool, lambda: "x"):
        exchange = exchange_of(function)
        next(exchange)
        found = complete(end_of(exchange, error))
        assert text_of(found).startswith("Internal error: tool failed")
    assert caplog.text.count(str(error)) >= 2
    assert caught == []


@pytest.mark.parametrize(
    "error", [SystemExit(2), GeneratorExit(), asyncio.CancelledError()], ids=repr
)
@pytest.mark.parametrize("is_late", [False, True])
def test_handler_that_would_end_the_server(
    error: BaseException, is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def tool() -> Flow[None]:
        if is_late:
            yield from Step(len, "abc")
        raise error

    app, events = watched(tool)
    found = complete(call(app, "tool"))
    assert text_of(found).startswith("Internal error: tool failed")
    assert f"raised {type(error).__name__}" in caplog.text
    ended = events[-1]
    assert isinstance(ended, RoundEnded)
    assert ended.outcome == "raised"
    assert ended.error is not None
    assert ended.error.__cause__ is error


def test_handler_that_is_interrupted() -> None:
    def tool() -> Flow[None]:
        yield from Now()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(serving(tool), "tool")


@pytest.mark.parametrize("end", ["close", "timeout", "asked", "returned", "raised"])
def test_no_generator_is_left(end: str) -> None:
    """L4: suspended, with no effects performed."""
    alive: list[Any] = []
    performed: list[str] = []

    def tool() -> Flow[str]:
        witness = Witness()
        alive.append(weakref.ref(witness))
        try:
            yield from pay(1)
            if end == "raised":
                raise ToolError("oh")
            if end == "asked":
                yield from Elicit("Who?", str)
            return "done"
        finally:
            performed.append("cleanup")
            yield from Step(performed.append, "refunded")

    exchange = exchange_of(tool)
    command = next(exchange)
    match end:
        case "close":
            exchange.close()
        case "timeout":
            end_of(exchange, Overdue())
        case _:
            (want,) = command.wants
            outcome: Any = {want.key: Done("paid 1")}
            if end == "asked":
                end_of(exchange, outcome)
            else:
                command = exchange.send(outcome)
                (want,) = command.wants
                assert want.effect.args == ("refunded",)
                end_of(exchange, {want.key: Done(None)})
    del exchange, command
    gc.collect()
    assert [one() for one in alive] == [None]
    assert performed == ["cleanup"]


# ---- events -------------------------------------------------------------------------


_OF_ROUNDS = (RoundBegan, RoundEnded, RoundRefused, Salvaged, StepPerformed)


def watched(function: Callable[..., Any], **options: Any) -> tuple[Server, list[Event]]:
    events: list[Event] = []

    def hear(event: Event) -> None:
        # The others have tests of their own, in `test_events.py`.
        if isinstance(event, _OF_ROUNDS):
            events.append(event)

    return serving(function, observers=[hear], **options), events


def test_events_of_two_rounds() -> None:
    app, events = watched(ask_name)
    asked = interim(call(app, "tool", traceparent="00-4bf9-00f0-01"))
    complete(again(app, asked, {"value": "Ann"}))
    began, ended, began_again, ended_again = events
    assert isinstance(began, RoundBegan)
    flow_id = began.flow_id
    assert began == RoundBegan(
        number=began.number,
        method="tools/call",
        target="tool",
        arguments={},
        capabilities=began.capabilities,
        flow_id=flow_id,
        trace="00-4bf9-00f0-01",
        first_trace="00-4bf9-00f0-01",
        round=1,
        is_first=True,
    )
    assert "elicitation" in began.capabilities
    assert isinstance(ended, RoundEnded)
    assert ended.journal is not None
    assert [one.place for one in ended.journal.asked.values()] == ["user_name"]
    assert ended == RoundEnded(
        number=began.number,
        flow_id=flow_id,
        outcome="asked",
        round=1,
        asked=1,
        state_size=len(asked["requestState"]),
        journal=ended.journal,
    )
    assert isinstance(began_again, RoundBegan)
    assert began_again == attrs.evolve(
        began, number=began_again.number, trace=None, round=2, is_first=False
    )
    assert isinstance(ended_again, RoundEnded)
    assert ended_again.journal is not None
    assert [one.tag for one in ended_again.journal.entries] == ["accepted"]
    assert ended_again == RoundEnded(
        number=began_again.number,
        flow_id=flow_id,
        outcome="returned",
        round=2,
        journal=ended_again.journal,
    )


def test_events_of_a_handler_that_raises() -> None:
    def tool() -> Flow[None]:
        yield from Now()
        raise ToolError("oh")

    app, events = watched(tool)
    complete(call(app, "tool"))
    ended = events[-1]
    assert isinstance(ended, RoundEnded)
    assert ended.outcome == "raised"
    assert isinstance(ended.error, ToolError)


def large() -> str:
    return "x" * 70_000


def too_large() -> Flow[str]:
    yield from Step(large)
    return (yield from Elicit("Who?", str))


def test_events_of_a_round_beyond_the_limit() -> None:
    """No state may leave such a round, so observers get no journal either."""

    def forever() -> Flow[str]:
        while True:
            yield from Confirm("More?")

    app, events = watched(forever, rounds=1)
    complete(again(app, interim(call(app, "tool")), None))
    ended = events[-1]
    assert isinstance(ended, RoundEnded)
    assert (ended.outcome, ended.journal) == ("raised", None)


def test_events_of_a_state_that_is_too_large() -> None:
    app, events = watched(too_large)
    assert complete(call(app, "tool"))["isError"] is True
    ended = events[-1]
    assert isinstance(ended, RoundEnded)
    assert ended.outcome == "raised"
    assert isinstance(ended.error, StateSizeError)


def test_events_of_a_question_without_keys() -> None:
    app, events = watched(ask_name, keys=None)
    assert complete(call(app, "tool"))["isError"] is True
    ended = events[-1]
    assert isinstance(ended, RoundEnded)
    assert ended.outcome == "raised"
    assert isinstance(ended.error, KeysError)


@pytest.mark.parametrize("error", [Overdue(), StepError("no pool")], ids=repr)
def test_events_of_what_a_driver_throws(error: Exception) -> None:
    events: list[Event] = []
    exchange = exchange_of(steps, observers=[events.append])
    next(exchange)
    end_of(exchange, error)
    ended, over = events[-2:]
    assert isinstance(ended, RoundEnded)
    assert isinstance(over, RequestEnded)
    assert over.outcome == "failed"
    assert (ended.outcome, ended.error) == ("raised", error)


def test_events_of_steps() -> None:
    """The list has performed effects; a replay is fed their recorded values."""

    def failing() -> None:
        raise OSError("oh")

    def tool() -> Flow[str]:
        yield from Gather(Step(len, "abc"), Now(), Caller())
        try:
            yield from Step(failing)
        except OSError:
            pass
        return (yield from Elicit("Who?", str))

    app, events = watched(tool)
    times = iter(range(1_000))

    def clocked(message: Wire) -> Reply:
        began = time.time()
        exchange = handle(
            app, message, clock=lambda: began + next(times), entropy=lambda n: bytes(n)
        )
        command: Any = next(exchange)
        try:
            while True:
                outcome = {want.key: sync.perform(want) for want in command.wants}
                command = exchange.send(outcome)
        except StopIteration as end:
            reply: Reply = end.value
            return reply

    asked = interim(clocked(request("tools/call", {"name": "tool"})))
    began, first, second, ended = events
    assert isinstance(began, RoundBegan)
    assert isinstance(first, StepPerformed)
    assert isinstance(second, StepPerformed)
    assert isinstance(ended, RoundEnded)
    assert first.seconds == pytest.approx(1)
    assert first == StepPerformed(
        flow_id=began.flow_id,
        key=first.key,
        name="builtins:len",
        seconds=first.seconds,
        number=began.number,
    )
    assert second.name.endswith("failing")
    assert isinstance(second.error, OSError)
    events.clear()
    complete(again(app, asked, {"value": "Ann"}))
    assert [type(one) for one in events] == [RoundBegan, RoundEnded]


def test_events_of_a_state_that_is_refused() -> None:
    app, events = watched(ask_name)
    asked = interim(call(app, "tool"))
    events.clear()
    for state, reason in (
        (asked["requestState"][:-4] + "AAAA", "forged"),
        ("x", "malformed"),
    ):
        assert refused(call(app, "tool", state=state)) == (200, -32602)
        (event,) = events
        assert isinstance(event, RoundRefused)
        assert (event.method, event.target) == ("tools/call", "tool")
        assert isinstance(event.error, StateError)
        assert event.error.reason == reason
        events.clear()


def test_events_of_a_state_that_no_key_opens() -> None:
    """The client sends a state although this server has no key."""
    app, events = watched(ask_name, keys=None)
    assert refused(call(app, "tool", state="x")) == (200, -32602)
    (event,) = events
    assert isinstance(event, RoundRefused)


def test_events_of_a_client_that_is_gone() -> None:
    """Without a journal: its round was not answered, so no client has that state."""
    events: list[Event] = []
    exchange = exchange_of(steps, observers=[events.append])
    next(exchange)
    exchange.close()
    _, began, step_began, ended, over = events
    assert isinstance(began, RoundBegan)
    assert isinstance(step_began, StepBegan)
    assert isinstance(over, RequestEnded)
    assert over.outcome == "dropped"
    assert ended == RoundEnded(
        number=began.number,
        flow_id=began.flow_id,
        outcome="dropped",
        round=1,
        journal=None,
    )


def test_events_of_a_handler_that_changed(caplog: pytest.LogCaptureFixture) -> None:
    """Salvaged: the answer is kept, and the log reports what changed."""

    def before() -> Flow[str]:
        name = yield from Elicit("Who?", str)
        yield from Elicit("When?", str)
        return name

    def after() -> Flow[str]:
        yield from Elicit("Where?", str)
        return (yield from Elicit("Who?", str))

    app, events = watched(before)
    asked = interim(call(app, "tool"))
    asked = interim(again(app, asked, {"value": "Ann"}))
    app.remove(app.tools["tool"])
    app.tool(name="tool")(after)
    with caplog.at_level(logging.WARNING):
        asked = interim(call(app, "tool", state=asked["requestState"]))
    assert any(isinstance(one, Salvaged) for one in events)
    assert "Where?" in str(asked["inputRequests"])
    assert "tool: " in caplog.text
    assert text_of(complete(again(app, asked, {"value": "here"}))) == "Ann"


def test_handler_that_changed_too_much() -> None:
    def before() -> Flow[str]:
        yield from pay(5)
        return (yield from Elicit("Who?", str))

    def after() -> Flow[str]:
        return (yield from Elicit("Where?", str))

    app, events = watched(before)
    asked = interim(call(app, "tool"))
    app.remove(app.tools["tool"])
    app.tool(name="tool", version="2")(after)
    events.clear()
    found = complete(again(app, asked, {"value": "Ann"}))
    assert found["isError"] is True
    assert text_of(found) == (
        "The server changed while this call was in progress; start again."
    )
    (event,) = events
    assert isinstance(event, RoundRefused)
    assert isinstance(event.error, DivergenceError)
    assert str(event.error.report) in str(event.error)


def test_observer_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    def failing(event: Event) -> None:
        raise OSError("no disk")

    with caplog.at_level(logging.ERROR):
        interim(call(serving(ask_name, observers=[failing]), "tool"))
    assert caplog.text.count("an observer failed") == 5


ASKS: list[Any] = [
    ("tools/call", {"name": "tool"}, "result"),
    ("tools/call", {"name": "none"}, "error"),
    ("tools/list", {}, "result"),
    ("no/such", {}, "error"),
]


@pytest.mark.parametrize(("method", "params", "outcome"), ASKS)
def test_events_of_any_request(method: str, params: Any, outcome: str) -> None:
    def tool() -> str:
        return "done"

    events: list[Event] = []
    app = serving(tool, observers=[events.append])
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {**params, "_meta": meta()},
    }
    for _ in range(2):
        sync.handle(app, message, Peer(principal="ann"))
    began, ended, again, _ = events
    assert isinstance(began, RequestBegan)
    assert isinstance(ended, RequestEnded)
    assert isinstance(again, RequestBegan)
    assert (began.method, began.principal) == (method, "ann")
    assert began.revision == "2026-07-28"
    assert (ended.number, ended.method, ended.outcome) == (
        began.number,
        method,
        outcome,
    )
    assert again.number > began.number


def test_events_of_a_tool_that_fails() -> None:
    def tool() -> str:
        raise ToolError("no more")

    events: list[Event] = []
    call(serving(tool, observers=[events.append]), "tool")
    (_, ended) = events
    assert isinstance(ended, RequestEnded)
    assert ended.outcome == "failed"


# ---- odds and ends ------------------------------------------------------------------


def test_async_function_that_awaits_effects_unmarked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error states what to write; other errors of a function are its own."""

    async def unmarked() -> str:
        return await Elicit("Who?", str)

    async def failing() -> str:
        raise RuntimeError("of its own")

    for function, words in ((unmarked, "@awaits_effects"), (failing, "of its own")):
        message = request("tools/call", {"name": "tool"})
        with caplog.at_level(logging.ERROR):
            reply = sync.handle(serving(function), message, run_async=asyncio.run)
        assert complete(reply)["isError"] is True
        assert words in caplog.text
        caplog.clear()


def test_questions_of_a_function_without_the_annotation_are_not_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a result it would show its state to the client."""

    def tool() -> Any:
        return InputRequired({}, state="secret")

    with caplog.at_level(logging.ERROR):
        found = complete(call(serving(tool), "tool"))
    assert found["isError"] is True
    assert "secret" not in str(found)
    assert "its annotation does not show that" in caplog.text


def test_sleep_after_detach_waits() -> None:
    def tool() -> Flow[str]:
        yield from Detach()
        yield from Sleep(0)
        return "awake"

    assert text_of(complete(call(serving(tool), "tool"))) == "awake"


@pytest.mark.parametrize("effect", [Sleep(0), Status("x")], ids=repr)
def test_what_belongs_after_detach(effect: Effect[Any]) -> None:
    def tool() -> Flow[str]:
        yield from effect
        return "x"

    assert complete(call(serving(tool), "tool"))["isError"] is True


def test_outcome_and_version() -> None:
    def tool() -> Flow[str]:
        fee = yield from Version("fee", default=0, latest=2)
        match (yield from Outcome(Elicit("Who?", str))):
            case Accepted(name):
                return f"{name} pays {fee}"
            case Declined():
                return "declined"
            case _:
                return "dismissed"

    app = serving(tool)
    asked = interim(call(app, "tool"))
    assert text_of(complete(again(app, asked, {"value": "Ann"}))) == "Ann pays 2"


def test_notify_is_a_command() -> None:
    exchange = handle(
        serving(logs),
        request("tools/call", {"name": "tool"}, log_level="debug"),
        clock=lambda: 0.0,
        entropy=lambda n: bytes(n),
    )
    command: Any = next(exchange)
    said_ = []
    try:
        while True:
            assert isinstance(command, Notify)
            said_.append(command.message["params"]["level"])
            command = exchange.send(None)
    except StopIteration:
        pass
    assert said_ == ["debug", "warning", "emergency"]


def test_sync_driver_is_what_tests_here_use() -> None:
    reply = sync.handle(serving(steps), request("tools/call", {"name": "tool"}))
    assert complete(reply)["structuredContent"] == 3
