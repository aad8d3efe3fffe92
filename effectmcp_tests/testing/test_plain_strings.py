"""Conversations whose strings are made plain."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from effectmcp import Accepted, Declined
from effectmcp.engine import Question
from effectmcp.testing import Transcript
from effectmcp.testing.chance import FLOW_ID
from effectmcp.testing.conversations import Unscripted
from effectmcp.testing.plain_strings import PatientPartner, simpler
from effectmcp.testing.transcripts import AskedQuestion, Ending, Performed, Round

ODD = "Zoë"
LONG = "a" * 9


def told(
    arguments: Any, performed: Any = "a", answer: Any = None, early: str = "a"
) -> Transcript:
    return Transcript(
        method="tools/call",
        target="order",
        arguments=arguments,
        flow_id=FLOW_ID,
        lacks=frozenset(),
        early=(AskedQuestion("early", "Early?", None, Accepted({"value": early})),),
        rounds=(
            Round(
                performed=(
                    Performed("0:step-1", "pay()", None, "done", performed),
                    Performed("0:step-2", "pay()", None, "failed", {"builtin": ODD}),
                ),
                asked=(
                    AskedQuestion("who", "Who?", None, Accepted({"value": answer})),
                    AskedQuestion("sure", "Sure?", None, Declined()),
                ),
                journal=None,
            ),
        ),
        ending=Ending("returned", None),
    )


def values_of(transcript: Transcript) -> tuple[Any, Any, Any]:
    (one,) = transcript.rounds
    answer: Any = one.asked[0].answer
    return transcript.arguments, one.performed[0].payload, answer.value["value"]


def test_what_is_plain_stays() -> None:
    assert list(simpler(told({"title": "Dune"}, ["soup", 3], True))) == []


def test_one_odd_string_is_made_plain() -> None:
    made = list(simpler(told({"title": ODD, "count": 3}, ["soup", LONG[1:]])))
    assert [values_of(one) for one in made] == [
        ({"title": "", "count": 3}, ["soup", LONG[1:]], None),
        ({"title": "a", "count": 3}, ["soup", LONG[1:]], None),
    ]


def test_several_are_made_plain_together_and_then_alone() -> None:
    made = list(simpler(told({"title": ODD}, [LONG], "tab\t")))
    assert [values_of(one) for one in made] == [
        ({"title": ""}, [""], ""),
        ({"title": "a"}, ["a"], "a"),
        ({"title": ""}, [LONG], "tab\t"),
        ({"title": "a"}, [LONG], "tab\t"),
        ({"title": ODD}, [""], "tab\t"),
        ({"title": ODD}, ["a"], "tab\t"),
        ({"title": ODD}, [LONG], ""),
        ({"title": ODD}, [LONG], "a"),
    ]


def test_what_failed_and_what_was_refused_stay() -> None:
    for one in simpler(told({"title": ODD})):
        (only,) = one.rounds
        assert only.performed[1].payload == {"builtin": ODD}
        assert only.asked[1].answer == Declined()


def test_answers_that_came_early_are_made_plain_with_the_others() -> None:
    for arguments in ({"title": ODD}, {}):
        first, *_ = simpler(told(arguments, early=ODD))
        assert first.early[0].answer == Accepted({"value": ""})


def test_a_partner_who_answers_again() -> None:
    partner = PatientPartner(told({}, answer="Ann"))
    question: Any = attrs.make_class("_Question", ["key", "effect", "where"])
    who: Question = question("who", "Who?", None)
    assert partner.answer(who) == Accepted({"value": "Ann"})
    assert partner.answer(who) == Accepted({"value": "Ann"})
    with pytest.raises(Unscripted):
        partner.answer(question("when", "When?", None))
