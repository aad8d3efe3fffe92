"""A task whose turns are lost ends as if no turn had been lost.

Programs, answers and times are drawn. No two things happen at one moment, so the rules
leave one result: the result, the questions, the events in their order and the steps that
start must be the same as in the run without cuts. `Host` checks meanwhile that no save
comes too late. In a second property, each saved row is where the task was.
"""

from __future__ import annotations

from math import nextafter
from typing import Any

import pytest
from attrs import frozen
from hypothesis import event, example, given, note, settings
from hypothesis import strategies as st

from effectmcp.engine import TASK, Asked, Journal, Perform, Run
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.protocol.modern import request_of

from ..engine.waiting.programs import (
    Body,
    Do,
    Leaf,
    Limit,
    Memory,
    Nap,
    Program,
    Race,
    Stage,
    Together,
    show,
)
from .simulated import Host
from .worlds import (
    KINDS,
    ONCE,
    SOON,
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


def compared(
    body: Body, world: World, cuts: frozenset[int], uncut: Hosted | None = None
) -> None:
    """Play a program with cuts and without, and compare.

    What the rules make of lost steps of races, and of steps that may not be repeated, the
    run without cuts has from its world: see `Hosted.explained`.

    Args:
        body: The program.
        world: Its world.
        cuts: The commands at which turns are lost.
        uncut: The run without cuts in that world, if it is known.
    """
    one = played(body, world, cuts)
    note(" ".join(one.host.story))
    event(f"{min(5, one.host.story.count('CUT'))} cuts")
    event(f"{min(3, lost(one))} performances again")
    is_ended_early = world.cancel is not None or world.ttl is not None
    if is_ended_early and any(race_of(key) for key, _ in one.host.lost):
        # A cancel waits for what has started (L4), and the clocks of its race run on.
        event("a race was lost")
        return
    if uncut is None or one.explained() != world:
        uncut = played(body, one.explained())
        note(" ".join(uncut.host.story))
    assert set(uncut.tries.values()) <= {1}  # nothing was lost, so nothing is repeated
    if one.host.interrupted and one.story != uncut.story:
        # Something else happened at the very moment of the loss.
        event("two things at one moment")
        others = [played(body, one.explained(shift)) for shift in (0.0, -SOON)]
        assert one.story in [other.story for other in others]
        return
    assert one.story == uncut.story


@example(
    # The step of the race is lost twice. After the second loss, a branch performs steps
    # until the clock is up, so the race is decided before the step begins again (B3a 2).
    body=(
        Together(
            (
                (Nap(2), Do("plain", "s")),
                (Race((Nap(3), Do("plain", "t"))),),
            )
        ),
    ),
    seed=3,
    cuts=frozenset({4, 10}),
)
@given(drawn_bodies(KINDS), seeds, cuts)
def test_cuts_change_nothing(body: Body, seed: int, cuts: frozenset[int]) -> None:
    note(show(body))
    compared(body, World(seed), cuts)


@example(
    # The turn is lost when the time is up: the interruption beats the clock (B3a 5).
    body=(Limit(1, Do("once", "s")),),
    seed=1,
    cuts=frozenset({5}),
)
@given(drawn_bodies(ONCE), seeds, cuts)
def test_at_most_once_never_starts_twice(
    body: Body, seed: int, cuts: frozenset[int]
) -> None:
    """`Host` checks that; here, a lost one is reported, and only a lost one."""
    note(show(body))
    compared(body, World(seed), cuts)


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
    compared(body, world, cuts)


# ---- every saved row ----------------------------------------------------------------


@frozen
class Saved:
    """A saved row, and where the handler was then.

    Attributes:
        row: The row.
        at: The time.
        command: The number of the next command.
        events: What the handler had met.
        waiting: What each of its branches waited for.
    """

    row: TaskRow
    at: float
    command: int
    events: list[Any]
    waiting: dict[tuple[int, ...], Leaf]


def check_rows(body: Body, world: World) -> None:
    """Restart a task from each row that it saved."""
    note(show(body))
    rows: list[Saved] = []

    def saved(host: Host, memory: Memory) -> None:
        events, waiting = list(memory.events), dict(memory.waiting)
        rows.append(Saved(host.row, host.now, host.commands, events, waiting))

    uncut = played(body, world, saved=saved)
    event(f"{min(10, len(rows))} rows")
    for row in rows:
        note(f"the row before command {row.command}")
        check_cold(body, row)
        compared(body, world, frozenset({row.command}), uncut)


def check_cold(body: Body, saved: Saved) -> None:
    """A replay of a row's journal stops where the task was, and changes nothing."""
    row, journal = saved.row, Journal.loads(saved.row.journal)
    parts = [part for leaf in saved.waiting.values() for part in leaf.parts()]
    begun = {place for place, one in journal.places.items() if one.begun}
    if any(
        at in begun and isinstance(one, Do) and one.kind == "once" for at, one in parts
    ):
        return  # a replay elsewhere interrupts it (S5): `compared` knows that
    dues = [one.due for one in journal.places.values() if one.due is not None]
    stage = Stage(Program(body), in_task=True)
    run = Run(
        stage.main,
        flow_id=row.flow_id,
        journal=journal,
        rules=TASK,
        # What is due at this very moment was waited for, and is not delivered yet.
        clock=lambda: min([saved.at, *(nextafter(due, 0.0) for due in dues)]),
        name="job",
    )
    try:
        stop = run.start()
        assert stage.memory.events == saved.events
        assert stage.memory.waiting == saved.waiting
        assert run.journal.dumps() == row.journal
        assert run.take_rows() == []
    finally:
        run.close()
    if isinstance(stop, Asked):
        assert {one.key: request_of(one) for one in stop.questions} == {
            key: without_problems(one) for key, one in row.questions.items()
        }
    if isinstance(stop, (Asked, Perform)):
        if isinstance(stop, Asked):
            assert row.tries.keys() <= {want.key for want in stop.wants}
        if row.wake != 0.0:  # the turn has ended
            wanted = {want.key for want in stop.wants}
            times = [at for key, (_, at) in row.tries.items() if key in wanted]
            if isinstance(stop, Asked) and stop.due is not None:
                times.append(stop.due)
            assert row.wake == min(times, default=None)
    else:
        assert row.is_ended


def without_problems(question: Any) -> Any:
    """Return a question less why the last answer did not fit: no journal has that."""
    params = question["params"]
    message = params["message"].partition("\n\nYour last")[0]
    return {**question, "params": {**params, "message": message}}


@example(
    # The second try succeeds while a step runs beside the race, so only the process has
    # its outcome (B3a 2). A row that is saved then must keep that one try has failed: the
    # same try is performed again (S1), and not the first one, with its failure and pause.
    body=(
        Together(
            (
                (Nap(5), Do("plain", "s")),
                (Race((Do("flaky", "t"), Nap(9))),),
            )
        ),
    ),
    seed=8,
)
@settings(max_examples=60)
@given(drawn_bodies(KINDS) | drawn_bodies(ONCE), seeds)
def test_every_row_is_where_the_task_was(body: Body, seed: int) -> None:
    """From each row, the stop, the questions, the keys and the outcome are the same.

    Answers are late, do not fit, or do not come, one by one.
    """
    check_rows(body, World(seed))


@pytest.mark.long
@settings(max_examples=4_000, deadline=None)
@given(drawn_bodies(KINDS) | drawn_bodies(ONCE), seeds)
def test_every_row_is_where_the_task_was_long(body: Body, seed: int) -> None:
    check_rows(body, World(seed))
