"""A task whose turns are lost ends as if no turn had been lost.

Programs, answers and times are drawn. No two things happen at one moment, so the rules
leave one result: the result, the answers used, the events in their order and the steps
performed must be the same as in the run without cuts. `Host` checks meanwhile that no save
comes too late.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import pytest
from attrs import field, frozen
from hypothesis import event, given, note
from hypothesis import strategies as st

from effectmcp import Flow, Server, Step
from effectmcp.engine.stops import Done, Failure, Want
from effectmcp.exchange.task_rows import TaskRow

from ..engine.waiting.programs import (
    Ask,
    Attempt,
    Body,
    Choose,
    Do,
    DomainError,
    Draw,
    Fail,
    Limit,
    Memory,
    Nap,
    Program,
    Race,
    Repeat,
    Save,
    Stage,
    StepKind,
    Together,
    When,
    show,
    statements,
)
from .simulated import START, Host, new


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Mute the log: drawn programs fail all the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# ---- drawing ------------------------------------------------------------------------

KINDS: list[StepKind] = ["plain", "plain", "failing", "replayable", "flaky"]


def parts(kinds: list[StepKind]) -> st.SearchStrategy[Any]:
    """Return what may be waited for, or raced with."""
    flags = st.sampled_from([{}, {}, {"outcome": True}, {"otherwise": True}])
    asks = st.builds(
        lambda kind, text, echo, more: Ask(kind, text, echo=echo, **more),
        st.sampled_from(["elicit", "confirm"]),
        st.sampled_from(["A?", "B?"]),
        st.booleans(),
        flags,
    )
    steps = st.builds(Do, st.sampled_from(kinds), st.sampled_from("stu"), st.booleans())
    return asks | steps | st.builds(Nap, st.integers(1, 9))


def drawn_bodies(kinds: list[StepKind]) -> st.SearchStrategy[Body]:
    """Return bodies of programs whose steps are of these kinds."""
    part = parts(kinds)
    simple = st.one_of(
        part,
        part,
        st.builds(Limit, st.integers(1, 9), part),
        st.builds(Race, st.lists(part, min_size=2, max_size=3).map(tuple)),
        st.sampled_from([Draw(), Save(), Fail(), Choose("v")]),
    )

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        body = st.lists(inner, max_size=3).map(tuple)
        cleanup = st.sampled_from([(), (Do("plain", "undo"),)])
        return st.one_of(
            st.builds(Together, st.lists(body, min_size=1, max_size=3).map(tuple)),
            st.builds(Together, st.lists(body, min_size=2, max_size=3).map(tuple)),
            st.builds(Attempt, body, st.booleans(), cleanup),
            st.builds(When, body, body),
            st.builds(Repeat, st.just(2), body),
        )

    statement: st.SearchStrategy[Any] = st.recursive(simple, larger, max_leaves=8)
    return st.lists(statement, min_size=1, max_size=5).map(tuple)


@frozen
class World:
    """The environment: answers, times and failures, by the key of a question or step.

    Attributes:
        seed: The number from which all of this is computed.
        cancel: Seconds after the start when the task is cancelled.
        ttl: Its time to live.
    """

    seed: int = 0
    cancel: float | None = None
    ttl: float | None = None

    def number(self, *about: Any) -> int:
        """Return a number that depends on the seed and `about`."""
        return crc32(repr((self.seed, *about)).encode())

    def seconds(self, *about: Any) -> float:
        """Return seconds that no sum of others equals."""
        number = self.number("seconds", *about)
        return [0.1, 1.0, 3.0, 8.0][number % 4] + number / 2**33

    def verdict(self, key: str) -> Any:
        """Return the answer to a question; `None` for never."""
        number = self.number("verdict", key)
        if "~" in key:  # asked again: now it fits
            number -= number % 10
        match number % 10:
            case 7:
                return {"action": "decline"}
            case 8:
                return {"action": "accept", "content": {"value": "no number"}}
            case 9 if self.seed % 3 == 0:
                return None
            case _:
                return {"action": "accept", "content": {"value": number % 100}}


@frozen
class Story:
    """The outcome of a task.

    Attributes:
        row: Its row at the end, without what may differ.
        events: What its handler met, in order.
        keys: The steps that were performed, by key, with how many tries each.
    """

    status: str
    result: Any
    error: Any
    asked: tuple[str, ...]
    events: list[Any] = field(repr=False)
    performed: frozenset[Any]


def played(
    body: Body,
    world: World,
    cuts: frozenset[int] = frozenset(),
    make: Callable[..., Host] = Host,
) -> tuple[Story, Host, Counter[Any]]:
    """Play a program on a host to its end, or until nothing happens any more."""
    memories: list[Memory] = []

    def job() -> Flow[Any]:
        stage = Stage(Program(body), in_task=True)
        try:
            return (yield from stage.main())
        finally:
            memories.append(stage.memory)

    app = Server("shop")
    app.tool(name="job")(job)
    tries: dict[tuple[str, int], float] = {}
    performed: Counter[Any] = Counter()

    def attempt(want: Want) -> tuple[str, int]:
        return want.key, one.row.tries.get(want.key, (0, 0.0))[0]

    def lasts(want: Want) -> float:
        # A step that started elsewhere ends when it would have ended.
        nth = attempt(want)
        end = tries.setdefault(nth, one.now + world.seconds(nth))
        return max(0.0, end - one.now)

    def result(want: Want) -> Done | Failure:
        effect = want.effect
        assert isinstance(effect, Step)
        key, count = attempt(want)
        performed[key, count] += 1
        number = world.number("result", key)
        if effect.options.retries and count < number % 4:
            return Failure(OSError("down"))
        try:
            return Done(f"{effect.fn(*effect.args)}{number % 100}")
        except DomainError as exc:
            return Failure(exc)

    def asked(key: str, request: Any) -> None:
        verdict = world.verdict(key)
        if verdict is not None:
            at = one.now - START + world.seconds("answer", key)
            one.at(at, lambda: one.answer(key, verdict))

    row: TaskRow = new("job", ttl=world.ttl)
    one = make(app, row, cuts=cuts, lasts=lasts, result=result, asked=asked)
    if world.cancel is not None:
        one.at(world.cancel, one.cancel)
    row = one.run()
    events = memories[-1].events if memories else []
    story = Story(
        row.status,
        row.result,
        row.error,
        tuple(one.shown),
        events,
        frozenset(performed),
    )
    assert row.report is None, row.report
    return story, one, performed


cuts = st.sets(st.integers(0, 50), max_size=8).map(frozenset)
seeds = st.integers(0, 2**16)


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


def lost(one: Host, performed: Counter[Any]) -> int:
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
