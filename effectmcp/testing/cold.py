"""Replay a journal cold, and say where that comes to.

Nothing is performed and nobody is asked: a journal alone must lead a handler to just the
questions that were out when it was written, or to just the end. It is the best oracle
that there is, because it needs no second conversation and no second opinion, and it can
be put to a handler in another process, or to one that was edited since. The engine does
the same with an answer that has become stale (docs/internals/replay.md#d1).
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
from .words import shown

if TYPE_CHECKING:
    from ..engine.divergence import Policy
    from ..engine.journal import Journal
    from .subjects import Subject

__all__ = ["Arrival", "arrive", "marks_of", "shown_result"]


@frozen
class Arrival:
    """Where a replay comes to.

    Attributes:
        how: `asks`, `performs`, `returns`, `raises`; or `diverges`, where the handler
            did something else than the journal has.
        what: What it wants, or how it ended, in words.
        marks: What tells two arrivals apart beside the words: the fingerprints of what
            is asked.
        where: `file:line` of the yield, where there is one.
        salvaged: What was dropped on the way.
    """

    how: str
    what: tuple[str, ...]
    marks: tuple[str, ...] = ()
    where: str | None = None
    salvaged: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether it came anywhere."""
        return self.how != "diverges"

    def is_same(self, other: Arrival) -> bool:
        """Whether both came to the same place, lines apart."""
        return (self.how, self.what, self.marks) == (other.how, other.what, other.marks)

    def __str__(self) -> str:
        return f"{self.how} {' and '.join(self.what)}"

    def to_json(self) -> JSON:
        """For another process."""
        return attrs.astuple(self)

    @classmethod
    def from_json(cls, value: Any) -> Arrival:
        """From another process."""
        how, what, marks, where, salvaged = value
        return cls(how, tuple(what), tuple(marks), where, tuple(salvaged))


#: Beyond any limit on rounds: the question is not whether it may be asked.
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
    """Replay `journal` and see.

    Args:
        subject: The handler.
        arguments: What it was called with.
        journal: What was recorded.
        flow_id: The flow's.
        lacks: What its client cannot be asked.
        policy: What to do where the handler differs.
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
        rules=attrs.evolve(_RULES, policy=policy),
        supports=supports,
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
                    tuple(shown(one.effect) for one in questions) or ("nothing",),
                    marks_of(run.journal),
                    questions[0].where if questions else where,
                )
            case Perform(wants):
                what = tuple(shown(want.effect) for want in wants)
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
    """What tells the questions that are out from all others."""
    # Sorted, as a journal that was stored has another order.
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
    """A result, alike however it came about."""
    return json.dumps(result, ensure_ascii=False, sort_keys=True, default=repr)
