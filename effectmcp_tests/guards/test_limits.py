"""Limits of calls that are started and of calls that are open, in every kind of call."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import define, field
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import (
    Call,
    Confirm,
    Detach,
    Elicit,
    Flow,
    Intercepting,
    Server,
    ToolError,
    step,
)
from effectmcp.drivers import sync
from effectmcp.errors import UsageError
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.exchange.handle import handle
from effectmcp.guards import LimitStore, MemoryLimits, limit_open, limit_rate

from ..exchange.test_tasks import FOLLOWS, Rows
from ..legacy_client import LegacyClient, accepts
from ..tasks.simulated import Host, new
from ..wire import KEYS, call, error, request, result, said, send, text_of

ANN = Peer(principal="ann", address="10.0.0.1")
BOB = Peer(principal="bob", address="10.0.0.1")

OPEN = "{} calls are open: answer what they ask, or come back later."
RATE = "Too many calls: try again in {} seconds."


@define(eq=False)
class Clock:
    """The real time, and what a test adds to it."""

    more: float = 0.0
    start: float = field(factory=time.time)

    def __call__(self) -> float:
        """Return the start time of the test, plus the seconds that it has added."""
        return self.start + self.more


@step
def work() -> None:
    """Take a while."""


def serving(*interceptors: Any, **options: Any) -> Server:
    """A server with a flow of each kind, and with a plain function."""
    app = Server("shop", keys=KEYS, **options)
    for one in interceptors:
        app.intercept(one)

    @app.tool
    def greet() -> str:
        return "Hello!"

    @app.tool
    def wish(how: str = "well") -> Flow[str]:
        where = yield from Elicit("Where to?", str, key="where")
        if how == "bad":
            raise ToolError("sold out")
        if how == "worse":
            raise ValueError("a bug")
        if how == "task":
            yield from Detach()
        yield from Confirm("Sure?", key="sure")
        return where

    @app.tool
    def slow() -> Flow[str]:
        yield from work()
        yield from Elicit("Where to?", str, key="where")
        yield from work()
        return "done"

    @app.prompt
    def review() -> Flow[str]:
        where = yield from Elicit("Where to?", str, key="where")
        return f"Review {where}"

    @app.resource("shop://news")
    def news() -> Flow[str]:
        where = yield from Elicit("Where to?", str, key="where")
        return f"news of {where}"

    return app


def says(reply: Reply) -> str:
    """The text of a result, or `asks` for a result that asks."""
    found = result(reply)
    return "asks" if "inputRequests" in found else text_of(found)


def answered(
    app: Server, reply: Reply, content: Any = None, name: str = "wish", **more: Any
) -> Reply:
    """The reply of the next round."""
    asked = result(reply)
    content = {"value": "Rome"} if content is None else content
    answers = said(asked, content)
    return call(app, name, answers=answers, state=asked["requestState"], **more)


# ---- rates --------------------------------------------------------------------------


class TestRates:
    def test_a_bucket_is_emptied_and_fills_again(self) -> None:
        clock = Clock()
        app = serving(limit_rate(2, seconds=60, clock=clock))
        assert [says(call(app, "greet")) for _ in range(3)] == [
            "Hello!",
            "Hello!",
            RATE.format(30),
        ]
        for clock.more, wait in ((15, 15), (28, 2), (29, 1), (29.5, 1)):
            assert says(call(app, "greet")) == RATE.format(wait)
        clock.more = 30
        assert says(call(app, "greet")) == "Hello!"
        clock.more = 1_000
        assert [says(call(app, "greet")) for _ in range(3)] == [
            "Hello!",
            "Hello!",
            RATE.format(30),
        ]

    def test_a_refused_call_is_not_run(self) -> None:
        ran: list[str] = []
        app = Server("shop")

        @app.tool(interceptors=[limit_rate(1)])
        def run() -> str:
            ran.append("x")
            return "ran"

        assert [says(call(app, "run")) == "ran" for _ in range(3)] == [
            True,
            False,
            False,
        ]
        assert ran == ["x"]

    def test_each_user_has_a_bucket(self) -> None:
        app = serving(limit_rate(1))
        for peer in (ANN, BOB):
            assert says(call(app, "greet", peer=peer)) == "Hello!"
            assert says(call(app, "greet", peer=peer)).startswith("Too many")

    def test_each_address_has_a_bucket_and_the_unknown_have_one(self) -> None:
        app = serving(limit_rate(1))
        known = [Peer(address="10.0.0.1"), Peer(address="2001:db8::1")]
        for peer in [*known, Peer()]:
            assert says(call(app, "greet", peer=peer)) == "Hello!"
        # With IPv6, one client has a whole network.
        for peer in [*known, Peer(address="2001:db8::2"), Peer()]:
            assert says(call(app, "greet", peer=peer)).startswith("Too many")

    def test_by_a_function(self) -> None:
        def by(call: Call) -> str | None:
            return None if call.principal == "ann" else call.name

        app = serving(limit_rate(1, by=by))
        for _ in range(3):
            assert says(call(app, "greet", peer=ANN)) == "Hello!"
        assert says(call(app, "greet", peer=BOB)) == "Hello!"
        assert says(call(app, "greet")).startswith("Too many")
        assert says(call(app, "wish")) == "asks"

    @pytest.mark.parametrize(("rounds", "calls"), [(False, 1), (True, 3)])
    def test_only_first_rounds_count_unless_all_do(
        self, rounds: bool, calls: int
    ) -> None:
        app = serving(limit_rate(3, rounds=rounds))
        last = answered(app, answered(app, call(app, "wish")), {})
        assert says(last) == "Rome"
        left = 0
        while says(call(app, "greet")) == "Hello!":
            left += 1
        assert left == 3 - calls

    def test_a_later_round_may_be_sent_again_when_it_was_refused(self) -> None:
        clock = Clock()
        app = serving(limit_rate(1, seconds=60, rounds=True, clock=clock))
        asked = call(app, "wish")
        assert says(answered(app, asked)).startswith("Too many")
        clock.more = 60
        assert says(answered(app, asked)) == "asks"

    def test_the_end_of_a_task_does_not_count(self) -> None:
        app = serving(limit_rate(1, rounds=True))

        @app.tool
        def later() -> Flow[str]:
            yield from Detach()
            return "done"

        for _ in range(3):
            assert Host(app, new("later")).run().status == "completed"
        assert says(call(app, "greet")) == "Hello!"

    def test_names_keep_limits_apart_in_one_store(self) -> None:
        store = MemoryLimits()

        def app_with(name: str) -> Server:
            return serving(limit_rate(1, store=store, name=name))

        assert says(call(app_with("a"), "greet")) == "Hello!"
        assert says(call(app_with("b"), "greet")) == "Hello!"
        assert says(call(app_with("a"), "greet")).startswith("Too many")

    def test_without_a_store_each_limit_has_its_own(self) -> None:
        for _ in range(2):
            assert says(call(serving(limit_rate(1)), "greet")) == "Hello!"

    def test_a_clock_that_is_set_back(self) -> None:
        clock = Clock(more=3_600)
        app = serving(limit_rate(1, seconds=60, clock=clock))
        assert says(call(app, "greet")) == "Hello!"
        clock.more = 0
        assert says(call(app, "greet")) == RATE.format(60)
        clock.more = 60
        assert says(call(app, "greet")) == "Hello!"

    @pytest.mark.parametrize(
        ("calls", "seconds"),
        [
            (0, 60),
            (0.99, 60),
            (-1, 60),
            (float("nan"), 60),
            (float("inf"), 60),
            (1, 0),
            (1, -1),
            (1, float("nan")),
            (1, float("inf")),
        ],
    )
    def test_limits_that_are_invalid(self, calls: float, seconds: float) -> None:
        with pytest.raises(UsageError, match="give 1 call or more"):
            limit_rate(calls, seconds=seconds)


@given(st.floats(1, 100), st.floats(0.01, 10_000), st.integers(1, 5))
@example(1, 2, 1)
@example(1, 3, 1)
def test_the_wait_in_the_message_is_enough(
    calls: float, seconds: float, more: int
) -> None:
    """A model that comes back after this wait is let in; a second less is too early."""
    clock = Clock()
    app = serving(limit_rate(calls, seconds=seconds, clock=clock))
    replies = [says(call(app, "greet")) for _ in range(int(calls) + more)]
    words = replies[-1].removeprefix("Too many calls: try again in ")
    wait = int(words.removesuffix(" seconds."))
    assert wait <= max(1, seconds / calls + 1)
    clock.more = wait
    assert says(call(app, "greet")) == "Hello!"


# ---- open calls ---------------------------------------------------------------------


class TestOpen:
    def test_first_rounds_beyond_the_most_are_refused(self) -> None:
        app = serving(limit_open(2))
        replies = [says(call(app, "wish", peer=ANN)) for _ in range(3)]
        assert replies == ["asks", "asks", OPEN.format(2)]
        assert says(call(app, "wish", peer=BOB)) == "asks"

    def test_resumed_rounds_are_never_refused(self) -> None:
        app = serving(limit_open(1))
        asked = call(app, "wish")
        assert says(call(app, "wish")) == OPEN.format(1)
        forks = [answered(app, asked) for _ in range(3)]  # it is the same call
        assert [says(one) for one in forks] == ["asks"] * 3
        assert says(call(app, "wish")) == OPEN.format(1)
        assert says(answered(app, forks[0], {})) == "Rome"
        assert says(call(app, "wish")) == "asks"

    def test_a_resumed_round_is_let_in_where_nothing_was_counted(self) -> None:
        """The first round may have run in another process, or before a restart."""
        asked = call(serving(limit_open(1)), "wish")
        app = serving(limit_open(1))
        assert says(call(app, "wish")) == "asks"
        assert says(answered(app, asked)) == "asks"
        assert says(call(app, "wish")) == OPEN.format(1)

    @pytest.mark.parametrize(
        ("how", "text"),
        [("bad", "sold out"), ("worse", "Internal error: wish failed.")],
    )
    def test_a_flow_that_fails_is_closed(self, how: str, text: str) -> None:
        app = serving(limit_open(1))
        asked = call(app, "wish", arguments={"how": how})
        assert says(call(app, "wish")) == OPEN.format(1)
        failed = answered(app, asked, arguments={"how": how})
        assert says(failed).startswith(text)
        assert says(call(app, "wish")) == "asks"

    def test_arguments_that_do_not_fit_open_nothing(self) -> None:
        app = serving(limit_open(1))
        assert says(call(app, "wish", arguments={"how": 5})).startswith("The arguments")
        assert says(call(app, "wish")) == "asks"

    def test_a_flow_that_becomes_a_task_is_closed(self) -> None:
        app = serving(limit_open(1), tasks=Rows())
        how: dict[str, Any] = {"arguments": {"how": "task"}, "capabilities": FOLLOWS}
        asked = call(app, "wish", **how)
        assert says(call(app, "wish")) == OPEN.format(1)
        assert result(answered(app, asked, **how))["resultType"] == "task"
        assert says(call(app, "wish")) == "asks"

    def test_the_end_of_a_task_passes(self) -> None:
        app = serving(limit_open(1))

        @app.tool
        def later() -> Flow[str]:
            yield from Detach()
            return "done"

        assert says(call(app, "wish")) == "asks"
        assert Host(app, new("later")).run().status == "completed"
        assert says(call(app, "wish")) == OPEN.format(1)

    @pytest.mark.parametrize(
        ("options", "seconds"), [({}, 3_600), ({"state_life": 60}, 60)]
    )
    def test_it_is_closed_when_its_state_expires(
        self, options: Any, seconds: float
    ) -> None:
        clock = Clock()
        app = serving(limit_open(1, clock=clock), **options)
        assert says(call(app, "wish")) == "asks"
        clock.more = seconds - 5
        assert says(call(app, "wish")) == OPEN.format(1)
        clock.more = seconds + 60
        assert says(call(app, "wish")) == "asks"

    def test_a_client_that_leaves_in_the_first_round_closes_it(self) -> None:
        app = serving(limit_open(1))
        leave(app)
        assert says(call(app, "wish")) == "asks"

    def test_a_client_that_leaves_later_may_come_back(self) -> None:
        app = serving(limit_open(1))
        asked = call(app, "slow")
        leave(app, asked)
        assert says(call(app, "wish")) == OPEN.format(1)
        assert says(answered(app, asked, name="slow")) == "done"
        assert says(call(app, "wish")) == "asks"

    def test_a_round_that_is_lost_is_closed_after_its_seconds(self) -> None:
        """A store that blocks cannot be notified while a client leaves."""
        clock = Clock()
        store = Blocking()
        app = serving(limit_open(1, seconds=30, store=store, clock=clock))
        leave(app)
        clock.more = 29
        assert says(call(app, "wish")) == OPEN.format(1)
        clock.more = 31
        assert says(call(app, "wish")) == "asks"

    def test_prompts_and_resources(self) -> None:
        def asks(method: str, params: Mapping[str, Any]) -> bool:
            reply = send(app, method, params)
            assert reply.message is not None
            if "error" in reply.message:
                assert error(reply)["message"] == OPEN.format(2)
                return False
            return "inputRequests" in reply.message["result"]

        app = serving(limit_open(2))
        assert asks("prompts/get", {"name": "review"})
        assert asks("resources/read", {"uri": "shop://news"})
        assert not asks("prompts/get", {"name": "review"})
        assert not asks("resources/read", {"uri": "shop://news"})

    def test_live_calls_of_a_session_are_open_while_they_run(self) -> None:
        app = serving(limit_open(1))
        client = LegacyClient(app)
        inside: list[str] = []

        def answer(question: Any) -> Any:
            found = LegacyClient(app).call("wish")
            inside.append(text_of(found))
            return answers(question)

        answers: Callable[[Any], Any]
        for _ in range(2):
            answers = accepts({"value": "Rome"}, {})
            assert text_of(client.call("wish", answer=answer)) == "Rome"
        assert inside == [OPEN.format(1)] * 4

    def test_plain_functions_pass(self) -> None:
        app = serving(limit_open(1))
        assert says(call(app, "wish")) == "asks"
        for _ in range(3):
            assert says(call(app, "greet")) == "Hello!"

    def test_by_a_function(self) -> None:
        app = serving(limit_open(1, by=lambda call: call.principal))
        for _ in range(3):
            assert says(call(app, "wish")) == "asks"
        assert says(call(app, "wish", peer=ANN)) == "asks"
        assert says(call(app, "wish", peer=ANN)) == OPEN.format(1)

    def test_names_keep_limits_apart_in_one_store(self) -> None:
        store = MemoryLimits()
        one = serving(limit_open(1, store=store, name="one"))
        other = serving(limit_open(1, store=store, name="other"))
        assert says(call(one, "wish")) == "asks"
        assert says(call(other, "wish")) == "asks"
        assert says(call(one, "wish")) == OPEN.format(1)

    def test_with_a_rate_in_one_store(self) -> None:
        store = MemoryLimits()
        app = serving(limit_rate(2, store=store), limit_open(1, store=store))
        assert says(call(app, "wish")) == "asks"
        assert says(call(app, "wish")) == OPEN.format(1)
        assert says(call(app, "wish")).startswith("Too many")

    @pytest.mark.parametrize(
        ("most", "seconds"),
        [(0, 300), (-1, 300), (1.5, 300), (True, 300), (1, 0), (1, float("nan"))],
    )
    def test_limits_that_are_invalid(self, most: Any, seconds: float) -> None:
        with pytest.raises(UsageError, match="give 1 call or more"):
            limit_open(most, seconds=seconds)


def leave(app: Server, asked: Reply | None = None) -> None:
    """Begin a round of `slow`, and leave while it performs a step."""
    params: dict[str, Any] = {"name": "slow"}
    if asked is not None:
        found = result(asked)
        params["inputResponses"] = said(found, {"value": "x"})
        params["requestState"] = found["requestState"]
    message = request("tools/call", params)
    exchange = handle(app, message, clock=time.time, entropy=os.urandom)
    command: Any = next(exchange)
    while command.wants[0].key.startswith("interceptor"):
        (want,) = command.wants
        command = exchange.send({want.key: sync.perform(want)})
    assert command.wants[0].effect.fn.__name__ == "work"
    exchange.close()


# ---- stores -------------------------------------------------------------------------


@define(eq=False)
class Blocking:
    """A store that declares that it blocks, and notes its actions in their order.

    Attributes:
        failing: The functions that fail.
    """

    failing: frozenset[str] = frozenset()
    blocks: bool = True
    inner: MemoryLimits = field(factory=MemoryLimits)
    done: list[str] = field(factory=list)

    def take(self, key: str, **given: Any) -> float:
        """Take a token."""
        self._note("take")
        return self.inner.take(key, **given)

    def open(self, key: str, flow: str, **given: Any) -> bool:
        """Open a flow."""
        self._note("open")
        return self.inner.open(key, flow, **given)

    def close(self, key: str, flow: str) -> None:
        """Close a flow."""
        self._note("close")
        self.inner.close(key, flow)

    def _note(self, what: str) -> None:
        self.done.append(what)
        if what in self.failing:
            raise OSError("the store is away: a secret")


@define(eq=False)
class Awaited:
    """A store whose functions are async."""

    inner: Blocking = field(factory=Blocking)
    blocks: bool = True

    async def take(self, key: str, **given: Any) -> float:
        """Take a token."""
        await asyncio.sleep(0)
        return self.inner.take(key, **given)

    async def open(self, key: str, flow: str, **given: Any) -> bool:
        """Open a flow."""
        await asyncio.sleep(0)
        return self.inner.open(key, flow, **given)

    async def close(self, key: str, flow: str) -> None:
        """Close a flow."""
        await asyncio.sleep(0)
        self.inner.close(key, flow)


def called(app: Server, name: str, **more: Any) -> Reply:
    """The reply of a driver that also performs async steps."""
    params = {"name": name, **more}
    return sync.handle(app, request("tools/call", params), run_async=asyncio.run)


@pytest.mark.parametrize("kind", [Blocking, Awaited])
def test_a_store_that_waits_is_used_in_steps(kind: Any) -> None:
    store = kind()
    app = serving(limit_rate(3, store=store), limit_open(1, store=store))
    asked = called(app, "wish")
    assert says(called(app, "wish")) == OPEN.format(1)
    found = result(asked)
    answers = {"inputResponses": said(found, {"value": "x"})}
    again = called(app, "wish", requestState=found["requestState"], **answers)
    found = result(again)
    answers = {"inputResponses": said(found, {})}
    last = called(app, "wish", requestState=found["requestState"], **answers)
    assert says(last) == "x"
    assert says(called(app, "wish", arguments={"how": 5})).startswith("The arguments")
    assert says(called(app, "greet")).startswith("Too many")
    done = store.done if isinstance(store, Blocking) else store.inner.done
    first = ["take", "open", "open"]
    assert done == [
        *first,
        *("take", "open"),
        "open",
        "close",
        *("take", "open", "close"),
        "take",
    ]


def test_a_step_of_a_store_is_what_an_interceptor_yields() -> None:
    """Such a step runs where steps run: a driver has it in a worker thread."""
    app = serving(limit_rate(1, store=Blocking()))
    message = request("tools/call", {"name": "greet"})
    exchange = handle(app, message, clock=time.time, entropy=bytes)
    command: Any = next(exchange)
    (want,) = command.wants
    assert want.effect.fn.__name__ == "take"
    exchange.close()


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(
    ("guard", "failing"), [(limit_rate, "take"), (limit_open, "open")]
)
def test_a_store_that_fails_refuses_the_call(
    guard: Callable[..., Any],
    failing: str,
    blocks: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Blocking(frozenset({failing}), blocks)
    ran: list[str] = []

    def notes(call: Call) -> Intercepting:
        ran.append(call.name)
        return (yield from call)

    app = serving(guard(1, store=store), notes)
    reply = result(call(app, "wish"))
    assert reply["isError"] is True
    assert text_of(reply).startswith("Internal error: wish failed.")
    assert ran == []
    assert "the store is away: a secret" in caplog.text


def test_the_interfaces_agree() -> None:
    """mypy reads this: both may be given as a `LimitStore`."""
    stores: list[LimitStore] = [MemoryLimits(), Blocking()]
    assert [one.blocks for one in stores] == [False, True]


# ---- options that cannot be ---------------------------------------------------------


async def waits(call: Call) -> str:
    return "x"


@pytest.mark.parametrize("by", ["x", waits, lambda: "x"])
@pytest.mark.parametrize("limit", [limit_rate, limit_open])
def test_functions_that_return_no_name(limit: Any, by: Any) -> None:
    with pytest.raises(UsageError, match="give a plain function of the call"):
        limit(1, by=by)


def test_a_name_that_is_not_a_string(caplog: pytest.LogCaptureFixture) -> None:
    by: Any = {"a": 1}.copy
    app = serving(limit_rate(1, by=lambda call: by()))
    assert says(called(app, "greet")).startswith("Internal error")
    assert "it returns a string, or None" in caplog.text


class Async:
    blocks = False

    async def take(self) -> None: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        (object(), r"it needs take\(\), open\(\), close\(\) and blocks"),
        (Async(), "has async functions: set blocks = True"),
    ],
    ids=["object", "async"],
)
@pytest.mark.parametrize("limit", [limit_rate, limit_open])
def test_stores_that_cannot_be(limit: Any, store: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        limit(1, store=store)


def test_a_store_that_fails_at_the_end_of_a_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The work is done, so its result is sent."""
    store = Blocking(frozenset({"close"}), True)
    app = serving(limit_open(1, store=store))
    asked = result(called(app, "wish"))
    found = asked
    for value in ({"value": "x"}, {}):
        found = result(
            called(
                app,
                "wish",
                requestState=found["requestState"],
                inputResponses=said(found, value),
            )
        )
    assert text_of(found) == "x"
    assert "a limit could not note the end of a round" in caplog.text
