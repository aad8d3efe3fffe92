"""Sealing every round changes nothing, over random programs (see `engine/programs`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from effectmcp import DivergenceError
from effectmcp.engine import (
    Answer,
    Asked,
    Journal,
    Perform,
    Raised,
    Returned,
    Run,
    Stop,
)
from effectmcp.exchange.rounds import Round, begin, resume
from effectmcp.state import BoundCall, Keys, Sealer, make_key

from ..engine.programs import (
    Program,
    Reluctant,
    answer_of,
    handler_of,
    performed,
    programs,
)
from ..engine.test_replay_properties import deployments, outcome_of
from ..helpers import (
    FLOW_ID,
    UNCAPPED,
    Answerer,
    advance,
    answers_to,
    by_script,
    perform,
)

LONG = settings(max_examples=5_000, deadline=None)

NOW = 1_800_000_000
OLD, NEW = (make_key(bytes([n]) * 32) for n in (1, 2))
SEALER = Sealer(keys=Keys(OLD), audience="programs", refuse_at=10**7, warn_at=10**7)
#: Two replicas in the middle of a rotation, which take turns.
RINGS = (Keys(NEW, OLD), Keys(OLD, NEW))


def call(number: int) -> BoundCall:
    """The client's arguments of round `number`: the same, in another order."""
    items = [("a", 1), ("b", {"c": [None]})]
    arguments = dict(items if number % 2 else reversed(items))
    return BoundCall(
        method="tools/call", target="t", arguments=arguments, principal="ann"
    )


def by_token(
    deployed: Callable[[int], Callable[..., Any]], answer: Answerer = answer_of
) -> Returned | Raised:
    """Each round in a process of its own, to which nothing comes but the token."""
    sealers = [attrs.evolve(SEALER, keys=keys) for keys in RINGS]
    round_ = begin(
        deployed(0),
        call=call(0),
        sealer=sealers[0],
        flow_id=FLOW_ID,
        now=NOW,
        rules=UNCAPPED,
    )
    for number in range(1, 1_000):
        stop = played(round_)
        if not isinstance(stop, Asked):
            assert not isinstance(stop, Perform)
            return stop
        round_ = resume(
            deployed(number),
            token=round_.token(now=NOW + number),
            call=call(number),
            sealer=sealers[number % 2],
            now=NOW + number,
            answers=answers_to(stop, answer),
            rules=UNCAPPED,
        )
    raise AssertionError("a thousand rounds, and no end")


def played(round_: Round) -> Stop:
    while isinstance(round_.stop, Perform):
        round_.performed({want.key: perform(want) for want in round_.stop.wants})
    return round_.stop


def check_tokens(program: Program, seed: int) -> None:
    handler = handler_of(program)
    performed.clear()
    expected = outcome_of(by_script(handler, answer=answer_of))
    counts = dict(performed)
    for answer in (answer_of, Reluctant(seed)):
        performed.clear()
        assert outcome_of(by_token(lambda number: handler, answer)) == expected
        assert dict(performed) == counts


def check_deployment(before: Program, after: Program, rounds: int) -> None:
    """An edit is deployed between two tokens: pool, tallies and all are in them."""
    old, new = handler_of(before), handler_of(after)

    def deployed(number: int) -> Callable[..., Any]:
        return old if number < rounds else new

    ends = []
    for way in (by_journal, by_token):
        performed.clear()
        try:
            end: Any = outcome_of(way(deployed))
        except DivergenceError as exc:
            end = exc.verdict, str(exc)
        ends.append((end, dict(performed)))
    event("diverged" if ends[0][0][0] == "stop" else "went on")
    assert ends[0] == ends[1]


def by_journal(deployed: Callable[[int], Callable[..., Any]]) -> Returned | Raised:
    """Play the rounds with the plain journal between them."""
    journal, answers = Journal(), dict[str, Answer]()
    for number in range(1_000):
        run = Run(deployed(number), flow_id=FLOW_ID, journal=journal, rules=UNCAPPED)
        stop = advance(run, run.start(answers))
        if not isinstance(stop, Asked):
            return stop
        answers = answers_to(stop, answer_of)
        journal = Journal.loads(run.suspend().dumps())
    raise AssertionError("a thousand rounds, and no end")


@given(programs, st.integers(0, 3))
def test_rounds_through_tokens_give_the_same(program: Program, seed: int) -> None:
    """The outcome, events and performed steps of one run in one process."""
    check_tokens(program, seed)


@pytest.mark.long
@LONG
@given(programs, st.integers(0, 3))
def test_rounds_through_tokens_give_the_same_long(program: Program, seed: int) -> None:
    check_tokens(program, seed)


@given(deployments())
def test_rounds_through_tokens_salvage_the_same(
    deployment: tuple[Program, Program, int],
) -> None:
    """After an edit of the handler: as with the journal itself, also what is refused."""
    check_deployment(*deployment)


@pytest.mark.long
@LONG
@given(deployments())
def test_rounds_through_tokens_salvage_the_same_long(
    deployment: tuple[Program, Program, int],
) -> None:
    check_deployment(*deployment)
