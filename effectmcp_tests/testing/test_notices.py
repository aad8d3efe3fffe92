"""Remarks on what may be intended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from effectmcp import Elicit, Flow, Unsupported, step
from effectmcp.testing.notices import notices_of

from .test_conversations import Obliging
from .test_effect_traces import sorts
from .test_oracles import case_of


@step
def pay(cents: int) -> str:
    raise OSError("no test should get here")


class Poor(Obliging):
    """A client that cannot be asked."""

    lacks = frozenset({"Elicit"})


def pays_first() -> Flow[str]:
    receipt = yield from pay(3)
    name = yield from Elicit("Who?", str)
    return f"{name} {receipt} {yield from pay(4)}"


def pays_what_it_cannot_ask() -> Flow[str]:
    yield from pay(3)
    try:
        return (yield from Elicit("Who?", str))
    except Unsupported:
        yield from pay(4)
        raise


def turns_away() -> Flow[str]:
    yield from pay(3)
    raise Unsupported("Elicit")


def line(function: Callable[..., Any], offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


def noticed(handler: Callable[..., Any], partner: Any = None) -> list[str]:
    return list(notices_of(case_of(handler, partner or Obliging())))


def test_answers_that_are_changed() -> None:
    case = case_of(sorts, Obliging())
    (notice,) = notices_of(case)
    assert notice.startswith(f"sorts: the answer at {line(sorts, 1)} is changed later.")
    *before, last = case.transcript.rounds
    over = (*before, attrs.evolve(last, journal=None))
    case = attrs.evolve(case, transcript=attrs.evolve(case.transcript, rounds=over))
    assert list(notices_of(case)) == [], "it cannot be had again"


def test_what_is_performed_before_the_first_question() -> None:
    (notice,) = noticed(pays_first)
    assert notice.startswith(
        f"pays_first: pay, at {line(pays_first, 1)}, is performed before the first"
    )


def test_what_is_performed_for_clients_that_cannot_be_asked() -> None:
    """The notice is not about effects performed because clients cannot be asked."""
    (notice,) = noticed(pays_what_it_cannot_ask, Poor())
    assert notice.startswith(
        f"pays_what_it_cannot_ask: pay, at {line(pays_what_it_cannot_ask, 1)}, is"
        " performed for clients that cannot be asked the question after it."
    )


def test_a_handler_that_turns_clients_away_by_itself() -> None:
    assert noticed(turns_away) == []
