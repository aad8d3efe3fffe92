"""Tests of single rules and their corners; properties live elsewhere.

The ids in docstrings are headings of docs/internals/replay.md.
"""

from __future__ import annotations

import contextvars
import datetime
import decimal
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    BudgetError,
    Caller,
    CallerInfo,
    Cancelled,
    Checkpoint,
    ClientFailed,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    DivergenceError,
    Effect,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    InvalidAnswer,
    Log,
    NondeterminismError,
    NotAnEffectError,
    Now,
    Outcome,
    Progress,
    Random,
    Restart,
    Restarted,
    Sleep,
    Step,
    StepInterrupted,
    Suspended,
    ToolError,
    TooManyRounds,
    Unsupported,
    UsageError,
    Uuid,
    Version,
    step,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    SCRIPT,
    TASK,
    Answer,
    Asked,
    Done,
    Entry,
    Failure,
    Journal,
    Perform,
    Question,
    Raised,
    Returned,
    Rules,
    Run,
    Stop,
)
from effectmcp.engine.replay import LEGAL
from effectmcp.forms import Unfit
from effectmcp_tests.helpers import (
    FLOW_ID,
    UNCAPPED,
    WAYS,
    advance,
    answers_to,
    by_retry,
    by_script,
    by_store,
    flow_of,
    keys,
    live,
    messages,
    perform,
    returns,
    run,
    yes,
)

LOGGER = "effectmcp.engine"
YES: Answer = Accepted(None)
PARK = attrs.evolve(UNCAPPED, policy="park")
STRICT = attrs.evolve(UNCAPPED, policy="strict")
STOP = attrs.evolve(UNCAPPED, policy="stop")

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


def charge(amount: int = 1) -> str:
    return f"charged {amount}"


replayable = step(replayable=True)(charge)
once = step(at_most_once=True)(charge)


def text(value: str) -> Answer:
    return Accepted({"value": value})


def order(title: str) -> Flow[str]:
    """The example of the design."""
    name = yield from Elicit("Who is it for?", str)
    if not (yield from Confirm(f"Order {title} for {name}?")):
        return "Nothing ordered."
    receipt = yield from Step(charge, 3)
    return f"{name}: {receipt}"


def said_no(question: Question) -> Answer:
    return Declined() if isinstance(question.effect, Confirm) else yes(question)


def journal_of(
    handler: Callable[..., Any],
    *args: Any,
    answer: Callable[[Question], Answer | None] = yes,
    rounds: int = 1,
    **options: Any,
) -> Journal:
    """The journal after so many rounds were answered, and the next one asked."""
    options.setdefault("rules", UNCAPPED)
    one = run(handler, *args, **options)
    stop = advance(one, one.start())
    for _ in range(rounds):
        assert isinstance(stop, Asked), stop
        stop = advance(one, one.answered(answers_to(stop, answer)))
    return Journal.loads(one.suspend().dumps())


def resumed(
    handler: Callable[..., Any], journal: Journal, *args: Any, **options: Any
) -> Run:
    options.setdefault("rules", UNCAPPED)
    return run(handler, *args, journal=journal, **options)


def error_of(stop: Stop) -> BaseException:
    assert isinstance(stop, Raised), stop
    return stop.error


# ---- the four ways ----


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("answer", "result"), [(yes, "text: charged 3"), (said_no, "Nothing ordered.")]
)
def test_order_is_the_same_however_answers_arrive(
    way: str, answer: Callable[[Question], Answer], result: str
) -> None:
    assert returns(WAYS[way](order, "Dune", answer=answer)) == result


def test_journal_replays_cold_at_every_prefix() -> None:
    """Without answers and without performing, to where it stopped."""
    one = run(order, "Dune", rules=UNCAPPED)
    stop: Stop = one.start()
    while True:
        again = resumed(order, one.journal, "Dune").start()
        assert type(again) is type(stop)
        if isinstance(stop, Asked):
            assert again == stop
            stop = one.answered(answers_to(stop, yes))
        elif isinstance(stop, Perform):
            stop = one.performed({want.key: perform(want) for want in stop.wants})
        else:
            assert again == stop
            return


def test_plain_function_is_a_handler() -> None:
    for way in WAYS.values():
        assert returns(way(charge, 5)) == "charged 5"
    one = run(charge, 5)
    one.start()
    assert one.journal == Journal(waves=0)


def test_plain_function_that_raises() -> None:
    def handler() -> None:
        raise ValueError("no")

    assert str(error_of(by_script(handler))) == "no"


def test_coroutine_is_a_handler() -> None:
    async def handler() -> str:
        name = await Elicit("Who?", str)
        await Step(charge, 1)
        return name

    for way in WAYS.values():
        assert returns(way(handler)) == "text"


def test_arguments_by_name() -> None:
    one = Run(order, (), {"title": "Dune"}, flow_id=FLOW_ID)
    assert messages(one.start()) == ["Who is it for?"]


# ---- construction ----


def test_run_refuses_values_that_are_not_handlers() -> None:
    given: Any = 5
    with pytest.raises(UsageError, match=r"^5 is not a handler\.$"):
        Run(given, flow_id=FLOW_ID)


def test_run_refuses_a_running_flow_with_a_hint() -> None:
    given: Any = order("Dune")
    with pytest.raises(UsageError, match="Give the function and its arguments"):
        Run(given, flow_id=FLOW_ID)


def test_run_refuses_an_invalid_flow_id() -> None:
    with pytest.raises(UsageError, match="16 to 64 random bytes"):
        Run(order, flow_id=b"short")


# ---- states and verbs ----


def asking() -> Flow[None]:
    yield from Confirm("Sure?")


def in_state(state: str) -> Run:
    """A run in each state of the table, reached in the plain way."""
    one = run(flow_of(Step(charge), Confirm("Sure?")), rules=LIVE)
    match state:
        case "new":
            return one
        case "performing":
            one.start()
        case "asking":
            advance(one, one.start())
        case "ended":
            advance(one, one.start())
            one.answered({"confirm-1": YES})
        case "suspended":
            one.start()
            one.suspend()
        case _:
            raise AssertionError(state)
    return one


VERBS: dict[str, Callable[[Run], object]] = {
    "start": lambda one: one.start(),
    "begin": lambda one: one.begin(),
    "put_off": lambda one: one.put_off(),
    "performed": lambda one: one.performed({}),
    "answered": lambda one: one.answered({"confirm-1": YES}),
    "cancel": lambda one: one.cancel(),
    "suspend": lambda one: one.suspend(),
}
STATES = sorted(set().union(*LEGAL.values()))


def test_table_names_every_verb() -> None:
    assert set(LEGAL) == set(VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize("state", STATES)
def test_verb_works_or_is_refused_with_the_reason(state: str, verb: Any) -> None:
    one = in_state(state)
    if state in LEGAL[verb]:
        VERBS[verb](one)
    else:
        with pytest.raises(
            UsageError, match=rf"{verb}\(\) makes no sense.* is {state}"
        ):
            VERBS[verb](one)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_verb_from_inside_the_handler_is_refused(verb: str) -> None:
    """A handler re-entering itself."""
    seen: list[str] = []

    def handler() -> Flow[None]:
        try:
            VERBS[verb](one)
        except UsageError as exc:
            seen.append(str(exc))
        yield from Confirm("Sure?")

    one = run(handler)
    one.start()
    assert "while the run is in progress" in seen[0]
    assert verb in seen[0]


def test_suspending_twice_is_allowed() -> None:
    """Cleanup code cannot know whether the run is suspended already."""
    one = in_state("asking")
    assert one.suspend() == one.suspend()
    one.close()


def test_journal_can_be_taken_at_any_stop() -> None:
    for state in STATES:
        assert isinstance(in_state(state).journal, Journal)


def test_line_of_a_want_is_the_line_of_its_yield() -> None:
    def branch() -> Flow[str]:
        return (yield from Step(str, 1))

    def handler() -> Flow[tuple[Any, Any]]:
        return (yield from Gather(Now(), branch()))

    run = Run(handler, flow_id=FLOW_ID)
    stop = run.start()
    assert isinstance(stop, Perform)
    lines = [handler.__code__.co_firstlineno + 1, branch.__code__.co_firstlineno + 1]
    assert [run.line_of(want.key) for want in stop.wants] == [
        f"{__file__}:{line}" for line in lines
    ]
    assert run.line_of("another") is None
    run.suspend()


def test_where_is_the_line_of_the_flow() -> None:
    one = run(asking)

    def where() -> str | None:
        return one.where

    assert where() is None
    one.start()
    assert (where() or "").startswith(__file__)
    one.answered({"confirm-1": YES})
    assert where() is None


# ---- performing ----


def test_perform_names_each_want() -> None:
    one = run(flow_of(Gather(Step(charge, 1), Now()), Uuid()), rules=SCRIPT)
    stop = one.start()
    assert isinstance(stop, Perform)
    assert [(want.key, want.effect) for want in stop.wants] == [
        ("gather-1/0/step-1", Step(charge, 1)),
        ("gather-1/1/now-1", Now()),
    ]


@pytest.mark.parametrize("keys", [["step-2"], ["step-1", "step-2"]])
def test_performed_with_a_key_that_is_not_wanted(keys: list[str]) -> None:
    one = in_state("performing")
    with pytest.raises(
        UsageError, match=r"with keys that are not wanted: \['step-2'\]"
    ):
        one.performed({key: Done("charged 1") for key in keys})
    # Nothing happened: the right ones may still come.
    assert isinstance(one.performed({"step-1": Done("charged 1")}), Asked)


def test_performed_takes_part_of_a_wave() -> None:
    """Results are journaled at once; the wave is delivered when all are in."""
    handler = flow_of(Gather(Step(charge, 1), Step(charge, 2)))
    one = run(handler, rules=SCRIPT)
    one.start()
    stop = one.performed({"gather-1/1/step-1": Done("charged 2")})
    assert isinstance(stop, Perform)
    assert [want.key for want in stop.wants] == ["gather-1/0/step-1"]
    again = resumed(handler, one.journal, rules=SCRIPT)
    assert again.start() == stop
    stop = again.performed({"gather-1/0/step-1": Done("charged 1")})
    assert stop == Returned([("charged 1", "charged 2")])


#: Receipts that were built, in order.
_built: list[int] = []


@attrs.frozen
class Receipt:
    number: int

    def __attrs_post_init__(self) -> None:
        _built.append(self.number)


def receipt(number: int) -> Receipt:
    raise AssertionError("nothing is performed here")


def test_recorded_part_of_a_wave_is_read_once() -> None:
    """The value is kept until the rest of the wave is in."""
    handler = flow_of(Gather(Step(receipt, 1), Step(receipt, 2)))
    one = run(handler, rules=SCRIPT)
    one.start()
    one.performed({"gather-1/0/step-1": Done(Receipt(1))})
    again = resumed(handler, one.journal, rules=SCRIPT)
    _built.clear()
    again.start()
    assert _built == [1]
    stop = again.performed({"gather-1/1/step-1": Done(Receipt(2))})
    assert _built.count(1) == 1
    assert stop == Returned([(Receipt(1), Receipt(2))])


def test_performed_with_a_value_that_the_effect_cannot_have() -> None:
    """One invalid value keeps the whole wave out of the journal."""
    one = run(flow_of(Gather(Random(), Now())), rules=SCRIPT)
    one.start()
    now = {"gather-1/1/now-1": Done(5)}
    with pytest.raises(UsageError, match="not an aware datetime"):
        one.performed({"gather-1/0/random-1": Done(0.5), **now})
    (gathered,) = one.journal.entries
    assert gathered.branches == ((), ())


def test_performed_with_a_failure_of_an_effect_that_cannot_fail() -> None:
    one = run(flow_of(Now()), rules=SCRIPT)
    one.start()
    with pytest.raises(UsageError, match="now-1 cannot fail: answer Now with Done"):
        one.performed({"now-1": Failure(ValueError())})


def test_performed_with_a_failure_that_is_not_an_exception() -> None:
    one = in_state("performing")
    interrupt: Any = KeyboardInterrupt()
    with pytest.raises(UsageError, match="raise exceptions that are not an Exception"):
        one.performed({"step-1": Failure(interrupt)})


def test_performed_with_an_error_whose_str_raises() -> None:
    """The step was performed, so it is recorded, even with a broken exception."""

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    one = in_state("performing")
    stop = one.performed({"step-1": Failure(BrokenError())})
    assert type(error_of(stop)).__name__ == "StepFailed"


def test_step_failure_is_logged_once_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """L3: replays rebuild the exception without it."""
    caplog.set_level(logging.INFO, LOGGER)

    def failing() -> None:
        raise ValueError("no")

    def handler() -> Flow[str]:
        try:
            yield from Step(failing)
        except ValueError as exc:
            yield from Confirm(str(exc))
        return "caught"

    assert returns(by_retry(handler)) == "caught"
    (record,) = [one for one in caplog.records if one.exc_info]
    assert "step-1 raised" in record.message


def test_first_delivery_is_the_round_tripped_one() -> None:
    """E1: no difference between the first run and a replay; nothing is shared."""
    shared = {"items": [1]}

    def share() -> dict[str, Any]:
        return shared

    def handler() -> Flow[list[int]]:
        got = yield from Step(share)
        got["items"].append(2)
        items: list[int] = got["items"]
        yield from Confirm(f"{items}?")
        return items

    for way in WAYS.values():
        assert returns(way(handler)) == [1, 2]
    assert shared == {"items": [1]}


def test_begin_is_in_the_journal_and_counts() -> None:
    """A step that is only wanted has not started: its worker may be lost before."""
    handler = flow_of(Step(charge, 3))
    one = run(handler, rules=TASK)
    for begun in range(3):
        stop = one.start()
        assert isinstance(stop, Perform)
        assert [want.begun for want in stop.wants] == [begun]
        one.begin("step-1")
        one = resumed(handler, Journal.loads(one.journal.dumps()), rules=TASK)
    one.start()
    one.performed({"step-1": Done("charged 3")})
    assert one.journal.places == {}


def test_begin_of_a_step_that_is_not_wanted() -> None:
    with pytest.raises(
        UsageError, match=r"begin\(\) with keys that are not wanted: \['x'\]"
    ):
        in_state("performing").begin("x")


def test_at_most_once_step_that_was_not_started_is_wanted_again() -> None:
    handler = flow_of(once(3))
    one = run(handler, rules=TASK)
    stop = one.start()
    assert resumed(handler, one.journal, rules=TASK).start() == stop


def test_at_most_once_step_found_started_is_interrupted() -> None:
    """S5: the journal records that the step started, but not whether it ended."""

    def handler() -> Flow[str]:
        try:
            return (yield from once(3))
        except StepInterrupted as exc:
            return exc.name

    one = run(handler, rules=TASK)
    one.start()
    one.begin("step-1")
    again = resumed(handler, one.journal, rules=TASK)
    name = f"{__name__}:charge"
    assert again.start() == Returned(name)
    assert [entry.tag for entry in again.journal.entries] == ["failed"]
    # And journaled: it stays so.
    assert resumed(handler, again.journal, rules=TASK).start() == Returned(name)


# ---- asking, and answers ----


def test_questions_have_keys_effects_and_lines() -> None:
    stop = run(flow_of(Outcome(Confirm("Sure?", key="sure")))).start()
    assert isinstance(stop, Asked)
    (question,) = stop.questions
    assert question == Question("sure", Confirm("Sure?", key="sure"))
    assert question.where is not None


def test_answers_to_unknown_keys_are_ignored() -> None:
    """Q1."""
    one = run(asking, rules=LIVE)
    asked = one.start()
    assert one.answered({"confirm-7": YES, "x": YES}) == asked


def test_missing_answer_is_asked_again_under_its_key() -> None:
    """Q2: it keeps its wire key, and counts nothing."""
    one = run(asking, rules=LIVE)
    stop: Stop = one.start()
    for _ in range(20):
        assert keys(stop) == ["confirm-1"]
        stop = one.answered({})
    assert one.answered({"confirm-1": YES}) == Returned(None)


def test_partial_answers_are_kept() -> None:
    handler = flow_of(Gather(Confirm("a"), Confirm("b"), Confirm("c")))
    first = {"gather-1/1/confirm-1": YES}
    rest = {"gather-1/0/confirm-1": YES, "gather-1/2/confirm-1": Declined()}

    one = run(handler, rules=LIVE)
    one.start()
    assert messages(one.answered(first)) == ["a", "c"]
    assert one.answered(rest) == Returned([(True, True, False)])

    two = resumed(handler, journal_of(handler, rounds=0))
    assert messages(two.start(first)) == ["a", "c"]
    three = resumed(handler, two.suspend())
    assert three.start(rest) == Returned([(True, True, False)])


def who() -> Flow[str]:
    return (yield from Elicit("Who?", str))


def test_unfitting_answer_is_asked_again_with_its_problem() -> None:
    """Q2: on the wire, never fingerprinted, under a new key."""
    one = run(who, rules=LIVE)
    first = one.start()
    second = one.answered({"elicit-1": Accepted({})})
    assert isinstance(first, Asked)
    assert isinstance(second, Asked)
    assert first.questions[0].problems == ()
    assert second.questions[0].problems == ("value: is required",)
    assert keys(second) == ["elicit-1~2"]
    # An old key names nothing any more.
    assert keys(one.answered({"elicit-1": text("Ann")})) == ["elicit-1~2"]
    assert one.answered({"elicit-1~2": text("Ann")}) == Returned("Ann")


@pytest.mark.parametrize("way", WAYS)
def test_third_unfitting_answer_is_thrown(way: str) -> None:
    asked = []

    def answer(question: Question) -> Answer:
        asked.append(question.key)
        return Unfit(["unknown action 'maybe'"])

    stop = WAYS[way](who, answer=answer)
    assert error_of(stop) == InvalidAnswer(["unknown action 'maybe'"])
    assert asked == ["elicit-1", "elicit-1~2", "elicit-1~3"]


def test_unfitting_answers_are_journaled_as_thrown() -> None:
    def handler() -> Flow[str]:
        try:
            yield from Elicit("Who?", str)
        except InvalidAnswer:
            yield from Confirm("Go on without a name?")
        return "done"

    def answer(question: Question) -> Answer:
        return Accepted({}) if "Who" in question.effect.message else YES  # type: ignore[attr-defined]

    assert returns(by_retry(handler, answer=answer)) == "done"


def test_problems_do_not_stay_for_the_next_question() -> None:
    one = run(flow_of(Elicit("Who?", str), Elicit("Where?", str)), rules=LIVE)
    one.start()
    one.answered({"elicit-1": Accepted({})})
    stop = one.answered({"elicit-1~2": text("Ann")})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ()
    assert keys(stop) == ["elicit-2"]


@pytest.mark.parametrize("way", WAYS)
def test_client_errors_are_thrown_and_stay(way: str) -> None:
    """Q5: -1 is a user who declined, any other a client that failed."""

    def handler() -> Flow[list[Any]]:
        seen: list[Any] = []
        for n in range(2):
            try:
                yield from Elicit(f"{n}?", str)
            except (Declined, ClientFailed) as exc:
                seen.append(exc)
        yield from Confirm("Done?")
        return seen

    def answer(question: Question) -> Answer:
        match question.effect:
            case Elicit(message="0?"):
                return ClientFailed(-1, "rejected")
            case Elicit():
                return ClientFailed(-32000, "busy", {"a": 1})
            case _:
                return YES

    assert returns(WAYS[way](handler, answer=answer)) == [
        Declined(),
        ClientFailed(-32000, "busy", {"a": 1}),
    ]


def test_answer_of_another_type_is_the_embedders_mistake() -> None:
    one = run(asking, rules=LIVE)
    one.start()
    wrong: Any = {"action": "accept"}
    with pytest.raises(UsageError, match="an answer is Accepted"):
        one.answered({"confirm-1": wrong})


def test_recorded_answer_that_no_longer_fits_is_asked_again() -> None:
    """Q2: a validator changed; unfitting, and no divergence."""

    def handler(least: int) -> Flow[int]:
        @attrs.frozen
        class Person:
            age: int = attrs.field(validator=at_least(least))

        person = yield from Elicit("How old?", Person)
        return person.age

    def at_least(least: int) -> Callable[[Any, Any, int], None]:
        def validate(instance: Any, attribute: Any, value: int) -> None:
            if value < least:
                raise ValueError(f"must be {least}")

        return validate

    one = run(handler, 18, rules=LIVE)
    one.start()
    assert one.answered({"elicit-1": Accepted({"age": 20})}) == Returned(20)
    again = resumed(handler, one.journal, 21, rules=STRICT)
    stop = again.start()
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == ("age: must be 21",)
    assert keys(stop) == ["elicit-1~2"]
    assert not again.salvaged


@pytest.mark.parametrize(("again", "verdict"), [(charge, "stop"), (replayable, None)])
def test_recorded_answer_that_no_longer_fits_and_what_was_built_on_it(
    again: Any, verdict: str | None
) -> None:
    """Such a misfit is a divergence, decided before any new question is asked."""

    def handler(least: int) -> Flow[Any]:
        def validate(instance: Any, attribute: Any, value: int) -> None:
            if value < least:
                raise ValueError(f"must be {least}")

        @attrs.frozen
        class Person:
            age: int = attrs.field(validator=validate)

        def ask() -> Flow[int]:
            person = yield from Elicit("How old?", Person)
            yield from Step(again)
            return person.age

        return (yield from Gather(ask(), Confirm("Sure?")))

    journal = journal_of(handler, 18, answer=age_of(20), rounds=1, rules=LIVE)
    one = resumed(handler, journal, 21)
    if verdict is None:
        stop = one.start()
        # The other branch finds its own answer in the pool.
        assert keys(stop) == ["gather-1/0/elicit-1~2"]
    else:
        with pytest.raises(DivergenceError) as caught:
            one.start()
        assert caught.value.verdict == verdict


def age_of(age: int) -> Callable[[Question], Answer]:
    def answer(question: Question) -> Answer:
        return YES if isinstance(question.effect, Confirm) else Accepted({"age": age})

    return answer


# ---- questions that cannot be asked ----


def nobody(what: Any) -> bool:
    return False


def test_unasked_question_raises_unsupported_and_stays_so() -> None:
    """Q4: journaled, though the next request's client could be asked."""

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        except Unsupported as exc:
            yield from Confirm("Without a name?")
            return exc.kind

    def no_forms(what: Any) -> bool:
        return not isinstance(what, Elicit)

    journal = journal_of(handler, rounds=0, supports=no_forms)
    again = resumed(handler, journal)
    assert again.start({"confirm-1": YES}) == Returned("Elicit")


def test_unasked_question_takes_its_otherwise() -> None:
    handler = flow_of(Elicit("Who?", str, otherwise="nobody"))
    for way in WAYS.values():
        assert returns(way(handler, supports=nobody)) == ["nobody"]


def test_otherwise_is_read_in_each_round_and_not_recorded() -> None:
    """Q4: neither fingerprinted nor journaled."""

    def handler(fallback: str) -> Flow[str]:
        name = yield from Elicit("Who?", str, otherwise=fallback)
        yield from Confirm("Sure?")
        return name

    def answer(question: Question) -> Answer:
        return Declined() if isinstance(question.effect, Elicit) else YES

    journal = journal_of(handler, "old", answer=answer)
    again = resumed(handler, journal, "new", rules=STRICT)
    assert again.start({"confirm-1": YES}) == Returned("new")


def test_gate_reads_this_requests_capabilities() -> None:
    """A question that is out, and can be asked no more, is unasked."""
    journal = journal_of(who, rounds=0)
    again = resumed(who, journal, supports=nobody)
    assert error_of(again.start()) == Unsupported("Elicit")
    assert not again.journal.asked


def test_given_answer_counts_without_client_support() -> None:
    journal = journal_of(who, rounds=0)
    again = resumed(who, journal, supports=nobody)
    assert again.start({"elicit-1": text("Ann")}) == Returned("Ann")


def test_client_supports_is_recorded() -> None:
    def handler() -> Flow[bool]:
        can = yield from ClientSupports(Elicit)
        yield from Confirm("Sure?")
        return can

    def no_classes(what: Any) -> bool:
        return what is not Elicit

    journal = journal_of(handler, rounds=0, supports=no_classes)
    again = resumed(handler, journal)
    assert again.start({"confirm-1": YES}) == Returned(False)


# ---- early answers ----

EARLY = {"sure": YES, "who": text("Ann"), "confirm-1": YES, "elicit-1": text("Ann")}


def test_early_answers_count_for_explicit_keys() -> None:
    """Q3: a call without state may bring them."""
    one = run(flow_of(Elicit("Who?", str, key="who"), Elicit("Where?", str)))
    assert keys(one.start(EARLY)) == ["elicit-1"]


@pytest.mark.parametrize(
    "question",
    [
        Confirm("Sure?", key="sure"),
        ElicitUrl("Pay?", "https://example.com", key="sure"),
        Outcome(Confirm("Sure?", key="sure")),
    ],
    ids=repr,
)
def test_early_answers_do_not_count_as_consent(question: Effect[Any]) -> None:
    """A user can consent only to a message that was shown."""
    one = run(flow_of(Elicit("Who?", str, key="who"), question))
    assert keys(one.start(EARLY)) == ["sure"]
    both = run(flow_of(Gather(Elicit("Who?", str), question)))
    early = {f"gather-1/1/{key}": answer for key, answer in EARLY.items()}
    assert keys(both.start(early)) == ["gather-1/0/elicit-1", "gather-1/1/sure"]


@pytest.mark.parametrize("rules", [attrs.evolve(RETRY, early_answers=False), LIVE])
def test_early_answers_can_be_off(rules: Rules) -> None:
    one = run(flow_of(Elicit("Who?", str, key="who")), rules=rules)
    assert keys(one.start(EARLY)) == ["who"]


def test_early_answers_that_do_not_fit_are_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    one = run(flow_of(Elicit("Who?", str, key="who")))
    stop = one.start({"who": Accepted({"value": 5})})
    assert isinstance(stop, Asked)
    assert keys(stop) == ["who"]
    assert stop.questions[0].problems == ()
    assert "an early answer for who does not fit" in caplog.text


def test_early_answers_do_not_come_late() -> None:
    """With state, only outstanding questions can be answered."""
    handler = flow_of(Confirm("a"), Elicit("Who?", str, key="who"))
    again = resumed(handler, journal_of(handler, rounds=0))
    assert keys(again.start({"confirm-1": YES, "who": text("Ann")})) == ["who"]


def test_early_answers_to_questions_that_cannot_be_asked_do_not_count() -> None:
    one = run(flow_of(Elicit("Who?", str, key="who")), supports=nobody)
    assert error_of(one.start(EARLY)) == Unsupported("Elicit")


# ---- rounds ----


def ask_for_ever() -> Flow[str]:
    try:
        for n in range(100):
            yield from Confirm(f"{n}?")
    except TooManyRounds as exc:
        return f"{exc}"
    return "all"


def test_tenth_round_is_refused_at_the_yield() -> None:
    """Q6: clients in the field give up there, so we stop first, with advice."""
    asked: list[Question] = []

    def answer(question: Question) -> Answer:
        asked.append(question)
        return YES

    said = returns(by_retry(ask_for_ever, answer=answer, rules=RETRY))
    assert len(asked) == 9
    assert "Gather" in said


def test_no_state_leaves_a_round_over_the_limit() -> None:
    rules = attrs.evolve(RETRY, rounds=0)
    one = run(ask_for_ever, rules=rules)
    assert isinstance(one.start(), Returned)
    with pytest.raises(UsageError, match="passed the limit on rounds"):
        _ = one.journal


def test_rounds_are_not_capped_elsewhere() -> None:
    for way in (live, by_store, by_script):
        assert returns(way(ask_for_ever)) == "all"


def test_checkpoint_makes_a_state_only_round() -> None:
    handler = flow_of(Step(charge), Checkpoint(), Confirm("Sure?"))
    one = run(handler)
    stop = advance(one, one.start())
    assert stop == Asked(())
    assert (one.journal.rounds, one.journal.state_rounds) == (1, 1)
    assert [entry.key for entry in one.journal.entries] == ["step-1", "checkpoint-1"]
    again = resumed(handler, one.suspend(), rules=RETRY)
    assert messages(again.start()) == ["Sure?"]
    assert Journal.loads(one.journal.dumps()) == one.journal


def test_checkpoint_in_a_live_run_adds_no_round() -> None:
    one = run(flow_of(Checkpoint(), Confirm("Sure?")), rules=LIVE)
    assert messages(one.start()) == ["Sure?"]
    assert [entry.tag for entry in one.journal.entries] == ["checkpoint"]


def test_checkpoint_beside_a_question_adds_no_round() -> None:
    """B2: a state-only round only when nothing else is outstanding."""
    one = run(flow_of(Gather(Checkpoint(), Confirm("Sure?"))))
    assert messages(one.start()) == ["Sure?"]
    assert one.journal.state_rounds == 0


def test_third_state_only_round_is_refused() -> None:
    def handler() -> Flow[str]:
        try:
            for _ in range(5):
                yield from Checkpoint()
        except TooManyRounds as exc:
            return str(exc)
        return "all"

    assert "2 checkpoints" in returns(by_retry(handler, rules=RETRY))
    assert returns(by_retry(handler)) == "all"


# ---- branches ----


def named(name: str, *effects: Any) -> Flow[str]:
    for effect in effects:
        yield from effect
    return name


def test_gather_asks_all_in_one_round() -> None:
    one = run(flow_of(Gather(Confirm("a"), named("n", Confirm("b")), Now())))
    stop = advance(one, one.start())
    assert messages(stop) == ["a", "b"]
    assert keys(stop) == ["gather-1/0/confirm-1", "gather-1/1/confirm-1"]


def test_gather_each_gives_a_list() -> None:
    for way in WAYS.values():
        handler = flow_of(Gather.each(Confirm(f"{n}?") for n in range(3)))
        assert returns(way(handler)) == [[True, True, True]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [0, 1, 40])
def test_gather_of_any_number(way: str, count: int) -> None:
    def handler() -> Flow[Any]:
        return (yield from Gather.each(named(f"{n}", Now()) for n in range(count)))

    assert returns(WAYS[way](handler)) == [f"{n}" for n in range(count)]


def test_gather_of_nothing_takes_no_wave() -> None:
    def handler() -> Flow[Any]:
        yield from Gather()
        inner = yield from Gather(named("x"), named("y", Gather()))
        return inner

    for way in WAYS.values():
        assert returns(way(handler)) == ("x", "y")


@pytest.mark.parametrize("way", WAYS)
def test_gather_advances_in_waves(way: str) -> None:
    """B1: branches that share Python objects see one order, replayed or not."""

    def handler() -> Flow[str]:
        seen: list[str] = []

        def branch(name: str, *effects: Any) -> Flow[None]:
            for n, effect in enumerate(effects):
                yield from effect
                seen.append(f"{name}{n}")

        yield from Gather(
            branch("a", Confirm("a0"), Now(), Confirm("a2")),
            branch("b", Now(), Confirm("b1")),
            branch("c", Confirm("c0"), Confirm("c1")),
        )
        return " ".join(seen)

    assert returns(WAYS[way](handler)) == "b0 a0 b1 c0 a1 a2 c1"


@pytest.mark.parametrize("way", WAYS)
def test_gather_nested(way: str) -> None:
    def handler() -> Flow[Any]:
        return (
            yield from Gather(
                Gather(Confirm("a"), named("b", Now(), Confirm("b"))),
                named("c", Gather(Now(), Step(charge)), Confirm("c")),
            )
        )

    assert returns(WAYS[way](handler)) == ((True, "b"), "c")


@pytest.mark.parametrize("way", WAYS)
def test_gather_failure_cancels_the_siblings(way: str) -> None:
    """B3: the lowest failed branch of that wave wins; the rest is cancelled."""

    def handler() -> Flow[Any]:
        cleaned: list[str] = []

        def waiting(name: str) -> Flow[None]:
            try:
                yield from Confirm(name)
                yield from Confirm(f"{name} again")
            finally:
                cleaned.append(name)
                cleaned.append((yield from Step(charge, 1)))

        def failing(name: str) -> Flow[None]:
            yield from Confirm(name)
            raise ToolError(name)

        try:
            yield from Gather(waiting("a"), failing("b"), failing("c"))
        except ToolError as exc:
            yield from Confirm("After all?")
            return exc.message, cleaned
        return None

    assert returns(WAYS[way](handler)) == ("b", ["a", "charged 1"])


def test_gather_local_failure_keeps_questions_from_going_out() -> None:
    def failing() -> Flow[None]:
        yield from Now()
        raise ToolError("no")

    one = run(flow_of(Gather(Confirm("a"), failing())), rules=SCRIPT)
    assert isinstance(error_of(advance(one, one.start())), ToolError)
    assert not one.journal.asked


def test_gather_failure_at_once() -> None:
    """Before its first yield."""

    def failing(message: str = "no") -> Flow[None]:
        if message:
            raise ToolError(message)
        yield from Now()

    def handler() -> Flow[str]:
        try:
            yield from Gather(Confirm("a"), failing())
        except ToolError:
            return "caught"
        return ""

    for way in WAYS.values():
        assert returns(way(handler)) == "caught"


def test_gather_failure_inside_a_nested_one() -> None:
    """The inner one's parent is cancelled when the branches below have ended."""
    seen: list[str] = []

    def inner(name: str) -> Flow[None]:
        try:
            yield from Confirm(name)
        except Cancelled:
            seen.append(name)
            yield from Step(charge, 1)
            raise

    def middle() -> Flow[None]:
        try:
            yield from Gather(inner("a"), inner("b"), named("done"))
        except Cancelled:
            seen.append("middle")
            raise

    def failing() -> Flow[None]:
        yield from Now()
        raise ToolError("no")

    one = run(flow_of(Gather(middle(), failing())), rules=SCRIPT)
    assert isinstance(error_of(advance(one, one.start())), ToolError)
    assert seen == ["a", "b", "middle"]


def test_gather_result_that_is_an_effect_is_a_mistake() -> None:
    def forgetful() -> Flow[Any]:
        yield from Now()
        return Confirm("Sure?")

    def handler() -> Flow[str]:
        try:
            yield from Gather(forgetful())
        except NotAnEffectError as exc:
            return exc.problem
        return ""

    assert "in a branch, the effect Confirm came back" in returns(by_script(handler))


def test_gather_of_an_outcome() -> None:
    def answer(question: Question) -> Answer:
        return Dismissed()

    handler = flow_of(Gather(Outcome(Confirm("a"))))
    for way in WAYS.values():
        assert returns(way(handler, answer=answer)) == [(Dismissed(),)]


def test_gather_with_more_branches_than_recorded() -> None:
    """B4: missing branches start empty."""

    def handler(count: int) -> Flow[Any]:
        return (yield from Gather.each(Confirm(f"{n}?") for n in range(count)))

    journal = journal_of(handler, 2, rounds=0)
    again = resumed(handler, journal, 3, rules=STRICT)
    stop = again.start(
        {"gather-1/0/confirm-1": YES, "gather-1/1/confirm-1": Declined()}
    )
    assert messages(stop) == ["2?"]


def test_gather_with_fewer_branches_than_recorded_diverges() -> None:
    def handler(count: int) -> Flow[Any]:
        return (yield from Gather.each(Confirm(f"{n}?") for n in range(count)))

    one = run(handler, 3, rules=LIVE)
    one.start()
    one.answered({"gather-1/2/confirm-1": YES})
    with pytest.raises(DivergenceError) as caught:
        resumed(handler, one.journal, 2, rules=STRICT).start()
    assert caught.value.report.cause == "surplus"
    assert messages(resumed(handler, one.journal, 2).start()) == ["0?", "1?"]


def test_gather_in_the_place_of_something_else_diverges() -> None:
    before = flow_of(Gather(Confirm("a")))
    after = flow_of(Now(), Gather(Confirm("a")))
    journal = journal_of(before, rounds=0)
    with pytest.raises(DivergenceError):
        advance(two := resumed(after, journal, rules=STRICT), two.start())

    journal = journal_of(flow_of(Confirm("b"), Confirm("a")), rounds=1)
    again = resumed(before, journal)
    assert messages(again.start()) == ["a"]
    assert [report.cause for report in again.salvaged] == ["differs"]


def test_branches_run_in_copies_of_the_context() -> None:
    def branch(name: str) -> Flow[str]:
        color.set(name)
        yield from Confirm(name)
        return color.get()

    def handler() -> Flow[Any]:
        color.set("own")
        both = yield from Gather(branch("red"), branch("blue"))
        return both, color.get()

    for way in WAYS.values():
        assert returns(way(handler)) == (("red", "blue"), "own")
    assert color.get() == "none"


def test_decimal_settings_do_not_leak() -> None:
    """L1: out of a flow, or from branch to branch."""

    def branch(digits: int) -> Flow[int]:
        decimal.getcontext().prec = digits
        yield from Confirm(f"{digits}?")
        return decimal.getcontext().prec

    mine = decimal.getcontext().prec
    try:
        assert returns(live(flow_of(Gather(branch(5), branch(7))))) == [(5, 7)]
        assert decimal.getcontext().prec == mine
    finally:
        decimal.getcontext().prec = mine


def test_decimal_settings_of_a_fresh_context_do_not_leak() -> None:
    """A thread that has not used decimal yet has no context to restore."""

    def branch(digits: int) -> Flow[int]:
        decimal.getcontext().prec = digits
        yield from Confirm(f"{digits}?")
        return decimal.getcontext().prec

    def played() -> object:
        return returns(live(flow_of(Gather(branch(5), branch(7)))))

    fresh = contextvars.Context()
    assert fresh.run(played) == [(5, 7)]
    assert fresh.run(decimal.getcontext).prec == decimal.DefaultContext.prec


def test_step_runs_in_the_flows_context() -> None:
    def handler() -> Flow[None]:
        color.set("red")
        yield from Step(charge)

    stop = run(handler, rules=SCRIPT).start()
    assert isinstance(stop, Perform)
    assert stop.wants[0].context.run(color.get) == "red"


# ---- divergence ----


def asks(*texts: str) -> Callable[[], Flow[list[bool]]]:
    return flow_of(*[Confirm(one) for one in texts])


def test_divergence_strict_is_an_error() -> None:
    journal = journal_of(asks("a", "b", "c"), rounds=2)
    with pytest.raises(DivergenceError) as caught:
        resumed(asks("x", "b", "c"), journal, rules=STRICT, version="2").start()
    error = caught.value
    assert error.verdict == "strict"
    assert error.report.version == "2"
    assert error.report.recorded == "confirm-1 (accepted)"
    assert error.report.current == "confirm-1"
    assert error.report.text == "x"
    assert error.report.place == "entry 0"
    assert error.report.round == 3
    assert error.report.where is not None


def test_divergence_park_leaves_the_journal_unchanged() -> None:
    journal = journal_of(asks("a", "b"), rounds=1)
    one = resumed(asks("x", "b"), journal, rules=PARK)
    with pytest.raises(DivergenceError) as caught:
        one.start()
    assert caught.value.verdict == "park"


def test_divergence_stop_asks_to_start_again() -> None:
    journal = journal_of(asks("a", "b"), rounds=1)
    with pytest.raises(DivergenceError) as caught:
        resumed(asks("x", "b"), journal, rules=STOP).start()
    assert caught.value.verdict == "stop"


def test_divergence_unwinds_the_handler() -> None:
    """A flow that cannot resume holds no resources."""
    seen: list[str] = []

    def handler() -> Flow[None]:
        try:
            yield from Confirm("x")
        finally:
            seen.append("cleaned")

    one = resumed(handler, journal_of(asks("a", "b"), rounds=1), rules=STRICT)
    with pytest.raises(DivergenceError):
        one.start()
    assert seen == ["cleaned"]
    with pytest.raises(UsageError, match="is suspended"):
        one.answered({})


def test_divergence_is_never_thrown_into_the_handler() -> None:
    seen: list[BaseException] = []

    def handler() -> Flow[None]:
        try:
            yield from Confirm("x")
        except BaseException as exc:
            seen.append(exc)
            raise

    with pytest.raises(DivergenceError):
        resumed(handler, journal_of(asks("a", "b")), rules=STRICT).start()
    assert [type(one) for one in seen] == [Suspended]


def test_salvage_keeps_answers_for_their_questions() -> None:
    """One put in front: what was answered is not asked again."""
    journal = journal_of(asks("a", "b", "c"), rounds=2)
    one = resumed(asks("new", "a", "b", "c"), journal)
    assert messages(one.start()) == ["new"]
    assert len(one.salvaged) == 1
    journal = Journal.loads(one.suspend().dumps())
    assert len(journal.pool) == 2
    two = resumed(asks("new", "a", "b", "c"), journal)
    assert messages(two.start({"confirm-1~2": YES})) == ["c"]
    assert not two.salvaged
    assert not two.journal.pool


def test_salvage_logs_the_report(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    resumed(asks("new", "a"), journal_of(asks("a", "b"))).start()
    assert "salvaging: " in caplog.text
    assert "no longer follows its journal" in caplog.text


def test_salvage_keeps_random_values() -> None:
    """Without this, messages that show a random value would change."""

    def before() -> Flow[None]:
        number = yield from Random()
        yield from Confirm(f"{number}?")
        yield from Confirm("b")

    def after() -> Flow[None]:
        yield from Confirm("new")
        number = yield from Random()
        yield from Confirm(f"{number}?")

    one = resumed(after, journal_of(before))
    assert messages(one.start()) == ["new"]
    stop = one.answered({"confirm-1~2": YES})
    assert stop == Returned(None)


def test_salvage_matches_an_answer_in_another_branch() -> None:
    before = flow_of(Confirm("a"), Confirm("b"))
    after = flow_of(Gather(Confirm("new"), Confirm("a")))
    one = resumed(after, journal_of(before))
    assert messages(one.start()) == ["new"]


def test_salvage_takes_the_one_answer_wherever_it_was_given() -> None:
    """Q1a: the one answer to a message goes to the first branch that asks it."""

    def handler(extra: bool) -> Flow[Any]:
        def one() -> Flow[bool]:
            if extra:
                yield from Now()
            return (yield from Confirm("Same?"))

        def two() -> Flow[bool]:
            return (yield from Confirm("Same?"))

        return (yield from Gather(one(), two()))

    one = run(handler, False, rules=LIVE)
    one.start()
    one.answered({"gather-1/1/confirm-1": Declined()})
    again = resumed(handler, one.journal, True)
    stop = advance(again, again.start())
    assert keys(stop) == ["gather-1/1/confirm-1~2"]
    assert again.answered({"gather-1/1/confirm-1~2": YES}) == Returned((False, True))


def test_salvage_would_drop_a_performed_step() -> None:
    """The hard stop: charging twice unnoticed is worse than starting again."""
    before = flow_of(Confirm("a"), Step(charge), Confirm("b"))
    journal = journal_of(before)
    one = resumed(flow_of(Confirm("x"), Step(charge), Confirm("b")), journal)
    with pytest.raises(DivergenceError) as caught:
        one.start()
    assert caught.value.verdict == "stop"


def test_salvage_may_drop_a_replayable_step() -> None:
    """The tag counts, and not today's code."""
    journal = journal_of(flow_of(Confirm("a"), replayable(1), Confirm("b")))
    one = resumed(flow_of(Confirm("x"), Step(charge), Confirm("b")), journal)
    assert messages(one.start()) == ["x"]


def test_salvage_may_continue_after_a_step_that_was_fed() -> None:
    before = flow_of(Step(charge), Confirm("a"), Confirm("b"))
    after = flow_of(Step(charge), Confirm("x"), Confirm("a"))
    one = resumed(after, journal_of(before))
    assert messages(one.start()) == ["x"]


def test_hard_stop_is_decided_before_anything_is_performed() -> None:
    """The frontier is flow-wide: an entry beyond this wave, in any branch."""

    def handler(edited: bool) -> Flow[Any]:
        def one() -> Flow[None]:
            if edited:
                yield from Step(charge, 99)
            yield from Confirm("a")

        def two() -> Flow[None]:
            yield from Now()
            yield from Step(charge, 2)
            yield from Confirm("b")

        yield from Gather(one(), two())

    journal = journal_of(handler, False, rounds=0)
    with pytest.raises(DivergenceError) as caught:
        resumed(handler, journal, True).start()
    assert caught.value.verdict == "stop"


def test_divergence_left_over_at_the_return() -> None:
    """An early return is noticed."""
    journal = journal_of(asks("a", "b", "c"), rounds=2)
    with pytest.raises(DivergenceError) as caught:
        resumed(asks("a"), journal, rules=STRICT).start()
    assert caught.value.report.cause == "left over"
    assert caught.value.report.current is None
    one = resumed(asks("a"), journal)
    assert one.start() == Returned([True])
    assert [report.cause for report in one.salvaged] == ["left over"]


def test_divergence_left_over_in_a_branch() -> None:
    def handler(*texts: str) -> Flow[Any]:
        return (yield from Gather(asks(*texts)()))

    journal = journal_of(handler, "a", "b", "c", rounds=2)
    with pytest.raises(DivergenceError) as caught:
        resumed(handler, journal, "a", rules=STRICT).start()
    assert caught.value.report.cause == "left over"
    one = resumed(handler, journal, "a")
    assert one.start() == Returned(([True],))


def test_divergence_left_over_in_a_branch_that_was_cancelled() -> None:
    """A charge that was made there is not forgotten when the handler continues."""

    def pays() -> Flow[bool]:
        yield from Confirm("b")
        yield from Step(charge)
        return (yield from Confirm("c"))

    def handler(*, fails: bool) -> Flow[Any]:
        def other() -> Flow[None]:
            yield from Confirm("a")
            if fails:
                raise LookupError

        try:
            return (yield from Gather(other(), pays()))
        except LookupError:
            return (yield from Confirm("Something else?"))

    one = run(partial(handler, fails=False))
    stop = advance(one, one.start())
    assert isinstance(stop, Asked)
    stop = advance(one, one.answered(answers_to(stop, yes)))
    assert messages(stop) == ["c"]
    with pytest.raises(DivergenceError) as caught:
        run(partial(handler, fails=True), journal=one.suspend()).start()
    assert caught.value.verdict == "stop"
    report = caught.value.report
    assert (report.cause, report.recorded) == ("left over", "step-1 (done)")


def test_handlers_own_exception_is_reported_before_a_divergence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A raise at the root reports itself; leftovers go to the log, a task parks."""
    caplog.set_level(logging.INFO, LOGGER)

    def failing() -> Flow[None]:
        yield from Confirm("a")
        raise ValueError("own")

    journal = journal_of(asks("a", "b", "c"), rounds=2)
    assert str(error_of(resumed(failing, journal, rules=STRICT).start())) == "own"
    assert "raised with entries left over" in caplog.text
    with pytest.raises(DivergenceError):
        resumed(failing, journal, rules=PARK).start()


def test_divergence_shows_a_restart_that_left_entries() -> None:
    def before() -> Flow[None]:
        yield from Confirm("a")
        yield from Confirm("b")

    def after() -> Flow[Any]:
        return (yield from Restart(asking))

    journal = journal_of(before)
    one = resumed(after, journal)
    assert messages(one.start()) == ["Sure?"]
    assert len(one.salvaged) == 1
    with pytest.raises(DivergenceError):
        resumed(after, journal, rules=STRICT).start()


# ---- questions that change ----


def test_reworded_question_is_asked_again_and_its_answer_does_not_count() -> None:
    """Q1, D1: consent belongs to the text that was shown."""
    journal = journal_of(asks("Delete a.txt?"), rounds=0)
    one = resumed(asks("Delete everything?"), journal, rules=STRICT)
    stop = one.start({"confirm-1": YES})
    assert messages(stop) == ["Delete everything?"]
    assert keys(stop) == ["confirm-1~2"]
    assert one.answered({"confirm-1": YES, "confirm-1~2": Declined()}) == Returned(
        [False]
    )


def test_reworded_question_without_an_answer_is_not_stale() -> None:
    journal = journal_of(asks("old?"), rounds=0)
    one = resumed(asks("new?"), journal)
    assert keys(one.start()) == ["confirm-1~2"]
    assert one.journal.places["confirm-1"].stale == 0


def test_reworded_recorded_question_is_asked_again() -> None:
    journal = journal_of(asks("old?", "b"))
    one = resumed(asks("new?", "b"), journal)
    stop = one.start()
    assert keys(stop) == ["confirm-1~2"]
    assert [report.cause for report in one.salvaged] == ["stale"]


def test_widened_form_is_another_question() -> None:
    journal = journal_of(flow_of(Elicit("Who?", int)), rounds=0)
    one = resumed(flow_of(Elicit("Who?", str)), journal)
    assert keys(one.start({"elicit-1": Accepted({"value": 5})})) == ["elicit-1~2"]


def stale_rounds(
    handlers: Iterable[Callable[..., Any]], rules: Rules = RETRY
) -> Iterator[Stop]:
    """Yield the stops of rounds, each with answers to the questions of the last."""
    journal = Journal()
    answers: dict[str, Answer] = {}
    for handler in handlers:
        one = resumed(handler, journal, rules=rules)
        stop = one.start(answers)
        yield stop
        if isinstance(stop, Asked):
            answers = answers_to(stop, yes)
            journal = one.suspend()


def test_text_that_never_stays_is_refused_in_the_end() -> None:
    """The livelock guard: "12:31?" would be asked until the client gives up."""
    clock = iter(range(1_000))

    def handler() -> Flow[None]:
        yield from Confirm(f"Now, at {next(clock)}?")

    *asked, last = stale_rounds([handler] * 5)
    assert all(isinstance(one, Asked) for one in asked)
    error = error_of(last)
    assert isinstance(error, NondeterminismError)
    for part in ("at 4?", "at 5?", "Now()", "Uuid()", "Random()", "Step("):
        assert part in error.problem
    assert error.where is not None
    assert error.where.startswith(__file__)


def test_flow_that_never_stays_is_refused_too() -> None:
    """The second run over the same journal does not even reach its question."""
    coin = iter(range(10))

    def handler() -> Flow[None]:
        turn = next(coin)
        if turn == 5:
            return
        yield from Confirm(f"{turn}?")

    *_, last = stale_rounds([handler] * 5)
    error = error_of(last)
    assert isinstance(error, NondeterminismError)
    assert "and then 'reached another place'" in error.problem


def test_flow_that_diverges_from_itself_is_refused() -> None:
    coin = iter([0] * 5 + [1])
    words = iter("abcdef")

    def handler() -> Flow[None]:
        yield from Elicit("Who?", str, otherwise="")
        if next(coin):
            yield from Now()
        yield from Confirm(f"at {next(words)}?")

    def first() -> Flow[None]:
        yield from Elicit("Who?", str, otherwise="")
        yield from Confirm(f"at {next(words)}?")

    *_, last = stale_rounds([first, *[handler] * 5])
    assert isinstance(error_of(last), NondeterminismError)


def test_deployments_are_blamed_after_many_logs() -> None:
    """The replay that finds it out repeats logs, and has the budget for that."""

    def version(text: str) -> Callable[[], Flow[None]]:
        def handler() -> Flow[None]:
            for question in ("First?", text):
                for _ in range(15):
                    yield from Log("info", question)
                yield from Confirm(question)

        return handler

    versions = [version(f"{n}?") for n in range(6)]
    with pytest.raises(DivergenceError) as caught:
        list(stale_rounds(versions, attrs.evolve(RETRY, yields=20)))
    assert caught.value.report.cause == "versions"


def test_deployments_are_blamed_after_the_largest_number_of_logs() -> None:
    """A replay may repeat the logs of ten rounds, and so may the dry replay."""

    def version(text: str) -> Callable[[], Flow[None]]:
        def handler() -> Flow[None]:
            for question in (*map(str, range(14)), text):
                yield from Log("info", question)
                yield from Log("info", question)
                yield from Confirm(question)

        return handler

    # Two logs and an answer a round: in the end a replay says all of thirty logs again.
    versions = [version(f"{n}?") for n in range(20)]
    with pytest.raises(DivergenceError) as caught:
        list(stale_rounds(versions, attrs.evolve(RETRY, yields=3, rounds=None)))
    assert caught.value.report.cause == "versions"


def test_edited_handler_is_not_taken_for_a_nondeterministic_one() -> None:
    """A handler may use up its arguments: each replay must get fresh ones."""

    def before(items: list[str]) -> Flow[None]:
        yield from Confirm(f"Take {items.pop()}?")

    def after(items: list[str]) -> Flow[None]:
        yield from Confirm(f"Really take {items.pop()}?")

    journal = journal_of(before, ["book"], rounds=0)
    one = resumed(after, journal, ["book"])
    assert messages(one.start({"confirm-1": YES})) == ["Really take book?"]


def test_edited_handler_may_take_arguments_that_cannot_be_copied() -> None:
    def handler(lock: object, question: str) -> Flow[None]:
        yield from Confirm(question)

    lock = threading.Lock()
    journal = journal_of(handler, lock, "old?", rounds=0)
    one = resumed(handler, journal, lock, "new?")
    assert messages(one.start({"confirm-1": YES})) == ["new?"]


def test_fourth_stale_answer_blames_the_deployment() -> None:
    """D1: another text in each round, and always the same one from the same code."""
    with pytest.raises(DivergenceError) as caught:
        list(stale_rounds(asks(f"{n}?") for n in range(5)))
    assert caught.value.report.cause == "versions"
    assert caught.value.verdict == "stop"


def test_fourth_stale_answer_parks_a_task() -> None:
    with pytest.raises(DivergenceError) as caught:
        list(stale_rounds((asks(f"{n}?") for n in range(5)), TASK))
    assert caught.value.verdict == "park"


def test_two_versions_that_alternate_come_to_an_end() -> None:
    """D1a: a stale answer stays known under the text that it answered."""
    *asked, last = stale_rounds([asks("one?"), asks("two?"), asks("one?")])
    assert last == Returned([True])
    assert len(asked) == 2


def test_fourth_stale_answer_stops_before_anything_is_performed() -> None:
    """C: a charge of this very round would be forgotten with the flow."""

    def handler(text: str) -> Callable[[], Flow[Any]]:
        def order() -> Flow[Any]:
            return (yield from Gather(Confirm(text), paid()))

        def paid() -> Flow[str]:
            sure = yield from Confirm("Sure?")
            return (yield from Step(charge, 1)) if sure else ""

        return order

    versions = [handler(f"{n}?") for n in range(5)]
    journal = Journal()
    answers: dict[str, Answer] = {}
    for version in versions[:-1]:
        one = resumed(version, journal)
        stop = one.start(answers)
        answers = {key: YES for key in keys(stop) if key.startswith("gather-1/0/")}
        journal = one.suspend()
    answers["gather-1/1/confirm-1"] = YES
    with pytest.raises(DivergenceError):
        resumed(versions[-1], journal).start(answers)


def test_stale_answer_after_a_charge_of_this_round_is_only_counted() -> None:
    """C: the stop comes in the next round, before anything is performed."""

    def handler(text: str) -> Callable[[], Flow[Any]]:
        def order() -> Flow[Any]:
            receipt = ""
            if text == "4?":
                receipt = yield from Step(charge, 1)
            return receipt, (yield from Confirm(text))

        return order

    *_, last = stale_rounds([handler(f"{n}?") for n in range(4)])
    assert isinstance(last, Asked)
    journal = Journal()
    answers: dict[str, Answer] = {}
    for n in range(5):
        one = resumed(handler(f"{n}?"), journal)
        stop = advance(one, one.start(answers))
        assert isinstance(stop, Asked)
        answers = answers_to(stop, yes)
        journal = one.suspend()
    assert [entry.tag for entry in journal.entries] == ["done"]
    assert journal.places["confirm-1"].stale == 4


# ---- suspending ----


def test_suspend_gives_the_journal_and_runs_plain_cleanup() -> None:
    seen: list[str] = []

    def handler() -> Flow[None]:
        try:
            yield from Step(charge)
            yield from Confirm("Sure?")
        finally:
            seen.append("plain")
            yield from Step(charge, 2)
            seen.append("performed")

    one = run(handler, rules=UNCAPPED)
    assert isinstance(advance(one, one.start()), Asked)
    journal = one.suspend()
    assert seen == ["plain"]
    assert [entry.key for entry in journal.entries] == ["step-1"]
    again = resumed(handler, journal)
    assert advance(again, again.start({"confirm-1": YES})) == Returned(None)
    assert seen == ["plain", "plain", "performed"]


def test_suspend_lets_the_operator_interrupt() -> None:
    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            raise KeyboardInterrupt

    one = run(handler)
    one.start()
    with pytest.raises(KeyboardInterrupt):
        one.suspend()


def test_suspended_run_is_freed_at_once() -> None:
    """The run and its round are in no cycle that needs the garbage collector."""

    def handler() -> Flow[str]:
        names = yield from Gather(Elicit("Who?", str), order("Dune"))
        return str(names)

    gc.disable()
    try:
        one = run(handler)
        one.start()
        one.suspend()
        freed = weakref.ref(one)
        del one
        assert freed() is None
    finally:
        gc.enable()


def test_suspend_before_the_start() -> None:
    one = run(asking)
    assert one.suspend() == Journal()


def test_suspend_unwinds_branches_first() -> None:
    seen: list[str] = []

    def noting(name: str, inner: Any) -> Flow[None]:
        try:
            yield from inner
        finally:
            seen.append(name)

    def handler() -> Flow[None]:
        branches = [noting(name, Confirm(name)) for name in "ab"]
        yield from noting("root", Gather(*branches))

    one = run(handler)
    one.start()
    one.suspend()
    assert seen == ["a", "b", "root"]


def test_interrupt_in_a_handler_ends_the_run() -> None:
    def handler() -> Flow[None]:
        yield from Confirm("Sure?")
        raise KeyboardInterrupt

    for rules in (LIVE, SCRIPT):
        one = run(handler, rules=rules)
        one.start()
        with pytest.raises(KeyboardInterrupt):
            one.answered({"confirm-1": YES})
        with pytest.raises(UsageError, match="is suspended"):
            one.answered({})


def test_interrupt_in_a_replay_ends_the_run() -> None:
    interrupted = False

    def handler() -> Flow[None]:
        yield from Confirm("a")
        if interrupted:
            raise KeyboardInterrupt
        yield from Confirm("b")

    journal = journal_of(handler)
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        resumed(handler, journal).start()


# ---- cancelling ----


def careful(seen: list[Any]) -> Flow[None]:
    try:
        yield from Step(charge, 1)
        yield from Confirm("Sure?")
    except Cancelled:
        seen.append("cancelled")
        raise
    finally:
        seen.append((yield from Step(charge, 2)))


def test_cancel_performs_cleanup_and_ends_the_flow() -> None:
    """L4."""
    seen: list[Any] = []
    one = run(careful, seen, rules=LIVE)
    advance(one, one.start())
    stop = one.cancel()
    assert isinstance(stop, Perform)
    assert isinstance(error_of(advance(one, stop)), Cancelled)
    assert seen == ["cancelled", "charged 2"]


def test_cancel_is_journaled() -> None:
    """A replay takes the same turns, and performs nothing again."""
    one = run(careful, [], rules=TASK)
    advance(one, one.start())
    advance(one, one.cancel())
    journal = Journal.loads(one.journal.dumps())
    assert journal.cancelled == 1
    seen: list[Any] = []
    again = resumed(careful, journal, seen, rules=TASK)
    assert isinstance(error_of(again.start()), Cancelled)
    assert seen == ["cancelled", "charged 2"]


def test_cancel_half_way_through_cleanup_continues_elsewhere() -> None:
    one = run(careful, [], rules=TASK)
    advance(one, one.start())
    one.cancel()
    journal = one.suspend()
    seen: list[Any] = []
    again = resumed(careful, journal, seen, rules=TASK)
    assert isinstance(error_of(advance(again, again.start())), Cancelled)
    assert seen == ["cancelled", "charged 2"]


def test_cancel_waits_for_steps_that_are_being_performed() -> None:
    """A started step is shielded, and its result journaled before the throw."""
    seen: list[Any] = []
    one = run(careful, seen, rules=TASK)
    performing = one.start()
    one.begin("step-1")
    stop = one.cancel()
    assert isinstance(stop, Perform)
    assert isinstance(performing, Perform)
    assert [want.key for want in stop.wants] == [one.key for one in performing.wants]
    stop = one.performed({"step-1": Done("charged 1")})
    assert isinstance(stop, Perform)
    assert [want.effect for want in stop.wants] == [Step(charge, 2)]
    assert isinstance(error_of(advance(one, stop)), Cancelled)
    assert seen == ["cancelled", "charged 2"]
    tags = [entry.tag for entry in one.journal.entries]
    assert tags == ["done", "done"]
    again = resumed(careful, one.journal, [], rules=TASK)
    assert isinstance(error_of(again.start()), Cancelled)


def test_cancel_twice_ends_the_run_without_more_cleanup() -> None:
    seen: list[Any] = []
    one = run(careful, seen, rules=LIVE)
    advance(one, one.start())
    one.cancel()
    assert isinstance(error_of(one.cancel()), Cancelled)
    assert seen == ["cancelled"]
    with pytest.raises(UsageError, match="is suspended"):
        one.performed({})


def test_cancel_twice_while_performing() -> None:
    one = run(careful, [], rules=LIVE)
    one.start()
    one.cancel()
    assert isinstance(error_of(one.cancel()), Cancelled)


@pytest.mark.parametrize("answered", [False, True])
def test_cancel_twice_before_a_step_has_ended_is_journaled(answered: bool) -> None:
    """The started step is lost, and nothing is performed in place of it."""

    def handler() -> Flow[Any]:
        yield from Gather(Step(charge), Confirm("Sure?"))

    one = run(handler, rules=LIVE)
    assert isinstance(one.start(), Perform)
    one.begin("gather-1/0/step-1")
    if answered:
        one.answered({"gather-1/1/confirm-1": YES})
    assert isinstance(one.cancel(), Perform)
    assert isinstance(error_of(one.cancel()), Cancelled)
    again = run(handler, rules=LIVE, journal=one.journal)
    assert isinstance(error_of(again.start()), Cancelled)


def test_cancel_of_an_ended_run_returns_its_last_stop() -> None:
    one = in_state("ended")
    assert one.cancel() == Returned(["charged 1", True])
    assert one.journal.cancelled is None


def test_cancel_of_a_run_without_budget_returns_its_last_stop() -> None:
    """The generators are closed, so nothing can be thrown into them."""
    one = run(ask_for_ever, rules=attrs.evolve(LIVE, yields=0))
    one.start()
    stop = one.answered({"confirm-1": Accepted(None)})
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)
    assert one.cancel() is stop


def test_cancel_reaches_branches_then_the_parent() -> None:
    seen: list[str] = []

    def branch(name: str) -> Flow[None]:
        try:
            yield from Confirm(name)
        except Cancelled:
            seen.append(name)
            raise

    def handler() -> Flow[None]:
        try:
            yield from Gather(branch("a"), named("ended"), branch("b"))
        except Cancelled:
            seen.append("root")
            raise

    one = run(handler, rules=LIVE)
    one.start()
    assert isinstance(error_of(one.cancel()), Cancelled)
    assert seen == ["a", "b", "root"]


def test_cancel_drops_answers_that_were_not_delivered() -> None:
    """A replay must find cleanup's own entries in their place."""

    def handler() -> Flow[None]:
        try:
            yield from Gather(Confirm("a"), Confirm("b"))
        finally:
            yield from Step(charge, 2)

    one = run(handler, rules=TASK)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    assert isinstance(error_of(advance(one, one.cancel())), Cancelled)
    again = resumed(handler, one.journal, rules=TASK)
    assert isinstance(error_of(again.start()), Cancelled)


def test_cancel_forgets_answers_that_were_not_delivered() -> None:
    """The wave waited for another answer, so the handler never got this one."""
    one = run(flow_of(Gather(Confirm("a"), Confirm("b"))), rules=LIVE)
    one.start()
    one.answered({"gather-1/0/confirm-1": YES})
    (gathered,) = one.journal.entries
    assert [len(branch) for branch in gathered.branches] == [1, 0]
    assert isinstance(error_of(one.cancel()), Cancelled)
    (gathered,) = one.journal.entries
    assert [len(branch) for branch in gathered.branches] == [0, 0]


def test_cancel_swallowed_is_a_return() -> None:
    def handler() -> Flow[str]:
        try:
            yield from Confirm("Sure?")
        except Cancelled:
            return "stayed"
        return ""

    one = run(handler, rules=LIVE)
    one.start()
    assert one.cancel() == Returned("stayed")


def test_cancel_in_a_long_replay_comes_at_the_same_place() -> None:
    """A count of waves is a position; beyond it nothing is fed."""

    def handler(seen: list[int]) -> Flow[None]:
        try:
            for n in range(10):
                yield from Confirm(f"{n}?")
                seen.append(n)
        finally:
            yield from Now()
            yield from Step(charge)

    one = run(handler, [], rules=TASK)
    stop: Stop = one.start()
    for _ in range(5):
        assert isinstance(stop, Asked)
        stop = one.answered(answers_to(stop, yes))
    advance(one, one.cancel())
    seen: list[int] = []
    again = resumed(handler, one.journal, seen, rules=TASK)
    assert isinstance(error_of(again.start()), Cancelled)
    assert seen == [0, 1, 2, 3, 4]


def test_cancel_of_a_flow_that_now_ends_before() -> None:
    """The handler was edited, and the flow has no work left to cancel."""
    one = run(asks("a", "b"), rules=TASK)
    one.start()
    one.answered({"confirm-1": YES})
    assert isinstance(error_of(one.cancel()), Cancelled)
    again = resumed(asks("a"), one.journal, rules=TASK)
    assert again.start() == Returned([True])


# ---- restarting ----


def plain(amount: int) -> Any:
    """A handler that never asks."""
    return charge(amount)


def second(title: str, count: int = 1) -> Flow[str]:
    name = yield from Elicit(f"Who wants {title}?", str)
    return f"{name}: {title} x {count}"


def first(title: str) -> Flow[str]:
    yield from Confirm("Begin?")
    result: str = yield from Restart(second, title, count=2)
    return result


@pytest.mark.parametrize("way", WAYS)
def test_restart_begins_again_as_another_handler(way: str) -> None:
    assert returns(WAYS[way](first, "Dune")) == "text: Dune x 2"


def test_restart_empties_the_journal_but_counts_rounds() -> None:
    """V2."""
    one = run(first, "Dune")
    one.start()
    stop = one.answered({"confirm-1": YES})
    assert keys(stop) == ["r1/elicit-1"]
    journal = one.suspend()
    assert (journal.generation, journal.rounds, journal.entries) == (1, 2, ())
    assert journal.restart is not None
    assert b"second" in journal.restart
    again = resumed(first, journal, "Dune", rules=RETRY)
    assert again.start({"r1/elicit-1": text("Ann")}) == Returned("Ann: Dune x 2")


def test_restart_runs_real_cleanup() -> None:
    """`Restarted` is not `Suspended`: cleanup may perform local effects."""
    seen: list[Any] = []

    def handler() -> Flow[Any]:
        try:
            yield from Confirm("Begin?")
            return (yield from Restart(second, "Dune"))
        except BaseException as exc:
            seen.append(type(exc))
            raise
        finally:
            seen.append((yield from Step(charge, 1)))

    one = run(handler, rules=LIVE)
    one.start()
    stop = advance(one, one.answered({"confirm-1": YES}))
    assert messages(stop) == ["Who wants Dune?"]
    assert seen == [Restarted, "charged 1"]


def test_restart_in_a_replay_of_its_cleanup() -> None:
    """Parked between the restart and the end of the old generator's cleanup."""

    def handler() -> Flow[Any]:
        try:
            return (yield from Restart(second, "Dune"))
        finally:
            yield from Step(charge, 1)
            yield from Step(charge, 2)

    assert returns(by_store(handler)) == "text: Dune x 1"


def test_restart_whose_cleanup_was_edited_is_a_divergence() -> None:
    """Entries left over at a `Restart` diverge, as at a return."""

    def handler(releases: int) -> Flow[Any]:
        try:
            return (yield from Restart(second, "Dune"))
        finally:
            for n in range(releases):
                yield from replayable(n)

    one = run(handler, 2, rules=UNCAPPED)
    one.start()
    one.performed({"step-1": Done("charged 0")})
    journal = one.suspend()
    assert [entry.tag for entry in journal.entries] == ["restart", "done"]
    with pytest.raises(DivergenceError) as caught:
        resumed(handler, journal, 0, rules=STRICT).start()
    assert caught.value.report.cause == "left over"
    assert messages(resumed(handler, journal, 0).start()) == ["Who wants Dune?"]


def test_restart_forgets_versions_pool_and_questions() -> None:
    def handler() -> Flow[Any]:
        yield from Version("fee", default=0, latest=1)
        yield from Confirm("Begin?")
        return (yield from Restart(second, "Dune"))

    one = run(handler, rules=LIVE)
    one.start()
    one.answered({"confirm-1": YES})
    journal = one.journal
    assert (journal.versions, journal.pool) == ({}, ())
    assert set(journal.asked) == {"r1/elicit-1"}


def test_restart_as_itself_for_ever_ends_by_the_budget() -> None:
    rules = attrs.evolve(SCRIPT, yields=20)
    error = error_of(run(loop, 0, rules=rules).start())
    assert isinstance(error, BudgetError)


def loop(count: int) -> Flow[Any]:
    if count > 1_000:
        return count
    return (yield from Restart(loop, count + 1))


def test_restart_whose_handler_is_gone_is_a_divergence() -> None:
    journal = journal_of(first, "Dune")
    with pytest.raises(DivergenceError) as caught:
        resumed(first, journal, "Dune", resolve=lambda name: None).start()
    assert caught.value.verdict == "stop"
    assert caught.value.report.cause == "gone"
    assert caught.value.report.place == "at the start"
    with pytest.raises(DivergenceError) as caught:
        resumed(first, journal, "Dune", resolve=lambda _: None, rules=PARK).start()
    assert caught.value.verdict == "park"


def test_restart_whose_handler_takes_other_arguments_is_a_divergence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = journal_of(first, "Dune")
    with pytest.raises(DivergenceError) as caught:
        resumed(first, journal, "Dune", resolve=lambda name: asking).start()
    assert caught.value.report.cause == "gone"
    assert "too many positional arguments" in caplog.text


def test_restart_as_a_plain_function() -> None:
    def handler() -> Flow[Any]:
        return (yield from Restart(plain, 3))

    assert returns(by_script(handler)) == "charged 3"


def test_restart_swallowed_restarts_all_the_same() -> None:
    """The decision was journaled; the old generator's result is ignored."""

    def handler() -> Flow[Any]:
        try:
            yield from Restart(second, "Dune")
        except Restarted:
            return "mine"

    for way in WAYS.values():
        assert returns(way(handler)) == "text: Dune x 1"


# ---- results and failures ----


def test_result_that_is_a_flow_is_a_forgotten_yield_from() -> None:
    def handler() -> Flow[Any]:
        yield from Now()
        return second("Dune")

    error = error_of(by_script(handler))
    assert isinstance(error, NotAnEffectError)
    assert "the flow second came back instead of its answer" in str(error)
    assert "handler" in str(error)


def test_result_of_a_plain_function_that_is_an_effect() -> None:
    error = error_of(by_script(lambda: Confirm("Sure?")))
    assert "the effect Confirm came back" in str(error)


def test_declined_left_uncaught_comes_out() -> None:
    def answer(question: Question) -> Answer:
        return Declined()

    for way in WAYS.values():
        assert error_of(way(who, answer=answer)) == Declined()


def test_failure_in_a_replay_is_the_same_failure() -> None:
    def handler() -> Flow[None]:
        yield from Confirm("a")
        raise ValueError("own")

    one = run(handler, rules=LIVE)
    one.start()
    one.answered({"confirm-1": YES})
    assert str(error_of(resumed(handler, one.journal).start())) == "own"


def test_step_result_that_no_longer_reads_is_a_step_error() -> None:
    """The annotation changed under a running flow: the error names the cause."""

    def handler() -> Flow[str]:
        yield from Step(charge)
        yield from Confirm("Sure?")
        return "done"

    journal = journal_of(handler, rounds=0)
    (entry,) = journal.entries
    changed = attrs.evolve(journal, entries=(attrs.evolve(entry, payload=b"5"),))
    error = error_of(resumed(handler, changed, rules=STRICT).start())
    assert "does not come back as its annotation says" in str(error)
    assert isinstance(error, UsageError)
    assert error.where is not None


def test_recorded_value_that_no_longer_reads_is_thrown() -> None:
    """The fast loop over plain entries must not skip this check."""
    journal = journal_of(flow_of(Caller(), Confirm("Sure?")), rounds=0)
    (entry,) = journal.entries
    changed = attrs.evolve(
        journal, entries=(attrs.evolve(entry, payload=b'{"nobody":1}'),)
    )
    again = resumed(flow_of(Caller(), Confirm("Sure?")), changed, rules=STRICT)
    assert isinstance(error_of(again.start()), TypeError)


# ---- replaying fast, and the same ----


def test_replay_meets_misuse_where_the_first_run_did() -> None:
    """Between plain answers: not an effect, a bad key, an undecodable message."""

    def handler() -> Any:
        said = []
        for bad in (5, Confirm("Sure?", key="a/b"), Confirm("\ud800")):
            yield Confirm("a")
            try:
                yield bad
            except UsageError as exc:
                said.append(exc.problem)
        yield Confirm("b")
        return said

    results = [returns(way(handler)) for way in WAYS.values()]
    assert all(result == results[0] for result in results)
    assert len(results[0]) == 3


def test_replay_of_an_outcome_between_answers() -> None:
    handler = flow_of(Confirm("a"), Outcome(Confirm("b")), Confirm("c"))
    for way in WAYS.values():
        assert returns(way(handler)) == [True, Accepted(True), True]


def test_replay_of_declined_and_plain_answers_mixed() -> None:
    def answer(question: Question) -> Answer:
        return said_no(question) if question.key != "confirm-1" else YES

    handler = flow_of(Confirm("a"), Confirm("b"), Elicit("c", str), Confirm("d"))
    for way in WAYS.values():
        assert returns(way(handler, answer=answer)) == [True, False, "text", False]


def test_replay_in_development_mode_is_the_same() -> None:
    rules = attrs.evolve(UNCAPPED, development=True)
    assert returns(by_retry(order, "Dune", rules=rules)) == "text: charged 3"


def test_detach_is_noted_in_every_way() -> None:
    handler = flow_of(Detach(), Sleep(1), Confirm("Sure?"), Sleep(1))
    for way in WAYS.values():
        assert returns(way(handler)) == [False, None, True, None]


def test_log_after_a_new_value_is_heard() -> None:
    """V5: a task that resumes elsewhere is muted until something new is delivered."""
    said: list[Any] = []
    handler = flow_of(Confirm("a"), Now(), Log("info", "after"), Progress(1))
    journal = journal_of(handler, rounds=0, rules=TASK)
    one = resumed(handler, journal, rules=TASK, emit=said.append)
    one.start({"confirm-1": YES})
    assert said == []
    resumed_ = resumed(handler, one.suspend(), rules=TASK, emit=said.append)
    advance(resumed_, resumed_.start())
    assert said == [Log("info", "after"), Progress(1)]


def test_caller_is_who_began() -> None:
    """L7: recorded, so it does not change from round to round."""
    one = run(flow_of(Caller(), Confirm("Sure?")))
    one.start()
    one.performed({"caller-1": Done(CallerInfo(principal="ann"))})
    again = resumed(flow_of(Caller(), Confirm("Sure?")), one.suspend())
    assert again.start({"confirm-1": YES}) == Returned(
        [CallerInfo(principal="ann"), True]
    )


def test_budget_error_unwinds_and_ends() -> None:
    seen: list[str] = []

    def handler() -> Any:
        try:
            for _ in range(100):
                yield Step(charge)
        finally:
            seen.append("cleaned")

    rules = attrs.evolve(SCRIPT, yields=10)
    one = run(handler, rules=rules, name="a name")
    error = error_of(advance(one, one.start()))
    assert isinstance(error, BudgetError)
    assert "a name yielded 10 times" in str(error)
    assert seen == ["cleaned"]


def test_watchdog_can_read_where_from_another_thread() -> None:
    """L5: it names a handler that never yields."""
    running, done = threading.Event(), threading.Event()
    found: list[str | None] = []

    def handler() -> Flow[None]:
        yield from Confirm("Sure?")
        running.set()
        done.wait(5)  # busy

    one = run(handler, rules=LIVE)
    one.start()

    def watch() -> None:
        running.wait(5)
        found.append(one.where)
        done.set()

    watchdog = threading.Thread(target=watch)
    watchdog.start()
    one.answered({"confirm-1": YES})
    watchdog.join()
    assert found[0] is not None
    assert found[0].startswith(__file__)


def test_entry_of_another_fingerprint_is_never_fed() -> None:
    """A hand-made journal: key alone does not make an answer."""
    entry = Entry("confirm-1", b"none", b"whatever", "accepted", b"{}")
    with pytest.raises(DivergenceError):
        resumed(asking, Journal(entries=(entry,)), rules=STRICT).start()


@pytest.mark.parametrize("before", [Log("info", "x"), Now()], ids=repr)
def test_round_that_has_ended_is_freed_at_once(before: Any) -> None:
    """No cycle keeps a round, whose handler has the arguments of a request."""

    class Argument:
        pass

    def handler(argument: Argument) -> Flow[None]:
        yield from before
        yield from Confirm("Sure?")

    argument = Argument()
    freed = weakref.ref(argument)
    one = Run(handler, (argument,), flow_id=bytes(16))
    stop = one.start()
    if isinstance(stop, Perform):
        stop = one.performed(
            {stop.wants[0].key: Done(datetime.datetime.now(datetime.UTC))}
        )
    assert isinstance(stop, Asked)
    one.suspend()
    gc.disable()
    try:
        del one, argument
        assert freed() is None
    finally:
        gc.enable()


def test_a_restart_runs_in_the_context_of_the_run() -> None:
    """L1: what the handler has set before the restart is gone, as in a new call."""
    place: ContextVar[str] = ContextVar("place", default="nowhere")
    seen: list[str] = []

    def handler(number: int = 0) -> Flow[str]:
        seen.append(place.get())
        place.set("in the handler")
        if number < 1:
            yield from Restart(handler, number + 1)
        return place.get()

    def begin() -> Run:
        place.set("around")
        return Run(handler, flow_id=FLOW_ID)

    run = copy_context().run(begin)
    stop = run.start()
    assert isinstance(stop, Returned)
    assert seen == ["around", "around"]
    assert place.get() == "nowhere"
