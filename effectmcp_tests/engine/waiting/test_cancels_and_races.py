"""Examples of tasks: cancels, races, and answers that arrive beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from effectmcp import (
    Accepted,
    Cancelled,
    Confirm,
    Elicit,
    FirstOf,
    Gather,
    Restart,
    Step,
    StepInterrupted,
    Within,
    step,
)
from effectmcp.effects.base import Flow
from effectmcp.engine import (
    TASK,
    Answer,
    Asked,
    Done,
    Failure,
    Journal,
    Perform,
    Raised,
    Returned,
    Run,
    Stop,
)

from .host import FLOW_ID

YES: Answer = Accepted({})


def work(name: str) -> str:
    return name


once = step(at_most_once=True)(work)


def worker(
    handler: Callable[..., Any], before: Run | None = None, *, now: float = 0
) -> Run:
    """Return a run from the journal of the worker before, which is lost."""
    journal = None
    if before is not None:
        journal = Journal.loads(before.journal.dumps())
        before.close()
    return Run(handler, flow_id=FLOW_ID, journal=journal, rules=TASK, clock=lambda: now)


def keys(stop: Stop) -> list[str]:
    assert isinstance(stop, (Asked, Perform))
    return [want.key for want in stop.wants]


def branches(*flows: Callable[[], Flow[Any]]) -> Callable[[], Flow[Any]]:
    """Return a handler that gathers flows."""

    def handler() -> Flow[Any]:
        return (yield from Gather(*[flow() for flow in flows]))

    return handler


def works() -> Flow[Any]:
    """Work."""
    return (yield from Step(work, "a"))


def agreed() -> Flow[Any]:
    """Ask, and work."""
    yield from Confirm("Sure?")
    return (yield from Step(work, "agreed"))


def test_interrupted_step_is_forgotten_by_its_place() -> None:
    def handler() -> Flow[Any]:
        try:
            yield from once("a")
        except StepInterrupted:
            yield from Confirm("Sure?")

    one = worker(handler)
    one.start()
    one.begin("step-1")
    again = worker(handler, one)
    assert isinstance(again.start(), Asked)
    assert list(again.journal.places) == ["confirm-1"]


def test_cancelled_flow_replays_a_branch_that_was_in_its_cleanup() -> None:
    def cleans() -> Flow[Any]:
        try:
            yield from Confirm("Sure?")
        finally:
            yield from Step(work, "undo")
            yield from Step(work, "undo too")

    handler = branches(works, cleans)
    one = worker(handler)
    one.start()
    one.begin("gather-1/0/step-1")
    one.cancel()
    stop = one.performed({"gather-1/0/step-1": Failure(ValueError("broken"))})
    assert keys(stop) == ["gather-1/1/step-1"]
    stop = one.performed({"gather-1/1/step-1": Done("undone")})
    journal = one.journal
    again = worker(handler, one)
    assert again.start() == stop
    assert again.journal == journal


def races() -> Flow[Any]:
    """Race a step against a question."""
    return (yield from FirstOf(once("a"), Elicit("How many?", int)))


RACED = "gather-1/0/first-1/0/step-1"


def test_step_of_a_race_is_not_waited_for() -> None:
    one = worker(branches(races, agreed))
    assert keys(one.start()) == [RACED]
    one.begin(RACED)
    stop = one.answered({"gather-1/1/confirm-1": YES})
    assert keys(stop) == ["gather-1/1/step-1"]
    stop = one.performed({"gather-1/1/step-1": Done("agreed")})
    assert isinstance(stop, Asked)
    assert keys(stop) == [RACED]
    assert one.performed({RACED: Done("a")}) == Returned(((0, "a"), "agreed"))


def test_step_of_a_race_is_waited_for_by_a_cancel() -> None:
    def handler() -> Flow[Any]:
        yield from Gather(races(), agreed())
        yield from Confirm("And now?")

    one = worker(handler)
    one.start()
    one.begin(RACED)
    one.answered({"gather-1/1/confirm-1": YES})
    one.begin("gather-1/1/step-1")
    stop = one.cancel()
    assert keys(stop) == [RACED, "gather-1/1/step-1"]
    stop = one.performed({"gather-1/1/step-1": Done("agreed")})
    assert keys(stop) == [RACED]
    assert isinstance(one.performed({RACED: Done("a")}), Raised)
    tags = [entry.tag for branch in one.journal.entries[0].branches for entry in branch]
    assert tags == ["won", "accepted", "done"]


def test_step_of_a_race_counts_as_started_until_the_race_is_recorded() -> None:
    def handler() -> Flow[Any]:
        try:
            yield from Gather(races(), agreed())
        except StepInterrupted:
            return "interrupted"

    one = worker(handler)
    one.start()
    one.begin(RACED)
    one.answered({"gather-1/1/confirm-1": YES})
    one.performed({RACED: Done("a")})
    again = worker(handler, one)
    assert keys(again.start()) == ["gather-1/1/step-1"]
    stop = again.performed({"gather-1/1/step-1": Done("agreed")})
    assert stop == Returned("interrupted")


def test_answer_in_the_inbox_is_not_in_the_pool() -> None:
    """A copy in the pool would answer the next question of the same text."""

    def asks() -> Flow[Any]:
        first = yield from Elicit("How many?", int)
        return [first, (yield from Elicit("How many?", int))]

    handler = branches(agreed, asks)
    one = worker(handler)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    inbox: dict[str, Answer] = {"gather-1/1/elicit-1": Accepted({"value": 3})}
    again = worker(handler, one)
    assert keys(again.start(inbox)) == ["gather-1/0/step-1"]
    assert not again.journal.pool
    third = worker(handler, again)
    third.start(inbox)
    stop = third.performed({"gather-1/0/step-1": Done("agreed")})
    assert isinstance(stop, Asked)
    assert [one.key for one in stop.questions] == ["gather-1/1/elicit-2"]


def test_answer_to_a_cancelled_branch_is_ignored() -> None:
    def handler() -> Flow[Any]:
        try:
            yield from Gather(agreed(), Elicit("How many?", int))
        except ValueError:
            return (yield from Elicit("How many?", int))

    one = worker(handler)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    again = worker(handler, one)
    again.start({"gather-1/1/elicit-1": Accepted({"value": 3})})
    stop = again.performed({"gather-1/0/step-1": Failure(ValueError("broken"))})
    assert isinstance(stop, Asked)
    assert [one.key for one in stop.questions] == ["elicit-1"]
    assert not again.journal.pool


def test_stored_answer_beats_a_deadline_that_passed_while_a_step_ran() -> None:
    def handler() -> Flow[Any]:
        limited = Within(5, Elicit("How many?", int))
        return (yield from Gather(limited, agreed()))

    now = [0.0]
    one = Run(handler, flow_id=FLOW_ID, rules=TASK, clock=lambda: now[0])
    one.start()
    performing = one.answered({"gather-1/1/confirm-1": YES})
    assert keys(performing) == ["gather-1/1/step-1"]
    answer: Answer = Accepted({"value": 3})
    assert one.answered({"gather-1/0/within-1/0/elicit-1": answer}) == performing
    now[0] = 9.0
    stop = one.performed({"gather-1/1/step-1": Done("agreed")})
    assert stop == Returned((3, "agreed"))


def test_cleanup_may_not_ask_within_a_time() -> None:
    """B3: a question in cleanup gets `Cancelled` again."""

    def handler() -> Flow[Any]:
        try:
            yield from Confirm("Sure?")
        finally:
            yield from Within(5, Elicit("Why?", str))

    one = worker(handler)
    one.start()
    stop = one.cancel()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)


def elsewhere() -> Flow[Any]:
    """Wait for what is never reached."""
    yield from Confirm("Here?")


def test_cancel_lets_the_cleanup_of_a_restart_end() -> None:
    def handler() -> Flow[Any]:
        try:
            return (yield from Restart(elsewhere))
        finally:
            yield from Step(work, "undo")

    one = worker(handler)
    assert keys(one.start()) == ["step-1"]
    journal = one.journal
    assert keys(one.cancel()) == ["step-1"]
    stop = one.performed({"step-1": Done("undone")})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)
    again = worker(handler, one)
    assert isinstance(again.start(), Raised)
    assert journal.cancelled is None
    assert again.journal.cancelled == 1


@pytest.mark.parametrize("cleans", [False, True])
@pytest.mark.parametrize("crashes", [False, True])
def test_failure_beside_a_cancel_takes_the_race_of_a_sibling_back(
    *, crashes: bool, cleans: bool
) -> None:
    """The failure is delivered before `Cancelled`, and closes the race's branch."""
    met: list[str] = []

    def race() -> Flow[Any]:
        try:
            yield from FirstOf(Step(work, "a"), Elicit("How many?", int))
        finally:
            met.append("closed")
            if cleans:
                yield from Step(work, "undo")
                met.append("undone")

    def handler() -> Flow[Any]:
        try:
            yield from Gather(race(), agreed())
        except BaseException as error:
            met.append(type(error).__name__)
            if not isinstance(error, ValueError):
                raise
        try:
            yield from Confirm("And now?")
        except Cancelled:
            met.append("Cancelled")
            raise

    one = worker(handler)
    one.start()
    one.begin(RACED)
    one.answered({"gather-1/1/confirm-1": YES})
    one.begin("gather-1/1/step-1")
    assert keys(one.cancel()) == [RACED, "gather-1/1/step-1"]
    stop = one.performed({"gather-1/1/step-1": Failure(ValueError("broken"))})
    assert keys(stop) == [RACED]
    if crashes:
        one = worker(handler, one)
        met.clear()
        stop = one.cancel()
    else:
        stop = one.performed({RACED: Done("a")})
    if cleans:
        assert keys(stop) == ["gather-1/0/step-1"]
        assert met == ["closed"]
        stop = one.performed({"gather-1/0/step-1": Done("undone")})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)
    # While the branch cleans up, the Gather has not failed yet: the cancel ends it.
    ends = ["undone", "Cancelled"] if cleans else ["ValueError", "Cancelled"]
    assert met == ["closed", *ends]
    journal = one.journal
    tags = [[one.tag for one in branch] for branch in journal.entries[0].branches]
    assert tags == [["done"] if cleans else [], ["accepted", "failed"]]
    assert not journal.asked
    assert not any(one.begun for one in journal.places.values())
    again = worker(handler, one)
    met.clear()
    assert isinstance(again.start(), Raised)
    assert met == ["closed", *ends]
    assert again.journal == journal
