"""Waits for a server."""

from __future__ import annotations

import anyio
import pytest
import trio

from effectmcp.client.deadlines import Room, deadline, shortest


def test_shortest_ignores_times_without_limit() -> None:
    assert shortest(None, 3.0, 2.0) == 2.0
    assert shortest(None, None) is None


async def test_deadline_names_the_missing_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with pytest.raises(TimeoutError, match=r"^no answer to ping within 0\.5 s$"):
        with deadline(0.5, "answer to ping"):
            await anyio.sleep(1)
    with deadline(None, "answer"):
        await anyio.sleep(1)
    with deadline(5, "answer") as scope:
        scope.cancel()
        await anyio.sleep(1)


async def test_deadline_of_the_caller_raises_no_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with anyio.move_on_after(1), deadline(2, "answer"):
        await anyio.sleep(3)


async def test_room_is_taken_until_some_is_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    room = Room(10)
    await room.take(9)
    await room.take(100)  # a message is taken whole, and memory is limited by two
    with anyio.move_on_after(1) as scope:
        await room.take(1)
    assert scope.cancelled_caught
    async with anyio.create_task_group() as group:
        group.start_soon(room.take, 1)
        await anyio.sleep(1)
        room.give_back(9)
        await anyio.sleep(1)
        room.give_back(100)
