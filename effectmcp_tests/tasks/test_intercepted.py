"""Interceptors around a task: where it starts, and where it ends with its result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import (
    Call,
    Confirm,
    Detach,
    Elicit,
    Finished,
    Flow,
    InputNeeded,
    Intercepting,
    Now,
    ProtocolError,
    Server,
    Sleep,
    TaskStarted,
    ToolError,
    step,
)
from effectmcp.effects.local import CallerInfo
from effectmcp.errors import TaskStoreError
from effectmcp.exchange.commands import Peer
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.exchange.task_wires import old_status
from effectmcp.tasks import SqliteTasks
from effectmcp.tasks.turn import Start, turn

from ..exchange.test_task_wires import DRAFT, MODERN, NEWEST, world
from ..legacy_client import LegacyClient, accepts
from ..wire import KEYS, call, result, said, text_of
from .simulated import FLOW_ID, START, Host, accepted, new


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep the log for what fails."""
    logging.getLogger("effectmcp").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("effectmcp").setLevel(logging.NOTSET)


@step
def make(what: str) -> str:
    return f"a {what}"


@step
def note(what: str) -> str:
    return f"noted {what}"


@step
def lose(what: str) -> str:
    raise OSError(f"no {what}")


def job(size: int = 1) -> Flow[str]:
    """Perform a step, ask, and perform another one."""
    cup = yield from make("cup")
    where = yield from Elicit("Where to?", str, key="where")
    yield from make("box")
    return f"{cup} of {size} to {where}"


def fails() -> Flow[str]:
    yield from make("cup")
    raise ToolError("sold out")


def refuses() -> Flow[str]:
    yield from make("cup")
    raise ProtocolError(-32001, "Quota")


def host(handler: Callable[..., Any], *interceptors: Any, **row: Any) -> Host:
    """A host of a task of `handler`, whose tool is named `job`."""
    app = Server("shop")
    app.tool(name="job", tags=["loud"], interceptors=interceptors)(handler)
    return Host(app, new("job", **row))


def text(row: TaskRow) -> str:
    """The text of a completed task's result."""
    assert row.result is not None, row
    found: str = row.result["content"][0]["text"]
    return found


def play(one: Host) -> TaskRow:
    """Run a task to its end; its question is answered."""
    one.asked = lambda key, request: one.answer(key, accepted("Rome"))
    return one.run()


# ---- the end of a task --------------------------------------------------------------


def test_end_is_a_call_of_its_own() -> None:
    seen: list[Call] = []
    outcomes: list[Any] = []

    def look(call: Call) -> Intercepting:
        seen.append(call)
        outcomes.append((yield from call))
        return outcomes[-1]

    caller = CallerInfo(
        principal="ann",
        client="desk 2",
        era="modern",
        protocol_version=MODERN,
        flow_id=FLOW_ID.hex(),
    )
    one = host(job, look, caller=caller, arguments={"size": 3})
    row = play(one)
    assert text(row) == "a cup of 3 to Rome"
    assert seen == [
        Call(
            feature=seen[0].feature,
            kind="tool",
            name="job",
            tags=frozenset({"loud"}),
            arguments={"size": 3},
            principal="ann",
            party=Peer(principal="ann").party,
            client="desk 2",
            era="modern",
            revision=MODERN,
            flow_id=FLOW_ID.hex(),
            round=seen[0].round,
            is_first=False,
            is_task=True,
        )
    ]
    assert seen[0].round >= 1
    assert outcomes == [
        Finished({"content": [{"type": "text", "text": "a cup of 3 to Rome"}]})
    ]
    assert row.result == outcomes[0].fields


def test_result_is_changed() -> None:
    def redact(call: Call) -> Intercepting:
        result = yield from call
        assert isinstance(result, Finished)
        return attrs.evolve(result, fields={**result.fields, "_meta": {"seen": 1}})

    row = play(host(job, redact))
    assert row.result is not None
    assert row.result["_meta"] == {"seen": 1}
    assert text(row) == "a cup of 1 to Rome"


def test_result_is_replaced() -> None:
    def other(call: Call) -> Intercepting:
        yield from call
        return "something else"

    row = play(host(job, other))
    assert (row.status, text(row)) == ("completed", "something else")


def test_result_that_is_replaced_by_one_of_another_type() -> None:
    def other(call: Call) -> Intercepting:
        yield from call
        return 5

    row = play(host(job, other))
    assert row.result is not None
    assert row.result["isError"] is True


@pytest.mark.parametrize("is_late", [False, True])
def test_result_is_refused_for_the_model(is_late: bool) -> None:
    def never(call: Call) -> Intercepting:
        if is_late:
            yield from call
        raise ToolError("Not today.")

    row = play(host(job, never))
    assert row.result is not None
    assert (row.status, row.result["isError"]) == ("completed", True)
    assert text(row) == "Not today."


def test_result_is_refused_for_the_protocol() -> None:
    def never(call: Call) -> Intercepting:
        yield from call
        raise ProtocolError(-32001, "Quota", {"left": 0})

    row = play(host(job, never))
    assert (row.status, row.result) == ("failed", None)
    assert row.error == {"code": -32001, "message": "Quota", "data": {"left": 0}}


@pytest.mark.parametrize(("handler", "kind"), [(fails, "Tool"), (refuses, "Protocol")])
def test_failure_is_heard(handler: Callable[..., Any], kind: str) -> None:
    heard: list[str] = []

    def hear(call: Call) -> Intercepting:
        try:
            return (yield from call)
        except Exception as exc:
            heard.append(type(exc).__name__)
            raise

    row = host(handler, hear).run()
    assert heard == [f"{kind}Error"]
    assert row.status == ("completed" if kind == "Tool" else "failed")


@pytest.mark.parametrize("handler", [fails, refuses])
def test_failure_is_answered(handler: Callable[..., Any]) -> None:
    def calm(call: Call) -> Intercepting:
        try:
            return (yield from call)
        except Exception:
            return "Something else?"

    row = host(handler, calm).run()
    assert (row.status, text(row)) == ("completed", "Something else?")
    assert row.result is not None
    assert "isError" not in row.result


def test_steps_are_performed() -> None:
    done: list[Any] = []

    def steps(call: Call) -> Intercepting:
        done.append((yield from note("before")))
        result = yield from call
        done.append((yield from Now()))
        yield from Sleep(30)
        try:
            yield from lose("ink")
        except OSError as exc:
            done.append(str(exc))
        return result

    one = host(job, steps)
    assert text(play(one)) == "a cup of 1 to Rome"
    assert done[0] == "noted before"
    assert done[1].timestamp() == START
    assert done[2] == "no ink"
    assert one.now == START + 30


def test_misuse_fails_the_task() -> None:
    def asks(call: Call) -> Intercepting:
        yield from Confirm("Sure?")
        return (yield from call)

    row = play(host(job, asks))
    assert row.result is not None
    assert row.result["isError"] is True


def test_arguments_cannot_be_changed_any_more() -> None:
    """The handler has run: only the call that started the task could change them."""

    def other(call: Call) -> Intercepting:
        return (yield from call.with_arguments({"size": 9}))

    assert text(play(host(job, other))) == "a cup of 1 to Rome"


# ---- mail that arrives meanwhile ----------------------------------------------------


def pauses(call: Call) -> Intercepting:
    """Take a minute for a result, and then for a failure."""
    try:
        result = yield from call
    except Exception:
        yield from Sleep(60)
        raise
    yield from Sleep(60)
    return result


def pauses_and_refuses(call: Call) -> Intercepting:
    yield from pauses(call)
    raise ToolError("Not today.")


@pytest.mark.parametrize("interceptor", [pauses, pauses_and_refuses])
@pytest.mark.parametrize("handler", [job, fails])
def test_cancel_that_comes_too_late(
    handler: Callable[..., Any], interceptor: Any
) -> None:
    """The task completes; to a client of 2025-11-25, a cancel counts nevertheless."""
    one = host(handler, interceptor)
    one.at(5, one.cancel)
    row = play(one)
    assert row.status == "completed"
    assert row.cancelled_at == START + 5
    assert old_status(row) == "cancelled"
    assert one.mail == []


def test_other_mail_that_comes_too_late_is_dropped() -> None:
    one = host(job, pauses)
    one.at(5, lambda: one.answer("other", accepted("x")))
    one.at(6, one.retry)
    assert text(play(one)) == "a cup of 1 to Rome"
    assert one.mail == []


@pytest.mark.parametrize("interceptor", [pauses, pauses_and_refuses])
def test_task_that_expires_meanwhile_has_its_result(interceptor: Any) -> None:
    one = host(job, interceptor, ttl=30)
    one.at(40, lambda: one.answer("other", accepted("x")))  # it looks at the time
    row = play(one)
    assert row.status == "completed"
    assert old_status(row) == ("completed" if interceptor is pauses else "failed")


def test_task_that_was_cancelled_ends_without_them() -> None:
    seen: list[Call] = []

    def look(call: Call) -> Intercepting:
        seen.append(call)
        return (yield from call)

    one = host(job, look)
    one.run()
    one.cancel()
    assert one.run().status == "cancelled"
    assert seen == []


def test_handler_that_returns_though_it_was_cancelled() -> None:
    seen: list[Call] = []

    def look(call: Call) -> Intercepting:
        seen.append(call)
        return (yield from call)

    def stubborn() -> Flow[str]:
        try:
            yield from Elicit("Where to?", str, key="where")
        finally:
            return "done"  # noqa: B012

    one = host(stubborn, look)
    one.run()
    one.cancel()
    row = one.run()
    assert (row.status, text(row)) == ("completed", "done")
    assert [call.is_task for call in seen] == [True]


# ---- cuts ---------------------------------------------------------------------------


def changes(call: Call) -> Intercepting:
    result = yield from call
    noted = yield from note("end")
    assert isinstance(result, Finished)
    return attrs.evolve(result, fields={**result.fields, "_meta": {"noted": noted}})


def before(call: Call) -> Intercepting:
    yield from note("before")
    yield from Sleep(1)
    return (yield from call)


def calms(call: Call) -> Intercepting:
    try:
        return (yield from call)
    except ToolError as exc:
        noted = yield from note(str(exc))
        return f"calm: {noted}"


def forbids(call: Call) -> Intercepting:
    yield from call
    yield from note("refused")
    raise ToolError("Not today.")


INTERCEPTORS: Final = (changes, before, calms, forbids, pauses)


@given(
    st.lists(st.sampled_from(INTERCEPTORS), max_size=3),
    st.sampled_from([job, fails]),
    st.lists(st.integers(0, 60), max_size=6),
)
@example([changes, before, calms], job, [])
def test_task_ends_alike_wherever_it_is_cut(
    interceptors: list[Any], handler: Callable[..., Any], cuts: list[int]
) -> None:
    whole = play(host(handler, *interceptors))
    one = host(handler, *interceptors)
    one.cuts = cuts
    row = play(one)
    assert (row.status, row.result, row.error) == (
        whole.status,
        whole.result,
        whole.error,
    )
    made = [name for name, _ in one.performed if name == "make"]
    assert len(made) <= (2 if handler is job else 1) + one.story.count("CUT")


@pytest.mark.parametrize("handler", [job, fails])
def test_each_cut(handler: Callable[..., Any]) -> None:
    chain = (changes, before, calms)
    whole = host(handler, *chain)
    end = play(whole)
    for at in range(whole.commands):
        one = host(handler, *chain)
        one.cuts = (at,)
        row = play(one)
        assert one.story.count("CUT") == 1
        assert (row.status, row.result) == (end.status, end.result)


@pytest.mark.parametrize("at", ["Start", "Wait", "TellTime", "ReadMail"])
def test_store_that_fails_meanwhile_ends_only_the_turn(at: str) -> None:
    """The next turn ends the task: a failed store is not a failure of the call."""
    closed: list[bool] = []

    def notes(call: Call) -> Intercepting:
        try:
            result = yield from call
            yield from note("end")
            return result
        finally:
            closed.append(True)

    app = Server("shop")
    app.tool(name="job", interceptors=[notes])(_at_once)
    with pytest.raises(TaskStoreError, match="the disk is full"):
        _fail_at(turn(app, new("job")), at)
    assert closed == [True]


def _fail_at(going: Any, at: str) -> None:
    """Run a turn up to a command after the first effect, which the store fails."""
    command = next(going)
    is_at_the_end = False
    while True:
        name = type(command).__name__
        is_at_the_end |= isinstance(command, Start)
        if is_at_the_end and name == at:
            going.throw(TaskStoreError("the disk is full"))
        outcomes = {"TellTime": START, "ReadMail": [], "Wait": {}}
        command = going.send(outcomes.get(name))


def _at_once() -> Flow[str]:
    yield from ()
    return "done"


# ---- the call that starts one -------------------------------------------------------


def watched_world(*interceptors: Any) -> Any:
    """A world with a tool that is always a task, and tools that detach."""
    here = world()
    here.app.tool(name="always", task="required", interceptors=interceptors)(job)
    here.app.tool(name="leaves", interceptors=interceptors)(leaves)
    here.app.tool(name="deferring", task="deferred", interceptors=interceptors)(leaves)
    return here


def leaves(size: int = 1) -> Flow[str]:
    """Ask, become a task, and continue with the arguments."""
    yield from Confirm("Go?", key="go")
    is_task = yield from Detach()
    cup = yield from make("cup")
    return f"{cup} of {size}, {is_task}"


class Looks:
    """An interceptor that keeps what it sees."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.outcomes: list[Any] = []

    def __call__(self, call: Call) -> Intercepting:
        self.calls.append(call)
        outcome = yield from call
        self.outcomes.append(outcome)
        return outcome


def test_call_that_starts_a_task() -> None:
    looks = Looks()
    here = watched_world(looks)
    user = here.user(MODERN, "ann")
    id_ = user.start("always", {"size": 2})
    assert looks.outcomes == [TaskStarted(task=id_)]
    life = user.follow(id_, lambda one: {"result": accepted("Rome")})
    assert text_of(life.end["result"]) == "a cup of 2 to Rome"
    first, last = looks.calls
    assert (first.is_task, first.is_first) == (False, True)
    assert (last.is_task, last.is_first) == (True, False)
    assert first.flow_id == last.flow_id == here.host.rows[id_].flow_id.hex()
    assert last.arguments == {"size": 2}
    assert first.principal == last.principal == "ann"
    assert first.party == last.party


def test_flow_that_becomes_a_task_in_its_second_round() -> None:
    looks = Looks()
    here = watched_world(looks)
    user = here.user(MODERN, "ann")
    asked = user.result("tools/call", {"name": "leaves"})
    params = {
        "name": "leaves",
        "inputResponses": said(asked, {}),
        "requestState": asked["requestState"],
    }
    id_ = user.result("tools/call", params)["taskId"]
    life = user.follow(id_, lambda one: None)
    assert text_of(life.end["result"]) == "a cup of 1, True"
    assert [(one.round, one.is_first, one.is_task) for one in looks.calls[:2]] == [
        (1, True, False),
        (2, False, False),
    ]
    assert looks.calls[2].is_task
    assert len({one.flow_id for one in looks.calls}) == 1
    asked_, started, finished = looks.outcomes
    assert isinstance(asked_, InputNeeded)
    assert started == TaskStarted(task=id_)
    assert isinstance(finished, Finished)


def doubles(call: Call) -> Intercepting:
    """Double the size in each round; the end of a task has the changed one."""
    assert call.arguments is not None
    if call.is_task:
        return (yield from call)
    size = call.arguments.get("size", 1)
    return (yield from call.with_arguments({"size": 2 * size}))


def test_task_has_the_arguments_that_were_changed() -> None:
    looks = Looks()
    here = watched_world(looks, doubles)
    user = here.user(MODERN, "ann")
    id_ = user.start("always", {"size": 2})
    assert here.host.rows[id_].arguments == {"size": 4}
    life = user.follow(id_, lambda one: {"result": accepted("Rome")})
    assert text_of(life.end["result"]) == "a cup of 4 to Rome"
    assert looks.calls[-1].arguments == {"size": 4}


def test_task_of_a_later_round_has_the_arguments_that_were_changed() -> None:
    here = watched_world(doubles)
    user = here.user(MODERN, "ann")
    params: dict[str, Any] = {"name": "leaves", "arguments": {"size": 3}}
    asked = user.result("tools/call", params)
    params |= {
        "inputResponses": said(asked, {}),
        "requestState": asked["requestState"],
    }
    id_ = user.result("tools/call", params)["taskId"]
    assert here.host.rows[id_].arguments == {"size": 6}
    life = user.follow(id_, lambda one: None)
    assert text_of(life.end["result"]) == "a cup of 6, True"


def test_arguments_that_do_not_fit_start_no_task() -> None:
    def breaks(call: Call) -> Intercepting:
        return (yield from call.with_arguments({"size": "large"}))

    here = watched_world(breaks)
    user = here.user(MODERN, "ann")
    found = user.result("tools/call", {"name": "always"})
    assert found["isError"] is True
    assert here.host.rows == {}


def test_call_that_is_refused_or_answered_starts_no_task() -> None:
    def closed(call: Call) -> Intercepting:
        yield from ()
        if call.arguments:
            raise ToolError("We are closed.")
        return "closed"

    here = watched_world(closed)
    user = here.user(MODERN, "ann")
    assert text_of(user.result("tools/call", {"name": "always"})) == "closed"
    params = {"name": "always", "arguments": {"size": 1}}
    assert text_of(user.result("tools/call", params)) == "We are closed."
    assert here.host.rows == {}


@pytest.mark.parametrize("wire", [NEWEST, DRAFT])
def test_task_of_a_session(wire: str) -> None:
    looks = Looks()
    here = watched_world(looks, doubles)
    user = here.user(wire, "ann")
    id_ = user.start("always", {"size": 2}, task={})
    assert looks.outcomes == [TaskStarted(task=id_)]
    life = user.follow(id_, lambda one: {"result": accepted("Rome")})
    assert text_of(life.end["result"]) == "a cup of 4 to Rome"
    assert [(one.era, one.revision, one.is_task) for one in looks.calls] == [
        ("legacy", wire, False),
        ("legacy", wire, True),
    ]


# ---- other rounds -------------------------------------------------------------------


def asking(interceptor: Any, **options: Any) -> Server:
    app = Server("shop", keys=KEYS, drafts=True)
    app.tool(name="job", interceptors=[interceptor], **options)(job)
    return app


def test_live_call_is_one_round() -> None:
    looks = Looks()
    client = LegacyClient(asking(looks))
    found = client.call("job", {}, accepts({"value": "Rome"}))
    assert text_of(found) == "a cup of 1 to Rome"
    (call,) = looks.calls
    assert (call.era, call.revision, call.round, call.is_first) == (
        "legacy",
        NEWEST,
        1,
        True,
    )
    assert call.flow_id is not None
    assert isinstance(looks.outcomes[0], Finished)


def test_rounds_of_drafts() -> None:
    looks = Looks()
    client = LegacyClient(asking(looks), DRAFT)
    asked = client.result("tools/call", {"name": "job"})
    answers = {key: accepted("Rome") for key in asked["inputRequests"]}
    more = {"inputResponses": answers, "requestState": asked["requestState"]}
    found = client.result("tools/call", {"name": "job", **more})
    assert text_of(found) == "a cup of 1 to Rome"
    assert [(one.round, one.is_first) for one in looks.calls] == [(1, True), (2, False)]
    assert len({one.flow_id for one in looks.calls}) == 1


def test_request_that_counts_once() -> None:
    """A repeated request passes the interceptors, and the handler does not run."""
    looks = Looks()
    ledger = SqliteTasks()
    app = asking(looks, single_use=True)
    app.ledger = ledger
    asked = result(call(app, "job"))
    answers, state = said(asked, {"value": "Rome"}), asked["requestState"]
    first = call(app, "job", answers=answers, state=state)
    second = call(app, "job", answers=answers, state=state)
    assert result(first) == result(second)
    assert [one.round for one in looks.calls] == [1, 2, 2]
    assert [type(one) for one in looks.outcomes] == [InputNeeded, Finished]
    ledger.close()
