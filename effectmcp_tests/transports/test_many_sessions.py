"""Many sessions, half of them abandoned: all of them are released."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from types import GeneratorType
from typing import Any

import pytest
import trio
import trio.testing

from effectmcp import Elicit, Flow, Server
from effectmcp.transports.http import Limits
from effectmcp.transports.sessions import SessionLimits

from .era import answered, initialize, tool, value_of
from .shop import KEYS
from .test_legacy_http import Old
from .wire import Doors, serving

#: Few, and many.
SESSIONS = [60, pytest.param(1_000, marks=pytest.mark.long)]
IDLE = 100


def waiting() -> Server:
    app = Server("waiting", keys=KEYS)

    @app.tool
    def waits(title: str) -> Flow[str]:
        """Ask twice."""
        name = yield from Elicit("Who is it for?", str)
        many = yield from Elicit(f"How many for {name}?", int)
        return f"{many} x {title} for {name}"

    return app


def handlers() -> list[weakref.ref[Any]]:
    """Generators of the handler that are there."""
    gc.collect()
    return [
        weakref.ref(one)
        for one in gc.get_objects()
        if isinstance(one, GeneratorType) and one.__name__ == "waits"
    ]


async def live(doors: Doors, number: int) -> None:
    """Run a session; abandon every second one at its second question."""
    got = await Old(doors, "").ask(
        initialize(), mcp_session_id=None, mcp_protocol_version=None
    )
    old = Old(doors, got.headers["mcp-session-id"])
    async with old.stream(tool("waits", title="Dune")) as reading:
        await reading.prime()
        await old.ask(answered(await reading.message(), f"Ann {number}"))
        question = await reading.message()
        if number % 2:
            return
        await old.ask(answered(question, 3))
        assert value_of(await reading.message()) == f"3 x Dune for Ann {number}"
    if number % 4:
        assert await old.status(None, "DELETE") == 204


async def crowd(doors: Doors, count: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(live, doors, number)
    await trio.testing.wait_all_tasks_blocked()


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


@pytest.mark.parametrize("sessions", SESSIONS)
async def test_many_sessions_leave_nothing(sessions: int, autojump_clock: Any) -> None:
    limits, room = SessionLimits(idle=IDLE), Limits(connections=4 * sessions)
    async with serving(waiting(), room, sessions=limits) as doors:
        await crowd(doors, 20)  # what is made once
        await trio.sleep(IDLE + 1)
        assert handlers() == []
        # Other threads of this process may keep something at the same time. A leak keeps
        # objects each time.
        more = 0
        for _ in range(3):
            more = await objects_left(doors, sessions)
            if more < sessions // 5:  # of a leak there would be one for each
                return
    raise AssertionError(f"{more} objects are left of {sessions} sessions")


async def objects_left(doors: Doors, sessions: int) -> int:
    """Return how many objects are left after some sessions."""
    gc.collect()
    before, objects = tasks(), len(gc.get_objects())
    await crowd(doors, sessions)
    await trio.sleep(1)  # until the last one is known to have left
    left = handlers()
    assert len(left) == sessions // 2
    assert tasks() - before == sessions // 2
    assert len(gc.get_objects()) - objects > 20 * sessions
    await trio.sleep(IDLE + 1)
    assert handlers() == []
    assert all(one() is None for one in left)
    assert tasks() == before
    del left
    gc.collect()
    return len(gc.get_objects()) - objects


async def test_sessions_give_their_memory_back(autojump_clock: Any) -> None:
    async with serving(waiting(), sessions=SessionLimits(idle=IDLE)) as doors:
        tracemalloc.start()
        try:
            sizes = []
            for _ in range(3):
                await crowd(doors, 50)
                held, _ = tracemalloc.get_traced_memory()
                await trio.sleep(IDLE + 1)
                gc.collect()
                kept, _ = tracemalloc.get_traced_memory()
                sizes.append((held, kept))
        finally:
            tracemalloc.stop()
    (_, before), _, (held, after) = sizes
    assert after - before < (held - after) / 10


@pytest.mark.parametrize("limit", [10])
async def test_sessions_above_the_limit_leave_nothing(
    limit: int, autojump_clock: Any
) -> None:
    async with serving(
        waiting(), sessions=SessionLimits(sessions=limit, resume=0)
    ) as doors:
        for number in range(1, 100, 2):
            await live(doors, number)
            await trio.sleep(1)  # the server notices that the client is gone
        await trio.testing.wait_all_tasks_blocked()
        assert len(handlers()) == limit
    assert handlers() == []
