"""A task whose turns are lost ends as if no turn had been lost.

Programs, answers and times are drawn. No two things happen at one moment, so the rules
leave one result: the result, the answers used, the events in their order and the steps
performed must be the same as in the run without cuts. `Host` checks meanwhile that no save
comes too late.
"""

from __future__ import annotations

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from ..engine.waiting.programs import Body, show
from .worlds import (
    KINDS,
    ONCE,
    Hosted,
    World,
    cuts,
    drawn_bodies,
    played,
    race_of,
    seeds,
)

pytestmark = pytest.mark.usefixtures("quiet")

# ---- properties ---------------------------------------------------------------------


def lost(one: Hosted) -> int:
    """Return how many performances were for nothing."""
    return sum(one.tries.values()) - len(one.tries)


def compared(body: Body, world: World, cuts: frozenset[int]) -> None:
    """Play a program with cuts and without, and compare.

    What the rules make of lost steps of races, and of steps that may not be repeated, the
    run without cuts has from its world: see `Hosted.explained`.
    """
    note(show(body))
    found, one = played(body, world, cuts)
    note(" ".join(one.host.story))
    event(f"{min(5, one.host.story.count('CUT'))} cuts")
    event(f"{min(3, lost(one))} performances again")
    is_ended_early = world.cancel is not None or world.ttl is not None
    if is_ended_early and any(race_of(key) for key, _ in one.host.lost):
        # A cancel waits for what has started (L4), and the clocks of its race run on.
        event("a race was lost")
        return
    expected, whole = played(body, one.explained())
    note(" ".join(whole.host.story))
    assert set(whole.tries.values()) <= {1}  # nothing was lost, so nothing is repeated
    assert found == expected


@given(drawn_bodies(KINDS), seeds, cuts)
def test_cuts_change_nothing(body: Body, seed: int, cuts: frozenset[int]) -> None:
    compared(body, World(seed), cuts)


@given(drawn_bodies(ONCE), seeds, cuts)
def test_at_most_once_never_starts_twice(
    body: Body, seed: int, cuts: frozenset[int]
) -> None:
    """`Host` checks that; here, a lost one is reported, and only a lost one."""
    compared(body, World(seed), cuts)


@given(drawn_bodies(KINDS), seeds, cuts, st.integers(0, 30), st.booleans())
def test_cut_tasks_end_when_they_are_cancelled(
    body: Body, seed: int, cuts: frozenset[int], at: int, expires: bool
) -> None:
    """The cleanup, too, is the one of a task that was not cut."""
    seconds = at + 0.123456789
    if expires:
        world = World(seed, ttl=seconds)
    else:
        world = World(seed, cancel=seconds)
    compared(body, world, cuts)
