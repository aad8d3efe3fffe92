from __future__ import annotations

from typing import Any

import pytest
from hypothesis import find, given, settings

from effectmcp import Confirm, Elicit, Flow, Server, step
from effectmcp.testing import Transcript, conversation, verdict_of
from effectmcp.testing.verdicts import ORDER, Verdict


@step
def pay(amount: int) -> str:
    raise AssertionError("no test performs it")


@step
def pack() -> str:
    raise AssertionError("no test performs it")


def buy(title: str) -> Flow[str]:
    name = yield from Elicit("Who?", str)
    receipt = yield from pay(3)
    yield from Confirm(f"{title} for {name}?")
    return f"{receipt} for {name}"


def app_of(function: Any) -> Server:
    app = Server("shop")
    app.tool(name="buy")(function)
    return app


BOUGHT = find(
    conversation(buy),
    lambda one: one.ending.how == "returned" and len(one.rounds) == 3,
    settings=settings(derandomize=True, database=None),
)


def verdict(function: Any, transcript: Transcript = BOUGHT) -> Verdict:
    return verdict_of(app_of(function), transcript)


def test_the_same_handler_replays() -> None:
    assert verdict(buy) == Verdict("replays", 1)
    assert str(verdict(buy)) == "replays"


@given(conversation(buy))
def test_every_conversation_replays_on_its_own_handler(transcript: Transcript) -> None:
    assert verdict(buy, transcript).word == "replays"


def test_another_end_differs() -> None:
    def edited(title: str) -> Flow[str]:
        return (yield from buy(title)).upper() + "!"

    found = verdict(edited)
    assert (found.word, found.place) == ("differs", 3)
    assert "where it returns" in found.why


def test_one_question_more_at_the_end_differs() -> None:
    def edited(title: str) -> Flow[str]:
        bought = yield from buy(title)
        yield from Confirm("Really?")
        return bought

    assert "asks Confirm(message='Really?')" in verdict(edited).why


def test_a_step_before_what_is_out_differs() -> None:
    def edited(title: str) -> Flow[str]:
        name = yield from Elicit("Who?", str)
        receipt = yield from pay(3)
        yield from pack()
        yield from Confirm(f"{title} for {name}?")
        return f"{receipt} for {name}"

    found = verdict(edited)
    assert (found.word, found.place) == ("differs", 2)
    assert found.why == "it performs pack()"
    assert found.where is not None


def test_a_reworded_question_is_salvaged_while_nothing_was_performed() -> None:
    def edited(title: str) -> Flow[str]:
        name = yield from Elicit("Whom?", str)
        yield from Confirm(f"{title} for {name}?")
        return name

    declined = find(
        conversation(buy),
        lambda one: "form=str) → declined" in str(one),
        settings=settings(derandomize=True, database=None),
    )
    assert verdict(edited, declined).word == "differs"


def test_answers_that_are_dropped_are_salvage() -> None:
    def asks(title: str) -> Flow[str]:
        name = yield from Elicit("Who?", str)
        yield from Confirm(f"{title} for {name}?")
        return name

    def edited(title: str) -> Flow[str]:
        yield from Confirm("Ready?")
        return (yield from asks(title))

    two = find(
        conversation(asks),
        lambda one: len(one.rounds) == 3,
        settings=settings(derandomize=True, database=None),
    )
    found = verdict_of(app_of_named(edited, "asks"), two)
    assert (found.word, found.place) == ("salvages", 2)


def app_of_named(function: Any, name: str) -> Server:
    app = Server("shop")
    app.tool(name=name)(function)
    return app


def test_a_step_that_would_be_forgotten_stops() -> None:
    def edited(title: str) -> Flow[str]:
        yield from Confirm("Ready?")
        return (yield from buy(title))

    found = verdict(edited)
    assert (found.word, found.place) == ("stops", 2)
    assert f"stops after round 2 at {__file__}" in str(found)


@pytest.mark.parametrize("others", [{}, {"sell": buy}])
def test_a_removed_tool_stops(others: Any) -> None:
    app = Server("shop")
    for name, function in others.items():
        app.tool(name=name)(function)
    found = verdict_of(app, BOUGHT)
    assert (found.word, found.place) == ("stops", 0)
    assert "there is no tools/call buy any more" in str(found)


def test_arguments_that_do_not_fit_any_more_stop() -> None:
    def edited(title: int) -> Flow[str]:
        return (yield from buy(str(title)))

    found = verdict(edited)
    assert found.word == "stops"
    assert "title" in found.why


def test_verdicts_are_ordered_from_best_to_worst() -> None:
    assert ORDER == ("replays", "differs", "salvages", "stops")
