"""The effects observed as a conversation is repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from effectmcp import (
    Accepted,
    Checkpoint,
    Confirm,
    Declined,
    Elicit,
    Flow,
    Gather,
    Outcome,
    Refused,
    Restart,
    UsageError,
    step,
)
from effectmcp.effects.base import Effect
from effectmcp.engine import Answer
from effectmcp.testing.conversations import Unscripted
from effectmcp.testing.effect_traces import EffectTrace, changed_answers, trace_effects
from effectmcp.testing.subjects import subject_of

from .test_conversations import Obliging, had


@step
def menu(day: int) -> list[str]:
    raise OSError("no test should get here")


def names(count: int) -> Flow[str]:
    for n in range(count):
        yield from Elicit(f"Name {n}?", str)
    return "."


def dines() -> Flow[str]:
    sure = yield from Outcome(Confirm("Hungry?"))
    try:
        yield from Elicit("What?", str)
    except Refused:
        pass
    yield from Checkpoint()
    yield from Gather(names(1), Confirm("Alone?"), menu(1))
    yield from Gather.each([names(2)])
    return f"{sure}"


def sorts() -> Flow[str]:
    dishes = yield from menu(1)
    others = yield from menu(2)
    dishes.append("soup")
    return f"{dishes} {others}"


def restarts() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    return (yield from Restart(names, len(name)))


def yields_anything() -> Flow[str]:
    yield "anything"  # type: ignore[misc]  # as it should not
    return "."


def trace_of(
    handler: Callable[..., Any],
    answers: Mapping[str, Answer] | None = None,
    **options: Any,
) -> EffectTrace:
    transcript = had(handler, partner=Obliging(answers or {}))
    return trace_effects(subject_of(handler), transcript, **options)


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def test_effects_with_their_outcomes() -> None:
    trace = trace_of(dines, {"elicit-1": Declined()})
    assert trace.error is None
    assert [(one.path, one.round, one.key) for one in trace.effects] == [
        ("", 2, "confirm-1"),
        ("", 3, "elicit-1"),
        ("", 3, None),
        ("gather-1/2/", 4, None),
        ("gather-1/0/", 5, "gather-1/0/elicit-1"),
        ("gather-1/1/", 5, "gather-1/1/confirm-1"),
        ("", 5, None),
        ("gather-2/0/", 6, "gather-2/0/elicit-1"),
        ("gather-2/0/", 7, "gather-2/0/elicit-2"),
        ("", 7, None),
    ]
    first, second, pause, *_ = trace.effects
    assert (first.value, first.question) == (Accepted(True), Confirm("Hungry?"))
    assert isinstance(second.error, Declined)
    assert second.question == Elicit("What?", str)
    assert pause.question is None
    assert trace.effects[3].where == line(dines, 7)
    assert trace.effects[4].where == line(names, 2)


def test_two_conversations_compare_by_their_traces() -> None:
    assert trace_of(dines).in_words == trace_of(dines).in_words
    assert (
        trace_of(dines).in_words == trace_of(dines, {"elicit-1": Declined()}).in_words
    )
    assert (
        trace_of(dines).in_words != trace_of(dines, {"confirm-1": Declined()}).in_words
    )


def test_effects_are_seen_before_their_outcomes() -> None:
    seen: list[Effect[Any]] = []
    trace = trace_of(dines, deliver=seen.append)
    assert seen == [one.effect for one in trace.effects]


def test_answers_that_are_changed() -> None:
    assert changed_answers(trace_of(sorts).effects) == {line(sorts, 1)}
    assert changed_answers(trace_of(dines).effects) == set()


def test_a_handler_that_restarts_is_observed_until_then() -> None:
    trace = trace_of(restarts)
    assert [one.key for one in trace.effects] == ["elicit-1"]
    assert trace.transcript.ending.how == "returned"


def test_what_is_not_an_effect_is_observed_too() -> None:
    seen: list[Effect[Any]] = []
    (one,) = trace_of(yields_anything, deliver=seen.append).effects
    assert isinstance(one.error, UsageError)
    assert (one.what, one.question, seen) == ("'anything'", None, [])


def test_a_conversation_that_breaks_off() -> None:
    transcript = had(dines)
    short = attrs.evolve(transcript, rounds=transcript.rounds[:1])
    trace = trace_effects(subject_of(dines), short)
    assert isinstance(trace.error, Unscripted)
    assert [one.key for one in trace.effects] == ["confirm-1"]
    assert trace.transcript.ending.how == "broke off"
