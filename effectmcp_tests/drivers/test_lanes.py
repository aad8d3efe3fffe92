"""Which blocking call gets a thread next, by hand and on both loops."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import sync
from effectmcp.drivers import trio as on_trio
from effectmcp.drivers.lanes import Lanes, Ticket
from effectmcp.errors import UsageError
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.server import Server

from ..wire import call_params, request


def one() -> None: ...


def two() -> None: ...


class Bound:
    def method(self) -> None: ...

    def __call__(self) -> None: ...


def closure() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


class Entered:
    """Calls that have entered, and the names of the started calls."""

    def __init__(self, each: int) -> None:
        self.lanes = Lanes()
        self.each = each
        self.started: list[str] = []

    def enter(
        self, name: str, function: object = one, party: str | None = "a"
    ) -> Ticket:
        ticket = Ticket(function, party, self.each)
        self.lanes.enter(ticket, functools.partial(self.started.append, name))
        return ticket


def test_function_has_a_lane_of_its_own() -> None:
    entered = Entered(2)
    tickets = [entered.enter(name, party=None) for name in ("x", "y", "z")]
    assert entered.started == ["x", "y"]
    entered.enter("other", two)
    assert entered.started == ["x", "y", "other"]
    entered.lanes.leave(tickets[0])
    assert entered.started == ["x", "y", "other", "z"]


def test_party_gets_half_of_a_lane() -> None:
    entered = Entered(4)
    tickets = [entered.enter(f"a{n}") for n in range(3)]
    assert entered.started == ["a0", "a1"]
    entered.enter("b0", party="b")
    assert entered.started == ["a0", "a1", "b0"]
    entered.lanes.leave(tickets[0])
    assert entered.started == ["a0", "a1", "b0", "a2"]


def test_next_party_starts_if_the_first_has_its_share() -> None:
    entered = Entered(2)
    for name in ("a0", "a1", "a2"):
        entered.enter(name)
    b0 = entered.enter("b0", party="b")
    entered.enter("c0", party="c")
    assert entered.started == ["a0", "b0"]
    entered.lanes.leave(b0)
    assert entered.started == ["a0", "b0", "c0"]


def decorated(function: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(function)
    def wrapper() -> None:
        function()

    return wrapper


@pytest.mark.parametrize(
    ("first", "second"),
    [(one, two), (decorated(one), decorated(two)), (len, abs)],
    ids=["functions", "decorated", "builtins"],
)
def test_other_functions_have_other_lanes(first: object, second: object) -> None:
    entered = Entered(1)
    entered.enter("x", first)
    entered.enter("y", second)
    assert entered.started == ["x", "y"]


def test_call_that_waits_no_longer_is_not_started() -> None:
    entered = Entered(1)
    first, second = entered.enter("x"), entered.enter("y")
    entered.lanes.leave(second)
    entered.lanes.leave(first)
    assert entered.started == ["x"]


@pytest.mark.parametrize(
    "made",
    [closure, lambda: functools.partial(one), lambda: Bound().method, Bound],
    ids=["closure", "partial", "method", "object"],
)
def test_calls_of_one_function_share_a_lane(made: Callable[[], object]) -> None:
    """Each call may have its own closure or bound method."""
    entered = Entered(1)
    entered.enter("x", made())
    entered.enter("y", made())
    assert entered.started == ["x"]


@given(
    st.integers(1, 4),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 9), st.sampled_from(["a", "b", None])),
        max_size=50,
    ),
)
def test_lane_is_full_or_no_call_waits(
    each: int, steps: list[tuple[bool, int, str | None]]
) -> None:
    """No call waits that could start, and each lane keeps to its room."""
    entered = Entered(each)
    tickets: list[Ticket] = []
    for leaves, index, party in steps:
        if leaves and tickets:
            entered.lanes.leave(tickets.pop(index % len(tickets)))
        else:
            tickets.append(entered.enter("x", party=party))
        running = [ticket.party for ticket in tickets if ticket.has_thread]
        waiting = [ticket.party for ticket in tickets if not ticket.has_thread]
        share = max(1, each // 2)
        assert len(running) <= each
        for party in ("a", "b"):
            assert running.count(party) <= share
        if len(running) < each:
            for party in waiting:
                assert party is not None
                assert running.count(party) == share


# ---- on the loops -------------------------------------------------------------------


class Crowded:
    """A server with a tool that blocks until it is released, and a quick one."""

    def __init__(self, threads: int = 2) -> None:
        self.app = Server("crowded", threads=threads)
        self.released = threading.Event()
        self.began = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)

        @self.app.tool
        def slow() -> str:
            self.began.release()
            self.released.wait(60)
            self.ended.release()
            return "slow"

        @self.app.tool
        def quick() -> str:
            return "quick"


def message(tool: str) -> dict[str, Any]:
    return request("tools/call", call_params(tool))


def text_of(reply: Reply) -> str:
    assert reply.message is not None
    text: str = reply.message["result"]["content"][0]["text"]
    return text


ATTACKER, HONEST = Peer(address="192.0.2.66"), Peer(address="192.0.2.1")


def test_abandoned_calls_delay_no_other_tool_on_trio() -> None:
    made = Crowded()

    async def main() -> None:
        async with on_trio.running(made.app):
            for _ in range(30):
                with trio.move_on_after(0.001):
                    await on_trio.handle(made.app, message("slow"), ATTACKER)
            with trio.fail_after(30):
                quick = await on_trio.handle(made.app, message("quick"), HONEST)
                assert text_of(quick) == "quick"
                async with trio.open_nursery() as nursery:
                    # The same tool, from another address: half of the room is left.
                    nursery.start_soon(
                        on_trio.handle, made.app, message("slow"), HONEST
                    )
                    for _ in range(2):
                        await trio.to_thread.run_sync(made.began.acquire)
                    made.released.set()

    trio.run(main)


def test_abandoned_calls_delay_no_other_tool_on_asyncio() -> None:
    made = Crowded()

    async def main() -> None:
        async with on_asyncio.running(made.app):
            for _ in range(30):
                doing = asyncio.ensure_future(
                    on_asyncio.handle(made.app, message("slow"), ATTACKER)
                )
                await asyncio.sleep(0.001)
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
            async with asyncio.timeout(30):
                quick = await on_asyncio.handle(made.app, message("quick"), HONEST)
                assert text_of(quick) == "quick"
                honest = asyncio.ensure_future(
                    on_asyncio.handle(made.app, message("slow"), HONEST)
                )
                for _ in range(2):
                    await asyncio.to_thread(made.began.acquire)
                made.released.set()
                assert text_of(await honest) == "slow"

    asyncio.run(main())


def test_thread_may_outlive_its_loop_on_asyncio() -> None:
    made = Crowded()

    async def main() -> None:
        async with on_asyncio.running(made.app):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await on_asyncio.handle(made.app, message("slow"), HONEST)

    asyncio.run(main())
    made.released.set()
    assert made.ended.acquire(timeout=30)


def test_threads_are_at_least_one() -> None:
    with pytest.raises(UsageError, match=r"Server\(threads=0\): give 1 or more"):
        Server("shop", threads=0)


def test_sync_driver_needs_no_threads() -> None:
    made = Crowded()
    with sync.running(made.app):
        assert text_of(sync.handle(made.app, message("quick"))) == "quick"
