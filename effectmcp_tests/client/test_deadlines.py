"""Waits for a server."""

from __future__ import annotations

import anyio
import pytest
import trio

from effectmcp.client.deadlines import Room, deadline, paused, shortest


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


async def test_a_pause_is_the_time_of_the_user(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with deadline(1, "answer") as scope:
        with paused():
            await anyio.sleep(3600)
        await anyio.sleep(0.9)
    assert not scope.cancelled_caught
    with deadline(None, "answer"), paused():
        await anyio.sleep(1)
    with paused():  # without any deadline
        await anyio.sleep(1)


async def test_pauses_that_overlap_end_with_the_last(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Two requests of one call may both wait for the user."""

    async def pause(begin: float, end: float) -> None:
        await anyio.sleep(begin)
        with paused():
            await anyio.sleep(end - begin)

    async def wait() -> None:
        with deadline(10, "answer"):
            async with anyio.create_task_group() as group:
                group.start_soon(pause, 1, 100)
                group.start_soon(pause, 50, 200)
                group.start_soon(pause, 50, 60)
            # One second has passed for the deadline.
            assert trio.current_time() - began == pytest.approx(200)
            await anyio.sleep(100)

    began = trio.current_time()
    with pytest.raises(TimeoutError):
        await wait()
    assert trio.current_time() - began == pytest.approx(209)


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
