"""Corners of the engine that no other example turns."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    BudgetError,
    Cancelled,
    Checkpoint,
    ClientFailed,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    DivergenceError,
    Elicit,
    FirstOf,
    Flow,
    FlowError,
    Gather,
    Log,
    NondeterminismError,
    Now,
    Outcome,
    Restart,
    Restarted,
    Sleep,
    Step,
    Suspended,
    Unsupported,
    UsageError,
    Uuid,
    Within,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    TASK,
    Answer,
    Asked,
    Done,
    Failure,
    Journal,
    JournalError,
    Perform,
    Raised,
    Returned,
)
from effectmcp.engine.effect_table import KINDS, record_value
from effectmcp.engine.journal import entry_of_format_1

from ..helpers import (
    UNCAPPED,
    advance,
    answers_to,
    flow_of,
    keys,
    messages,
    run,
    yes,
)

YES = Accepted(None)


def last_of(handlers: list[Callable[..., Any]]) -> Any:
    """Play rounds, each with the answers to the round before; return the last stop."""
    journal, answers = Journal(), dict[str, Answer]()
    stop: Any = None
    for handler in handlers:
        one = run(handler, journal=journal, rules=UNCAPPED)
        stop = one.start(answers)
        if isinstance(stop, Asked):
            answers, journal = answers_to(stop, yes), one.suspend()
    return stop


def test_handler_that_does_not_even_begin_again_never_stays() -> None:
    turns = itertools.count()

    def handler() -> Any:
        turn = next(turns)
        if turn == 5:
            raise LookupError
        return flow_of(Confirm(f"{turn}?"))()

    stop = last_of([handler] * 5)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


def test_message_that_changes_in_every_replay_after_a_gather() -> None:
    turns = itertools.count()

    def handler() -> Flow[Any]:
        yield from Gather(Confirm("a"), Confirm("b"))
        yield from Confirm(f"{next(turns)}?")

    stop = last_of([handler] * 6)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)
    assert "'4?'" in str(stop.error)


class Limit:
    """The number of times that a form may still be built."""

    left = 0


@attrs.frozen
class Guest:
    name: str

    def __attrs_post_init__(self) -> None:
        Limit.left -= 1
        if Limit.left < 0:
            raise ValueError("not today")


def test_answer_in_a_branch_that_fits_no_more_and_cannot_be_asked_for() -> None:
    def handler() -> Flow[Any]:
        try:
            return (yield from Gather(Elicit("Who?", Guest)))
        except Unsupported:
            return "unsupported"

    one = run(handler)
    (key,) = keys(one.start())
    again = run(handler, journal=one.suspend(), supports=lambda what: False)
    Limit.left = 1
    assert again.start({key: Accepted({"name": "Ann"})}) == Returned("unsupported")


def test_answer_in_flight_that_does_not_fit_is_asked_for_again() -> None:
    city = Elicit("Which city?", str)
    one = run(flow_of(city))
    one.start()
    after = flow_of(Confirm("New?"), city)
    two = run(after, journal=one.suspend())
    stop = two.start({"elicit-1": Accepted({"value": 5})})
    assert messages(stop) == ["New?"]
    three = run(after, journal=two.suspend())
    stop = three.start({"confirm-1": YES})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems
    assert messages(stop) == ["Which city?"]


def test_cancelled_flow_that_is_cancelled_again_elsewhere() -> None:
    one = run(flow_of(Confirm("Sure?")), rules=TASK)
    one.start()
    one.cancel()
    again = run(flow_of(Confirm("Sure?")), rules=TASK, journal=one.journal)
    stop = again.cancel()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)


def test_time_without_a_clock() -> None:
    with pytest.raises(UsageError, match=r"give Run\(clock=time\.time\)"):
        run(flow_of(Sleep(1)), rules=TASK).start()


def number() -> int:
    return 5


def five() -> Flow[int]:
    yield from ()
    return 5


def test_result_within_a_time_that_cannot_be_recorded() -> None:
    effect = Within(1, Step(number))
    assert record_value(effect, KINDS[Within], "five")[0] == "failed"


def test_journal_whose_entry_may_perhaps_be_replayed() -> None:
    text = json.loads(Journal().dumps())
    text["entries"] = [["step-1", "", "", "done", 5, 1, None]]
    with pytest.raises(JournalError, match="where a yes or no belongs"):
        Journal.loads(json.dumps(text))


def test_entry_of_the_format_before_with_an_unknown_tag() -> None:
    with pytest.raises(ValueError, match="unknown tag 'guessed'"):
        entry_of_format_1("step-1", b"", b"", "guessed", b"null")


def test_replay_that_diverges_when_it_is_had_cold() -> None:
    turns = itertools.count()

    def handler() -> Flow[Any]:
        turn = next(turns)
        yield from Confirm("other" if turn == 6 else "a")
        yield from Confirm(f"{turn}?")

    stop = last_of([handler] * 6)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


def test_answer_in_a_branch_that_fits_no_more_is_asked_for_again() -> None:
    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("Who?", Guest)))

    one = run(handler)
    (key,) = keys(one.start())
    again = run(handler, journal=one.suspend())
    Limit.left = 1
    assert keys(again.start({key: Accepted({"name": "Ann"})})) == [f"{key}~2"]


def test_wave_that_another_number_was_given_to_parks() -> None:
    handler = flow_of(Gather(Confirm("a"), Confirm("b")))
    one = run(handler, rules=TASK)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    text = json.loads(one.journal.dumps())
    ((entry,), _) = text["entries"][0][5]
    entry[6] = 5
    again = run(handler, rules=TASK, journal=Journal.loads(json.dumps(text)))
    with pytest.raises(DivergenceError) as caught:
        again.start()
    assert caught.value.verdict == "park"


def test_cancel_delivers_the_performed_part_of_a_wave() -> None:
    """L4: cleanup must know of the charge."""
    seen: list[Any] = []

    def branch(name: str) -> Flow[Any]:
        seen.append((yield from Step(str, name)))
        yield from Confirm("Sure?")

    def gathering() -> Flow[Any]:
        return (yield from Gather(branch("a"), branch("b")))

    one = run(gathering, rules=TASK)
    one.start()
    one.begin("gather-1/0/step-1")
    one.cancel()
    stop = one.performed({"gather-1/0/step-1": Done("a")})
    assert isinstance(stop, Raised)
    assert seen == ["a"]
    again = run(gathering, rules=TASK, journal=one.journal)
    assert isinstance(again.start(), Raised)
    assert seen == ["a", "a"]


def second() -> Flow[Any]:
    yield from Sleep(1)
    return "slept"


def test_rules_of_a_task_outlive_a_restart_and_its_worker() -> None:
    def first() -> Flow[Any]:
        yield from Detach()
        return (yield from Restart(second))

    clock = [0.0]
    one = run(first, clock=lambda: clock[0])
    one.start()
    stop = one.performed({"detach-1": Done(True)})
    assert isinstance(stop, Asked)
    assert stop.due == 1.0
    clock[0] = 1.0
    again = run(first, clock=lambda: clock[0], journal=one.suspend())
    assert again.start() == Returned("slept")


@pytest.mark.parametrize("caught", [False, True])
def test_entries_left_over_where_a_gather_fails(caught: bool) -> None:
    """The failure is reported, unless the handler continues and would lose a step."""

    def before() -> Flow[Any]:
        yield from Gather(Step(str, "a"))
        yield from Confirm("Sure?")

    def raising() -> Flow[Any]:
        yield from ()
        raise LookupError

    def after() -> Flow[Any]:
        try:
            yield from Gather(raising())
        except LookupError:
            if not caught:
                raise
        yield from Confirm("Sure?")

    one = run(before)
    one.start()
    one.performed({"gather-1/0/step-1": Done("a")})
    again = run(after, journal=one.suspend())
    if caught:
        with pytest.raises(DivergenceError) as stopped:
            again.start()
        assert stopped.value.verdict == "stop"
    else:
        stop = again.start()
        assert isinstance(stop, Raised)
        assert isinstance(stop.error, LookupError)


def test_answer_that_was_kept_is_not_delivered_to_a_cancelled_flow() -> None:
    seen: list[Any] = []

    def branch(text: str) -> Flow[None]:
        seen.append((yield from Confirm(text)))

    def handler() -> Flow[Any]:
        return (yield from Gather(branch("a"), branch("b")))

    one = run(handler, rules=LIVE)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    assert isinstance(one.cancel(), Raised)
    assert seen == []


# ---- where, and in which words ----


def test_line_of_a_flow_is_the_line_of_its_first_running_branch() -> None:
    def ended() -> Flow[None]:
        yield from ()

    def asks() -> Flow[None]:
        yield from Confirm("Sure?")

    def handler() -> Flow[None]:
        yield from Gather(ended(), asks())

    one = run(handler)
    one.start()
    assert one.where == f"{__file__}:{asks.__code__.co_firstlineno + 1}"


def test_left_over_entries_are_reported_for_the_branch_that_waits() -> None:
    """In a task, where the available entries belong to a later wave."""

    def handler(*, edited: bool) -> Flow[Any]:
        def first() -> Flow[None]:
            yield from Confirm("a")

        def second() -> Flow[None]:
            if not edited:
                yield from Confirm("b 1")
                yield from Confirm("b 2")

        return (yield from Gather(first(), second(), Confirm("c")))

    one = run(lambda: handler(edited=False), rules=TASK)
    one.start()
    one.answered({"gather-1/1/confirm-1": YES})
    one.answered({"gather-1/0/confirm-1": YES})
    again = run(lambda: handler(edited=True), rules=TASK, journal=one.suspend())
    with pytest.raises(DivergenceError) as caught:
        again.start()
    report = caught.value.report
    assert (report.cause, report.place) == ("left over", "branch gather-1/0, entry 0")
    assert report.recorded == "confirm-1 (accepted)"


def test_last_of_the_entries_that_a_cancelled_branch_left_over_is_named() -> None:
    """No question is asked while undelivered entries remain."""

    def two() -> Flow[None]:
        yield from Step(str, "a")
        yield from Step(str, "b")
        yield from Confirm("c")

    def other(*, fails: bool) -> Flow[None]:
        yield from ()
        if fails:
            raise LookupError

    def handler(*, fails: bool) -> Flow[Any]:
        try:
            yield from Gather(other(fails=fails), two())
        except LookupError:
            yield from Confirm("Something else?")

    one = run(lambda: handler(fails=False))
    advance(one, one.start())
    journal = attrs.evolve(one.suspend(), places={})
    with pytest.raises(DivergenceError) as caught:
        run(lambda: handler(fails=True), journal=journal).start()
    assert caught.value.report.recorded == "step-2 (done)"


def test_why_the_arguments_of_a_restart_do_not_fit_is_logged_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def other(argument: int) -> None: ...

    def first() -> Flow[Any]:
        return (yield from Restart(second))

    one = run(first, rules=TASK, clock=lambda: 0.0)
    one.start()
    again = run(first, rules=TASK, journal=one.suspend(), resolve=lambda name: other)
    with pytest.raises(DivergenceError):
        again.start()
    (message,) = caplog.messages
    assert message.endswith("missing a required argument: 'argument'")


# ---- edited handlers ----


def test_wave_with_a_dropped_entry_is_taken_again_as_a_whole() -> None:
    """Random values drawn before are taken from the pool, and recorded again."""

    def draws() -> Flow[Any]:
        return [(yield from Uuid()), (yield from Now())]

    def handler(*, edited: bool) -> Flow[Any]:
        def other() -> Flow[Any]:
            if edited:
                return (yield from ClientSupports(Elicit))
            return None

        found = yield from Gather(draws(), other())
        yield from Confirm("Sure?")
        return found

    one = run(lambda: handler(edited=False), rules=UNCAPPED)
    advance(one, one.start())
    again = run(lambda: handler(edited=True), rules=UNCAPPED, journal=one.suspend())
    assert isinstance(again.start(), Asked)
    assert len(again.salvaged) == 1
    (gathered,) = again.journal.entries
    assert [one.key for one in gathered.branches[0]] == ["uuid-1", "now-1"]
    assert [one.key for one in gathered.branches[1]] == ["supports-1"]


def test_log_after_a_new_answer_is_heard_when_the_journal_was_longer() -> None:
    def before() -> Flow[None]:
        for text in "abcd":
            yield from Confirm(text)

    def after() -> Flow[None]:
        yield from Confirm("new")
        yield from Log("info", "heard")
        yield from Confirm("last")

    one = run(before, rules=UNCAPPED)
    one.start()
    for nth in (1, 2, 3):
        one.answered({f"confirm-{nth}": YES})
    heard: list[Any] = []
    again = run(after, rules=UNCAPPED, journal=one.suspend(), emit=heard.append)
    (key,) = keys(again.start())
    again.answered({key: YES})
    assert heard == [Log("info", "heard")]


@pytest.mark.parametrize(
    "answer",
    [
        Accepted({"value": "Ann"}),
        Declined(),
        Dismissed(),
        ClientFailed(5, "no"),
        Accepted({"value": 5}),  # which does not fit
    ],
    ids=["accepted", "declined", "dismissed", "refused", "invalid"],
)
def test_wire_key_of_an_answer_that_was_dropped_is_used_up(answer: Answer) -> None:

    def before() -> Flow[None]:
        try:
            yield from Elicit("Who?", str)
        except FlowError:
            pass
        yield from Confirm("Sure?")

    rules = attrs.evolve(UNCAPPED, unfit=1)
    one = run(before, rules=rules)
    one.start()
    assert messages(one.answered({"elicit-1": answer})) == ["Sure?"]
    again = run(flow_of(Elicit("Whom?", str)), rules=rules, journal=one.suspend())
    assert keys(again.start()) == ["elicit-1~2"]


def test_cold_replay_runs_no_cleanup() -> None:
    seen: list[str] = []
    turns = itertools.count()

    def handler() -> Flow[Any]:
        try:
            yield from Confirm(f"{next(turns)}?")
        except BaseException as exc:
            seen.append(type(exc).__name__)
            raise

    last_of([handler] * 5)
    assert seen == [Suspended.__name__] * 6


def test_strict_flow_whose_message_changes_fails_at_once() -> None:
    turns = itertools.count()

    def handler() -> Flow[Any]:
        yield from Confirm(f"{next(turns)}?")

    strict = attrs.evolve(UNCAPPED, policy="strict")
    one = run(handler, rules=strict)
    one.start()
    stop = run(handler, rules=strict, journal=one.suspend()).start({"confirm-1": YES})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


# ---- cancelled ----


def test_cancelled_flow_stays_cancelled_when_its_cleanup_matches_the_edited_code() -> (
    None
):
    """Edited since: what its cleanup performed is not taken for what it wants now, and is
    not performed again."""

    def handler(*, edited: bool) -> Flow[Any]:
        try:
            if edited:
                yield from Step(str, "paid back")
            yield from Confirm("Sure?")
        finally:
            yield from Step(str, "paid back")

    one = run(lambda: handler(edited=False), rules=TASK)
    one.start()
    assert isinstance(advance(one, one.cancel()), Raised)
    again = run(lambda: handler(edited=True), rules=TASK, journal=one.journal)
    with pytest.raises(DivergenceError) as caught:
        again.start()
    report = caught.value.report
    assert report.recorded == "step-1 (done)"
    assert report.current == "step-2 (builtins:str)"


def test_answer_to_a_flow_that_was_cancelled_comes_too_late() -> None:
    one = run(flow_of(Confirm("Sure?")), rules=TASK)
    one.start()
    journal = attrs.evolve(one.suspend(), cancelled=0)
    again = run(flow_of(Confirm("Sure?")), rules=TASK, journal=journal)
    stop = again.start({"confirm-1": YES})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)


def test_race_whose_step_had_ended_is_recorded_where_a_flow_is_cancelled() -> None:
    """The race has one entry, at its place in the branch: cleanup entries follow it."""
    seen: list[Any] = []

    def races() -> Flow[Any]:
        try:
            seen.append(
                (yield from FirstOf(Confirm("a"), Sleep(60), Step(str, "raced")))
            )
        finally:
            seen.append((yield from Step(str, "cleaned")))

    def works() -> Flow[Any]:
        yield from Confirm("b")
        seen.append((yield from Step(str, "worked")))

    def handler() -> Flow[Any]:
        return (yield from Gather(races(), works()))

    raced = "gather-1/0/first-1/2/step-1"
    one = run(handler, rules=TASK, clock=lambda: 0.0)
    stop = one.start()
    assert isinstance(stop, Asked)
    assert [want.key for want in stop.wants] == [raced]
    one.begin(raced)
    assert isinstance(one.answered({"gather-1/1/confirm-1": YES}), Perform)
    one.performed({raced: Done("raced")})
    stop = one.cancel()
    assert isinstance(stop, Perform)
    assert isinstance(advance(one, stop), Raised)
    assert seen == ["cleaned"]
    journal = one.journal
    (gathered,) = journal.entries
    assert [one.tag for one in gathered.branches[0]] == ["won", "done"]
    assert journal.asked == {}
    assert [
        place for place in journal.places.values() if place.begun or place.due
    ] == []
    again = run(handler, rules=TASK, clock=lambda: 0.0, journal=journal)
    assert isinstance(again.start(), Raised)
    assert seen == ["cleaned", "cleaned"]
    assert again.journal == journal


def test_cleanup_of_a_restart_that_is_cancelled_gets_that_signal() -> None:
    seen: list[type] = []

    def first() -> Flow[Any]:
        try:
            yield from Restart(second)
        finally:
            yield from Step(str, "a")
            yield from Now()
            try:
                yield from Confirm("Really?")
            except (Cancelled, Restarted) as exc:
                seen.append(type(exc))
                raise

    one = run(first, rules=TASK)
    stop = one.start()
    assert isinstance(stop, Perform)
    one.begin("step-1")
    one.cancel()
    stop = advance(one, one.performed({"step-1": Done("a")}))
    assert isinstance(stop, Raised)
    assert seen == [Cancelled]


def test_restart_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    def first() -> Flow[Any]:
        return (yield from Restart(five))

    def quiet() -> Flow[Any]:
        try:
            yield from Restart(five)
        except Restarted:
            pass

    assert run(first).start() == Returned(5)
    assert run(quiet).start() == Returned(5)
    assert caplog.messages == []


def test_want_withdrawn_at_a_cancel_may_still_be_reported_as_performed() -> None:
    one = run(flow_of(Gather(Step(str, "a"), Step(str, "b"))), rules=TASK)
    before = one.start()
    one.begin("gather-1/0/step-1")
    stop = one.cancel()
    assert isinstance(stop, Perform)
    assert [want.key for want in stop.wants] == ["gather-1/0/step-1"]
    assert stop != before
    # Answers are only recorded: the wants to perform are the same as before.
    assert one.answered() is stop
    assert one.answered() is stop
    assert one.performed({"gather-1/1/step-1": Done("b")}) == stop
    assert isinstance(one.performed({"gather-1/0/step-1": Done("a")}), Raised)
    (gathered,) = one.journal.entries
    assert [len(branch) for branch in gathered.branches] == [1, 0]


def test_cancel_of_a_run_that_has_not_started_asks_nothing() -> None:
    stop = run(flow_of(Confirm("Sure?")), rules=LIVE).cancel()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)


def test_cancel_of_a_suspended_run_reports_it() -> None:
    one = run(flow_of(Confirm("Sure?")), rules=LIVE)
    one.start()
    one.suspend()
    stop = one.cancel()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, Cancelled)


def test_cancelled_flow_that_is_cancelled_again_elsewhere_still_cleans_up() -> None:
    def handler() -> Flow[Any]:
        try:
            yield from Confirm("Sure?")
        finally:
            yield from Step(str, "a")

    one = run(handler, rules=TASK)
    one.start()
    one.cancel()
    again = run(handler, rules=TASK, journal=one.suspend())
    stop = again.cancel()
    assert isinstance(stop, Perform)
    assert isinstance(advance(again, stop), Raised)


# ---- counts ----


def test_only_waves_of_people_and_clocks_are_numbered() -> None:
    """Waves that a replay feeds at once get the numbers of the earlier run."""

    def handler() -> Flow[Any]:
        yield from Outcome(Confirm("first"))
        yield from Now()
        yield from Confirm("a")
        yield from Now()
        yield from Checkpoint()
        yield from Gather(Confirm("b"), Confirm("c"))
        yield from Confirm("d")

    one = run(handler, rules=TASK)
    one.start()
    advance(one, one.answered({"confirm-1": Declined()}))
    stop = advance(one, one.answered({"confirm-2": YES}))
    assert messages(stop) == ["b", "c"]
    again = run(handler, rules=TASK, journal=one.suspend())
    again.start()
    again.answered({"gather-1/1/confirm-1": YES})
    *_, gathered = again.journal.entries
    assert [one.wave for branch in gathered.branches for one in branch] == [3]
    third = run(handler, rules=TASK, journal=again.suspend())
    assert messages(third.start()) == ["b"]


def test_race_that_was_decided_alone_at_a_cancel_has_no_number() -> None:
    one = run(flow_of(FirstOf(Confirm("a"), Step(str, "b"))), rules=TASK)
    one.start()
    one.begin("first-1/1/step-1")
    one.cancel()
    one.performed({"first-1/1/step-1": Done("b")})
    (entry,) = one.journal.entries
    assert (entry.tag, entry.wave) == ("won", None)


def test_budget_is_full_again_after_each_wait() -> None:
    handler = flow_of(Confirm("a"), Confirm("b"))
    one = run(handler, rules=attrs.evolve(LIVE, yields=1))
    one.start()
    one.answered({"confirm-1": YES})
    assert one.answered({"confirm-2": YES}) == Returned([True, True])


@pytest.mark.parametrize("way", ["again", "live"])
def test_each_new_answer_counts_against_the_budget(way: str) -> None:
    rules = attrs.evolve(LIVE, yields=0)
    one = run(flow_of(Confirm("a")), rules=rules)
    one.start()
    if way == "live":
        stop = one.answered({"confirm-1": YES})
    else:
        again = run(flow_of(Confirm("a")), rules=rules, journal=one.suspend())
        stop = again.start({"confirm-1": YES})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)


def test_early_answer_is_early_for_the_first_questions_only() -> None:
    handler = flow_of(Confirm("a"), Elicit("Who?", str, key="who"))
    one = run(handler, rules=RETRY)
    assert messages(one.start({"who": Accepted({"value": "Ann"})})) == ["a"]
    assert messages(one.answered({"confirm-1": YES})) == ["Who?"]


# ---- recorded values ----


def test_clock_that_wins_a_race_is_recorded_as_its_part() -> None:
    now = [0.0]
    handler = flow_of(FirstOf(Confirm("a"), Sleep(60)), Sleep(5))
    one = run(handler, rules=TASK, clock=lambda: now[0])
    one.start()
    now[0] = 60.0
    one.answered()
    now[0] = 65.0
    assert isinstance(one.answered(), Returned)
    race, sleep = one.journal.entries
    assert (race.tag, race.payload, race.replayable) == (
        "won",
        b'[1,"known",null]',
        True,
    )
    assert (sleep.tag, sleep.payload, sleep.replayable) == ("known", b"null", False)


def test_step_that_fails_in_a_race_fails_it() -> None:
    handler = flow_of(FirstOf(Confirm("a"), Step(str, "b")))
    one = run(handler, rules=TASK)
    one.start()
    stop = one.performed({"first-1/1/step-1": Failure(LookupError("no"))})
    assert isinstance(stop, Raised)
    assert str(stop.error) == "no"
    (entry,) = one.journal.entries
    assert (entry.tag, entry.replayable) == ("failed", False)
    again = run(handler, rules=TASK, journal=one.journal)
    assert isinstance(again.start(), Raised)


def test_rows_of_a_generation_that_ended_are_given_once() -> None:
    def first() -> Flow[Any]:
        return (yield from Restart(five))

    one = run(first, rules=TASK)
    assert one.start() == Returned(5)
    (row,) = one.take_rows()
    assert (row.generation, row.path, row.index) == (0, "", 0)
    assert row.entry is not None
    assert (row.entry.tag, row.entry.replayable) == ("restart", False)
    assert one.take_rows() == []


def test_end_stays_the_end_after_a_suspend() -> None:
    one = run(flow_of())
    stop = one.start()
    one.suspend()
    assert one.cancel() is stop


def test_answer_in_a_race_counts_for_the_text_that_was_shown() -> None:
    def racing(text: str) -> Callable[[], Any]:
        return flow_of(FirstOf(Confirm(text), Sleep(60)))

    one = run(racing("a"), rules=TASK, clock=lambda: 0.0)
    (key,) = keys(one.start())
    again = run(racing("b"), rules=TASK, clock=lambda: 0.0, journal=one.suspend())
    stop = again.start({key: YES})
    assert messages(stop) == ["b"]
    assert keys(stop) == [f"{key}~2"]
