"""A task whose turns are lost ends as if no turn had been lost.

Programs, answers and times are drawn. No two things happen at one moment, so the rules
leave one result: the result, the answers used, the events in their order and the steps
performed must be the same as in the run without cuts. `Host` checks meanwhile that no save
comes too late.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from ..engine.waiting.programs import Body, Together, show, statements
from .simulated import Host
from .worlds import KINDS, World, cuts, drawn_bodies, played, seeds

pytestmark = pytest.mark.usefixtures("quiet")

# ---- properties ---------------------------------------------------------------------


def is_race_lost(body: Body, one: Host) -> bool:
    """Whether a step was lost that raced beside other branches.

    While one of them performs something, the race has no wave, and a journal no place for
    the outcome: the lost step begins again after that, and a clock may be up then
    (docs/internals/replay.md#b3a).
    """
    races = [key for key in one.lost if {"within-", "first-"} & _kinds(key)]
    return bool(races) and any(isinstance(each, Together) for each in statements(body))


def _kinds(key: str) -> set[str]:
    return {part.rstrip("0123456789") for part in key.split("/")}


def lost(one: Host, performed: Counter[tuple[str, int]]) -> int:
    """Return how many performances were for nothing."""
    return sum(performed.values()) - len(performed)


@given(drawn_bodies(KINDS), seeds, cuts)
def test_cuts_change_nothing(body: Body, seed: int, cuts: frozenset[int]) -> None:
    note(show(body))
    world = World(seed)
    expected, whole, once = played(body, world)
    assert set(once.values()) <= {1}  # nothing was lost, so nothing is repeated
    found, one, performed = played(body, world, cuts)
    event(f"{min(5, one.story.count('CUT'))} cuts")
    event(f"{min(3, lost(one, performed))} performances again")
    note(f"{whole.story}\n{one.story}")
    if is_race_lost(body, one):
        event("a race was lost")
        return
    assert found == expected


@given(drawn_bodies(["plain", "once", "once", "flaky"]), seeds, cuts)
def test_at_most_once_never_starts_twice(
    body: Body, seed: int, cuts: frozenset[int]
) -> None:
    """`Host` checks that; here, a lost one is reported, and only a lost one."""
    note(show(body))
    world = World(seed)
    expected, _, _ = played(body, world)
    found, one, _ = played(body, world, cuts)
    note(one.story)
    if one.interrupted or is_race_lost(body, one):
        event("interrupted")
        return
    assert found == expected


@given(drawn_bodies(KINDS), seeds, cuts, st.integers(0, 30), st.booleans())
def test_cut_tasks_end_when_they_are_cancelled(
    body: Body, seed: int, cuts: frozenset[int], at: int, expires: bool
) -> None:
    """The cleanup, too, is the one of a task that was not cut."""
    note(show(body))
    seconds = at + 0.123456789
    if expires:
        world = World(seed, ttl=seconds)
    else:
        world = World(seed, cancel=seconds)
    expected, whole, _ = played(body, world)
    assert whole.row.is_ended
    found, one, _ = played(body, world, cuts)
    note(f"{whole.story}\n{one.story}")
    if is_race_lost(body, one):
        event("a race was lost")
        return
    assert found == expected
