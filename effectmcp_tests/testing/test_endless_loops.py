"""Loops that end only when the user accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    Flow,
    Outcome,
    Refused,
    StepFailed,
    ToolError,
    step,
)
from effectmcp.testing import Transcript
from effectmcp.testing.endless_loops import EndlessLoops
from effectmcp.testing.findings import BareFinding
from effectmcp.testing.subjects import subject_of

from .test_conversations import Obliging, had


class NetworkError(Exception):
    """The line is cut."""


@step(raises=(NetworkError,))
def pay(cents: int) -> str:
    raise OSError("no test should get here")


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def found(handler: Callable[..., Any], transcript: Transcript) -> BareFinding | None:
    return EndlessLoops().found(subject_of(handler), transcript)


# ---- loops without an end -----------------------------------------------------------


def asks_until_accepted() -> Flow[str]:
    while True:
        try:
            return (yield from Elicit("Who?", str))
        except Refused:
            pass


def asks_until_not_dismissed() -> Flow[str]:
    """To decline is an answer."""
    while True:
        match (yield from Outcome(Elicit("Who?", str))):
            case Accepted(name):
                return name
            case Declined():
                return "nobody"
            case _:
                pass


@pytest.mark.parametrize(
    ("handler", "offset", "refusal"),
    [(asks_until_accepted, 3, Declined()), (asks_until_not_dismissed, 3, Dismissed())],
)
def test_a_question_without_an_end(
    handler: Any, offset: int, refusal: Declined | Dismissed
) -> None:
    loop = found(handler, had(handler))
    assert loop is not None
    assert (loop.kind, loop.where) == ("loops", line(handler, offset))
    assert loop.transcript is not None
    assert {one.answer for each in loop.transcript.rounds for one in each.asked} == {
        refusal
    }


def pays_until_it_goes() -> Flow[str]:
    yield from Confirm("Sure?")
    while True:
        try:
            return (yield from pay(3))
        except NetworkError:
            pass


def test_a_step_without_an_end() -> None:
    loop = found(pays_until_it_goes, had(pays_until_it_goes))
    assert loop is not None
    assert (loop.kind, loop.where) == ("loops", line(pays_until_it_goes, 4))
    assert loop.problem == "it performs pay(3) again for as long as that fails"
    assert loop.transcript is not None
    (*_, last) = loop.transcript.rounds
    assert [one.tag for one in last.performed] == ["failed"] * 3


# ---- loops that end -----------------------------------------------------------------


def asks_three_times() -> Flow[str]:
    for _ in range(3):
        try:
            name = yield from Elicit("Who?", str)
            return f"{name} {yield from pay(3)}"
        except (Refused, NetworkError, StepFailed):
            pass
    raise ToolError("nobody")


def asks_more_for_each_refusal() -> Flow[str]:
    """Ask too often, but each time another question."""
    number = 0
    while True:
        number += 1
        try:
            return (yield from Elicit(f"Guest {number}?", str))
        except Refused:
            pass


def pays_when_refused() -> Flow[str]:
    """Pay only after a refusal."""
    try:
        return (yield from Elicit("Who?", str))
    except Refused:
        return (yield from pay(3))


@pytest.mark.parametrize(
    "handler", [asks_three_times, asks_more_for_each_refusal, pays_when_refused]
)
def test_what_ends_is_left_alone(handler: Any) -> None:
    assert found(handler, had(handler)) is None


def test_what_was_answered_badly_is_not_refused() -> None:
    """Failed questions are not refused either; each place is tried only once."""

    def asks_badly() -> Flow[str]:
        for _ in range(2):
            try:
                yield from pay(3)
            except NetworkError:
                pass
        names = []
        for _ in range(2):
            names.append((yield from Elicit("Who?", str)))
        return f"{names}"

    answers = {"elicit-1": Accepted("nonsense")}
    assert found(asks_badly, had(asks_badly, partner=Obliging(answers))) is None


def test_another_fault_is_left_to_others() -> None:
    def steady() -> Flow[str]:
        name = yield from Elicit("Who?", str)
        return f"{name} {yield from pay(3)}"

    def another() -> Flow[str]:
        """A handler with the same name, and with one more question."""
        yield from Elicit("Who?", str)
        yield from Confirm("Sure?")
        return (yield from pay(3))

    assert found(another, had(steady)) is None


def test_a_place_that_always_ends_is_not_tried_again() -> None:
    subject, transcript = subject_of(asks_three_times), had(asks_three_times)
    loops = EndlessLoops()
    calls: list[str] = []

    def counts() -> Flow[str]:
        calls.append("call")
        return (yield from asks_three_times())

    counted = subject.standing_for(counts)
    for _ in range(3):
        assert loops.found(counted, transcript) is None
    before = len(calls)
    assert loops.found(counted, transcript) is None
    assert (before > 0, len(calls)) == (True, before)
