"""Replay a journal without performing or asking, and report where that ends.

From a journal alone, a handler must reach exactly the questions that were outstanding
when it was written, or exactly the same end. This is the best available oracle: it
needs no second conversation and no specification, and it works on a handler in another
process, or on a handler that was edited since. The engine does the same with an answer
that has become stale (docs/internals/replay.md#d1).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import frozen

from ..canonical import JSON
from ..engine.replay import Run
from ..engine.rules import RETRY
from ..engine.stops import Asked, Perform, Returned
from ..errors import DivergenceError, EffectMCPError
from .descriptions import describe

if TYPE_CHECKING:
    from ..engine.divergence import Policy
    from ..engine.journal import Journal
    from .subjects import Subject

__all__ = [
    "Arrival",
    "ArrivalElsewhere",
    "WorkerError",
    "arrive",
    "marks_of",
    "shown_result",
]


@frozen
class Arrival:
    """The point that a replay reaches.

    Attributes:
        how: `asks`, `performs`, `returns`, `raises`; or `diverges`, if the handler did
            something that the journal does not have.
        what: The effects that it waits for, or its end, in words.
        marks: The fingerprints of its questions, which distinguish arrivals whose words
            are the same.
        where: `file:line` of the yield, if any.
        salvaged: The entries that were dropped on the way.
    """

    how: str
    what: tuple[str, ...]
    marks: tuple[str, ...] = ()
    where: str | None = None
    salvaged: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether the replay did not diverge."""
        return self.how != "diverges"

    def is_same(self, other: Arrival) -> bool:
        """Whether both reached the same point, apart from line numbers."""
        return (self.how, self.what, self.marks) == (other.how, other.what, other.marks)

    def __str__(self) -> str:
        return f"{self.how} {' and '.join(self.what)}"

    def to_json(self) -> JSON:
        """Write it for another process."""
        return attrs.astuple(self)

    @classmethod
    def from_json(cls, value: Any) -> Arrival:
        """Read what another process wrote."""
        how, what, marks, where, salvaged = value
        return cls(how, tuple(what), tuple(marks), where, tuple(salvaged))


class WorkerError(Exception):
    """Raised when a process cannot load or replay a handler."""


@frozen
class ArrivalElsewhere:
    """The point that a replay reached in another process.

    Attributes:
        arrival: The point.
        differs: The differences of that process, in words.
    """

    arrival: Arrival
    differs: str


#: Without limits on rounds: whether a question may be asked is not tested here.
_RULES: Final = attrs.evolve(RETRY, rounds=None, state_rounds=None)


def arrive(
    subject: Subject,
    arguments: JSON,
    journal: Journal,
    *,
    flow_id: bytes,
    lacks: Collection[str] = (),
    policy: Policy = "strict",
) -> Arrival:
    """Replay `journal`, and return the point that it reaches.

    Args:
        subject: The handler.
        arguments: The arguments that it was called with.
        journal: The journal.
        flow_id: The flow's id.
        lacks: The names of the effects that its client cannot be asked.
        policy: The divergence policy.
    """

    def supports(what: Any) -> bool:
        class_ = what if isinstance(what, type) else type(what)
        return class_.__name__ not in lacks

    run = Run(
        subject.function,
        (),
        subject.read(arguments),
        flow_id=flow_id,
        journal=journal,
        rules=subject.rules_of(attrs.evolve(_RULES, policy=policy)),
        supports=supports,
        # No time passes: a deadline that was open when the journal was written stays open.
        clock=lambda: 0.0,
        name=subject.feature.handler.name,
        version=subject.feature.version,
    )
    try:
        stop = run.start()
        where = run.where
        match stop:
            case Asked(questions):
                arrival = Arrival(
                    "asks",
                    tuple(describe(one.effect) for one in questions) or ("nothing",),
                    marks_of(run.journal),
                    questions[0].where if questions else where,
                )
            case Perform(wants):
                what = tuple(describe(want.effect) for want in wants)
                arrival = Arrival(
                    "performs", what, where=run.line_of(wants[0].key) or where
                )
            case Returned(value):
                arrival = Arrival("returns", (_result(subject, value),))
            case _:
                error = stop.error
                arrival = Arrival("raises", (f"{type(error).__name__}: {error}",))
    except DivergenceError as exc:
        return Arrival("diverges", (str(exc.report),), where=exc.report.where)
    finally:
        run.close()
    return attrs.evolve(arrival, salvaged=tuple(map(str, run.salvaged)))


def marks_of(journal: Journal) -> tuple[str, ...]:
    """Return what identifies the outstanding questions: keys and fingerprints."""
    # Sorted, because a stored journal has another order.
    return tuple(
        sorted(
            f"{key} {one.shape.hex()} {one.render.hex()}"
            for key, one in journal.asked.items()
        )
    )


def _result(subject: Subject, value: Any) -> str:
    try:
        return shown_result(subject.result(value))
    except EffectMCPError as exc:
        return str(exc)


def shown_result(result: JSON) -> str:
    """Write a result as a string, the same for equal results."""
    return json.dumps(result, ensure_ascii=False, sort_keys=True, default=repr)
