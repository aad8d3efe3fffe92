"""The model's journals, answers and stops: plain data.

It shares nothing with `effectmcp.engine`, not even names of keys: what names one asking or
one idempotency key is a value of its own, compared by what it was used for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from attrs import define, evolve, field, frozen

from .programs import Question

__all__ = [
    "IMMEDIATE",
    "LOCAL",
    "Accepted",
    "Asked",
    "Build",
    "Ended",
    "Entry",
    "Journal",
    "KeyOf",
    "Limits",
    "Path",
    "Place",
    "Print",
    "Raised",
    "Returned",
    "Said",
    "Stopped",
    "Unjudged",
    "Want",
    "Wire",
    "flat",
]

Path: TypeAlias = tuple[tuple[str, int], ...]
Print: TypeAlias = tuple[Any, ...]
Place: TypeAlias = tuple[Path, str]


class Unjudged(Exception):
    """The rules leave open what happens here."""


@frozen
class Wire:
    """The name of one asking: unique over the flow's life."""

    generation: int
    path: Path
    key: str
    nth: int


@frozen
class KeyOf:
    """The parts that an idempotency key digests."""

    generation: int
    path: Path
    name: str
    about: tuple[Any, ...]
    nth: int


@frozen
class Said:
    """One answer: accepted with a value, refused, or unfitting."""

    how: Literal["accepted", "declined", "dismissed", "unfit"]
    value: Any = None


@frozen
class Accepted:
    """The value of an `Outcome` when the user accepted."""

    value: Any


@frozen
class Entry:
    """One recorded effect. `branches` belongs to a Gather."""

    key: str
    print: Print
    tag: str
    value: Any = None
    branches: tuple[list[Entry], ...] | None = None

    def copy(self) -> Entry:
        if self.branches is None:
            return self
        return evolve(self, branches=tuple(map(copy_entries, self.branches)))


def copy_entries(entries: list[Entry]) -> list[Entry]:
    return [entry.copy() for entry in entries]


def flat(entries: list[Entry]) -> Iterator[Entry]:
    """Yield all entries of a sequence and of the branches inside."""
    for entry in entries:
        yield entry
        for branch in entry.branches or ():
            yield from flat(branch)


@define(kw_only=True)
class Journal:
    """Everything that outlives a round."""

    entries: list[Entry] = field(factory=list)
    asked: dict[Wire, Print] = field(factory=dict)
    #: Places of dropped entries, asked or not: whether this is a first asking is open.
    unasked: set[Place] = field(factory=set)
    askings: dict[Place, int] = field(factory=dict)
    unfit: dict[tuple[Place, Print], int] = field(factory=dict)
    #: Whether their count is kept while the question is not out is open.
    interrupted: set[tuple[Place, Print]] = field(factory=set)
    stale: dict[Place, int] = field(factory=dict)
    #: Recorded answers whose text differed at a replay: whether they count is open.
    reworded: dict[Place, int] = field(factory=dict)
    pool: list[tuple[Print, Entry]] = field(factory=list)
    versions: dict[str, Any] = field(factory=dict)
    delivered: int | None = None
    generation: int = 0
    restart: str | None = None
    rounds: int = 0
    state_rounds: int = 0

    def copy(self) -> Journal:
        return Journal(
            entries=copy_entries(self.entries),
            asked=dict(self.asked),
            unasked=set(self.unasked),
            askings=dict(self.askings),
            unfit=dict(self.unfit),
            interrupted=set(self.interrupted),
            stale=dict(self.stale),
            reworded=dict(self.reworded),
            pool=list(self.pool),
            versions=dict(self.versions),
            delivered=self.delivered,
            generation=self.generation,
            restart=self.restart,
            rounds=self.rounds,
            state_rounds=self.state_rounds,
        )


@frozen
class Limits:
    """The rules that differ between calls answered by retry and live ones."""

    rounds: int | None = 9
    state_rounds: int | None = 2
    sheds: bool = True


# ---- stops --------------------------------------------------------------------------


@frozen
class Asked:
    """The questions of a round, as wire name, text and whether the last answer failed."""

    questions: tuple[tuple[Wire, str, bool | None], ...]
    journal: Journal


@frozen
class Returned:
    value: Any


@frozen
class Raised:
    error: BaseException


@frozen
class Stopped:
    """The flow may not resume: `charged` (a performed step dropped) or `versions`."""

    why: str


Ended: TypeAlias = Returned | Raised | Stopped


# ---- effects ------------------------------------------------------------------------


@frozen
class Want:
    """An effect: what it is, what names it in a journal, and what it was built from."""

    kind: str
    print: Print = ()
    explicit: str | None = None
    detail: Any = None


LOCAL = {"step", "now", "random", "supports"}
IMMEDIATE = {"version", "key", "say"}


class Build:
    """The effects of a program, for this engine."""

    def question(self, question: Question, text: str) -> Want:
        shape = (question.kind, question.key)
        return Want(question.kind, (shape, text), question.key, question)

    def local(self, kind: str) -> Want:
        return Want(kind, (kind,))

    def step(self, kind: str, args: tuple[Any, ...]) -> Want:
        return Want("step", ("step", kind, repr(args)), None, (kind, args))

    def pause(self) -> Want:
        return Want("checkpoint", ("checkpoint",))

    def supports(self, kind: str) -> Want:
        return Want("supports", ("supports", kind), None, kind)

    def version(self, id: str) -> Want:
        return Want("version", detail=id)

    def key(self, name: str, about: tuple[Any, ...]) -> Want:
        return Want("key", detail=(name, about))

    def say(self, label: str) -> Want:
        return Want("say", detail=label)

    def gather(self, branches: list[Any]) -> Want:
        return Want("gather", ("gather",), None, branches)

    def again(self, name: str) -> Want:
        return Want("restart", detail=name)
