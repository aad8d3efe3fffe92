"""Looking out for clients that leave, by a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from effectmcp.transports.disconnects import Disconnects


@asynccontextmanager
async def looking() -> AsyncIterator[Disconnects]:
    async with trio.open_nursery() as nursery:
        disconnects = Disconnects(nursery)
        nursery.start_soon(disconnects.run)
        yield disconnects
        nursery.cancel_scope.cancel()


async def after(seconds: float, log: list[str], what: str) -> Any:
    try:
        await trio.sleep(seconds)
        log.append(what)
    finally:
        log.append(f"{what} ended")


async def test_answer_that_comes_at_once_is_not_watched(
    autojump_clock: MockClock,
) -> None:
    log: list[str] = []

    async def work() -> int:
        await trio.sleep(0.01)
        return 7

    async with looking() as disconnects:
        tasks = trio.lowlevel.current_statistics().tasks_living
        assert await disconnects.unless(work, lambda: after(0, log, "watch")) == 7
        await trio.sleep(1)
        assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert log == []


async def test_answer_that_takes_long_ends_its_watch(
    autojump_clock: MockClock,
) -> None:
    log: list[str] = []

    async def work() -> int:
        await trio.sleep(5)
        log.append("work")
        return 7

    async with looking() as disconnects:
        assert await disconnects.unless(work, lambda: after(9, log, "watch")) == 7
    assert log == ["work", "watch ended"]


async def test_client_that_leaves_ends_the_work(autojump_clock: MockClock) -> None:
    log: list[str] = []
    async with looking() as disconnects:
        found = await disconnects.unless(
            lambda: after(9, log, "work"),
            lambda: after(3, log, "gone"),
            lambda: after(7, log, "comment"),
        )
    assert found is None
    assert log[:2] == ["gone", "gone ended"]
    assert sorted(log[2:]) == ["comment ended", "work ended"]


async def test_error_of_the_work_is_raised_unchanged(autojump_clock: MockClock) -> None:
    log: list[str] = []

    async def work() -> None:
        await trio.sleep(1)
        raise LookupError("as it happens")

    async with looking() as disconnects:
        with pytest.raises(LookupError, match="as it happens"):
            await disconnects.unless(work, lambda: after(9, log, "watch"))
    assert log == ["watch ended"]


async def test_bug_of_a_watch_ends_one_connection(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []

    async def bug() -> None:
        raise LookupError("a bug")

    async with looking() as disconnects:
        assert await disconnects.unless(lambda: after(9, log, "work"), bug) is None
        assert log == ["work ended"]
        await disconnects.unless(lambda: after(9, log, "other"))
    assert log[1:] == ["other", "other ended"]
    assert "a bug" in caplog.text
    caplog.clear()


async def test_a_lookout_rests_and_starts_again(autojump_clock: MockClock) -> None:
    """A server without requests is not woken up twenty times per second."""
    async with looking() as disconnects:
        for _ in range(2):
            log: list[str] = []
            await disconnects.unless(
                lambda: after(9, log, "work"),  # noqa: B023  # awaited here
                lambda: after(1, log, "gone"),  # noqa: B023
            )
            assert log[0] == "gone"
            await trio.sleep(60)
            statistics = trio.lowlevel.current_statistics()
            assert statistics.seconds_to_next_deadline == float("inf")
