"""Waiting for people and clocks (docs/internals/replay.md#b3a), example by example."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Cancelled,
    Checkpoint,
    Confirm,
    Declined,
    Detach,
    DivergenceError,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    Outcome,
    Restart,
    Sleep,
    Step,
    StepInterrupted,
    TimedOut,
    Unsupported,
    Within,
    step,
)
from effectmcp.canonical import MAX_DEPTH
from effectmcp.engine import (
    LIVE,
    RETRY,
    TASK,
    Answer,
    Asked,
    Done,
    Failure,
    Journal,
    Perform,
    Raised,
    Returned,
    Rules,
    Run,
    Stop,
)
from effectmcp.engine.effect_table import KINDS

from ..helpers import FLOW_ID, flow_of, keys, messages

DAY = 24 * 3600.0


class Clock:
    """A clock that stands still."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def a(text: str) -> Accepted[Any]:
    return Accepted({"value": text})


def charge(amount: int) -> str:
    raise AssertionError("nothing is performed here")


def task(
    handler: Callable[..., Any], journal: Journal | None = None, **options: Any
) -> tuple[Run, Clock]:
    clock = Clock()
    options = {"rules": TASK, "clock": clock, **options}
    return Run(handler, flow_id=FLOW_ID, journal=journal, **options), clock


def cold(run: Run, clock: Clock, handler: Callable[..., Any]) -> Stop:
    """Return the stop that another worker reaches from the same journal."""
    stored = run.journal.dumps()
    again, other = task(handler, Journal.loads(stored))
    other.now = clock.now
    stop = again.start()
    assert again.journal.dumps() == stored
    again.close()
    return stop


def ask_and_sleep() -> Flow[Any]:
    return (yield from Gather(Sleep(DAY), Elicit("Who?", str)))


def test_people_and_clocks_are_waited_for_together() -> None:
    """B3a: a question beside a pause is asked today, not tomorrow."""
    run, clock = task(ask_and_sleep)
    stop = run.start()
    assert isinstance(stop, Asked)
    assert (keys(stop), stop.due) == (["gather-1/1/elicit-1"], clock.now + DAY)
    assert cold(run, clock, ask_and_sleep) == stop
    stop = run.answered({"gather-1/1/elicit-1": a("Ann")})
    assert stop == Asked((), (), clock.now + DAY)
    clock.now += DAY
    assert run.answered() == Returned((None, "Ann"))
    assert cold(run, clock, ask_and_sleep) == Returned((None, "Ann"))


def test_one_persons_next_question_does_not_wait_for_another() -> None:
    def talk(name: str) -> Flow[list[str]]:
        first = yield from Elicit(f"{name} 1", str)
        return [first, (yield from Elicit(f"{name} 2", str))]

    def handler() -> Flow[Any]:
        return (yield from Gather(talk("a"), talk("b")))

    run, clock = task(handler)
    stop = run.start()
    assert messages(stop) == ["a 1", "b 1"]
    stop = run.answered({"gather-1/1/elicit-1": a("x")})
    assert messages(stop) == ["a 1", "b 2"]
    # The wire key of what was missing stays.
    assert keys(stop) == ["gather-1/0/elicit-1", "gather-1/1/elicit-2"]
    assert cold(run, clock, handler) == stop
    stop = run.answered({key: a("y") for key in keys(stop)})
    assert messages(stop) == ["a 2"]
    assert run.answered({keys(stop)[0]: a("z")}) == Returned((["y", "z"], ["x", "y"]))
    assert cold(run, clock, handler) == Returned((["y", "z"], ["x", "y"]))


def test_entry_gets_a_wave_number_only_when_other_branches_wait() -> None:
    """B3a 2: flows without branches pay nothing."""
    run, _ = task(ask_and_sleep)
    run.start()
    run.answered({"gather-1/1/elicit-1": a("Ann")})
    (gathered,) = run.journal.entries
    assert [[one.wave for one in branch] for branch in gathered.branches] == [[], [0]]

    def alone() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    run, _ = task(alone)
    run.start()
    run.answered({"elicit-1": a("Ann")})
    assert [one.wave for one in run.journal.entries] == [None]


def test_answers_that_arrive_together_make_the_rounds_journal() -> None:
    """B3a 7: byte for byte."""

    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("a", str), Confirm("b")))

    run, _ = task(handler)
    live = Run(handler, flow_id=FLOW_ID, rules=LIVE)
    for one in (run, live):
        stop = one.start()
        one.answered({keys(stop)[0]: a("x"), keys(stop)[1]: Accepted(None)})
    assert run.journal == live.journal


def test_effect_that_needs_no_client_is_delivered_at_once() -> None:
    """B3a 6: beside a question that waits."""

    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("Who?", str), Checkpoint(), Confirm("b")))

    run, _ = task(handler, supports=lambda what: not isinstance(what, Confirm))
    stop = run.start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Unsupported)


# ---- Within, FirstOf ----


def remind() -> Flow[Any]:
    return (yield from Within(DAY, Elicit("Which day?", str)))


def test_within_asks_and_waits_only_so_long() -> None:
    run, clock = task(remind)
    stop = run.start()
    assert isinstance(stop, Asked)
    assert (keys(stop), stop.due) == (["within-1/0/elicit-1"], clock.now + DAY)
    assert cold(run, clock, remind) == stop
    clock.now += DAY - 1
    assert run.answered() == stop
    clock.now += 1
    assert run.answered() == Returned(TimedOut())
    assert cold(run, clock, remind) == Returned(TimedOut())
    assert run.journal.asked == {}
    # Later answers never change it.
    again, _ = task(remind, run.journal)
    assert again.start({"within-1/0/elicit-1": a("Friday")}) == Returned(TimedOut())


def test_within_delivers_the_answer_as_its_question_would() -> None:
    run, _ = task(remind)
    run.start()
    assert run.answered({"within-1/0/elicit-1": a("Friday")}) == Returned("Friday")
    run, _ = task(remind)
    run.start()
    stop = run.answered({"within-1/0/elicit-1": Declined()})
    assert isinstance(stop, Raised)
    assert stop.error == Declined()


def test_within_an_outcome() -> None:
    def handler() -> Flow[Any]:
        return (yield from Within(DAY, Outcome(Confirm("Sure?", key="sure"))))

    run, _ = task(handler)
    assert keys(run.start()) == ["within-1/0/sure"]
    stop = run.answered({"within-1/0/sure": Declined()})
    assert stop == Returned(Declined())


def test_answer_that_does_not_fit_is_not_an_arrival() -> None:
    """B3a 4: the question is asked again, and its clock keeps running."""
    run, clock = task(remind)
    first = run.start()
    assert isinstance(first, Asked)
    stop = run.answered({"within-1/0/elicit-1": Accepted({"value": 5})})
    assert isinstance(stop, Asked)
    assert keys(stop) == ["within-1/0/elicit-1~2"]
    assert stop.questions[0].problems
    assert stop.due == first.due
    clock.now += DAY
    assert run.answered() == Returned(TimedOut())


def first_of() -> Flow[Any]:
    yield from Confirm("Begin?")
    return (
        yield from FirstOf(
            Elicit("Which day?", str, key="day"), Step(charge, 5), Sleep(DAY)
        )
    )


def begun() -> tuple[Run, Clock, Asked]:
    run, clock = task(first_of)
    run.start()
    stop = run.answered({"confirm-1": Accepted(None)})
    assert isinstance(stop, Asked)
    return run, clock, stop


def test_first_of_a_question_a_step_and_a_clock() -> None:
    run, clock, stop = begun()
    assert keys(stop) == ["first-1/0/day"]
    assert [want.key for want in stop.wants] == ["first-1/1/step-1"]
    assert stop.due == clock.now + DAY
    assert cold(run, clock, first_of) == stop


@pytest.mark.parametrize("won", ["answer", "step", "clock"])
def test_first_of_returns_the_first_result(won: str) -> None:
    run, clock, _ = begun()
    if won == "answer":
        end = run.answered({"first-1/0/day": a("Friday")})
        assert end == Returned((0, "Friday"))
    elif won == "step":
        end = run.performed({"first-1/1/step-1": Done("paid")})
        assert end == Returned((1, "paid"))
    else:
        clock.now += DAY
        end = run.answered()
        assert end == Returned((2, None))
    assert cold(run, clock, first_of) == end
    assert run.journal.asked == {}
    assert all(one.due is None for one in run.journal.places.values())
    # The race held a step, so no winner may let it be performed again unnoticed.
    assert not run.journal.entries[-1].replayable


def test_first_of_raises_what_the_first_raised() -> None:
    run, clock, _ = begun()
    end = run.performed({"first-1/1/step-1": Failure(KeyError("x"))})
    assert isinstance(end, Raised)
    assert isinstance(end.error, KeyError)
    assert isinstance(cold(run, clock, first_of), Raised)


@pytest.mark.parametrize(
    ("seconds", "value"), [(5, None), (60, None), (90, TimedOut())], ids=str
)
def test_within_a_sleep_ends_with_the_shorter_of_them(
    seconds: float, value: Any
) -> None:
    def handler() -> Flow[Any]:
        return (yield from Within(60, Sleep(seconds)))

    run, clock = task(handler)
    due = clock.now + min(seconds, 60)
    assert run.start() == Asked((), due=due)
    clock.now = due
    assert run.answered() == Returned(value)
    # Nor does it matter for how long no worker ran.
    run, clock = task(handler)
    run.start()
    clock.now += DAY
    assert run.answered() == Returned(value)
    assert cold(run, clock, handler) == Returned(value)


def test_first_of_messages_that_join_to_equal_text() -> None:
    """E2: a fingerprint belongs to one set of messages."""
    one = FirstOf(Elicit("a\nconfirm b", str), Confirm("c"))
    other = FirstOf(Elicit("a", str), Confirm("b\nconfirm c"))
    first = KINDS[FirstOf]
    assert first.schema is not None
    assert first.schema(one) == first.schema(other)
    assert first.render(one) != first.render(other)


def test_race_is_won_by_a_value_as_deep_as_may_be() -> None:
    deep: Any = None
    for _ in range(MAX_DEPTH):
        deep = [deep]

    def measure() -> Any:
        raise AssertionError("nothing is performed here")

    def handler() -> Flow[Any]:
        won = yield from Within(DAY, Step(measure))
        return won, (yield from Confirm("And now?"))

    run, clock = task(handler)
    run.start()
    stop = run.performed({"within-1/0/step-1": Done(deep)})
    assert messages(stop) == ["And now?"]
    assert Journal.loads(run.journal.dumps()) == run.journal
    assert cold(run, clock, handler) == stop


def test_stored_result_beats_an_expired_clock() -> None:
    """B3a 5: no answer loses to a deadline that passed while no worker ran."""
    run, clock, _ = begun()
    journal = run.suspend()
    for arrived in ("answer", "step"):
        again, later = task(first_of, journal)
        later.now = clock.now + 2 * DAY
        if arrived == "answer":
            end = again.start({"first-1/0/day": a("Friday")})
            assert end == Returned((0, "Friday"))
    again, later = task(first_of, journal)
    later.now = clock.now + 2 * DAY
    assert again.start() == Returned((2, None))


def test_answer_that_was_kept_and_is_given_again_counts_once() -> None:
    """Q1: consent belongs to one question, however often workers are lost."""

    def nap() -> Flow[Any]:
        yield from Sleep(DAY)
        return (yield from Step(charge, 5))

    def handler() -> Flow[Any]:
        yield from Gather(Confirm("Go on?"), nap())
        return (yield from Confirm("Go on?"))

    run, clock = task(handler)
    run.start()
    clock.now += DAY
    stop: Stop = run.answered()
    assert isinstance(stop, Perform)
    given: dict[str, Answer] = {"gather-1/0/confirm-1": Accepted({})}
    for _ in range(2):
        # The answer is stored; the step comes first, and then this worker is lost.
        journal = Journal.loads(run.suspend().dumps())
        run, _ = task(handler, journal, clock=clock)
        assert run.start(given) == stop
    stop = run.performed({"gather-1/1/step-1": Done("paid")})
    assert keys(stop) == ["confirm-1"]
    assert run.journal.pool == ()


def test_step_that_lost_may_end_late() -> None:
    run, clock, _ = begun()

    def handler() -> Flow[Any]:
        first = yield from first_of()
        return first, (yield from Confirm("And now?"))

    run, clock = task(handler)
    run.start()
    run.answered({"confirm-1": Accepted(None)})
    run.begin("first-1/1/step-1")
    stop = run.answered({"first-1/0/day": a("Friday")})
    assert messages(stop) == ["And now?"]
    # Acknowledged, and ignored.
    assert run.performed({"first-1/1/step-1": Done("paid")}) == stop
    assert run.journal.places["first-1/0/day"].asked == 1


def test_step_that_races_holds_up_no_other() -> None:
    """B3a 1: it runs while others are asked, and while others perform."""

    def branch() -> Flow[Any]:
        name = yield from Elicit("Who?", str)
        yield from Step(charge, 5)
        return (yield from Confirm(f"{name}?"))

    def handler() -> Flow[Any]:
        return (yield from Gather(Within(DAY, Step(charge, 1)), branch()))

    run, clock = task(handler)
    run.start()
    run.begin("gather-1/0/within-1/0/step-1")
    stop = run.answered({"gather-1/1/elicit-1": a("Ann")})
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 5)]
    stop = run.performed({"gather-1/1/step-1": Done("paid")})
    assert messages(stop) == ["Ann?"]
    assert messages(cold(run, clock, handler)) == ["Ann?"]
    clock.now += DAY
    assert run.answered({"gather-1/1/confirm-1": Accepted({})}) == Returned(
        (TimedOut(), True)
    )


def test_at_most_once_step_that_races_is_started_once() -> None:
    paid = step(at_most_once=True)(charge)

    def handler() -> Flow[Any]:
        try:
            return (yield from Within(DAY, paid(5)))
        except StepInterrupted:
            return "interrupted"

    run, _ = task(handler)
    stop = run.start()
    assert isinstance(stop, Asked)
    run.begin("within-1/0/step-1")
    again, _ = task(handler, Journal.loads(run.journal.dumps()))
    assert again.start() == Returned("interrupted")


def test_step_that_is_put_off_is_not_waited_for_by_a_cancel() -> None:
    """L4: a step that was not started is taken back."""

    def handler() -> Flow[Any]:
        return (yield from Step(charge, 5))

    run, _ = task(handler)
    stop = run.start()
    run.begin("step-1")
    assert run.journal.places["step-1"].begun == 1
    run.put_off("step-1", "of a race that was decided")
    assert "step-1" not in run.journal.places
    # It can be started again, as a step that never was.
    run.begin("step-1")
    run.put_off("step-1")
    assert isinstance(stop, Perform)
    stop = run.cancel()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)


def test_answer_and_outcome_that_arrive_together_beat_a_clock() -> None:
    """B3a 5: answers and outcomes of one turn come before clocks, in either order."""

    def handler() -> Flow[Any]:
        return (
            yield from Gather(
                Within(DAY, Step(charge, 1)), Within(DAY, Elicit("Who?", str))
            )
        )

    run, clock = task(handler)
    run.start()
    run.begin("gather-1/0/within-1/0/step-1")
    clock.now += DAY
    stop = run.performed(
        {"gather-1/0/within-1/0/step-1": Done("paid")},
        {"gather-1/1/within-1/0/elicit-1": a("Ann")},
    )
    assert stop == Returned(("paid", "Ann"))


def test_losers_of_a_failed_gather_are_taken_back() -> None:
    """B3a 5: in the same write."""

    def fails() -> Flow[None]:
        yield from Confirm("a")
        raise LookupError

    def handler() -> Flow[Any]:
        try:
            yield from Gather(fails(), Elicit("b", str), Sleep(DAY))
        except LookupError:
            return (yield from Confirm("And now?"))

    run, clock = task(handler)
    run.start()
    stop = run.answered({"gather-1/0/confirm-1": Accepted(None)})
    assert isinstance(stop, Asked)
    assert (messages(stop), stop.due) == (["And now?"], None)
    assert list(run.journal.asked) == ["confirm-1"]
    assert cold(run, clock, handler) == stop


def test_losers_of_a_failed_gather_are_taken_back_before_its_cleanup() -> None:
    """Effects of the cleanup are saved without a question, clock or step of a loser."""

    def fails() -> Flow[None]:
        yield from Confirm("a")
        raise LookupError

    def handler() -> Flow[Any]:
        try:
            yield from Gather(
                fails(),
                Within(DAY, Elicit("b", str)),
                Within(DAY, Step(charge, 5)),
                FirstOf(Sleep(DAY), Elicit("c", str)),
            )
        except LookupError:
            return (yield from Step(charge, 1))

    run, clock = task(handler)
    run.start()
    run.begin("gather-1/2/within-1/0/step-1")
    stop = run.answered({"gather-1/0/confirm-1": Accepted(None)})
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 1)]
    assert run.journal.asked == {}
    for one in run.journal.places.values():
        assert (one.due, one.begun) == (None, 0)
    assert cold(run, clock, handler) == stop
    # Nor does a cancel wait for the step that lost.
    assert isinstance(run.cancel(), Raised)


# ---- cancelling ----


def careful() -> Flow[Any]:
    try:
        yield from Gather(Sleep(DAY), Elicit("Who?", str), Step(charge, 1))
    except Cancelled:
        yield from Step(charge, 2)
        raise


def test_cancel_does_not_wait_for_steps_that_were_not_started() -> None:
    run, clock = task(careful)
    assert isinstance(run.start(), Perform)
    stop = run.cancel()
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 2)]
    stop = run.performed({stop.wants[0].key: Done("refunded")})
    assert isinstance(stop, Raised)
    assert isinstance(cold(run, clock, careful), Raised)


def test_cancel_waits_for_started_steps_and_delivers_their_results() -> None:
    run, clock = task(careful)
    run.start()
    run.begin("gather-1/2/step-1")
    stop = run.cancel()
    assert isinstance(stop, Perform)
    assert [want.key for want in stop.wants] == ["gather-1/2/step-1"]
    stop = run.performed({"gather-1/2/step-1": Done("paid")})
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 2)]
    (gathered,) = run.journal.entries
    assert [one.tag for one in gathered.branches[2]] == ["done"]
    assert cold(run, clock, careful) == stop


@pytest.mark.parametrize("where", ["new", "asking"])
def test_cancel_from_the_start_and_while_waiting(where: str) -> None:
    run, clock = task(careful)
    run.start()
    run.performed({"gather-1/2/step-1": Done("paid")})
    if where == "new":
        run, _ = task(careful, run.journal)
    stop = run.cancel()
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 2)]
    assert run.journal.asked == {}
    assert cold(run, clock, careful) == stop


@pytest.mark.parametrize("rules", [LIVE, TASK], ids=["live", "task"])
def test_second_cancel_leaves_a_journal_that_can_resume(rules: Rules) -> None:
    """One of the started steps has ended by then, and one has not."""

    def handler() -> Flow[Any]:
        try:
            yield from Gather(Step(charge, 1), Step(charge, 2))
        finally:
            yield from Step(charge, 3)

    run, clock = task(handler, rules=rules)
    run.start()
    run.begin("gather-1/0/step-1", "gather-1/1/step-1")
    run.cancel()
    run.performed({"gather-1/0/step-1": Done("paid")})
    assert isinstance(run.cancel(), Raised)
    again, clock = task(handler, Journal.loads(run.journal.dumps()), rules=rules)
    stop = again.start()
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 3)]
    end = again.performed({"step-1": Done("refunded")})
    assert isinstance(end, Raised)
    assert isinstance(end.error, Cancelled)


def test_cancel_while_a_step_races_keeps_its_result() -> None:
    def handler() -> Flow[Any]:
        try:
            yield from Gather(Within(DAY, Step(charge, 1)), Elicit("Who?", str))
        finally:
            yield from Step(charge, 2)

    run, clock = task(handler)
    run.start()
    run.begin("gather-1/0/within-1/0/step-1")
    assert isinstance(run.cancel(), Perform)
    stop = run.performed({"gather-1/0/within-1/0/step-1": Done("paid")})
    assert isinstance(stop, Perform)
    (gathered,) = run.journal.entries
    assert [[one.tag for one in branch] for branch in gathered.branches] == [
        ["won"],
        [],
    ]
    assert cold(run, clock, handler) == stop


# ---- Detach, parking ----


def detached() -> Flow[Any]:
    name = yield from Elicit("Who?", str)
    is_task = yield from Detach()
    first = yield from Gather(Sleep(1), Confirm(f"{name}?"))
    return is_task, first


def test_detach_changes_the_rules_within_a_run() -> None:
    """B3a 6: up to its entry the rounds' waves, after it these."""
    first = Run(detached, flow_id=FLOW_ID)
    first.start()
    run, clock = task(detached, first.suspend(), rules=RETRY)
    stop = run.start({"elicit-1": a("Ann")})
    assert isinstance(stop, Perform)
    stop = run.performed({"detach-1": Done(True)})
    assert isinstance(stop, Asked)
    assert (messages(stop), stop.due) == (["Ann?"], clock.now + 1)
    again, other = task(detached, Journal.loads(run.journal.dumps()), rules=RETRY)
    assert again.start() == stop
    other.now += 1
    assert again.answered({keys(stop)[0]: Accepted(None)}) == Returned(
        (True, (None, True))
    )


def test_task_may_salvage() -> None:
    def handler(text: str) -> Flow[Any]:
        first = yield from Confirm(text)
        return first, (yield from Confirm("And now?"))

    rules = attrs.evolve(TASK, policy="salvage")
    run, _ = task(lambda: handler("One?"), rules=rules)
    run.start()
    run.answered({"confirm-1": Accepted({})})
    again, _ = task(lambda: handler("Two?"), run.suspend(), rules=rules)
    assert messages(again.start()) == ["Two?"]


def test_race_that_was_salvaged_may_be_salvaged_again() -> None:
    """No step was in it, so nothing is forgotten however often it moves."""
    rules = attrs.evolve(TASK, policy="salvage")

    def handler(*before: str) -> Flow[Any]:
        for name in before:
            yield from Elicit(name, str, key=name)
        first = yield from FirstOf(Elicit("Who?", str), Sleep(DAY))
        return first, (yield from Elicit("And?", str))

    run, _ = task(handler, rules=rules)
    stop: Stop = run.start()
    for before in ((), ("one",), ("two", "one")):
        run, _ = task(handler, run.suspend(), args=before, rules=rules)
        stop = run.start()
        assert bool(run.salvaged) == bool(before)
        for name in before[:1]:
            assert messages(stop) == [name]
            stop = run.answered({name: a("x")})
        if not before:
            stop = run.answered({keys(stop)[0]: a("Ann")})
        assert messages(stop) == ["And?"]
    stop = run.answered({keys(stop)[0]: a("Bob")})
    assert stop == Returned(((0, "Ann"), "Bob"))


def test_checkpoint_leaves_one_entry_however_answers_arrive() -> None:
    handler = flow_of(Checkpoint(), Elicit("Who?", str))
    entries = []
    for rules in (TASK, LIVE, RETRY):
        run, _ = task(handler, rules=rules)
        if rules.shed:
            run.start()
            run, _ = task(handler, run.suspend(), rules=rules)
        assert messages(run.start()) == ["Who?"]
        entries.append(run.suspend().entries)
    assert entries[0] == entries[1] == entries[2]


def test_recorded_answer_that_fits_no_more_is_asked_for_again() -> None:
    """Q2: not a divergence; effects that arrived with the answer stay delivered."""
    most = [10]

    @attrs.frozen
    class Order:
        copies: int = attrs.field()

        @copies.validator
        def _check(self, attribute: Any, value: int) -> None:
            if value > most[0]:
                raise ValueError(f"at most {most[0]}")

    def nap() -> Flow[Any]:
        yield from Sleep(DAY)
        yield from Sleep(DAY)

    def handler() -> Flow[Any]:
        order, *_ = yield from Gather(Elicit("What?", Order), Confirm("Sure?"), nap())
        return order.copies

    run, clock = task(handler)
    run.start()
    clock.now += DAY
    stop = run.answered(
        {
            "gather-1/0/elicit-1": Accepted({"copies": 8}),
            "gather-1/1/confirm-1": Accepted({}),
        }
    )
    assert stop == Asked((), due=clock.now + DAY)
    journal, rows = run.suspend(), run.take_rows()
    most[0] = 5
    again, _ = task(handler, journal, clock=clock)
    stop = again.start()
    assert isinstance(stop, Asked)
    (question,) = stop.questions
    assert question.key == "gather-1/0/elicit-1~2"
    assert question.problems == ("copies: at most 5",)
    assert keys(cold(again, clock, handler)) == keys(stop)
    rows += again.take_rows()
    assert again.journal.with_rows(rows) == again.journal
    assert again.answered({question.key: Accepted({"copies": 3})}) == Asked(
        (), due=clock.now + DAY
    )


def test_text_that_keeps_changing_parks_a_task() -> None:
    """D1: one version alone is consistent, also over waves that left others waiting."""

    def branch(text: str) -> Flow[Any]:
        yield from Confirm("Sure?")
        yield from Confirm(text)

    def handler(text: str) -> Flow[Any]:
        yield from Gather(branch(text), Sleep(DAY))

    run, _ = task(lambda: handler("0?"))
    run.start()
    stop = run.answered({"gather-1/0/confirm-1": Accepted({})})
    for version in range(1, TASK.stale):
        run, _ = task(partial(handler, f"{version}?"), run.suspend())
        stop = run.start({key: Accepted({}) for key in keys(stop)})
    run, _ = task(partial(handler, "last?"), run.suspend())
    with pytest.raises(DivergenceError, match="keeps changing its text") as caught:
        run.start({key: Accepted({}) for key in keys(stop)})
    assert caught.value.verdict == "park"


@pytest.mark.parametrize("value", [True, False])
def test_changed_text_after_a_detach(value: bool) -> None:
    """D1: the cold replay detaches like the replay, and under the same rules."""

    def handler(text: str) -> Flow[Any]:
        yield from Gather(Confirm("Sure?"))
        yield from Detach()
        yield from Confirm(text)

    strict: dict[str, Any] = {
        "rules": attrs.evolve(RETRY, policy="strict"),
        "detached": attrs.evolve(TASK, policy="strict"),
    }
    run, _ = task(lambda: handler("One?"), **strict)
    run.start()
    run.answered({"gather-1/0/confirm-1": Accepted({})})
    stop = run.performed({"detach-1": Done(value)})
    assert messages(stop) == ["One?"]
    run, _ = task(lambda: handler("Two?"), run.suspend(), **strict)
    assert messages(run.start({"confirm-1": Accepted({})})) == ["Two?"]


def test_parked_journal_is_not_altered() -> None:
    def before() -> Flow[Any]:
        return (yield from Elicit("a", str)), (yield from Elicit("b", str))

    def after() -> Flow[Any]:
        return (yield from Elicit("c", str)), (yield from Elicit("b", str))

    run, _ = task(before)
    run.start()
    run.answered({"elicit-1": a("x")})
    journal = run.suspend()
    edited, _ = task(after, journal)
    with pytest.raises(DivergenceError) as caught:
        edited.start({"elicit-2": a("y")})
    assert caught.value.verdict == "park"
    assert edited.journal is journal
    assert edited.take_rows() == []
    # After a rollback it resumes.
    again, _ = task(before, journal)
    assert again.start({"elicit-2": a("y")}) == Returned(("x", "y"))


def test_branch_added_beside_a_recorded_answer_parks() -> None:
    """B3a 2: an unnumbered answer was a wave of all leaves, and one has none."""

    def before() -> Flow[Any]:
        yield from Gather(Elicit("a", str))
        return (yield from Elicit("b", str))

    def after() -> Flow[Any]:
        yield from Gather(Elicit("a", str), Elicit("c", str))
        return (yield from Elicit("b", str))

    run, _ = task(before)
    run.start()
    assert messages(run.answered({"gather-1/0/elicit-1": a("x")})) == ["b"]
    edited, _ = task(after, run.suspend())
    with pytest.raises(DivergenceError) as caught:
        edited.start()
    assert caught.value.report.cause == "left over"


def test_budget_of_yields_does_not_run_out_in_a_long_task() -> None:
    """L5: it is counted between two stops at which the flow waits."""

    def handler() -> Flow[int]:
        for _ in range(10):
            for _ in range(30):
                yield from Step(charge, 1)
            yield from Sleep(1)
        return 300

    run, clock = task(handler, rules=attrs.evolve(TASK, yields=50))
    stop = run.start()
    while not isinstance(stop, Returned):
        if isinstance(stop, Perform):
            stop = run.performed({want.key: Done("paid") for want in stop.wants})
        else:
            assert isinstance(stop, Asked), stop
            clock.now += 1
            stop = run.answered()
    assert stop == Returned(300)


# ---- in a call ----


def inline() -> Flow[Any]:
    yield from Detach()
    return (yield from remind())


def test_by_retry_an_answer_that_comes_too_late_has_lost() -> None:
    """V3: the due time is journaled when the question goes out."""
    run, clock = task(inline, rules=RETRY)
    run.start()
    stop = run.performed({"detach-1": Done(False)})
    assert isinstance(stop, Asked)
    assert stop.due == clock.now + DAY
    journal = Journal.loads(run.suspend().dumps())
    answers = {"within-1/0/elicit-1": a("Friday")}
    for seconds, end in ((DAY - 1, "Friday"), (DAY, TimedOut())):
        again, later = task(inline, journal, rules=RETRY)
        later.now = clock.now + seconds
        assert again.start(answers) == Returned(end)


def test_live_the_run_keeps_the_clock() -> None:
    run, clock = task(inline, rules=LIVE)
    run.start()
    run.performed({"detach-1": Done(False)})
    clock.now += DAY
    assert run.answered({"within-1/0/elicit-1": a("Friday")}) == Returned(TimedOut())


def test_question_beside_a_step_needs_a_task() -> None:
    def handler() -> Flow[Any]:
        yield from Detach()
        return (yield from first_of())

    run, _ = task(handler, rules=LIVE)
    run.start()
    run.performed({"detach-1": Done(False)})
    stop = run.answered({"confirm-1": Accepted(None)})
    assert isinstance(stop, Raised)
    assert "FirstOf() of a question and a step needs a task" in str(stop.error)


def test_want_is_named_with_its_generation() -> None:
    def again(n: int) -> Flow[Any]:
        yield from Step(charge, n)
        if n:
            return n
        return (yield from Restart(again, 1))

    run, _ = task(lambda: again(0), resolve=lambda name: again)
    stop = run.start()
    assert isinstance(stop, Perform)
    assert [want.key for want in stop.wants] == ["step-1"]
    stop = run.performed({"step-1": Done("paid")})
    assert isinstance(stop, Perform)
    assert [want.key for want in stop.wants] == ["r1/step-1"]


# ---- what arrives while something is performed ----


def busy() -> Flow[Any]:
    def first() -> Flow[Any]:
        yield from Confirm("Begin?")
        return (yield from Step(charge, 1))

    return (yield from Gather(Within(DAY, Elicit("Who?", str)), first()))


def performing() -> tuple[Run, Clock]:
    run, clock = task(busy)
    run.start()
    stop = run.answered({"gather-1/1/confirm-1": Accepted(None)})
    assert isinstance(stop, Perform)
    return run, clock


def test_answer_that_arrives_meanwhile_beats_a_clock_that_ran_out_meanwhile() -> None:
    """B3a 5: it was stored before the worker looked at the clock."""
    run, clock = performing()
    stop = run.answered({"gather-1/0/within-1/0/elicit-1": a("Ann")})
    assert isinstance(stop, Perform)
    assert [want.key for want in stop.wants] == ["gather-1/1/step-1"]
    clock.now += 2 * DAY
    end = run.performed({"gather-1/1/step-1": Done("paid")})
    assert end == Returned(("Ann", "paid"))


def test_answer_that_arrives_meanwhile_stays_with_its_sender() -> None:
    """B3a 4: in the pool as well, it would answer the next question like its own."""
    run, _ = performing()
    run.answered({"gather-1/0/within-1/0/elicit-1": a("Ann")})
    assert run.journal.pool == ()
    assert list(run.journal.asked) == ["gather-1/0/within-1/0/elicit-1"]


# ---- found by a review ----


def test_step_that_raced_beside_a_performed_one_is_journaled_when_cancelled() -> None:
    """L4: its result is journaled, though nothing will decide its race."""

    def handler() -> Flow[Any]:
        def late() -> Flow[Any]:
            yield from Confirm("Begin?")
            return (yield from Step(charge, 2))

        try:
            return (yield from Gather(Within(DAY, Step(charge, 1)), late()))
        finally:
            yield from Step(charge, 3)

    run, clock = task(handler)
    run.start()
    run.begin("gather-1/0/within-1/0/step-1")
    run.answered({"gather-1/1/confirm-1": Accepted(None)})
    run.performed({"gather-1/0/within-1/0/step-1": Done("paid")})
    stop = run.cancel()
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 3)]
    (gathered,) = run.journal.entries
    assert [one.tag for one in gathered.branches[0]] == ["won"]
    assert cold(run, clock, handler) == stop


class Limit:
    """The limit that a validator applies now."""

    least = 0


@attrs.frozen
class Guest:
    age: int = attrs.field()

    @age.validator
    def _check(self, attribute: Any, value: int) -> None:
        if value < Limit.least:
            raise ValueError("too young")


def test_recorded_answer_that_no_longer_fits_parks_a_wave_of_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handler() -> Flow[Any]:
        return (yield from Elicit("How old?", Guest)), (yield from Confirm("Sure?"))

    run, _ = task(handler)
    run.start()
    run.answered({"elicit-1": Accepted({"age": 5})})
    journal = run.suspend()
    monkeypatch.setattr(Limit, "least", 18)
    again, _ = task(handler, journal)
    # Nothing was built on it, so it is only asked again.
    stop = again.start()
    assert messages(stop) == ["How old?"]


def test_fourth_stale_answer_of_a_task_parks_for_every_cause() -> None:
    """A clock in the text, after a Detach: no worker may end the task for it."""
    ticks = iter(range(100))

    def handler() -> Flow[Any]:
        yield from Detach()
        return (yield from Confirm(f"At {next(ticks)}?"))

    run, _ = task(handler, rules=RETRY)
    run.start()
    stop = run.performed({"detach-1": Done(True)})
    for _ in range(3):
        journal, key = run.suspend(), keys(stop)[0]
        run, _ = task(handler, journal, rules=RETRY)
        stop = run.start({key: Accepted(None)})
    journal, key = run.suspend(), keys(stop)[0]
    run, _ = task(handler, journal, rules=RETRY)
    with pytest.raises(DivergenceError) as caught:
        run.start({key: Accepted(None)})
    assert caught.value.verdict == "park"
