"""Answers that make no difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from effectmcp import (
    Accepted,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    Refused,
    step,
)
from effectmcp.engine import Answer
from effectmcp.testing import Transcript
from effectmcp.testing.effect_traces import trace_effects
from effectmcp.testing.refusals import (
    Differences,
    NoDifference,
    branches_of,
    swallows_of,
)
from effectmcp.testing.subjects import subject_of

from .test_conversations import Obliging, had


@step
def send(text: str) -> str:
    raise OSError("no test should get here")


@step
def write(text: str) -> str:
    raise OSError("no test should get here")


def ask() -> Flow[str]:
    return (yield from Elicit("Who?", str))


_made: dict[str, Any] = {"Flow": Flow, "Elicit": Elicit}
exec(
    "def hidden() -> Flow[str]:\n    return (yield from Elicit('Who?', str))",
    _made,
)
hidden = _made["hidden"]


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


# ---- what the source shows ----------------------------------------------------------


def catches_around_flows() -> Flow[str]:
    try:
        yield from Gather(ask(), Elicit("Where?", str))
        yield from ask()
        yield from hidden()
        yield from Confirm("Sure?")
    except (KeyError, Declined):
        """As you like."""
    return "."


def catches_all() -> Flow[str]:
    for _ in range(2):
        try:
            return (yield from ask())
        except:  # noqa: E722
            continue
    return "."


def catches_others() -> Flow[str]:
    try:
        return (yield from ask())
    except (KeyError, Dismissed):
        return "."


def test_the_questions_in_a_try() -> None:
    found = swallows_of(catches_around_flows)
    assert list(found) == [line(ask, 1), line(catches_around_flows, 5)]
    for one in found.values():
        assert one.where == line(catches_around_flows, 6)
        assert (one.is_blanket, one.is_empty) == (False, True)
    assert found[line(catches_around_flows, 5)].is_unused
    (one,) = swallows_of(catches_all).values()
    assert (one.is_blanket, one.is_empty, one.is_unused) == (True, True, False)
    assert swallows_of(catches_others) == {}


def decides(wrap: bool = False) -> Flow[str]:
    yield from ask()
    sure = yield from Confirm("Sure?")
    if not sure:
        if wrap:
            return "wrapped"
        pass
    return "."


def decides_in_a_line() -> Flow[str]:
    return "yes" if (yield from Confirm("Sure?")) else "no"


def test_the_statements_that_an_answer_decides_about() -> None:
    found = branches_of(decides, line(decides, 2))
    assert found == {
        (__file__, number, number)
        for number in (
            decides.__code__.co_firstlineno + 4,
            decides.__code__.co_firstlineno + 5,
        )
    }
    assert branches_of(decides_in_a_line, line(decides_in_a_line, 1)) is None
    assert branches_of(decides, line(decides, 1)) is None
    assert branches_of(thrown_away, line(thrown_away, 2)) is None


# ---- a yes and a no -----------------------------------------------------------------


def thrown_away() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    yield from Confirm(f"{name}?", otherwise=False)
    return "."


def looked_at() -> Flow[str]:
    return "yes" if (yield from Confirm("Sure?")) else "no"


Answers = Mapping[str, Answer | None]

YES: Answers = {}
NO: Answers = {"confirm-1": Declined()}
NEITHER: Answers = {"confirm-1": Dismissed()}


def look(
    differences: Differences,
    handler: Callable[..., Any],
    *conversations: Answers | Transcript,
) -> list[NoDifference]:
    subject = subject_of(handler)
    found: list[NoDifference] = []
    for one in conversations:
        made = one if isinstance(one, Transcript) else None
        transcript = made or had(handler, partner=Obliging(one))  # type: ignore[arg-type]
        found += differences.look(subject, trace_effects(subject, transcript))
    return found


def test_a_yes_and_a_no_that_lead_to_the_same() -> None:
    differences = Differences(thrown_away)
    look(differences, thrown_away, NEITHER, NEITHER, YES, NO)
    long = {"elicit-1": Accepted({"value": "Ann"})}
    look(differences, thrown_away, long, NEITHER)
    assert list(differences.without()) == [], "three conversations are too few"
    look(differences, thrown_away, YES)
    (same,) = differences.without()
    assert (same.question, same.count) == (
        "Confirm(message='a?', otherwise=False)",
        4,
    )
    assert same.where == line(thrown_away, 2)
    assert "Ann" not in str(same.transcript)


def test_the_shortest_conversation_is_kept() -> None:
    differences = Differences(thrown_away)
    long = {"elicit-1": Accepted({"value": "Ann"})}
    look(differences, thrown_away, long, YES, YES, long)
    (same,) = differences.without()
    assert "Ann" not in str(same.transcript)


def test_a_yes_and_a_no_that_differ() -> None:
    differences = Differences(looked_at)
    assert look(differences, looked_at, YES, NO, YES, NO, YES) == []
    assert list(differences.without()) == []


def test_what_broke_off_is_not_compared() -> None:
    transcript = had(thrown_away)
    short = attrs.evolve(transcript, rounds=transcript.rounds[:1])
    differences = Differences(thrown_away)
    look(differences, thrown_away, *[short] * 4)
    assert list(differences.without()) == []


# ---- refusals -----------------------------------------------------------------------


def swallows_everything() -> Flow[str]:
    name = "nobody"
    try:
        name = yield from Elicit("Who?", str)
    except Exception:
        pass
    return (yield from send(name))


def sends_to_nobody() -> Flow[str]:
    try:
        name = yield from Elicit("Who?", str)
        return (yield from send(name))
    except Exception:
        pass
    return (yield from write("nobody"))


def does_not_use_it() -> Flow[str]:
    try:
        yield from Elicit("Who?", str)
    except Refused:
        pass
    return (yield from send("all"))


def does_not_wait_for_a_yes() -> Flow[str]:
    sure: bool | None = None
    try:
        sure = yield from Confirm("Sure?")
    except Refused:
        pass
    return (yield from send("all")) if sure is not False else ""


def reads_a_page() -> Flow[str]:
    try:
        yield from ElicitUrl("Read this.", "https://a.example")
    except Refused:
        pass
    return (yield from send("all"))


def notes_nothing() -> Flow[str]:
    """An optional question has an answer to use instead."""
    note = ""
    try:
        note = yield from Elicit("Note?", str)
    except Refused:
        pass
    return (yield from send(note))


def lets_it_pass() -> Flow[str]:
    try:
        yield from Elicit("Who?", str)
        return "."
    finally:
        yield from send("all")


@pytest.mark.parametrize(
    ("handler", "key", "offset"),
    [
        (swallows_everything, "elicit-1", 4),
        (does_not_use_it, "elicit-1", 3),
        (does_not_wait_for_a_yes, "confirm-1", 4),
    ],
)
def test_a_refusal_that_makes_no_difference(
    handler: Any, key: str, offset: int
) -> None:
    (same,) = look(Differences(handler), handler, {}, {key: Dismissed()})
    assert same.swallow is not None
    assert same.swallow.where == line(handler, offset)
    assert same.where == line(handler, offset - 1)


@pytest.mark.parametrize(
    ("handler", "key"),
    [
        (sends_to_nobody, "elicit-1"),
        (reads_a_page, "url-1"),
        (notes_nothing, "elicit-1"),
        (lets_it_pass, "elicit-1"),
    ],
)
def test_a_refusal_that_may_be_meant(handler: Any, key: str) -> None:
    differences = Differences(handler)
    refused = {key: Declined()}
    assert look(differences, handler, {}, refused, refused, {}) == []
    assert list(differences.without()) == []


def test_a_question_that_was_never_accepted_shows_nothing() -> None:
    refused = {"elicit-1": Declined()}
    differences = Differences(does_not_use_it)
    assert look(differences, does_not_use_it, refused, refused) == []
    (same,) = look(differences, does_not_use_it, {}, refused)
    assert same.count == 1
    assert list(differences.without()) == [], "it is told at once"


def test_an_answer_that_did_not_fit_is_not_compared() -> None:
    answers: Answers = {"elicit-1": Accepted("nonsense"), "elicit-1~2": Declined()}
    differences = Differences(does_not_use_it)
    assert look(differences, does_not_use_it, {}, answers) == []
