"""Properties of every handler, over random programs (see `programs`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from effectmcp import DivergenceError
from effectmcp.engine import (
    SCRIPT,
    Answer,
    Asked,
    Entry,
    Journal,
    Perform,
    Raised,
    Returned,
    Run,
    Stop,
)

from ..helpers import (
    FLOW_ID,
    UNCAPPED,
    advance,
    answers_to,
    by_retry,
    by_script,
    by_store,
    live,
    perform,
)
from .programs import (
    Program,
    Reluctant,
    Stmt,
    answer_of,
    edited,
    handler_of,
    newest,
    performed,
    programs,
)

LONG = settings(max_examples=20_000, deadline=None)


def outcome_of(stop: Stop) -> Any:
    """Return the end of a run and its branches' shared state, for comparison."""
    (state,) = newest
    assert state.opened == state.closed, "a block was left open"
    match stop:
        case Returned(value):
            return "returned", value, tuple(state.events)
        case Raised(error):
            return "raised", type(error), str(error), tuple(state.events)
        case other:
            raise AssertionError(other)


def journals_of(program: Program) -> tuple[list[Journal], Any]:
    """The journal at every stop of one uninterrupted run, and how it ended."""
    run = Run(handler_of(program), flow_id=FLOW_ID, rules=SCRIPT)
    journals = [run.journal]
    stop = run.start()
    while isinstance(stop, Asked | Perform):
        journals.append(run.journal)
        if isinstance(stop, Perform):
            stop = run.performed({want.key: perform(want) for want in stop.wants})
        else:
            stop = run.answered(answers_to(stop, answer_of))
    journals.append(run.journal)
    return journals, outcome_of(stop)


def has_checkpoint(program: Program) -> bool:
    return any(
        stmt.kind == "checkpoint" or any(map(has_checkpoint, stmt.blocks))
        for stmt in program
    )


def check_ways(program: Program, seed: int) -> None:
    handler = handler_of(program)
    performed.clear()
    expected = outcome_of(by_script(handler, answer=answer_of))
    counts = dict(performed)
    event(f"{expected[0]}, {len(expected[-1])} events")
    for way in (live, by_retry, by_store):
        for answer in (answer_of, Reluctant(seed)):
            if way is by_store and (answer is not answer_of or has_checkpoint(program)):
                # In a task what arrives first is delivered first (B3a 7).
                continue
            performed.clear()
            assert outcome_of(way(handler, answer=answer)) == expected, way
            assert dict(performed) == counts, way


def check_prefixes(program: Program) -> None:
    journals, expected = journals_of(program)
    for journal in journals:
        again = by_retry(
            handler_of(program), answer=answer_of, rules=SCRIPT, journal=journal
        )
        assert outcome_of(again) == expected
    # The finished journal says everything: nothing is performed, nothing asked.
    run = Run(handler_of(program), flow_id=FLOW_ID, journal=journals[-1], rules=SCRIPT)
    assert outcome_of(run.start()) == expected
    assert run.journal == journals[-1]


def rounds_of(program: Program) -> int:
    """Return the number of rounds in which `program` asks."""
    journals, _ = journals_of(program)
    return journals[-1].rounds


def check_edit(before: Program, after: Program, rounds: int) -> None:
    """Rounds of `before`, then a deploy of `after` in the middle of the flow."""
    performed.clear()
    journal = Journal()
    answers: dict[str, Answer] = {}
    salvaged = False
    stop: Stop | None = None
    for number in range(200):
        assert number < 199, "it never ends"
        handler = handler_of(before if number < rounds else after)
        run = Run(handler, flow_id=FLOW_ID, journal=journal, rules=UNCAPPED)
        try:
            stop = advance(run, run.start(answers))
        except DivergenceError as exc:
            stop = None
            event(exc.verdict)
        salvaged = salvaged or bool(run.salvaged)
        if not isinstance(stop, Asked):
            break
        journal = Journal.loads(run.suspend().dumps())
        answers = answers_to(stop, answer_of)
    if stop is None:
        assert any_performed(journal.entries)
    else:
        event("salvaged" if salvaged else "went on")
        # The handlers assert that every answer is the answer to their question.
        failed = stop.error if isinstance(stop, Raised) else None
        assert not isinstance(failed, AssertionError), failed
    (state,) = newest
    assert state.opened == state.closed
    assert all(count == 1 for count in performed.values()), performed


def any_performed(entries: tuple[Entry, ...]) -> bool:
    return any(
        entry.tag in ("done", "failed") or any(map(any_performed, entry.branches))
        for entry in entries
    )


S = Stmt


@example(
    # Found by a prototype: branches that run freely see each other in another order.
    program=(
        S("gather", "a", ((S("ask", "a"),), (S("now"), S("step", "b"), S("ask", "c")))),
    ),
    seed=0,
)
@example(
    program=(
        S(
            "gather",
            "a",
            ((S("ask", "a"),), (S("gather", "b", ((S("checkpoint"),),)),)),
        ),
    ),
    seed=0,
)
@given(programs, st.integers(0, 3))
def test_every_way_of_answering_gives_the_same(program: Program, seed: int) -> None:
    """By retry ≡ live ≡ by store ≡ in process, with the same steps performed once."""
    check_ways(program, seed)


@pytest.mark.long
@LONG
@given(programs, st.integers(0, 3))
def test_every_way_of_answering_gives_the_same_long(
    program: Program, seed: int
) -> None:
    check_ways(program, seed)


@given(programs)
def test_a_cold_replay_at_every_prefix_gives_the_same(program: Program) -> None:
    check_prefixes(program)


@pytest.mark.long
@LONG
@given(programs)
def test_a_cold_replay_at_every_prefix_gives_the_same_long(program: Program) -> None:
    check_prefixes(program)


@st.composite
def deployments(draw: st.DrawFn) -> tuple[Program, Program, int]:
    """Draw a program, an edit of it, and the number of the round that deploys it."""
    before = (S("ask", "first"), *draw(programs), S("ask", "last"))
    rounds = rounds_of(before)
    assume(rounds > 0)
    after = draw(edited(before))
    if draw(st.booleans()):
        after = draw(edited(after))
    assume(after != before)
    return before, after, draw(st.integers(1, rounds))


@example(
    (
        (
            S(
                "gather",
                "a",
                ((S("ask", "a"),), (S("now"), S("step", "b"), S("ask", "c"))),
            ),
        ),
        (
            S(
                "gather",
                "a",
                (
                    (S("step", "z"), S("ask", "a")),
                    (S("now"), S("step", "b"), S("ask", "c")),
                ),
            ),
        ),
        1,
    )
)
@example(
    # What a branch left over is noticed when it is joined, before its step is repeated.
    (
        (
            S(
                "gather",
                "",
                ((S("ask", "a"), S("step", "x")), (S("ask"), S("ask", "c"))),
            ),
            S("ask", "last"),
        ),
        (
            S("gather", "", ((S("ask", "a"),), (S("ask"), S("ask", "c")))),
            S("step", "x"),
            S("ask", "last"),
        ),
        3,
    )
)
@example(((S("ask", "a"), S("ask", "b")), (S("ask", "c"), S("ask", "b")), 1))
@example(((S("ask", "a"), S("ask", "b")), (S("ask", "c"), S("ask", "b")), 2))
@example(
    (
        (S("gather"), S("gather", "b", ((S("step", "a"), S("ask", "a")),))),
        (S("gather", "b", ((S("step", "a"), S("ask", "a")),)),),
        1,
    )
)
@given(deployments())
def test_salvage_never_feeds_a_wrong_answer_nor_repeats_a_step(
    deployment: tuple[Program, Program, int],
) -> None:
    """After any edit: the right answers, each step once, or a hard stop."""
    check_edit(*deployment)


@pytest.mark.long
@LONG
@given(deployments())
def test_salvage_never_feeds_a_wrong_answer_nor_repeats_a_step_long(
    deployment: tuple[Program, Program, int],
) -> None:
    check_edit(*deployment)
