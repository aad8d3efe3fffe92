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
from effectmcp.testing.overheard import Overheard, changed_answers, overhear
from effectmcp.testing.subjects import subject_of
from effectmcp.testing.talks import Unscripted

from .test_talks import Obliging, had


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


def heard_of(
    handler: Callable[..., Any],
    answers: Mapping[str, Answer] | None = None,
    **options: Any,
) -> Overheard:
    transcript = had(handler, partner=Obliging(answers or {}))
    return overhear(subject_of(handler), transcript, **options)


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def test_effects_with_their_outcomes() -> None:
    overheard = heard_of(dines, {"elicit-1": Declined()})
    assert overheard.error is None
    assert [(one.path, one.round, one.key) for one in overheard.heard] == [
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
    first, second, pause, *_ = overheard.heard
    assert (first.value, first.question) == (Accepted(True), Confirm("Hungry?"))
    assert isinstance(second.error, Declined)
    assert second.question == Elicit("What?", str)
    assert pause.question is None
    assert overheard.heard[3].where == line(dines, 7)
    assert overheard.heard[4].where == line(names, 2)


def test_two_conversations_compare_by_their_traces() -> None:
    assert heard_of(dines).trace == heard_of(dines).trace
    assert heard_of(dines).trace == heard_of(dines, {"elicit-1": Declined()}).trace
    assert heard_of(dines).trace != heard_of(dines, {"confirm-1": Declined()}).trace


def test_effects_are_seen_before_their_outcomes() -> None:
    seen: list[Effect[Any]] = []
    overheard = heard_of(dines, deliver=seen.append)
    assert seen == [one.effect for one in overheard.heard]


def test_answers_that_are_changed() -> None:
    assert changed_answers(heard_of(sorts).heard) == {line(sorts, 1)}
    assert changed_answers(heard_of(dines).heard) == set()


def test_a_handler_that_restarts_is_observed_until_then() -> None:
    overheard = heard_of(restarts)
    assert [one.key for one in overheard.heard] == ["elicit-1"]
    assert overheard.transcript.ending.how == "returned"


def test_what_is_not_an_effect_is_observed_too() -> None:
    seen: list[Effect[Any]] = []
    (one,) = heard_of(yields_anything, deliver=seen.append).heard
    assert isinstance(one.error, UsageError)
    assert (one.what, one.question, seen) == ("'anything'", None, [])


def test_a_conversation_that_breaks_off() -> None:
    transcript = had(dines)
    short = attrs.evolve(transcript, rounds=transcript.rounds[:1])
    overheard = overhear(subject_of(dines), short)
    assert isinstance(overheard.error, Unscripted)
    assert [one.key for one in overheard.heard] == ["confirm-1"]
    assert overheard.transcript.ending.how == "broke off"
