"""Hard cases that the engine must survive: restarts and cancels, and the cleanup in them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from effectmcp import (
    Accepted,
    Cancelled,
    Confirm,
    Detach,
    DivergenceError,
    Elicit,
    Flow,
    Now,
    Restart,
    Sleep,
    Step,
)
from effectmcp.engine import (
    TASK,
    Done,
    Perform,
    Raised,
    Returned,
)

from ..helpers import (
    UNCAPPED,
    WAYS,
    advance,
    by_retry,
    by_script,
    keys,
    live,
    messages,
    returns,
    run,
    yes,
)
from .rounds import do, performed, round_of, say

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    """Each test begins with nothing performed."""
    performed.clear()


def second_life(name: str) -> Flow[str]:
    answer = yield from Elicit(f"Again, {name}?", str)
    yield from Step(do, "work")
    return answer


def taking() -> Flow[str]:
    try:
        yield from Step(do, "take")
        name = yield from Elicit("Who?", str)
        return (yield from Restart(second_life, name))
    finally:
        yield from Step(do, "release")


@every_way
def test_restart_in_a_try_with_effects_in_finally(way: Any) -> None:
    """`try: take; return (yield from Restart(..)) finally: yield release()`.

    The old generation's cleanup is real: performed once, before the new one begins.
    """
    assert returns(way(taking)) == "text"
    assert performed == ["take", "release", "work"]


def test_restart_in_a_try_forgets_the_old_generation() -> None:
    """Values released with the old generation are not in the new journal."""
    stop, journal = round_of(taking)
    stop, journal = round_of(taking, journal, say(stop))
    assert messages(stop) == ["Again, re: Who??"]
    assert keys(stop) == ["r1/elicit-1"]
    assert journal.entries == ()
    assert journal.generation == 1
    assert performed == ["take", "release"]
    for _ in range(2):
        again, journal = round_of(taking, journal)
        assert again == stop


def swallowing_restart() -> Flow[str]:
    try:
        return (yield from Restart(second_life, "Ann"))
    except BaseException:
        return "swallowed"


@every_way
def test_restart_in_a_try_whose_cleanup_asks(way: Any) -> None:
    """Cleanup of a restart may not ask: Restarted is thrown again, and the restart stands."""
    seen = []

    def handler() -> Flow[str]:
        try:
            return (yield from Restart(second_life, "Ann"))
        finally:
            try:
                yield from Elicit("never asked", str)
            except BaseException as exc:
                seen.append(type(exc).__name__)

    def answer(question: Any) -> Any:
        assert question.effect.message == "Again, Ann?"
        return yes(question)

    assert returns(way(handler, answer=answer)) == "text"
    assert set(seen) == {"Restarted"}


@every_way
def test_restart_in_a_try_that_swallows_it(way: Any) -> None:
    """A handler that swallows Restarted does not undo it: it is recorded."""
    assert returns(way(swallowing_restart)) == "text"


def release() -> None:
    pass


def second() -> Flow[str]:
    yield from Confirm("Go on?")
    yield from Sleep(1)
    return "slept"


def test_detach_outlives_a_restart() -> None:
    """B3a 6: the first run of a generation and its replay know the same."""

    def handler() -> Flow[Any]:
        yield from Detach()
        return (yield from Restart(second))

    for way in (live, by_retry, by_script):
        assert way(handler) == Returned("slept"), way


def test_cancel_in_the_cleanup_of_a_restart_ends_as_cancelled() -> None:
    def handler() -> Flow[Any]:
        try:
            return (yield from Restart(second))
        finally:
            yield from Step(release)

    one = run(handler, rules=TASK)
    assert isinstance(one.start(), Perform)
    one.begin("step-1")
    assert isinstance(one.cancel(), Perform)
    stop = one.performed({"step-1": Done(None)})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)
    again = run(handler, rules=TASK, journal=one.journal).start()
    assert isinstance(again, Raised)
    assert isinstance(again.error, Cancelled)


def test_second_cancel_while_performing_is_journaled() -> None:
    def handler() -> Flow[None]:
        yield from Step(release)

    one = run(handler, rules=TASK)
    one.start()
    one.cancel()
    one.cancel()
    assert one.journal.cancelled == 0


def test_cancelled_flow_is_not_asked_again_after_an_edit() -> None:
    def before() -> Flow[None]:
        yield from Confirm("Sure?")
        try:
            yield from Confirm("Really?")
        finally:
            yield from Now()

    def after() -> Flow[None]:
        yield from Confirm("Quite sure?")

    one = run(before, rules=UNCAPPED)
    one.start()
    one.answered({"confirm-1": Accepted({})})
    advance(one, one.cancel())
    with pytest.raises(DivergenceError) as caught:
        run(after, rules=UNCAPPED, journal=one.journal).start()
    assert caught.value.verdict == "stop"


def test_exception_in_the_cleanup_of_a_restart_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler() -> Flow[Any]:
        try:
            return (yield from Restart(second))
        finally:
            raise ValueError("in cleanup")

    with caplog.at_level(logging.ERROR, logger="effectmcp.engine"):
        assert messages(run(handler).start()) == ["Go on?"]
    assert "cleanup" in caplog.text
