"""Programs, and the worlds in which they are tasks: what the properties of turns draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any
from zlib import crc32

from attrs import define, evolve, field, frozen
from hypothesis import strategies as st

from effectmcp import Flow, Server, Step
from effectmcp.engine.steps import step_name
from effectmcp.engine.stops import Done, Failure, Want
from effectmcp.errors import StepInterrupted
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
    Mark,
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
)
from .simulated import START, Host, new

__all__ = [
    "KINDS",
    "ONCE",
    "SOON",
    "Hosted",
    "Story",
    "World",
    "cuts",
    "drawn_bodies",
    "played",
    "race_of",
    "seeds",
]

# ---- drawing ------------------------------------------------------------------------

KINDS: list[StepKind] = ["plain", "plain", "failing", "replayable", "flaky"]
#: Also steps that are never started again.
ONCE: list[StepKind] = ["plain", "once", "once", "flaky", "failing"]


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
        st.sampled_from([Draw(), Mark("k"), Save(), Fail(), Choose("v")]),
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
        delay: Seconds between a question and its answer; `None` if each has its own.
        is_obliging: Whether every answer comes.
        is_exact: Whether every answer fits.
        interrupted: When these steps are interrupted, in seconds since 1970, by key.
        late: When these tries of steps end, by key and number of failed tries.
    """

    seed: int = 0
    cancel: float | None = None
    ttl: float | None = None
    delay: float | None = None
    is_obliging: bool = False
    is_exact: bool = False
    interrupted: Mapping[str, float] = field(factory=dict)
    late: Mapping[tuple[str, int], float] = field(factory=dict)

    def number(self, *about: Any) -> int:
        """Return a number that depends on the seed and `about`."""
        return crc32(repr((self.seed, *about)).encode())

    def seconds(self, *about: Any) -> float:
        """Return seconds that no sum of others equals."""
        number = self.number("seconds", *about)
        return [0.1, 1.0, 3.0, 8.0][number % 4] + number / 2**33

    def patience(self, key: str) -> float:
        """Return the seconds between a question and its answer."""
        return self.seconds("answer", key) if self.delay is None else self.delay

    def outcome(self, key: str, step: Step[Any], count: int) -> Done | Failure:
        """Return the outcome of a step that failed so many times before."""
        number = self.number("result", key)
        if key in self.interrupted:
            return Failure(StepInterrupted(step_name(step)))
        if step.options.retries and count < number % 4:
            return Failure(OSError(f"down {number}"))
        try:
            return Done(f"{step.fn(*step.args)}{number % 100}")
        except DomainError as exc:
            return Failure(DomainError(f"{exc}{number}"))

    def verdict(self, key: str) -> Any:
        """Return the answer to a question; `None` for never."""
        number = self.number("verdict", key)
        if "~" in key:  # asked again: now it fits
            number -= number % 10
        match number % 10:
            case 7:
                return {"action": "decline"}
            case 8 if not self.is_exact:
                return {"action": "accept", "content": {"value": "no number"}}
            case 9 if self.seed % 3 == 0 and not self.is_obliging:
                return None
            case _:
                return {"action": "accept", "content": {"value": number % 100}}


@frozen
class Story:
    """The outcome of a task.

    Attributes:
        status: The status of its last row.
        result: The result there.
        error: The error there.
        asked: The keys of all questions, in order.
        events: What its handler met, in order.
        started: The steps that were to start, by key and number of failed tries.
    """

    status: str
    result: Any
    error: Any
    asked: tuple[str, ...]
    events: list[Any] = field(repr=False)
    started: frozenset[tuple[str, int]]


def race_of(key: str) -> tuple[str, int] | None:
    """Return the race that a question or step is in, and its position there."""
    *_, race, position, _ = ("", "", *key.split("/"))
    return (
        (key.rsplit("/", 2)[0], int(position))
        if race.startswith(("within-", "first-"))
        else None
    )


#: Just after.
SOON = 1e-6


@define(eq=False)
class Hosted:
    """A task of a world, on its host.

    Attributes:
        world: The environment.
        host: The host.
        tries: The performances of steps, by key and number of failed tries.
        stages: The runs of its handler.
        again: In which turn and when they began last, if they did more than once.
        ends: When they end.
    """

    world: World
    host: Host
    tries: Counter[tuple[str, int]] = field(factory=Counter)
    stages: list[Stage] = field(factory=list)
    again: dict[tuple[str, int], tuple[int, float]] = field(factory=dict)
    ends: dict[tuple[str, int], float] = field(factory=dict)

    @classmethod
    def of(
        cls,
        app: Server,
        row: TaskRow,
        world: World,
        cuts: Collection[int] = (),
        make: Callable[..., Host] = Host,
    ) -> Hosted:
        """Return a task before its first turn."""
        found = cls(world, make(app, row, cuts=cuts))
        host = found.host
        host.lasts, host.result, host.asked = found._lasts, found._result, found._asked
        if world.cancel is not None:
            host.at(world.cancel, host.cancel)
        return found

    @property
    def story(self) -> Story:
        """The outcome."""
        row, host = self.host.row, self.host
        assert row.report is None, row.report
        return Story(
            row.status,
            row.result,
            row.error,
            tuple(host.shown),
            self.stages[-1].memory.events if self.stages else [],
            frozenset(host.started),
        )

    def explained(self, shift: float = SOON) -> World:
        """Return the world in which a task has the same outcome without a lost turn.

        A step is interrupted when its turn is lost (S5). A step of a race beside other
        branches begins again when all of them wait (B3a 2). If a clock is up then, the
        step never begins again.

        Args:
            shift: The time between the loss and the interruption. What else happens at
                the moment of the loss may be saved before, or is met together with it.
        """
        host, late = self.host, dict[tuple[str, int], float]()
        for nth, end in self.ends.items():
            if nth in host.lost and race_of(nth[0]) is not None:
                turn, again = self.again.get(nth, (0, inf))
                is_lost = turn <= host.lost[nth]
                late[nth] = inf if is_lost else max(end, again + SOON)
        interrupted = {key: at + shift for key, at in host.interrupted.items()}
        return evolve(self.world, interrupted=interrupted, late=late)

    def _nth(self, want: Want) -> tuple[str, int]:
        return want.key, self.host.row.tries.get(want.key, (0, 0.0))[0]

    def _lasts(self, want: Want) -> float:
        # A step that started elsewhere ends when it would have ended.
        nth, now, world = self._nth(want), self.host.now, self.world
        if nth in self.ends:
            self.again[nth] = self.host.turns, now
        else:
            end = world.late.get(nth, now + world.seconds(nth))
            self.ends[nth] = world.interrupted.get(want.key, end)
        return max(0.0, self.ends[nth] - now)

    def _result(self, want: Want) -> Done | Failure:
        assert isinstance(want.effect, Step)
        key, count = self._nth(want)
        self.tries[key, count] += 1
        return self.world.outcome(key, want.effect, count)

    def _asked(self, key: str, request: Any) -> None:
        host, verdict = self.host, self.world.verdict(key)
        if verdict is not None:
            at = host.now - START + self.world.patience(key)
            host.at(at, lambda: host.answer(key, verdict))


def played(
    body: Body,
    world: World,
    cuts: Collection[int] = (),
    saved: Callable[[Host, Memory], None] = lambda host, memory: None,
    make: Callable[..., Host] = Host,
) -> Hosted:
    """Play a program to its end, or until nothing happens any more.

    Args:
        body: The program.
        world: Its world.
        cuts: The commands at which turns are lost.
        saved: Called at each save, with what the handler has met until then.
        make: Returns the host.
    """
    stages: list[Stage] = []

    def job() -> Flow[Any]:
        stages.append(Stage(Program(body), in_task=True))
        return (yield from stages[-1].main())

    app = Server("shop")
    app.tool(name="job")(job)
    hosted = Hosted.of(app, new("job", ttl=world.ttl), world, cuts, make)
    host, hosted.stages = hosted.host, stages
    host.saved = lambda row: saved(host, stages[-1].memory)
    host.run()
    return hosted


cuts = st.sets(st.integers(0, 50), max_size=8).map(frozenset)
seeds = st.integers(0, 2**16)
