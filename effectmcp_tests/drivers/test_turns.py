"""Turns for long work, by a clock that is moved by hand, and on both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest
import trio

from effectmcp import Flow, Now, Step
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import begun, turns
from effectmcp.drivers import trio as on_trio
from effectmcp.drivers.turns import TURNS, Turns
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.server import Server

from ..wire import call_params, request

ANN, BOB = Peer(address="192.0.2.1"), Peer(address="192.0.2.2")


class Clocked(Turns):
    """Turns, and their clock."""

    def __init__(self) -> None:
        self.now = 100.0
        super().__init__(lambda: self.now)


def test_only_the_party_of_long_work_waits() -> None:
    made = Clocked()
    made.note(ANN, 0.0)
    assert made.is_needed
    assert not Clocked().is_needed
    assert made.must_wait(ANN)
    assert not made.must_wait(BOB)
    assert not made.must_wait(None)


def test_party_is_forgotten() -> None:
    made = Clocked()
    made.note(ANN, 0.0)
    made.now += 0.9
    made.note(None, 0.0)
    made.now += 0.2
    assert not made.must_wait(ANN)
    assert made.must_wait(None)
    made.now += 1
    assert not made.must_wait(None)
    assert not made.is_needed


def test_parties_are_limited() -> None:
    made = Clocked()
    for number in range(turns._MOST + 5):
        made.note(Peer(principal=f"user {number}"), 0.0)
    assert len(made._parties) == turns._MOST
    assert not made.must_wait(Peer(principal="user 0"))
    assert made.must_wait(Peer(principal=f"user {turns._MOST}"))


# ---- on the loops -------------------------------------------------------------------


class OnTrio:
    loop = on_trio

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def limited() -> None:
            with trio.fail_after(60):
                await main()

        trio.run(limited)

    async def together(self, *works: Callable[[], Awaitable[Any]]) -> None:
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(work)

    async def cut_off(self, work: Callable[[], Awaitable[Any]]) -> None:
        with trio.move_on_after(0.001):
            await work()


class OnAsyncio:
    loop = on_asyncio

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        asyncio.run(asyncio.wait_for(self._awaited(main), 60))

    async def _awaited(self, main: Callable[[], Awaitable[None]]) -> None:
        await main()

    async def together(self, *works: Callable[[], Awaitable[Any]]) -> None:
        await asyncio.gather(*(work() for work in works))

    async def cut_off(self, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            async with asyncio.timeout(0.001):
                await work()
        except TimeoutError:
            pass


LOOPS = pytest.mark.parametrize("on", [OnTrio(), OnAsyncio()], ids=["trio", "asyncio"])


@LOOPS
def test_long_work_is_done_one_by_one(on: Any) -> None:
    """Between two pieces, short requests get as many turns of the loop as they need."""
    made, done = Turns(), list[str]()
    made.note(ANN, 0.0)

    async def long() -> None:
        await made.begin(ANN, on.loop.turns)
        done.append("long")

    async def short() -> None:
        for _ in range(3 * turns._TURNS):
            await on.loop.turns.sleep(0)
            done.append("short")

    async def main() -> None:
        await on.together(long, long, long, short)

    on.run(main)
    places = [number for number, what in enumerate(done) if what == "long"]
    gaps = [
        second - first - 1 for first, second in zip(places, places[1:], strict=False)
    ]
    assert all(gap >= turns._TURNS - 1 for gap in gaps[:1])


@pytest.mark.parametrize("which", ["begin", "end"])
def test_loop_is_free_for_as_long_as_the_work_took(which: str) -> None:
    """A request of 30 s keeps it free for the second that its party is remembered."""
    made, slept = Clocked(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    loop = turns.TurnLoop(sleep, lambda: (nullcontext(), nullcontext()))

    async def main() -> None:
        made.note(ANN, 0.25)
        made.now += 0.125
        await getattr(made, which)(ANN, loop)
        await getattr(made, which)(BOB, loop)
        made.now += 0.125
        await getattr(made, which)(ANN, loop)
        made.note(ANN, 30)
        await getattr(made, which)(ANN, loop)

    asyncio.run(main())
    assert [one for one in slept if one] == [0.125, turns._MEMORY]
    assert len(slept) == 3 * turns._TURNS + 2


@LOOPS
def test_outcomes_come_before_new_work(on: Any) -> None:
    made, done = Turns(), list[str]()
    made.note(ANN, 0.0)

    async def begins() -> None:
        await made.begin(ANN, on.loop.turns)
        done.append("begins")

    async def ends() -> None:
        await made.end(ANN, on.loop.turns)
        done.append("ends")

    async def main() -> None:
        await on.together(ends, ends, begins)

    on.run(main)
    assert done == ["ends", "ends", "begins"]


@LOOPS
def test_work_that_was_cut_off_stops_no_other_work(on: Any) -> None:
    made = Turns()
    made.note(ANN, 0.0)

    async def forever(begins: bool) -> None:
        while True:
            await (made.begin if begins else made.end)(ANN, on.loop.turns)
            made.note(ANN, 0.0)

    async def main() -> None:
        await on.cut_off(lambda: forever(True))
        await on.cut_off(lambda: forever(False))
        made.note(ANN, 0.0)
        await made.begin(ANN, on.loop.turns)
        await made.end(ANN, on.loop.turns)
        assert not made._ending

    on.run(main)


@LOOPS
def test_long_request_marks_its_party(on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the work is done at once, or after waiting for a thread or a step."""
    app = Server("shop")

    @app.tool
    def plain() -> str:
        return "plain"

    @app.tool
    def flow() -> Flow[str]:
        return (yield from Step(str, "flow"))

    @app.tool
    def at_once() -> Flow[str]:
        yield from Now()
        return "at_once"

    monkeypatch.setattr(begun, "LONG", 0.0)
    noted: list[Peer | None] = []
    note = TURNS.note

    def count(peer: Peer | None, took: float) -> None:
        noted.append(peer)
        note(peer, took)

    monkeypatch.setattr(Turns, "note", lambda self, peer, took: count(peer, took))

    async def main() -> None:
        async with on.loop.running(app):
            for tool in ("plain", "flow", "at_once"):
                TURNS._parties.clear()
                message = request("tools/call", call_params(tool))
                for peer in (ANN, BOB):
                    reply = await on.loop.handle(app, message, peer)
                    assert isinstance(reply, Reply)
                    assert reply.message is not None
                    assert reply.message["result"]["content"][0]["text"] == tool
                assert list(TURNS._parties) == ["192.0.2.1", "192.0.2.2"]
                # What happens before the first wait, and after each.
                times = 1 if tool == "at_once" else 2
                assert noted == [*[ANN] * times, *[BOB] * times]
                noted.clear()

    on.run(main)
    TURNS._parties.clear()
    TURNS.is_needed = False
