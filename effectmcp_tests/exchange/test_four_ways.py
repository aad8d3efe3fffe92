"""One handler in a world, in all ways of answering at once: the task is the fourth.

By retry, live, by drafts, in process and as a durable task whose turns are lost: the same
result, events, questions, steps with their arguments, tries and idempotency keys
(docs/internals/replay.md#what-must-be-equal). Differences that the rules demand are in
the oracle, and named there. Who wins a race beside other branches is up to the task: it is
held to that elsewhere (`engine/waiting/laws.py`, `tasks/test_turn_properties.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve, field, frozen
from hypothesis import event, example, given, note, settings
from hypothesis import strategies as st

from effectmcp import Flow
from effectmcp.engine import SCRIPT
from effectmcp.server import Server

from ..engine.waiting.laws import entries_of
from ..engine.waiting.programs import (
    Ask,
    Attempt,
    Body,
    Do,
    Draw,
    Limit,
    Nap,
    Program,
    Race,
    Save,
    Stage,
    Statement,
    Together,
    bodies,
    show,
    statements,
    with_bodies,
)
from ..tasks.simulated import START, Host
from ..tasks.worlds import (
    KINDS,
    ONCE,
    Hosted,
    World,
    cuts,
    drawn_bodies,
    race_of,
    seeds,
)
from ..wire import KEYS
from . import ways
from .inline import Inline

pytestmark = pytest.mark.usefixtures("quiet")

# ---- programs -----------------------------------------------------------------------


def changed(
    body: Body, change: Callable[[Statement, bool], Statement], beside: bool = False
) -> Body:
    """Return a body with other statements; `change` receives whether others are beside."""
    found = []
    for one in body:
        is_beside = beside or isinstance(one, Together)
        inner = tuple(changed(inside, change, is_beside) for inside in bodies(one))
        found.append(change(with_bodies(one, inner), beside))
    return tuple(found)


def inline(one: Statement, beside: bool) -> Statement:
    """Leave out what only a task can wait for: a question beside a step (V3)."""
    match one:
        case Race(parts) if any(isinstance(part, Ask) for part in parts):
            return Race(tuple(part for part in parts if not isinstance(part, Do)))
        case _:
            return one


def in_one_order(one: Statement, beside: bool) -> Statement:
    """Leave out effects whose delivery has another order beside other branches.

    A task delivers clocks and racing steps as waits (B3a 1), in the order of arrival
    (B3a 2), and a checkpoint at once (B3a 6). The rounds perform the first in the wave of
    the other local effects (B1), and keep the outcome of a race until the last answer.
    """
    match one:
        case Race(parts) if beside:
            asks = tuple(part for part in parts if isinstance(part, Ask))
            return Race(asks) if asks else Draw()
        case Limit(seconds, Ask() as ask) if beside:
            return Limit(seconds + 1, ask)  # its answer comes before
        case Limit(_, Do() as do) if beside:
            return do
        case Limit() | Nap() | Save() if beside:
            return Draw()
        case _:
            return one


def apart(one: Statement, beside: bool) -> Statement:
    """Keep branches from ending each other: which one is first to fail may differ (B3)."""
    match one:
        case Together(branches):
            return Together(tuple((Attempt(each, True, ()),) for each in branches))
        case _:
            return one


# ---- outcomes -----------------------------------------------------------------------


@frozen
class Outcome:
    """The outcome of a call.

    Attributes:
        result: The fields of its result.
        events: What its handler met: in order, or in the order of each branch.
        questions: The keys of the questions that the client was asked.
        steps: The functions and arguments of steps, by key.
        tries: The performances of steps, less those in races: the losers of a race are
            tried until it is decided.
    """

    result: Mapping[str, Any]
    events: Any
    questions: frozenset[str]
    steps: Mapping[str, Any]
    tries: frozenset[tuple[str, int]]


@frozen
class Play:
    """A program in a world.

    Attributes:
        body: The program.
        world: The world.
        is_apart: Whether branches are compared one by one.
        winners: The races that are not decided by time, as `Inline` has them.
    """

    body: Body
    world: World
    is_apart: bool
    winners: Mapping[str, int | None] = field(factory=dict)
    _stages: list[Stage] = field(factory=list)

    def server(self) -> Server:
        def tool() -> Flow[Any]:
            """Play."""
            stage = Stage(
                Program(self.body),
                in_task=False,
                shares_events=not self.is_apart,
                shows_places=True,
            )
            self._stages[:] = [stage]
            return (yield from stage.main())

        app = Server("shop", keys=KEYS, drafts=True)
        # Only a task can promise `at_most_once` (S5), and caps are for clients that give
        # up. Here the outcomes are compared, so both are lifted.
        app.change_rules(rounds=None, state_rounds=None, at_most_once=True)
        app.tool(name="tool", task="optional")(tool)
        return app

    def outcome(
        self, result: Mapping[str, Any], shown: Any, one: Inline | Host, tries: Any
    ) -> Outcome:
        events: Any = self._stages[0].memory.events
        if self.is_apart:
            paths = {path for path, *_ in events}
            events = {path: [e for e in events if e[0] == path] for path in paths}
        counted = frozenset((key, nth) for key, nth in tries if not race_of(key))
        # Only the newest revision has structured content other than objects.
        excluded = ("resultType", "_meta", "structuredContent")
        kept = {key: value for key, value in result.items() if key not in excluded}
        asked = frozenset(key for key in shown if not self._is_asked_again(key))
        return Outcome(kept, events, asked, one.effects, counted)

    def _is_asked_again(self, key: str) -> bool:
        # A race may be decided before an answer to a loser is found not to fit, or after.
        found = race_of(key)
        return "~" in key and found is not None and found[0] in self.winners


def as_task(play: Play, cuts: frozenset[int]) -> tuple[Outcome, Host, Play]:
    """Play a program as a task whose turns are lost at `cuts`.

    Returns:
        The outcome, the host, and what the other ways have to play.
    """
    app = play.server()
    begun = Inline(play.world, {})
    row = evolve(ways.task_of(app, begun.handle), created=START)
    hosted = Hosted.of(app, row, play.world, cuts)
    host = hosted.host
    row = host.run()
    assert row.report is None, row.report
    assert row.result is not None, row
    # How long an interrupted step took is not known, but what it raises is (S5).
    world = evolve(play.world, interrupted=dict(host.interrupted))
    play = evolve(play, world=world, winners=winners_of(host, world))
    outcome = play.outcome(row.result, host.shown, host, host.started)
    return outcome, host, play


def as_call(play: Play, way: str) -> Outcome:
    """Play a program as a call that is not a task."""
    app, one, told = play.server(), Inline(play.world, play.winners), list[Any]()
    match way:
        case "by retry":
            found = ways.by_retry(app, one.by_key, told, one.handle)
        case "live":
            found = ways.live(app, lambda asked: None, told, one.handle)
        case "by drafts":
            found = ways.by_drafts(app, one.by_key, told, one.handle)
        case _:
            rules = evolve(SCRIPT, later=True, at_most_once=True)
            found = ways.in_process(app, lambda handler: one.play(handler, rules))
    assert set(one.tries.values()) <= {1}
    return play.outcome(found, one.shown, one, one.tries)


def winners_of(host: Host, world: World) -> dict[str, int | None]:
    """Return the winners of races that other rules decide in a task than in a call.

    Beside other branches, a race is decided when none of them performs anything, and what
    is available then counts by position, clocks last (B3a 2, 5). A call decides it by time.
    The outcome of a step of a race has no place in the journal until then. So a step that
    was lost is performed again (S1), or is interrupted (S5), and that is later.
    """
    unclear = {found[0] for key, _ in host.lost if (found := race_of(key))}
    unclear |= {found[0] for key in host.interrupted if (found := race_of(key))}
    winners: dict[str, int | None] = {}
    for place, entry in entries_of(host.journal).items():
        if not entry.key.startswith(("within-", "first-")):
            continue
        if "gather-" not in place and place not in unclear:
            continue
        if entry.tag == "won":
            value: Any = entry.value
            winners[place] = None if value is None else value[0]
            continue
        # The text of an error has the number of its step.
        keys = {index: f"{place}/{index}/step-1" for index in range(3)}
        (winners[place], *_) = [
            index
            for index, key in keys.items()
            if str(world.number("result", key)) in entry.payload.decode()
            or (key in host.interrupted and b"StepInterrupted" in entry.payload)
        ]
    return winners


CALLS = ("by retry", "live", "by drafts", "in process")


def check(body: Body, seed: int, cuts: frozenset[int], is_apart: bool) -> None:
    has_branches = any(isinstance(one, Together) for one in statements(body))
    body = changed(body, inline)
    body = changed(body, apart if is_apart else in_one_order)
    # In one order, answers arrive together (B3a 7). Beside other questions, all of them
    # fit: a task asks again at once, and live that waits for the other answers (Q2).
    delay = 1.5 if has_branches and not is_apart else None
    world = World(seed, delay=delay, is_obliging=True, is_exact=has_branches)
    note(show(body))
    play = Play(body, world, is_apart)
    task, host, play = as_task(play, cuts)
    note(" ".join(host.story))
    event(f"{min(3, host.story.count('CUT'))} cuts")
    if host.interrupted:
        event("interrupted")
    if play.winners:
        event("races by other rules")
    outcomes = {way: as_call(play, way) for way in CALLS}
    outcomes["as a task"] = task
    first = outcomes["by retry"]
    for way, found in outcomes.items():
        assert found == first, way


drawn = drawn_bodies(KINDS) | drawn_bodies(ONCE)


ASK, STEP = Ask("elicit", "A?"), Do("plain", "s")


@example(
    # Live, the second answer came first, and the first position won.
    body=(ASK, STEP, Race((ASK, ASK))),
    seed=0,
    cuts=frozenset(),
    is_apart=False,
)
@example(
    # Live, an answer in time lost, because the question beside it was still open.
    body=(Together(((Limit(1, ASK),), (ASK,))),),
    seed=71,
    cuts=frozenset(),
    is_apart=True,
)
@example(
    # The task loses its turn when the race has begun: the step is interrupted.
    body=(Race((STEP, Do("once", "s"))),),
    seed=0,
    cuts=frozenset({4}),
    is_apart=False,
)
@given(drawn, seeds, cuts, st.booleans())
def test_all_ways_have_one_outcome(
    body: Body, seed: int, cuts: frozenset[int], is_apart: bool
) -> None:
    check(body, seed, cuts, is_apart)


@pytest.mark.long
@settings(max_examples=20_000, deadline=None)
@given(drawn, seeds, cuts, st.booleans())
def test_all_ways_have_one_outcome_long(
    body: Body, seed: int, cuts: frozenset[int], is_apart: bool
) -> None:
    check(body, seed, cuts, is_apart)
