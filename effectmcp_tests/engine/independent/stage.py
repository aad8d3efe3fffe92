"""The effects that programs yield to the engine, and their performers.

Steps return a new value at each performance, so that a second one shows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Literal

from attrs import define, field

import effectmcp
from effectmcp import (
    Checkpoint,
    ClientSupports,
    Confirm,
    Elicit,
    Gather,
    IdempotencyKey,
    Log,
    Now,
    Outcome,
    Step,
    Version,
    step,
)
from effectmcp.engine import Done, Failure, Want

from .programs import Question, StepKind

__all__ = ["STEPS", "Effects", "Performer", "perform"]

START = dt.datetime(2026, 7, 28, tzinfo=dt.UTC)


class DomainError(Exception):
    """An exception that its step declares."""


class ForeignError(Exception):
    """An exception that its step does not declare."""


@define(eq=False)
class Performer:
    """Performs local effects. Each value is new, so that a second performance shows."""

    count: int = 0
    log: list[tuple[Any, ...]] = field(factory=list)

    def step(self, kind: str, args: tuple[Any, ...]) -> str:
        self.count += 1
        self.log.append((kind, *(list(a) if isinstance(a, list) else a for a in args)))
        match kind:
            case "raising":
                raise ValueError("refused")
            case "declared":
                raise DomainError("declared")
            case "foreign":
                raise ForeignError("foreign")
            case _:
                pass
        return f"{'A' if self.count % 2 else 'B'}{self.count}"

    def now(self) -> dt.datetime:
        self.count += 1
        return START + dt.timedelta(seconds=self.count)

    def random(self) -> float:
        self.count += 1
        return self.count / 1024


#: The performer of the effect in progress, which step functions find here.
playing = [Performer()]


def step_of(kind: StepKind, **options: Any) -> Any:
    def perform(*args: Any) -> Any:
        value = playing[0].step(kind, args)
        if kind == "mutating":
            args[-1].append("changed")
        return value

    return step(name=kind, **options)(perform)


STEPS = {
    "plain": step_of("plain"),
    "replayable": step_of("replayable", replayable=True),
    "raising": step_of("raising"),
    "declared": step_of("declared", raises=(DomainError,)),
    "foreign": step_of("foreign"),
    "mutating": step_of("mutating"),
    "charge": step_of("charge"),
}


def perform(want: Want, performer: Performer) -> Done | Failure:
    """Perform an effect that the engine wants performed."""
    playing[0] = performer
    match want.effect:
        case Step() as effect:
            try:
                return Done(effect.fn(*effect.args, **effect.kwargs))
            except Exception as error:
                return Failure(error)
        case Now():
            return Done(performer.now())
        case _:
            return Done(performer.random())


FORMS: dict[str, Any] = {"elicit": Elicit, "confirm": Confirm}


@define(eq=False)
class Effects:
    """The effects of a program, for the engine."""

    restart: Callable[[str], Any]

    def question(self, question: Question, text: str) -> Any:
        options: dict[str, Any] = {}
        if question.key is not None:
            options["key"] = question.key
        if question.otherwise is not None:
            options["otherwise"] = question.otherwise
        effect: Any = (
            Elicit(text, str, **options)
            if question.kind == "elicit"
            else Confirm(text, **options)
        )
        return Outcome(effect) if question.outcome else effect

    def local(self, kind: Literal["now", "random"]) -> Any:
        return Now() if kind == "now" else effectmcp.Random()

    def step(self, kind: StepKind, args: tuple[Any, ...]) -> Any:
        return STEPS[kind](*args)

    def pause(self) -> Any:
        return Checkpoint()

    def supports(self, kind: Literal["elicit", "confirm"]) -> Any:
        return ClientSupports(FORMS[kind])

    def version(self, id: str) -> Any:
        return Version(id, default=0, latest=1)

    def key(self, name: str, about: tuple[Any, ...]) -> Any:
        return IdempotencyKey(name, *about)

    def say(self, label: str) -> Any:
        return Log("info", label)

    def gather(self, branches: list[Any]) -> Any:
        return Gather(*branches)

    def again(self, name: str) -> Any:
        return effectmcp.Restart(self.restart(name))
