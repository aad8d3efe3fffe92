"""The engine and an independent model of its rules agree, and directed examples."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest
from attrs import evolve

from effectmcp import Accepted, Confirm, Gather, NondeterminismError, UsageError
from effectmcp.engine import Asked, Raised, Returned, Run

from ..campaigns import shrunk
from .__main__ import play_seeds
from .drawing import BOTH, Code, Round, Verdict, World, draw
from .observing import Difference, Seen
from .programs import (
    Again,
    Attempt,
    Body,
    Do,
    Key,
    Local,
    Pause,
    Question,
    Together,
    Versioned,
)
from .shrinking import found, simpler_worlds
from .worlds import Report, play, play_alike

BLOCK = 500


def check(seeds: range) -> None:
    _, failing = play_seeds(seeds)
    if failing:
        pytest.fail(f"{len(failing)} of {len(seeds)} differ; {found(failing[0])}")


@pytest.mark.parametrize("start", range(0, 5_000, BLOCK))
def test_engine_equals_model(start: int) -> None:
    check(range(start, start + BLOCK))


def test_place_in_a_branch_that_an_edit_removed() -> None:
    """The rules do not say whether its next asking is the first: the model must not."""
    check(range(1_805_807, 1_805_808))


@pytest.mark.long
@pytest.mark.parametrize("start", range(5_000, 1_000_000, 9_950))
def test_engine_equals_model_at_length(start: int) -> None:
    check(range(start, start + 9_950))


@pytest.mark.parametrize("start", range(0, 1_000, BLOCK))
def test_retry_equals_live_and_cold_replay(start: int) -> None:
    for seed in range(start, start + BLOCK):
        code = draw(Random(seed)).codes[0]
        try:
            play_alike(code, seed)
        except Exception as error:
            raise Difference(f"seed {seed}: {error}") from error


# ---- directed examples --------------------------------------------------------------


def elicit(text: str, key: str | None = None) -> Question:
    return Question("elicit", text, key=key)


def confirm(text: str, otherwise: bool | None = None) -> Question:
    return Question("confirm", text, otherwise=otherwise)


def gather(*branches: Body) -> Together:
    return Together(branches)


def answered(*says: Verdict, code: int = 0, **options: Any) -> Round:
    return Round(code=code, says=says, **options)


def converse(versions: list[Body], *rounds: Round, other: Body = ()) -> Report:
    """Play a conversation, in which the model has an opinion throughout."""
    codes = tuple(Code(version, other) for version in versions)
    report = play(World(codes=codes, history=(Round(), *rounds)))
    assert report.unjudged is None
    assert len(report.seen) == len(rounds) + 1
    return report


def texts(seen: Seen) -> list[str]:
    return [text for _, text, _ in seen.ask]


def performed(report: Report) -> list[tuple[Any, ...]]:
    return [step for seen in report.seen for step in seen.performed]


def test_pool_ambiguous_answers_are_asked_again() -> None:
    agree = Question("elicit", "Agree?", outcome=True)
    old = (agree, agree, gather((agree,)), confirm("Done?"))
    yes = answered("A")
    report = converse(
        [old, (confirm("Sure?"), *old)],
        *(yes, yes, yes),
        *(answered("-", code=1), answered("A", code=1), answered("no", code=1)),
        *(answered("A", code=1), answered("B", code=1), answered("A", code=1)),
    )
    asked = [texts(seen) for seen in report.seen[4:]]
    assert asked == [["Sure?"], ["Agree?"], ["Agree?"], ["Agree?"], ["Done?"], []]
    events = report.seen[-1].events
    got = [event[3] for event in events if event[1:3] == ("got", "Agree?")]
    assert got == ["Declined", ("Accepted", "A7.0"), ("Accepted", "B8.0")]


def test_declined_question_is_not_answered_by_another_branch() -> None:
    approve = confirm("Approve?")
    report = converse(
        [(gather((approve,), (approve,)),), (gather((), (approve,)),)],
        answered("A", "-"),
        answered("no", code=1),
    )
    assert report.seen[-1].end == ("returned", "('None', 'False')")


def test_dismissed_question_is_not_answered_by_a_branch_that_is_gone() -> None:
    sure = Question("confirm", "Sure?", outcome=True)
    report = converse(
        [(gather((sure,)), sure), (sure,)], answered("A"), answered("close", code=1)
    )
    assert report.seen[-1].end == ("returned", "Dismissed")


def test_fourth_stale_answer_after_a_charge_waits_for_the_next_round() -> None:
    charge = Do("charge", "s")
    editions: list[Body] = [(elicit(f"Edition {number}?"),) for number in range(6)]
    editions[4:] = [(charge, *edition) for edition in editions[4:]]
    report = converse(editions, *(answered("A", code=n) for n in range(1, 6)))
    charging, last = report.seen[-2:]
    assert len(charging.performed) == 1
    assert charging.end == ("asked",)
    assert not last.performed
    assert last.end == ("stopped",)


def test_fourth_stale_answer_stops_a_round_that_performed_nothing() -> None:
    editions: list[Body] = [(elicit(f"Edition {number}?"),) for number in range(5)]
    report = converse(editions, *(answered("A", code=n) for n in range(1, 5)))
    assert [seen.end for seen in report.seen[-2:]] == [("asked",), ("stopped",)]


@pytest.mark.parametrize(
    ("asked", "end"),
    [
        (confirm("Sure?"), ("raised", "Unsupported")),
        (confirm("Sure?", True), ("returned", "True")),
        (evolve(elicit("Name?"), otherwise="else"), ("returned", "else")),
    ],
)
def test_unfitting_answer_of_a_client_that_lost_the_capability(
    asked: Question, end: tuple[str, str]
) -> None:
    bad = answered("bad", supports=BOTH - {asked.kind})
    assert converse([(asked,)], bad).seen[-1].end[:2] == end


@pytest.mark.parametrize("is_last", [False, True])
def test_version_after_the_end_of_a_finished_branch_is_the_default(
    is_last: bool,
) -> None:
    fee = (Versioned("fee", (Do("charge", "s"),)),)
    work: Body = (Do("plain", "t"),)
    ask: Body = (elicit("Name?"),)

    def both(work: Body) -> Body:
        return (gather(ask, work) if is_last else gather(work, ask),)

    report = converse([both(work), both(work + fee)], answered("A", code=1))
    assert performed(report) == [("plain", "t", 1)]


def test_step_gets_copies_of_its_arguments() -> None:
    report = converse([(Do("mutating", "s"), elicit("Name?"))], answered("A"))
    assert not any(event[1] == "changed" for event in report.seen[0].events)


@pytest.mark.parametrize("first", [elicit("First?"), confirm("First?")])
def test_question_inserted_before_keeps_the_answer_in_flight(first: Question) -> None:
    name = elicit("Name?")
    report = converse(
        [(name,), (first, name)], answered("A", code=1), answered("A", code=1)
    )
    assert [texts(seen) for seen in report.seen] == [["Name?"], ["First?"], []]
    assert report.seen[-1].end == ("returned", "A1.0")


@pytest.mark.parametrize("otherwise", [True, False])
def test_confirm_otherwise_replaces_all_but_a_decline(otherwise: bool) -> None:
    asked = (confirm("Sure?", otherwise),)
    ends = [
        converse([asked], answered(verdict)).seen[-1].end
        for verdict in ("A", "no", "close")
    ]
    assert [end[1] for end in ends] == ["True", "False", str(otherwise)]


@pytest.mark.parametrize("verdict", ["no", "close"])
def test_elicit_otherwise_replaces_every_refusal(verdict: Verdict) -> None:
    asked = evolve(elicit("Name?"), otherwise="else")
    assert converse([(asked,)], answered(verdict)).seen[-1].end[1] == "else"


def test_idempotency_key_of_a_fork_about_something_else_is_another() -> None:
    program: Body = (elicit("Amount?"), Key("charge", bound=True), elicit("More?"))
    report = converse(
        [program], answered("A"), answered("A", base=1), answered("-"), answered("-")
    )
    keys = [event[3] for s in report.seen for event in s.events if event[1] == "key"]
    assert len(keys) == 4
    assert len(set(keys)) == 2
    assert keys[1] == keys[2] == keys[3] != keys[0]


def test_too_many_branches_are_refused_before_one_begins() -> None:
    begun = []

    def branch(number: int) -> Generator[Any, Any, None]:
        begun.append(number)
        yield Confirm("Sure?")

    def handler(count: int) -> Generator[Any, Any, str]:
        try:
            yield Gather(*map(branch, range(count)))
        except UsageError:
            return "refused"
        return "gathered"

    run = Run(handler, (1_001,), flow_id=b"an oracle's flow")
    assert run.start() == Returned("refused")
    assert not begun
    run = Run(handler, (1_000,), flow_id=b"an oracle's flow")
    stop = run.start()
    assert isinstance(stop, Asked)
    assert len(stop.questions) == len(begun) == 1_000
    run.close()


# ---- found by prototypes ------------------------------------------------------------


def test_step_before_the_question_of_a_branch_beside_a_recorded_one() -> None:
    other: Body = (Local("now"), Do("plain", "s"), elicit("Sure?"))
    report = converse(
        [
            (gather((elicit("Name?"),), other),),
            (gather((Do("plain", "t"), elicit("Name?")), other),),
        ],
        answered("A", code=1),
    )
    assert report.seen[-1].end == ("stopped",)
    assert performed(report) == [("plain", "s", 1)]


def test_empty_gather_deleted_before_a_gather_that_performed() -> None:
    work = gather((Do("plain", "s"), elicit("Name?")))
    report = converse([(gather(), work), (work,)], answered("A", code=1))
    assert report.seen[-1].end == ("stopped",)
    assert performed(report) == [("plain", "s", 1)]


def test_nested_checkpoint_beside_a_question() -> None:
    program: Body = (gather((elicit("Name?"),), (gather((Pause(),)),)),)
    report = converse([program], answered("A"))
    assert report.seen[-1].end == ("returned", str(("A1.0", "('None',)")))
    play_alike(Code(program), 0)


def test_cleanup_of_a_restart_is_performed_once() -> None:
    tried = Attempt((Do("plain", "s"), Again("other")), cleanup=(Do("plain", "t"),))
    report = converse([(tried,)], answered("A"), other=(elicit("Name?"),))
    assert report.seen[-1].end == ("returned", "A1.0")
    assert performed(report) == [("plain", "s", 1), ("plain", "t", 1)]


def test_question_that_quotes_the_clock_is_named_before_long() -> None:
    minutes = iter(range(1_000))

    def handler() -> Generator[Any, Any, str]:
        yield Confirm(f"It is {next(minutes)}. Sure?")
        yield Confirm("Really?")
        return "done"

    run = Run(handler, flow_id=b"an oracle's flow")
    stop = run.start()
    for _ in range(5):
        if isinstance(stop, Asked):
            answers: dict[str, Any] = {
                question.key: Accepted({}) for question in stop.questions
            }
            journal = run.suspend()
            run = Run(handler, flow_id=b"an oracle's flow", journal=journal)
            stop = run.start(answers)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NondeterminismError)


def test_either_version_each_round() -> None:
    old: Body = (elicit("Name?"), elicit("Day?"), confirm("Sure?"))
    new: Body = (elicit("Name?"), elicit("Which day?"), confirm("Sure?"))
    report = converse([old, new], *(answered("A", code=n % 2) for n in range(1, 5)))
    # Neither text of the second question is asked twice.
    assert [texts(seen) for seen in report.seen] == [
        *(["Name?"], ["Which day?"], ["Day?"], ["Sure?"], [])
    ]


def test_capabilities_that_change_each_round() -> None:
    program: Body = (
        Attempt((elicit("Name?"), confirm("Sure?"))),
        Attempt((confirm("Go?"),)),
        elicit("Day?"),
    )
    report = converse(
        [program],
        answered("-", supports=BOTH - {"elicit"}),
        answered("bad", supports=BOTH - {"confirm"}),
        answered("A"),
    )
    assert report.seen[-1].end == ("returned", "A3.0")


def test_one_of_five_questions_answered_each_round() -> None:
    program: Body = (gather(*((elicit("Name?"),) for _ in range(5))),)
    report = converse([program], *(answered("A", "-", "-", "-", "-") for _ in range(5)))
    assert [len(seen.ask) for seen in report.seen] == [5, 4, 3, 2, 1, 0]
    answers = tuple(f"A{number}.0" for number in range(1, 6))
    assert report.seen[-1].end == ("returned", str(answers))


def test_gather_over_reordered_items_with_equal_questions() -> None:
    items = [(elicit("Name?"),), (elicit("Name?"), elicit("Day?")), (elicit("Name?"),)]
    report = converse(
        [(gather(*items),), (gather(*items[1:], items[0]),)],
        answered("A", "B", "-"),
        answered("A", code=1),
        answered("A", code=1),
    )
    assert report.seen[-1].end[0] in ("asked", "returned")


def test_cleanup_of_a_branch_whose_parent_is_cancelled_is_performed() -> None:
    tried = Attempt((confirm("Go?"), elicit("Name?")), cleanup=(Do("plain", "t"),))
    inner = gather((elicit("Sure?"),), (tried,))
    report = converse([(gather((inner,), (elicit("Day?"),)),)], answered("no"))
    assert report.seen[-1].end[:2] == ("raised", "Declined")
    assert performed(report) == [("plain", "t", 1)]


# ---- the test itself ----------------------------------------------------------------


def test_difference_is_shrunk_to_its_smallest_world() -> None:
    """A difference is what fails `play()`; any other property shrinks alike."""

    def charges(world: World) -> bool:
        return any("charge" in str(code) for code in world.codes)

    world = next(w for w in map(draw, map(Random, range(100))) if charges(w))
    small = shrunk(world, simpler_worlds, charges)
    assert small.history == ()
    assert [code for code in small.codes if code.main or code.other] == [
        Code(main=(Do("charge", label, False),))
        for code in small.codes
        for label in (getattr(code.main[0], "label", ""),)
    ]
