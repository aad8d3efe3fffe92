"""Requests that count once, from the wire to the ledger (docs/internals/replay.md#s7)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    Now,
    Provided,
    Restart,
    SchemaError,
    Sleep,
    Step,
    ToolError,
    UsageError,
)
from effectmcp.drivers.sync import perform
from effectmcp.effects.base import InputRequest
from effectmcp.engine import Answer, Asked, Journal, Returned, Run
from effectmcp.engine.stops import Done, Failure
from effectmcp.errors import (
    ClientFailed,
    LedgerError,
    ProtocolError,
    StateError,
    TaskLimitError,
    TaskStoreError,
)
from effectmcp.exchange import ledger as module
from effectmcp.exchange.commands import (
    Command,
    Exchange,
    Invoke,
    Notify,
    Outlast,
    Overdue,
    Peer,
    PerformAll,
    Reply,
)
from effectmcp.exchange.handle import handle
from effectmcp.exchange.ledger import (
    BUSY,
    SPENT,
    Held,
    Kept,
    Taken,
    Taking,
    Use,
    judge,
)
from effectmcp.forms.form import Unfit
from effectmcp.lowlevel import Given, InputRequired
from effectmcp.server import (
    Event,
    RoundBegan,
    RoundEnded,
    RoundRefused,
    Salvaged,
    Server,
)
from effectmcp.state import Sealer
from effectmcp.state.codec import BINDINGS, Claims, Packed, pack, unpack
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.mounted import prepare
from effectmcp.transports.stores import check_shared, ensure_tasks

from ..legacy_client import VERSIONS, LegacyClient, accepts
from ..tasks.test_connections import Replaced
from ..wire import (
    KEYS,
    Wire,
    call,
    call_params,
    error,
    refused,
    request,
    result,
    said,
    send,
    text_of,
)
from .test_tasks import FOLLOWS, Rows
from .uses import ACTIONS, HOSTS, Modelled, play_seeds, played

USED = (200, StateError.CODE)

charged: list[str] = []


@pytest.fixture(autouse=True)
def nothing_charged() -> None:
    """Each test begins with nothing charged."""
    charged.clear()


def charge(what: str) -> str:
    charged.append(what)
    return f"receipt {len(charged)} for {what}"


# ---- handlers -----------------------------------------------------------------------


def order() -> Flow[str]:
    """Ask for a name, then charge; ask for a tip, then charge that."""
    name = yield from Elicit("Who?", str)
    receipt = yield from Step(charge, name)
    tip = yield from Elicit(f"{receipt}. A tip?", str)
    return (yield from Step(charge, tip))


def paying(question: Callable[[str], InputRequest[Any]]) -> Callable[[], Flow[str]]:
    """Return a handler that asks for a name, and then the question; then it charges."""

    def order() -> Flow[str]:
        name = yield from Elicit("Who?", str)
        if (yield from question(name)) is False:
            return (yield from Step(charge, "a fee"))
        receipt = yield from Step(charge, name)
        again = yield from Elicit(f"{receipt}. A tip?", str)
        return (yield from Step(charge, again))

    return order


def confirmed(name: str) -> Confirm:
    return Confirm(f"Pay for {name}?", once=True, otherwise=False)


def on_a_page(name: str) -> ElicitUrl[Any]:
    page = "https://pay.example"
    return ElicitUrl(f"Pay for {name}", page, otherwise=False, once=True)


QUESTIONS = pytest.mark.parametrize("question", [confirmed, on_a_page])


# ---- servers and clients ------------------------------------------------------------


class Away:
    """A ledger that fails as a test says, and is `Modelled` otherwise."""

    is_shared = True

    def __init__(self) -> None:
        self.real = Modelled().ledger(0)
        self.on_take: Exception | None = None
        self.on_keep: Exception | None = None

    def take(self, use: Use) -> Taking:
        if self.on_take is not None:
            raise self.on_take
        return self.real.take(use)

    def keep(self, taken: Taken, reply: bytes) -> None:
        if self.on_keep is not None:
            raise self.on_keep
        self.real.keep(taken, reply)

    def leave(self, taken: Taken) -> None:
        self.real.leave(taken)


@pytest.fixture
def memory() -> Iterator[SqliteTasks]:
    tasks = SqliteTasks()
    yield tasks
    tasks.close()


def serving(
    handler: Callable[..., Any],
    ledger: Any = None,
    *,
    once: bool = True,
    **options: Any,
) -> Server:
    """Return a server with the tool `order`; by default, it has `single_use=True`."""
    ledger = Modelled().ledger(0) if ledger is None else ledger
    app = Server("shop", keys=KEYS, ledger=ledger, **options)
    app.tool(name="order", single_use=once)(handler)
    return app


def consenting(handler: Callable[..., Any], ledger: Any = None, **more: Any) -> Server:
    """Return a server whose tool `order` may be used again, except for its questions."""
    return serving(handler, ledger, once=False, **more)


Asking = Mapping[str, Any]


def first(app: Server, **more: Any) -> Wire:
    """Return the first interim result."""
    return result(call(app, "order", **more))


def answering(asked: Asking, *contents: Any, **more: Any) -> dict[str, Any]:
    """Return the options of `call` that answer an interim result."""
    return {
        "state": asked["requestState"],
        "answers": said(dict(asked), *contents),
        **more,
    }


def saying(asked: Asking, **answer: Any) -> dict[str, Any]:
    """Return the options of `call` that give all questions this answer."""
    answers = dict.fromkeys(asked["inputRequests"], answer)
    return {"state": asked["requestState"], "answers": answers}


def named(app: Server, name: str = "Ann") -> Wire:
    """Return the interim result after the name was given."""
    return result(call(app, "order", **answering(first(app), {"value": name})))


def bare(reply: Reply) -> tuple[int, Wire]:
    """Return the status and the message of a reply, without its id."""
    assert reply.message is not None
    return reply.status, {k: v for k, v in reply.message.items() if k != "id"}


def same(app: Server, options: Mapping[str, Any], times: int = 2) -> Reply:
    """Send a request several times; check that all replies are equal; return one."""
    replies = [call(app, "order", id=f"n{at}", **options) for at in range(times)]
    for at, reply in enumerate(replies):
        assert reply.message is not None
        assert reply.message["id"] == f"n{at}"
        assert bare(reply) == bare(replies[0])
    return replies[0]


class ByHand:
    """A request, whose commands a test executes one by one.

    Attributes:
        now: The time of the server.
        slept: The pauses.
    """

    def __init__(
        self, app: Server, method: str = "tools/call", params: Any = None, **more: Any
    ) -> None:
        self.now = time.time()
        self.slept: list[float] = []
        params = call_params("order", **more) if params is None else params
        message = request(method, params)
        self.exchange: Exchange = handle(
            app, message, Peer(), clock=lambda: self.now, entropy=os.urandom
        )
        self.command: Command = next(self.exchange)

    def step(self) -> None:
        """Execute one command."""
        outcome: Any = None
        match self.command:
            case Invoke(function, kwargs):
                try:
                    outcome = Done(function(**kwargs))
                except Exception as exc:
                    outcome = Failure(exc)
            case PerformAll(wants):
                outcome = {}
                for want in wants:
                    if isinstance(want.effect, Sleep):
                        self.now += want.effect.seconds
                        self.slept.append(want.effect.seconds)
                        outcome[want.key] = Done(None)
                    else:
                        outcome[want.key] = perform(want)
            case command:
                assert isinstance(command, Notify)
        self._send(outcome)

    def _send(self, outcome: Any) -> None:
        self.command = self.exchange.send(outcome)
        while isinstance(self.command, Outlast):  # needs no action here
            self.command = self.exchange.send(None)

    def until(self, is_there: Callable[[Command], bool]) -> ByHand:
        """Execute commands until one is of this kind."""
        while not is_there(self.command):
            self.step()
        return self

    def run(self) -> Reply:
        """Execute all commands; return the reply."""
        return ended(self.until, lambda command: False)

    def fail(self, error: BaseException) -> Reply:
        """Have the command fail, as a driver does; return the reply."""

        def go() -> None:
            self.command = self.exchange.throw(error)
            self.until(lambda command: False)

        return ended(go)


def ended(function: Callable[..., Any], *args: Any) -> Reply:
    with pytest.raises(StopIteration) as end:
        function(*args)
    reply = end.value.value
    assert isinstance(reply, Reply)
    return reply


def is_step(command: Command) -> bool:
    return isinstance(command, PerformAll) and isinstance(command.wants[0].effect, Step)


def is_keep(command: Command) -> bool:
    return isinstance(command, Invoke) and "reply" in command.kwargs


def is_pause(command: Command) -> bool:
    return isinstance(command, PerformAll) and not is_step(command)


# ---- what a ledger decides ----------------------------------------------------------


USE = Use(flow="f", slots=(("1", 9.0),), request="r", owner=None, by="me")


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (None, Taken("f", "1", 1)),
        (Held("other", 1), SPENT),
        (Held("other", 1, None, b"x"), SPENT),
        (Held("r", 3, "them", b"x"), Kept(b"x")),
        (Held("r", 3, "them"), BUSY),
        (Held("r", 3, "me"), Taken("f", "1", 4)),
        (Held("r", 3), Taken("f", "1", 4)),
    ],
    ids=str,
)
def test_judge_one_slot_follows_the_table(held: Held | None, wanted: Taking) -> None:
    assert judge(USE, [held]) == wanted


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ([None, None], Taken("f", "1", 1)),
        ([None, Held("other", 0)], SPENT),
        ([Held("r", 1, None, b"x"), Held("other", 0)], SPENT),
        ([Held("r", 1), Held("r", 0)], Taken("f", "1", 2)),
        ([Held("r", 1, "me"), None], Taken("f", "1", 2)),
        ([Held("r", 1, "me"), Held("other", 0)], SPENT),
        ([Held("r", 1, "them"), None], BUSY),
        ([Held("r", 2, None, b"x"), None], Kept(b"x")),
    ],
    ids=str,
)
def test_judge_several_slots_gives_all_or_none(
    held: list[Held | None], wanted: Taking
) -> None:
    use = attrs.evolve(USE, slots=(("1", 9.0), ("line", 10.0)))
    assert judge(use, held) == wanted


# ---- a tool for one use -------------------------------------------------------------


def test_single_use_same_request_again_returns_the_same_result() -> None:
    """A client that lost a reply sends the request again, with a new id."""
    app = serving(order)
    asked = first(app)
    again = result(same(app, answering(asked, {"value": "Ann"})))
    assert again["resultType"] == "input_required"
    assert charged == ["Ann"]
    done = result(same(app, answering(again, {"value": "Bob"})))
    assert text_of(done) == "receipt 2 for Bob"


def test_single_use_final_state_sent_three_times_performs_its_step_once() -> None:
    app = serving(order)
    asked = named(app)
    same(app, answering(asked, {"value": "Bob"}), times=3)
    assert charged == ["Ann", "Bob"]


def test_single_use_other_answers_are_refused_in_public_words() -> None:
    events: list[Event] = []
    app = serving(order, observers=[events.append])
    asked = first(app)
    call(app, "order", **answering(asked, {"value": "Ann"}))
    reply = call(app, "order", **answering(asked, {"value": "Bob"}))
    assert refused(reply) == USED
    assert error(reply)["message"] == StateError.PUBLIC
    [told] = [one for one in events if isinstance(one, RoundRefused)]
    assert isinstance(told.error, StateError)
    assert (told.target, told.error.reason) == ("order", "used")
    assert charged == ["Ann"]


@pytest.mark.parametrize("answers", [None, {}, {"unknown": {"action": "accept"}}])
def test_single_use_request_without_an_answer_counts(answers: Any) -> None:
    """The reply has a state of its own, in which the question can be answered."""
    app = serving(order)
    asked = first(app)
    state = asked["requestState"]
    again = result(same(app, {"state": state, "answers": answers}))
    options = answering(asked, {"value": "Ann"})
    assert refused(call(app, "order", **options)) == USED
    assert result(call(app, "order", **answering(again, {"value": "Ann"})))


def test_single_use_calls_count_each_for_themselves() -> None:
    """The first request has no state, so nothing shows that it was sent again."""
    app = serving(order)
    for _ in range(2):
        named(app)
    assert charged == ["Ann", "Ann"]


def test_single_use_early_answers_are_ignored() -> None:
    """The first request could bring them any number of times."""

    def early() -> Flow[str]:
        name = yield from Elicit("Who?", str, key="who")
        return (yield from Step(charge, name))

    answers = {"who": {"action": "accept", "content": {"value": "Ann"}}}
    asked = first(serving(early), answers=answers)
    assert [*asked["inputRequests"]] == ["who"]
    text_of(first(consenting(early), answers=answers))
    assert charged == ["Ann"]


def test_single_use_kept_reply_survives_a_changed_handler() -> None:
    app = serving(order)
    asked = first(app)
    options = answering(asked, {"value": "Ann"})
    before = call(app, "order", **options)

    def changed() -> Flow[str]:
        return (yield from Step(charge, "everything"))

    app.remove(app.tools["order"])
    app.tool(name="order", single_use=True)(changed)
    assert bare(call(app, "order", **options)) == bare(before)
    assert charged == ["Ann"]


def test_single_use_state_of_another_tool_is_refused_and_not_counted() -> None:
    app = serving(order)
    app.tool(name="other", single_use=True)(order)
    options = answering(first(app), {"value": "Ann"})
    assert refused(call(app, "other", **options)) == (200, -32602)
    assert result(call(app, "order", **options))["resultType"] == "input_required"


# ---- errors are replies -------------------------------------------------------------


def failing(failure: BaseException) -> Callable[[], Flow[str]]:
    def order() -> Flow[str]:
        yield from Confirm("Pay?", once=True)
        yield from Step(charge, "Ann")
        raise failure

    return order


@pytest.mark.parametrize("once", [True, False])
def test_tool_error_is_kept_and_repeated(once: bool) -> None:
    app = serving(failing(ToolError("no money")), once=once)
    reply = same(app, answering(first(app), {}))
    assert result(reply)["isError"]
    assert "no money" in text_of(result(reply))
    assert charged == ["Ann"]


def test_protocol_error_is_kept_with_its_status() -> None:
    app = serving(failing(ProtocolError(-32_099, "teapot", {"a": 1}, status=418)))
    reply = same(app, answering(first(app), {}))
    assert refused(reply) == (418, -32_099)
    assert error(reply)["data"] == {"a": 1}
    assert charged == ["Ann"]


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        (ToolError("no money"), (200, -32_603)),
        (ProtocolError(-32_099, "teapot", status=418), (418, -32_099)),
        (OSError("secret"), (200, -32_603)),
        (SystemExit(1), (200, -32_603)),
    ],
)
def test_error_of_a_prompt_is_kept_and_repeated(
    failure: BaseException, wanted: tuple[int, int]
) -> None:
    app = Server("shop", keys=KEYS, ledger=Modelled().ledger(0))
    app.prompt(name="order")(failing(failure))
    asked = result(send(app, "prompts/get", {"name": "order"}))
    params = call_params("order", None, said(asked, {}), asked["requestState"])
    replies = [send(app, "prompts/get", params) for _ in range(2)]
    assert [bare(one) for one in replies] == [bare(replies[0])] * 2
    assert (replies[0].status, error(replies[0])["code"]) == wanted
    assert charged == ["Ann"]


def test_resource_is_kept_after_a_consent() -> None:
    app = Server("shop", keys=KEYS, ledger=Modelled().ledger(0))
    app.resource("shop://order")(paying(confirmed))
    params: Wire = {"uri": "shop://order"}
    found = result(send(app, "resources/read", params))
    for content in ({"value": "Ann"}, {}, {"value": "Bob"}):
        answers = said(found, content)
        more = {"requestState": found["requestState"], "inputResponses": answers}
        found = result(send(app, "resources/read", {**params, **more}))
        again = result(send(app, "resources/read", {**params, **more}))
        assert again.keys() == found.keys()
    assert "receipt 2 for Bob" in str(found["contents"])
    assert charged == ["Ann", "Bob"]


# ---- requests that are cut off ------------------------------------------------------


def check_runs_again(app: Server, options: dict[str, Any], *, before: int) -> None:
    """Check that the request was cut off, and runs when it is sent again."""
    assert len(charged) == before
    assert result(same(app, options))["resultType"] == "input_required"
    assert len(charged) == before + 1


@pytest.mark.parametrize("is_counted", [True, False])
def test_request_that_took_too_long_runs_again(is_counted: bool) -> None:
    app = serving(order) if is_counted else consenting(paying(confirmed))
    asked = first(app) if is_counted else named(app)
    options = answering(asked, {"value": "Ann"} if is_counted else {})
    one = ByHand(app, **options).until(is_step)
    assert "took too long" in text_of(result(one.fail(Overdue())))
    check_runs_again(app, options, before=0)


def test_request_that_takes_longer_than_its_tool_may_runs_again() -> None:
    app = serving(order)
    options = answering(first(app), {"value": "Ann"})
    app.timeout = -1.0
    assert "took too long" in text_of(result(call(app, "order", **options)))
    app.timeout = None
    check_runs_again(app, options, before=0)


def test_request_whose_handler_diverges_runs_again_with_the_right_one() -> None:
    """The operators may roll the deployment back."""
    ledger = Modelled().ledger(0)
    app = serving(order, ledger)
    options = answering(named(app), {"value": "Bob"})

    def changed() -> Flow[str]:
        yield from Elicit("Who?", str)
        return (yield from Elicit("What?", str))

    reply = call(serving(changed, ledger), "order", **options)
    assert "changed" in text_of(result(reply))
    assert charged == ["Ann"]
    same(app, options)
    assert charged == ["Ann", "Bob"]


def test_request_whose_handler_diverges_later_runs_again_with_the_right_one() -> None:
    """The handler passes a new effect first, and then misses the performed step."""

    def paid() -> Flow[str]:
        return (yield from Step(charge, "Ann"))

    def before() -> Flow[str]:
        yield from Gather(paid(), Elicit("Who?", str))
        return (yield from Step(charge, "Bob"))

    def after() -> Flow[str]:
        yield from Now()
        return (yield from Elicit("What?", str))

    ledger = Modelled().ledger(0)
    options = answering(first(serving(before, ledger)), {"value": "Ann"})
    reply = ByHand(serving(after, ledger), **options).run()
    assert "changed" in text_of(result(reply))
    same(serving(before, ledger), options)
    assert charged == ["Ann", "Bob"]


@pytest.mark.parametrize("where", [is_step, is_keep])
def test_request_whose_client_disconnects_runs_again(
    where: Callable[[Command], bool],
) -> None:
    app = serving(order)
    options = answering(first(app), {"value": "Ann"})
    ByHand(app, **options).until(where).exchange.close()
    check_runs_again(app, options, before=int(where is is_keep))


@pytest.mark.parametrize("is_early", [True, False])
def test_request_whose_client_disconnects_during_its_take_runs_again(
    is_early: bool,
) -> None:
    app = serving(order)
    options = answering(first(app), {"value": "Ann"})
    one = ByHand(app, **options)
    command = one.command
    assert isinstance(command, Invoke)
    if is_early:
        command.function(**command.kwargs)
    one.exchange.close()
    if not is_early:
        command.function(**command.kwargs)
    assert result(ByHand(app, **options).run())["resultType"] == "input_required"
    assert charged == ["Ann"]


@pytest.mark.parametrize("is_early", [True, False])
def test_request_whose_client_disconnects_as_it_takes_its_line_runs_again(
    is_early: bool,
) -> None:
    """The request has the slot of its state then, under a fence that may be older."""
    app = consenting(paying(confirmed))
    options = answering(named(app), {})
    one = ByHand(app, **options)
    one.step()
    command = one.command
    assert isinstance(command, Invoke)
    if is_early:
        command.function(**command.kwargs)
    one.exchange.close()
    if not is_early:
        command.function(**command.kwargs)
    assert result(ByHand(app, **options).run())["resultType"] == "input_required"
    assert charged == ["Ann"]


def test_request_that_is_interrupted_runs_again() -> None:
    """Ctrl+C is not the handler's reply."""
    ledger = Modelled().ledger(0)
    options = answering(first(serving(failing(KeyboardInterrupt()), ledger)), {})
    with pytest.raises(KeyboardInterrupt):
        call(serving(failing(KeyboardInterrupt()), ledger), "order", **options)
    reply = same(serving(failing(ToolError("no money")), ledger), options)
    assert result(reply)["isError"]
    assert charged == ["Ann", "Ann"]


def test_request_whose_driver_fails_gets_one_reply() -> None:
    """An error of a driver is a reply, although no handler raised it."""
    app = serving(order)
    options = answering(first(app), {"value": "Ann"})
    reply = ByHand(app, **options).until(is_step).fail(OSError("no thread"))
    assert result(reply)["isError"]
    assert bare(call(app, "order", **options)) == bare(reply)
    assert charged == []


def test_reply_under_an_older_fence_is_refused() -> None:
    """A thread that was abandoned may still write for a request that was cut off."""
    host = Modelled()
    app = serving(order, host.ledger(0))
    options = answering(first(app), {"value": "Ann"})
    cut = ByHand(app, **options).until(is_keep)
    command = cut.command
    cut.exchange.close()
    same(app, options)
    assert isinstance(command, Invoke)
    with pytest.raises(AssertionError, match="went on"):
        command.function(**command.kwargs)
    assert {held.holder for held in host.slots.values()} == {None}


def test_request_that_was_taken_over_before_its_consent_gets_the_kept_reply() -> None:
    """A server may be frozen, and continue when another one has answered."""
    host = Modelled()
    app = consenting(paying(confirmed), host.ledger(0))
    options = answering(named(app), {})
    frozen = ByHand(app, **options)
    frozen.step()
    for place, held in host.slots.items():
        host.slots[place] = attrs.evolve(held, holder=None)
    reply = same(app, options)
    assert bare(frozen.run()) == bare(reply)
    assert charged == ["Ann"]


# ---- a ledger that fails ------------------------------------------------------------


@pytest.mark.parametrize("is_counted", [True, False])
def test_ledger_away_at_take_performs_nothing(
    is_counted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Away()
    app = serving(order if is_counted else paying(confirmed), ledger, once=is_counted)
    asked = first(app) if is_counted else named(app)
    options = answering(asked, {"value": "Ann"} if is_counted else {})
    ledger.on_take = TaskStoreError("the disk is full")
    reply = call(app, "order", **options)
    assert refused(reply) == (200, -32_603)
    assert "nothing was done. Send the same request again" in error(reply)["message"]
    assert "the disk is full" in caplog.text
    ledger.on_take = None
    check_runs_again(app, options, before=0)


@pytest.mark.parametrize(
    "failure", [TaskStoreError("the disk is full"), TaskLimitError("come back later")]
)
def test_ledger_away_at_the_line_of_a_flow_performs_nothing(failure: Exception) -> None:
    """The request has the slot of its state, and must get the line when it is sent again."""
    ledger = Away()
    app = consenting(paying(confirmed), ledger)
    options = answering(named(app), {})
    one = ByHand(app, **options)
    one.step()
    ledger.on_take = failure
    reply = one.run()
    assert refused(reply) == (200, -32_603)
    assert "later" in error(reply)["message"]
    ledger.on_take = None
    check_runs_again(app, options, before=0)


def test_ledger_that_is_full_tells_the_client() -> None:
    ledger = Away()
    app = serving(order, ledger)
    ledger.on_take = TaskLimitError("you have too many calls; come back later")
    reply = call(app, "order", **answering(first(app), {"value": "Ann"}))
    assert refused(reply) == (200, -32_603)
    assert error(reply)["message"] == "you have too many calls; come back later"
    assert charged == []


def test_ledger_with_a_bug_tells_the_client_nothing() -> None:
    ledger = Away()
    app = serving(order, ledger)
    ledger.on_take = ZeroDivisionError("secret")
    reply = call(app, "order", **answering(first(app), {"value": "Ann"}))
    assert result(reply)["isError"]
    assert "secret" not in str(reply.message)
    assert charged == []


def test_ledger_away_at_keep_sends_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the same request could get another reply later."""
    ledger = Away()
    app = serving(order, ledger)
    ledger.on_keep = TaskStoreError("the disk is full")
    reply = call(app, "order", **answering(first(app), {"value": "Ann"}))
    assert refused(reply) == (200, -32_603)
    assert "Send the same request again" in error(reply)["message"]
    assert "receipt" not in str(reply.message)
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize("is_file", [True, False])
def test_reply_that_could_not_be_kept_is_kept_by_the_sweep(
    tmp_path: Path, is_file: bool
) -> None:
    tasks = SqliteTasks(tmp_path / "tasks.db" if is_file else None)
    app = serving(order, tasks)
    options = answering(first(app), {"value": "Ann"})
    one = ByHand(app, **options).until(is_keep)
    store = tasks._store()
    with store._lock:
        store._writer = Replaced(store._writer, "COMMIT")  # type: ignore[assignment]  # it may fail
    assert refused(one.run()) == (200, -32_603)
    store._sweep()
    assert "receipt 1" in str(call(app, "order", **options).message)
    assert charged == ["Ann"]
    tasks.close()


def test_reply_of_a_legacy_request_has_its_status_if_it_is_not_kept() -> None:
    """There, the HTTP status is only about the transport of a message."""
    ledger = Away()
    app = serving(
        failing(ProtocolError(-32_099, "teapot", status=418)), ledger, **DRAFTS
    )
    client, params = drafting(app)
    ledger.on_keep = TaskStoreError("the disk is full")
    assert refused(client.send("tools/call", params)) == (200, -32_603)


# ---- a request that still runs ------------------------------------------------------


def two_at_once(**options: Any) -> tuple[ByHand, ByHand]:
    """Return a request that runs, and the same one, which waits in another process."""
    host = Modelled()
    apps = [serving(order, host.ledger(n), **options) for n in range(2)]
    same_ = answering(first(apps[0]), {"value": "Ann"})
    running = ByHand(apps[0], **same_).until(is_step)
    return running, ByHand(apps[1], **same_).until(is_pause)


def test_same_request_waits_with_growing_pauses_and_gets_the_reply() -> None:
    running, waiting = two_at_once()
    for _ in range(16):
        waiting.step()
    pauses = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.32, 0.32]
    assert waiting.slept == pauses
    reply = running.run()
    assert bare(waiting.run()) == bare(reply)
    assert charged == ["Ann"]


def test_same_request_runs_if_the_first_one_is_cut_off() -> None:
    running, waiting = two_at_once()
    running.exchange.close()
    assert result(waiting.run())["resultType"] == "input_required"
    assert charged == ["Ann"]


@pytest.mark.parametrize(
    ("timeout", "wanted"), [(None, 30.0), (2.0, 2.0), (0.001, 0.0)]
)
def test_same_request_that_waits_loses_its_patience(
    timeout: float | None, wanted: float
) -> None:
    host = Modelled()
    apps = [serving(order, host.ledger(n), timeout=timeout) for n in range(2)]
    options = answering(first(apps[0]), {"value": "Ann"})
    running = ByHand(apps[0], **options).until(is_step)
    waiting = ByHand(apps[1], **options)
    reply = waiting.run()
    assert refused(reply) == (200, -32_603)
    assert "still being answered" in error(reply)["message"]
    assert wanted - 0.64 < sum(waiting.slept) <= wanted
    assert bare(running.run()) == bare(call(apps[1], "order", **options))


def test_same_request_may_be_closed_while_it_waits() -> None:
    running, waiting = two_at_once()
    waiting.exchange.close()
    assert result(running.run())["resultType"] == "input_required"


def test_other_request_does_not_wait_for_a_running_one() -> None:
    host = Modelled()
    app = serving(order, host.ledger(0))
    asked = first(app)
    running = ByHand(app, **answering(asked, {"value": "Ann"})).until(is_step)
    assert refused(call(app, "order", **answering(asked, {"value": "Bob"}))) == USED
    running.exchange.close()
    assert refused(call(app, "order", **answering(asked, {"value": "Bob"}))) == USED


# ---- replies that are too large -----------------------------------------------------


def test_reply_too_large_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def long(size: int) -> Flow[str]:
        yield from Confirm("Now?", once=True)
        yield from Step(charge, "Ann")
        return "x" * size

    monkeypatch.setattr(module, "LARGEST", 400)
    app = consenting(long)
    options = answering(
        first(app, arguments={"size": 500}), {}, arguments={"size": 500}
    )
    assert text_of(result(call(app, "order", **options))) == "x" * 500
    for _ in range(2):
        reply = call(app, "order", **options)
        assert refused(reply) == (200, -32_603)
        assert "too large to be kept" in error(reply)["message"]
    assert charged == ["Ann"]


def test_reply_of_the_largest_size_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Away()
    app = serving(order, ledger)
    options = answering(first(app), {"value": "Ann"})
    one = ByHand(app, **options).until(is_step)
    sizes: list[int] = []
    keep = ledger.keep

    def measured(taken: Taken, reply: bytes) -> None:
        sizes.append(len(reply))
        keep(taken, reply)

    monkeypatch.setattr(ledger, "keep", measured)
    reply = one.run()
    monkeypatch.setattr(module, "LARGEST", sizes[0])
    other = answering(first(app), {"value": "Ann"})
    bytes_ = [bare(call(app, "order", **other)) for _ in range(2)]
    assert bytes_[0] == bytes_[1]
    assert bare(call(app, "order", **options)) == bare(reply)


def test_reply_with_what_json_may_carry_is_repeated_exactly() -> None:
    """Escapes, numbers and keys of an author: all are JSON, so all come back."""

    def odd() -> Flow[dict[str, Any]]:
        yield from Confirm("Now?", once=True)
        return {"status": 5, "id": "x", "": [1e300, -0.0, 2**70, "\u2028\0é"], "a": {}}

    app = consenting(odd)
    found = result(same(app, answering(first(app), {})))
    assert found["structuredContent"]["status"] == 5


# ---- questions for one use ----------------------------------------------------------


@QUESTIONS
def test_consent_used_a_second_time_gets_the_same_reply(
    question: Callable[[str], InputRequest[Any]],
) -> None:
    app = consenting(paying(question))
    options = answering(named(app), {})
    again = result(same(app, options, times=3))
    assert charged == ["Ann"]
    assert text_of(result(same(app, answering(again, {"value": "Bob"}), times=3)))
    assert charged == ["Ann", "Bob"]


@QUESTIONS
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_consent_after_another_decision_is_refused(
    question: Callable[[str], InputRequest[Any]], action: str
) -> None:
    """A refusal is a decision, too, and counts."""
    app = consenting(paying(question))
    asked = named(app)
    reply = call(app, "order", **saying(asked, action=action))
    assert text_of(result(reply)) == "receipt 1 for a fee"
    assert refused(call(app, "order", **answering(asked, {}))) == USED
    assert charged == ["a fee"]


@QUESTIONS
def test_other_decision_after_a_consent_is_refused(
    question: Callable[[str], InputRequest[Any]],
) -> None:
    app = consenting(paying(question))
    asked = named(app)
    call(app, "order", **answering(asked, {}))
    for action in ("decline", "cancel"):
        assert refused(call(app, "order", **saying(asked, action=action))) == USED
    assert charged == ["Ann"]


def test_forks_before_a_consent_are_legal_and_only_one_has_it() -> None:
    app = consenting(paying(confirmed))
    asked = first(app)
    forks = []
    for name in ("Ann", "Bob", "Ann", "Eve"):
        reply = call(app, "order", **answering(asked, {"value": name}))
        forks.append(result(reply))
    options = answering(forks[1], {})
    assert result(call(app, "order", **options))["resultType"] == "input_required"
    for fork in (forks[0], forks[3]):
        assert refused(call(app, "order", **answering(fork, {}))) == USED
    assert charged == ["Bob"]


def test_fork_of_another_length_is_refused() -> None:
    """The round of the fork has another number, but the flow has one line."""

    def order() -> Flow[str]:
        name = yield from Elicit("Who?", str)
        if name == "Bob":
            yield from Elicit("Sure?", str)
        yield from Confirm(f"Pay for {name}?", once=True)
        return (yield from Step(charge, name))

    app = consenting(order)
    asked = first(app)
    longer = result(call(app, "order", **answering(asked, {"value": "Bob"})))
    longer = result(call(app, "order", **answering(longer, {"value": "yes"})))
    ann = result(call(app, "order", **answering(asked, {"value": "Ann"})))
    same(app, answering(ann, {}))
    assert refused(call(app, "order", **answering(longer, {}))) == USED
    assert charged == ["Ann"]


def test_rounds_after_a_consent_have_no_forks() -> None:
    app = consenting(paying(confirmed))
    asked = result(call(app, "order", **answering(named(app), {})))
    same(app, answering(asked, {"value": "Bob"}))
    assert refused(call(app, "order", **answering(asked, {"value": "Eve"}))) == USED
    assert charged == ["Ann", "Bob"]


def test_rounds_after_a_consent_keep_their_replies_though_the_handler_changed() -> None:
    app = consenting(paying(confirmed))
    asked = result(call(app, "order", **answering(named(app), {})))
    options = answering(asked, {"value": "Bob"})
    before = call(app, "order", **options)
    app.remove(app.tools["order"])
    app.tool(name="order")(order)
    assert bare(call(app, "order", **options)) == bare(before)


def reworded(name: str) -> Confirm:
    return Confirm(f"Really pay for {name}?", once=True, otherwise=False)


@pytest.mark.parametrize("changed", [paying(reworded), order])
def test_consent_keeps_its_reply_though_its_question_was_reworded_or_removed(
    changed: Callable[..., Any],
) -> None:
    app = consenting(paying(confirmed))
    asked = named(app)
    options = answering(asked, {})
    before = call(app, "order", **options)
    app.remove(app.tools["order"])
    app.tool(name="order")(changed)
    assert bare(same(app, options)) == bare(before)
    assert refused(call(app, "order", **saying(asked, action="decline"))) == USED
    assert charged == ["Ann"]


def test_consent_keeps_its_reply_though_its_tool_is_for_one_use_now() -> None:
    ledger = Modelled().ledger(0)
    options = answering(named(consenting(paying(confirmed), ledger)), {})
    before = call(consenting(paying(confirmed), ledger), "order", **options)
    after = call(serving(paying(confirmed), ledger), "order", **options)
    assert charged == ["Ann"]
    assert bare(after) == bare(before)


def check_asked_again(app: Server, asked: Asking, options: Mapping[str, Any]) -> None:
    """Check that a request uses its state up, and gets another for the consent."""
    again = result(same(app, options))
    assert "Pay for Ann?" in str(again["inputRequests"])
    assert refused(call(app, "order", **answering(asked, {}))) == USED
    assert charged == []
    same(app, answering(again, {}))
    assert refused(call(app, "order", **saying(again, action="decline"))) == USED
    assert refused(call(app, "order", **saying(asked, action="decline"))) == USED
    assert charged == ["Ann"]


@pytest.mark.parametrize(
    "answer", [{"action": "maybe"}, {"action": 5}, {}, {"content": {}}], ids=str
)
def test_answer_that_does_not_fit_uses_up_its_state(answer: Any) -> None:
    """The user is asked again, in a new state."""
    app = consenting(paying(confirmed))
    asked = named(app)
    check_asked_again(app, asked, saying(asked, **answer))


@pytest.mark.parametrize("answers", [None, {}, {"unknown": {"action": "accept"}}])
def test_request_without_the_answer_uses_up_its_state(answers: Any) -> None:
    app = consenting(paying(confirmed))
    asked = named(app)
    options = {"state": asked["requestState"], "answers": answers}
    check_asked_again(app, asked, options)


def test_fork_from_before_a_consent_is_legal_after_an_answer_that_does_not_fit() -> (
    None
):
    """A consent that was asked, and not answered, is not in the flow's one line."""
    app = consenting(paying(confirmed))
    asked = first(app)
    ann = result(call(app, "order", **answering(asked, {"value": "Ann"})))
    again = result(call(app, "order", **saying(ann, action="maybe")))
    bob = result(call(app, "order", **answering(asked, {"value": "Bob"})))
    done = result(same(app, answering(bob, {})))
    assert refused(call(app, "order", **answering(again, {}))) == USED
    same(app, answering(done, {"value": "Eve"}))
    assert charged == ["Bob", "Eve"]


def test_state_after_an_answer_that_does_not_fit_may_get_the_line() -> None:
    app = consenting(paying(confirmed))
    asked = first(app)
    ann = result(call(app, "order", **answering(asked, {"value": "Ann"})))
    again = result(call(app, "order", **saying(ann, action="maybe")))
    bob = result(call(app, "order", **answering(asked, {"value": "Bob"})))
    same(app, answering(again, {}))
    for fork in (ann, bob):
        assert refused(call(app, "order", **answering(fork, {}))) == USED
    assert charged == ["Ann"]


def together() -> Flow[list[Any]]:
    def consent() -> Flow[str]:
        yield from Confirm("Pay?", once=True, key="pay")
        return (yield from Step(charge, "Ann"))

    return list((yield from Gather(consent(), Elicit("Who?", str, key="who"))))


PAY, WHO = "gather-1/0/pay", "gather-1/1/who"
YES = {"action": "accept", "content": {}}
ANN, BOB = ({"action": "accept", "content": {"value": one}} for one in ("Ann", "Bob"))


def test_consent_beside_an_open_question_counts_at_once() -> None:
    app = consenting(together)
    state = first(app)["requestState"]
    again = result(same(app, {"state": state, "answers": {PAY: YES}}))
    assert [*again["inputRequests"]] == [WHO]
    for answers in ({PAY: {"action": "decline"}}, {PAY: YES, WHO: ANN}):
        assert refused(call(app, "order", state=state, answers=answers)) == USED
    state = again["requestState"]
    same(app, {"state": state, "answers": {WHO: ANN}})
    assert refused(call(app, "order", state=state, answers={WHO: BOB})) == USED
    assert charged == ["Ann"]


def test_answer_beside_an_open_consent_uses_up_its_state() -> None:
    app = consenting(together)
    state = first(app)["requestState"]
    again = result(same(app, {"state": state, "answers": {WHO: ANN}}))
    assert [*again["inputRequests"]] == [PAY]
    for answers in ({WHO: BOB}, {PAY: YES}, {PAY: YES, WHO: ANN}):
        assert refused(call(app, "order", state=state, answers=answers)) == USED
    state = again["requestState"]
    done = result(same(app, {"state": state, "answers": {PAY: YES}}))
    assert "receipt 1 for Ann" in str(done)
    no = {PAY: {"action": "decline"}}
    assert refused(call(app, "order", state=state, answers=no)) == USED
    assert charged == ["Ann"]


def test_line_of_a_flow_is_taken_with_its_first_consent_only() -> None:
    def twice() -> Flow[str]:
        yield from Gather(Confirm("One?", once=True), Confirm("Two?", once=True))
        yield from Confirm("Three?", once=True)
        return (yield from Step(charge, "Ann"))

    ledger = Noted()
    app = consenting(twice, ledger)
    asked = first(app)
    again = result(call(app, "order", **answering(asked, {}, {})))
    done = result(call(app, "order", **answering(again, {})))
    assert text_of(done) == "receipt 1 for Ann"
    assert [len(one.slots) for one in ledger.uses] == [1, 2, 1]
    assert refused(call(app, "order", **saying(again, action="decline"))) == USED
    assert refused(call(app, "order", **saying(asked, action="decline"))) == USED


def test_consent_to_a_question_that_is_for_one_use_since_a_deploy_counts() -> None:
    """The state that asked is for many uses, so it is counted with the answer."""

    def asking(once: bool) -> Callable[[], Flow[str]]:
        def order() -> Flow[str]:
            yield from Confirm("Pay?", once=once)
            return (yield from Step(charge, "Ann"))

        return order

    events: list[Event] = []
    ledger = Noted()
    asked = first(consenting(asking(once=False), ledger))
    app = consenting(asking(once=True), ledger, observers=[events.append])
    same(app, answering(asked, {}))
    assert [len(one.slots) for one in ledger.uses] == [2, 2]
    assert refused(call(app, "order", **saying(asked, action="decline"))) == USED
    assert charged == ["Ann"]
    # The handler runs up to the consent, and nothing is performed.
    outcomes = [one.outcome for one in events if isinstance(one, RoundEnded)]
    assert outcomes == ["returned", "dropped", "raised"]


def test_consent_that_waits_in_the_pool_gets_the_line_when_it_is_taken() -> None:
    """An edit puts a question before it: until it is asked again, nothing was agreed."""

    def before() -> Flow[str]:
        yield from Confirm("Pay?", once=True)
        return (yield from Step(charge, "Ann"))

    def after() -> Flow[str]:
        yield from Elicit("Who?", str)
        return (yield from before())

    host = Modelled()
    asked = first(consenting(before, host.ledger(0)))
    app = consenting(after, host.ledger(0))
    pooled = result(same(app, answering(asked, {})))
    assert "Who?" in str(pooled["inputRequests"])
    assert "line" not in {slot for _, slot in host.slots}
    same(app, answering(pooled, {"value": "Ann"}))
    assert "line" in {slot for _, slot in host.slots}
    assert refused(call(app, "order", **answering(pooled, {"value": "Bob"}))) == USED
    assert refused(call(app, "order", **saying(asked, action="decline"))) == USED
    assert charged == ["Ann"]


def test_consent_that_was_salvaged_stays_counted() -> None:
    """The answer goes to the same question behind an inserted one."""

    def before() -> Flow[str]:
        yield from Confirm("Pay?", once=True)
        tip = yield from Elicit("A tip?", str)
        return (yield from Step(charge, tip))

    def after() -> Flow[str]:
        yield from Elicit("Who?", str)
        return (yield from before())

    events: list[Event] = []
    ledger = Modelled().ledger(0)
    app = consenting(before, ledger)
    asked = result(call(app, "order", **answering(first(app), {})))
    app = consenting(after, ledger, observers=[events.append])
    options = answering(asked, {"value": "5"})
    assert "Who?" in str(result(same(app, options))["inputRequests"])
    assert any(isinstance(one, Salvaged) for one in events)
    assert refused(call(app, "order", **answering(asked, {"value": "6"}))) == USED


def lowlevel(given: Given = Provided()) -> str | InputRequired:
    """Ask for consent in a round, as a plain function does."""
    if not given.answers:
        return InputRequired({"pay": Confirm("Pay?", once=True)}, state=1)
    if "who" not in given.answers:
        charge("Ann")
        return InputRequired({"who": Elicit("Who?", str)}, state=2)
    return f"done {given.state}"


def test_consent_of_a_lowlevel_handler_counts_once() -> None:
    app = consenting(lowlevel)
    asked = first(app)
    again = result(same(app, answering(asked, {})))
    assert refused(call(app, "order", **saying(asked, action="decline"))) == USED
    same(app, answering(again, {"value": "Ann"}))
    assert refused(call(app, "order", **answering(again, {"value": "Bob"}))) == USED


def begin_again() -> Flow[str]:
    name = yield from Elicit("Who now?", str)
    yield from Confirm(f"Pay for {name}?", once=True)
    return (yield from Step(charge, name))


def restarting() -> Flow[str]:
    if (yield from Confirm("Begin again?", once=True)):
        return (yield from Restart(begin_again))
    return "no"


def test_consent_lasts_over_a_restart() -> None:
    """The new generation has the same line: consent counts for one completed flow."""
    app = consenting(restarting)
    asked = first(app)
    again = result(same(app, answering(asked, {})))
    assert refused(call(app, "order", **saying(asked, action="decline"))) == USED
    last = result(same(app, answering(again, {"value": "Ann"})))
    assert refused(call(app, "order", **answering(again, {"value": "Bob"}))) == USED
    same(app, answering(last, {}))
    assert charged == ["Ann"]


def detaching() -> Flow[str]:
    yield from Confirm("Pay?", once=True)
    return f"{(yield from Detach())}"


def test_task_that_a_flow_becomes_is_kept_as_its_reply() -> None:
    rows: Any = Rows()
    app = consenting(detaching, tasks=rows)
    asked = first(app, capabilities=FOLLOWS)
    made = result(same(app, answering(asked, {}, capabilities=FOLLOWS)))
    assert made["resultType"] == "task"
    assert [*rows.rows] == [made["taskId"]]
    no = saying(asked, action="decline")
    assert refused(call(app, "order", capabilities=FOLLOWS, **no)) == USED
    assert len(rows.rows) == 1


def test_whole_task_of_a_tool_for_one_use_needs_no_slot() -> None:
    """The questions are asked in the task, where each is answered once."""
    rows: Any = Rows()
    host = Modelled()
    app = Server("shop", keys=KEYS, tasks=rows, ledger=host.ledger(0))
    app.tool(name="order", task="required", single_use=True)(order)
    assert first(app, capabilities=FOLLOWS)["resultType"] == "task"
    assert host.slots == {}


def test_optional_task_of_a_tool_for_one_use_counts_where_it_is_called() -> None:
    rows: Any = Rows()
    app = Server("shop", keys=KEYS, tasks=rows, ledger=Modelled().ledger(0))
    app.tool(name="order", task="optional", single_use=True)(order)
    asked = first(app)
    same(app, answering(asked, {"value": "Ann"}))
    assert refused(call(app, "order", **answering(asked, {"value": "Bob"}))) == USED


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (Accepted(None), 1),
        (Declined(), 1),
        (Dismissed(), 1),
        (ClientFailed(-32_603, "no window"), 0),
        (Unfit(["what?"]), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("once", [True, False])
def test_run_reports_what_a_user_decided_before_anything_follows(
    answer: Answer, wanted: int, once: bool
) -> None:
    """A failure of the client decides nothing, nor does an answer that does not fit."""

    def handler() -> Flow[Any]:
        yield from Confirm("Pay?", once=once, key="pay", otherwise=False)

    decided: list[str] = []
    before = Run(handler, flow_id=bytes(16))
    before.start()
    journal = before.suspend()
    run = Run(
        handler,
        flow_id=bytes(16),
        journal=journal,
        consented=lambda: decided.append("once"),
    )
    run.start({"pay": answer})
    assert len(decided) == wanted * once
    run.close()


def test_claims_that_are_counted_stay_so_in_bytes() -> None:
    claims = Claims(flow_id=bytes(16), started=1_000, journal=Journal())
    assert not claims.is_counted
    for is_counted in (True, False):
        after = claims.after(Journal(), is_counted=is_counted)
        packed = Packed(after, bytes(BINDINGS), 1_000, 2_000)
        assert unpack(pack(packed)).claims == after
        assert after.is_counted is is_counted


# ---- other eras ---------------------------------------------------------------------


DRAFT = "2026-06-XX"
DRAFTS: dict[str, Any] = {"drafts": True}


def drafting(app: Server, content: Any = None) -> tuple[LegacyClient, Wire]:
    """Return a client of the drafts, and the parameters of its second request."""
    client = LegacyClient(app, DRAFT)
    asked = client.call("order")
    answer = {"action": "accept", "content": content or {}}
    answers = dict.fromkeys(asked["inputRequests"], answer)
    return client, call_params("order", {}, answers, asked["requestState"])


@pytest.mark.parametrize("once", [True, False])
def test_drafts_count(once: bool) -> None:
    app = serving(failing(ProtocolError(-32_099, "x", status=418)), once=once, **DRAFTS)
    client, params = drafting(app)
    replies = [client.send("tools/call", params) for _ in range(2)]
    assert [refused(one) for one in replies] == [(200, -32_099)] * 2
    for key in params["inputResponses"]:
        params["inputResponses"][key] = {"action": "decline"}
    assert refused(client.send("tools/call", params)) == USED
    assert charged == ["Ann"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("handler", [order, paying(confirmed)])
def test_live_calls_need_no_ledger(version: str, handler: Any) -> None:
    """Their flow stays in memory, and each question is answered once."""
    app = Server("shop", keys=KEYS)
    app.tool(name="order", single_use=handler is order)(handler)
    client = LegacyClient(app, version)
    contents: list[Any] = [{"value": "Ann"}, {}, {"value": "Bob"}]
    if handler is order:
        del contents[1]
    if version == VERSIONS[-1]:  # it cannot be asked
        assert client.call("order")["isError"]
        return
    assert text_of(client.call("order", None, accepts(*contents)))
    assert charged == ["Ann", "Bob"]


# ---- without a ledger ---------------------------------------------------------------


def without_ledger(handler: Callable[..., Any], *, once: bool, **more: Any) -> Server:
    app = Server("shop", keys=KEYS, **more)
    app.tool(name="order", single_use=once)(handler)
    return app


WORDS = (
    "counts once",
    "Server(tasks=SqliteTasks(path))",
    "Server(ledger=...)",
    "--tasks",
)


def test_single_use_without_a_ledger_is_refused_at_its_first_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A call that could not end must not begin."""
    reply = call(without_ledger(order, once=True, tasks=Rows()), "order")
    assert result(reply)["isError"]
    assert "LedgerError" in caplog.text
    assert all(one in caplog.text for one in WORDS)


def test_question_for_one_use_without_a_ledger_is_refused_when_it_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = without_ledger(paying(confirmed), once=False)
    asked = first(app)
    reply = call(app, "order", **answering(asked, {"value": "Ann"}))
    assert result(reply)["isError"]
    assert "LedgerError" in caplog.text
    assert charged == []


def test_ledger_that_is_removed_during_a_flow_performs_nothing() -> None:
    ledger = Modelled().ledger(0)
    asked = named(consenting(paying(confirmed), ledger))
    app = without_ledger(paying(confirmed), once=False)
    assert result(call(app, "order", **answering(asked, {})))["isError"]
    again = result(
        call(consenting(paying(confirmed), ledger), "order", **answering(asked, {}))
    )
    reply = call(app, "order", **answering(again, {"value": "Bob"}))
    assert result(reply)["isError"]
    assert charged == ["Ann"]


@pytest.mark.parametrize(
    "check",
    [partial(ensure_tasks, is_alone=False), check_shared, prepare],
    ids=["ensure_tasks", "check_shared", "prepare"],
)
def test_single_use_without_a_ledger_is_refused_at_serving(
    check: Callable[[Server], None],
) -> None:
    with pytest.raises(LedgerError, match="the tool 'order' counts once") as caught:
        check(without_ledger(order, once=True))
    assert all(one in str(caught.value) for one in WORDS)
    assert caught.value.name == "the tool 'order'"
    check(without_ledger(order, once=False))


def test_server_that_is_alone_gets_a_ledger_in_memory() -> None:
    app = without_ledger(order, once=True)
    ensure_tasks(app, is_alone=True)
    ledger: Any = app.ledger
    assert isinstance(ledger, SqliteTasks)
    assert app.tasks is ledger


def test_store_of_tasks_need_not_be_a_ledger() -> None:
    app = without_ledger(order, once=True, tasks=Rows())
    assert app.ledger is None
    with pytest.raises(LedgerError):
        ensure_tasks(app, is_alone=True)
    app.ledger = Modelled().ledger(0)
    ensure_tasks(app, is_alone=True)
    app.ledger = None
    assert app.ledger is None


def test_ledger_of_a_server_comes_before_its_store(memory: SqliteTasks) -> None:
    ledger = Modelled().ledger(0)
    app = Server("shop", tasks=memory)
    assert app.ledger is memory
    app.ledger = ledger
    assert app.ledger is ledger


def test_ledger_in_memory_is_refused_for_several_processes(
    memory: SqliteTasks, tmp_path: Path
) -> None:
    app = Server("shop", ledger=memory)
    with pytest.raises(UsageError, match="counts in one process only") as caught:
        check_shared(app)
    assert "SqliteTasks(path)" in str(caught.value)
    app.ledger = SqliteTasks(tmp_path / "tasks.db")
    check_shared(app)


# ---- what an author may write -------------------------------------------------------


def test_single_use_of_a_plain_function_is_refused() -> None:
    with pytest.raises(SchemaError, match="single_use=True is for a generator"):
        Server("shop").tool(name="order", single_use=True)(lambda: "x")


@pytest.mark.parametrize("value", ["yes", None, 2, []])
def test_single_use_that_is_not_a_bool_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match=r"order: single_use=.*: give True or False"):
        Server("shop").tool(name="order", single_use=value)(order)


@pytest.mark.parametrize("value", ["yes", None, 2, 1, 0])
def test_once_that_is_not_a_bool_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"Confirm\(once=.*\): give True or False"):
        Confirm("Pay?", once=value)
    with pytest.raises(UsageError, match=r"ElicitUrl\(once=.*\): give True or False"):
        ElicitUrl("Pay", "https://pay.example", once=value)


def test_once_is_part_of_a_question_and_off_by_default() -> None:
    assert Confirm("Pay?") != Confirm("Pay?", once=True)
    assert not Confirm("Pay?").once
    assert not ElicitUrl("Pay", "https://pay.example").once
    assert not Elicit("Who?", str).once


# ---- uses that are stored -----------------------------------------------------------


class Noted(Away):
    """A ledger that notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: list[Use] = []

    def take(self, use: Use) -> Taking:
        self.uses.append(use)
        return super().take(use)


def test_slots_are_kept_while_a_state_can_name_them() -> None:
    ledger = Noted()
    app = consenting(paying(confirmed), ledger, state_life=1_000)
    now = int(time.time())
    asked = result(call(app, "order", **answering(named(app), {})))
    call(app, "order", **answering(asked, {"value": "Bob"}))
    asking, consent, tip = ledger.uses
    [(state, expires)] = asking.slots
    assert consent == attrs.evolve(asking, slots=consent.slots)
    of_state, (line, life) = consent.slots
    assert of_state == (state, expires)
    assert isinstance(app.sealer, Sealer)
    leeway = 2 * app.sealer.leeway
    assert line == "line"
    assert now <= life - leeway - 1_000 <= time.time()
    assert now <= expires - leeway - app.sealer.ttl <= time.time()
    [(later, _)] = tip.slots
    assert later != state
    assert [len(bytes.fromhex(one)) for one in (state, later)] == [8, 8]
    assert tip.by != asking.by


def test_slots_of_a_tool_for_one_use_are_its_states_and_its_rounds() -> None:
    ledger = Noted()
    app = serving(paying(confirmed), ledger)
    asked = result(call(app, "order", **answering(named(app), {})))
    call(app, "order", **answering(asked, {"value": "Bob"}))
    slots = [[slot for slot, _ in one.slots] for one in ledger.uses]
    # The consent takes its state a second time, with the line of the flow.
    assert [rest for _, *rest in slots] == [["1"], ["2"], ["2", "line"], ["3"]]
    assert len({state for state, *_ in slots}) == 3


def test_use_of_a_request_reveals_no_token_and_no_answer() -> None:
    ledger = Noted()
    app = serving(order, ledger)
    peers = [Peer(principal="ann"), Peer(principal="bob")]
    for peer in peers:
        asked = result(call(app, "order", peer=peer))
        for _ in range(2):
            call(app, "order", peer=peer, **answering(asked, {"value": "Ann"}))
    ann, again, bob, _ = ledger.uses
    assert (ann.owner, bob.owner) == ("user ann", "user bob")
    assert (ann.flow, ann.request) == (again.flow, again.request)
    assert ann.by != again.by
    assert ann.flow != bob.flow
    assert ann.request != bob.request
    assert all(set(x) <= set("0123456789abcdef") for x in (ann.flow, ann.request))


def test_request_is_the_same_in_every_order_of_its_answers() -> None:
    """A proxy or a client may write the same JSON in another order."""
    app = consenting(together)
    state = first(app)["requestState"]
    one = call(app, "order", state=state, answers={PAY: YES, WHO: ANN})
    other = call(app, "order", state=state, answers={WHO: ANN, PAY: YES})
    assert bare(one) == bare(other)
    assert charged == ["Ann"]


def test_request_with_odd_answers_can_be_counted() -> None:
    """Canonical JSON would refuse them, but they are beside the answers."""
    app = serving(order)
    options = answering(first(app), {"value": "Ann"})
    options["answers"]["odd"] = {"a": 1e300, "b": 2**80, "c": [[]]}
    same(app, options)
    assert charged == ["Ann"]


def test_reply_that_was_kept_begins_no_round() -> None:
    """The kept reply is sent before the handler runs."""
    events: list[Event] = []
    app = consenting(paying(confirmed), observers=[events.append])
    same(app, answering(named(app), {}))
    outcomes = [one.outcome for one in events if isinstance(one, RoundEnded)]
    assert outcomes == ["asked", "asked", "asked"]
    assert sum(isinstance(one, RoundBegan) for one in events) == 3


# ---- limits of `SqliteTasks` --------------------------------------------------------


def test_limit_of_a_user_reaches_the_client() -> None:
    tasks = SqliteTasks(uses_share=1024)
    app = serving(order, tasks)
    ann, bob = Peer(principal="ann"), Peer(principal="bob")
    asked = [result(call(app, "order", peer=peer)) for peer in (ann, ann, bob)]
    options = [answering(one, {"value": "Ann"}) for one in asked]
    assert result(call(app, "order", peer=ann, **options[0]))
    reply = call(app, "order", peer=ann, **options[1])
    assert refused(reply) == (200, -32_603)
    assert "you have too many calls that count once" in error(reply)["message"]
    assert result(call(app, "order", peer=ann, **options[0]))  # it has its slot
    assert result(call(app, "order", peer=bob, **options[2]))
    assert charged == ["Ann", "Ann"]
    tasks.close()


# ---- interleavings ------------------------------------------------------------------


ints = st.integers(0, 11)
scripts = st.lists(st.tuples(st.sampled_from(ACTIONS), ints, ints, ints), max_size=40)
kinds = st.sampled_from(["tool", "consent"])


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("host", HOSTS)
@settings(max_examples=25)
@given(kinds, scripts)
def test_interleavings_have_one_effect_and_one_reply(
    host: str,
    kind: Literal["tool", "consent"],
    script: list[tuple[str, int, int, int]],
) -> None:
    played(HOSTS[host], kind, script)


@pytest.mark.long
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("host", HOSTS)
def test_interleavings_have_one_effect_and_one_reply_long(host: str) -> None:
    play_seeds(HOSTS[host], host, 0, 10_000)


@pytest.mark.parametrize("otherwise", [True, None, "yes", 0])
def test_consent_that_counts_once_needs_an_answer(otherwise: Any) -> None:
    """A client could leave its capability out, and nothing would be counted."""
    with pytest.raises(UsageError, match="there is no consent to count"):
        Confirm("Pay?", once=True, otherwise=otherwise)
    with pytest.raises(UsageError, match="there is no consent to count"):
        ElicitUrl("Pay", "https://pay.example", once=True, otherwise=otherwise)


def test_consent_needs_no_listener_in_an_engine_of_its_own() -> None:
    def flow() -> Flow[bool]:
        return (yield from Confirm("Pay?", once=True))

    first = Run(flow, flow_id=bytes(16))
    asked = first.start()
    assert isinstance(asked, Asked)
    run = Run(flow, flow_id=bytes(16), journal=first.suspend())
    assert run.start({asked.questions[0].key: Accepted(None)}) == Returned(True)
