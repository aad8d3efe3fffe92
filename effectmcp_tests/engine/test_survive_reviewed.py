"""Cases that reviews found and random programs had not: each stays as an example."""

from __future__ import annotations

import logging
from typing import Any

import attrs
import pytest
from attrs import field, frozen

from effectmcp import (
    Accepted,
    Cancelled,
    Checkpoint,
    ClientFailed,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    DivergenceError,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    Log,
    Now,
    Progress,
    Restart,
    Sleep,
    Step,
    TooManyRounds,
    Unsupported,
    UsageError,
    Version,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    SCRIPT,
    TASK,
    Asked,
    Done,
    Journal,
    Perform,
    Pooled,
    Raised,
    Returned,
    Run,
)
from effectmcp.forms import Unfit

from ..helpers import (
    FLOW_ID,
    UNCAPPED,
    advance,
    answers_to,
    by_retry,
    by_script,
    live,
    messages,
    run,
    yes,
)


def release() -> None:
    pass


def second() -> Flow[str]:
    yield from Confirm("Go on?")
    yield from Sleep(1)
    return "slept"


def test_question_after_a_caught_state_only_limit_is_refused_too() -> None:
    """Q6: no state may leave that round, so nothing may be asked in it any more."""

    def handler() -> Flow[str]:
        yield from Checkpoint()
        yield from Checkpoint()
        try:
            yield from Checkpoint()
        except TooManyRounds:
            pass
        return (yield from Elicit("Who?", str))

    stop = by_retry(handler, rules=RETRY)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, TooManyRounds)


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


def test_exceptions_fed_from_the_journal_cost_no_budget() -> None:
    """L5: a journal that was recorded can be replayed."""

    def handler() -> Flow[str]:
        for n in range(30):
            try:
                yield from Elicit(f"{n}?", str)
            except Declined:
                pass
        return "done"

    rules = attrs.evolve(SCRIPT, yields=20)
    one = run(handler, rules=rules)
    stop = one.start()
    while isinstance(stop, Asked):
        stop = one.answered(answers_to(stop, lambda question: Declined()))
    assert stop == Returned("done")
    assert run(handler, rules=rules, journal=one.journal).start() == stop


def test_progress_repeated_in_replays_costs_no_budget_of_the_new_part() -> None:
    def handler() -> Flow[str]:
        for n in range(5):
            for _ in range(15):
                yield from Progress(n)
            yield from Confirm(f"{n}?")
        return "done"

    rules = attrs.evolve(UNCAPPED, yields=20)
    assert by_retry(handler, rules=rules) == Returned("done")


def said_by(handler: Any, answers: list[dict[str, Any]]) -> list[Any]:
    """Return the logs of all rounds of a flow by retry."""
    said: list[Any] = []
    journal = Journal()
    for given in answers:
        one = run(
            handler,
            journal=journal,
            rules=UNCAPPED,
            emit=lambda effect: said.append(effect.data),
        )
        stop = one.start(given)
        if isinstance(stop, Asked):
            journal = one.suspend()
    return said


def test_log_after_a_checkpoint_is_heard_once() -> None:
    """V5: what follows a state-only round is new, though its entry is not."""

    def handler() -> Flow[None]:
        yield from Log("info", "before")
        yield from Checkpoint()
        yield from Log("info", "after")
        yield from Confirm("Sure?")
        yield from Log("info", "end")

    rounds: list[dict[str, Any]] = [{}, {}, {}, {"confirm-1": Accepted({})}]
    assert said_by(handler, rounds) == ["before", "after", "end"]


def asks_and_works() -> Flow[Any]:
    try:
        name = yield from Elicit("Who?", str)
    except Unsupported:
        name = "nobody"
    yield from Log("info", name)
    yield from Step(len, name)
    return (yield from Elicit("More?", str))


def answered_once() -> Journal:
    """The journal of `asks_and_works` where it works."""
    one = run(asks_and_works)
    one.start()
    assert isinstance(one.answered({"elicit-1": Accepted({"value": "Ann"})}), Perform)
    return one.suspend()


def test_log_behind_an_answer_that_waited_in_the_pool_is_not_repeated() -> None:
    """V5: the answer is as old as the log."""
    journal = answered_once()
    (entry,) = journal.entries
    salvaged = attrs.evolve(journal, entries=(), pool=(Pooled("", entry),))
    for given, expected in ((journal, []), (salvaged, []), (Journal(), ["Ann"])):
        heard: list[Any] = []
        one = run(asks_and_works, journal=given, emit=heard.append)
        stop = one.start()
        if isinstance(stop, Asked):
            stop = one.answered({"elicit-1": Accepted({"value": "Ann"})})
        assert isinstance(stop, Perform)
        assert [log.data for log in heard] == expected


@pytest.mark.parametrize("pool", ["none", "other", "its own"])
def test_question_that_is_decided_is_no_longer_outstanding(pool: str) -> None:
    """Either the client no longer supports the question, or an answer was in the pool."""
    one = run(asks_and_works)
    one.start()
    journal = one.suspend()
    assert list(journal.asked) == ["elicit-1"]
    (entry,) = answered_once().entries
    if pool != "none":
        if pool == "other":
            entry = attrs.evolve(entry, render=b"of other")
        journal = attrs.evolve(journal, pool=(Pooled("", entry),))
    again = run(asks_and_works, journal=journal, supports=lambda what: False)
    stop = again.start()
    assert isinstance(stop, Perform)
    assert isinstance(stop.wants[0].effect, Step)
    assert stop.wants[0].effect.args == (("Ann" if pool == "its own" else "nobody"),)
    assert again.journal.asked == {}


def test_log_of_a_branch_whose_answer_was_kept_is_heard() -> None:
    """V5: the wave is new, in every order of its answers."""

    def branch(name: str) -> Flow[None]:
        yield from Confirm(f"{name}?")
        yield from Log("info", name)

    def handler() -> Flow[None]:
        yield from Gather(branch("a"), branch("b"))

    first, second_ = "gather-1/0/confirm-1", "gather-1/1/confirm-1"
    rounds: list[dict[str, Any]] = [{}, {first: Accepted({})}, {second_: Accepted({})}]
    assert said_by(handler, rounds) == ["a", "b"]


@pytest.mark.parametrize("empty", [0, 1, 2, 5])
def test_lowest_failure_wins_however_many_gathers_end_at_once(empty: int) -> None:
    """B3: what is below a Gather comes to rest before its failures are looked at."""

    def one() -> Flow[None]:
        yield from Confirm("a?")
        for _ in range(empty):
            yield from Gather()
        raise ValueError("lowest")

    def two() -> Flow[None]:
        yield from Confirm("b?")
        raise KeyError("second")

    def handler() -> Flow[None]:
        yield from Gather(one(), two())

    stop = live(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, ValueError)


def test_ambiguous_answers_here_are_not_replaced_by_one_elsewhere() -> None:
    """A fingerprint that is there more than once is asked again."""

    def before() -> Flow[None]:
        yield from Elicit("a?", str)
        yield from Elicit("a?", str)
        yield from Gather(Elicit("a?", str))
        yield from Confirm("last?")

    def after() -> Flow[None]:
        yield from Confirm("new?")
        yield from Elicit("a?", str)

    one = run(before, rules=LIVE)
    stop = one.start()
    for _ in range(3):
        stop = one.answered(answers_to(stop, yes)) if isinstance(stop, Asked) else stop
    again = run(after, rules=UNCAPPED, journal=one.suspend())
    asked = again.start()
    assert messages(asked) == ["new?"]
    assert isinstance(asked, Asked)
    assert messages(again.answered(answers_to(asked, yes))) == ["a?"]


def test_error_of_a_replay_has_the_line_of_the_first_run() -> None:
    def handler() -> Flow[None]:
        yield from Confirm("Sure?")
        yield from ClientSupports(5)  # type: ignore[arg-type]

    one = run(handler)
    one.start()
    journal = one.journal
    first = one.answered({"confirm-1": Accepted({})})
    again = run(handler, journal=journal).start({"confirm-1": Accepted({})})
    assert isinstance(first, Raised)
    assert isinstance(again, Raised)
    assert str(first.error) == str(again.error)
    assert __file__ in str(again.error)


@frozen
class Loose:
    name: str


@frozen
class Tight:
    name: str = field(validator=lambda self, attribute, value: _at_least_three(value))


def _at_least_three(value: str) -> None:
    if len(value) < 3:
        raise ValueError("too short")


def test_pooled_answer_that_no_longer_fits_is_not_asked_of_an_unable_client() -> None:
    """Q4: client support is checked before every question."""

    def before() -> Flow[None]:
        yield from Elicit("Who?", Loose)
        yield from Confirm("Sure?")

    def after() -> Flow[str]:
        yield from Now()
        return (yield from Elicit("Who?", Tight, otherwise="nobody"))  # type: ignore[return-value]

    one = run(before, rules=UNCAPPED)
    one.start()
    one.answered({"elicit-1": Accepted({"name": "A"})})
    journal = one.suspend()
    again = run(after, rules=UNCAPPED, journal=journal, supports=lambda what: False)
    assert advance(again, again.start()) == Returned("nobody")


def test_recorded_answer_that_no_longer_fits_is_not_called_stale() -> None:
    """D2: the text did not change, a validator did."""
    shapes = [Loose, Tight]

    def handler() -> Flow[None]:
        yield from Elicit("Who?", shapes[0])
        yield from Confirm("Sure?")

    one = run(handler, rules=UNCAPPED)
    one.start()
    stop = one.answered({"elicit-1": Accepted({"name": "A"})})
    one.answered(answers_to(stop, yes) if isinstance(stop, Asked) else {})
    journal = one.journal
    shapes.reverse()
    again = run(handler, rules=UNCAPPED, journal=journal)
    asked = again.start()
    assert isinstance(asked, Asked)
    assert asked.questions[0].problems
    assert [report.cause for report in again.salvaged] == ["unfit"]


def test_error_of_emit_is_not_thrown_into_the_handler() -> None:
    caught: list[BaseException] = []

    def handler() -> Flow[None]:
        try:
            yield from Log("info", "a line")
        except UsageError as exc:
            caught.append(exc)

    one: Run = run(handler, emit=lambda effect: one.suspend())
    with pytest.raises(RuntimeError, match="emit= raised"):
        one.start()
    assert caught == []


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


@pytest.mark.parametrize("answer", ["x", None, (2, None), (-1, None), (True, None)])
def test_first_of_answered_with_something_else(answer: Any) -> None:
    def handler() -> Flow[Any]:
        yield from Detach()
        return (yield from FirstOf(Sleep(1), Sleep(2)))

    one = run(handler, rules=attrs.evolve(TASK, task=False))
    one.start()
    one.performed({"detach-1": Done(False)})
    with pytest.raises(UsageError, match="FirstOf"):
        one.performed({"first-1": Done(answer)})
    assert one.performed({"first-1": Done((1, None))}) == Returned((1, None))


def test_answered_with_no_answer_leaves_the_run_as_it_is() -> None:
    def handler() -> Flow[bool]:
        return (yield from Confirm("Sure?"))

    one = run(handler)
    one.start()
    with pytest.raises(UsageError, match="an answer is"):
        one.answered({"confirm-1": "yes"})  # type: ignore[dict-item]
    assert one.answered({"confirm-1": Accepted({})}) == Returned(True)


@pytest.mark.parametrize(
    "answer",
    [
        Unfit(["\ud800"]),
        Unfit([5]),  # type: ignore[list-item]
        ClientFailed(float("nan"), "no"),  # type: ignore[arg-type]
        ClientFailed(5, "\ud800"),
    ],
)
def test_unreadable_errors_of_a_client_can_be_journaled(answer: Any) -> None:
    def handler() -> Flow[bool]:
        return (yield from Confirm("Sure?"))

    stop = by_retry(handler, answer=lambda question: answer)
    assert isinstance(stop, Raised)


def test_version_with_a_name_that_cannot_be_written_is_refused() -> None:
    def handler() -> Flow[int]:
        return (yield from Version("\ud800", default=0, latest=1))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)


def test_early_answers_are_those_of_the_first_request_only() -> None:
    """Q3."""

    def handler() -> Flow[None]:
        yield from Confirm("First?", key="first")
        yield from Confirm("Second?", key="second")

    one = Run(handler, flow_id=FLOW_ID, rules=RETRY)
    one.start()
    stop = one.answered({"first": Accepted({}), "second": Accepted({})})
    assert messages(stop) == ["Second?"]
