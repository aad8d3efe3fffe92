"""The local effects that this process performs for a flow, and their outcomes.

See docs/internals/replay.md#s1.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from attrs import define, field

from ..effects.base import Effect
from ..effects.control import FirstOf, Within
from ..effects.steps import Step
from ..errors import StepInterrupted, UsageError
from .journal import wire_key
from .kinds import Recorded, record_error, record_value
from .places import Places
from .sequences import Sequence, Wanted
from .steps import step_name
from .stops import Done, Failure, Perform, Want

__all__ = ["Performing"]

logger = logging.getLogger("effectmcp.engine")

#: Arguments of these types cannot be changed.
_LASTING: Final = frozenset({str, bytes, int, float, bool, type(None)})


@define(eq=False)
class Performing:
    """The local effects that this process performs for one generation of a flow.

    Attributes:
        wants: The effects that have no outcome yet, by key, with the leaves that wait
            for them.
        begun: The keys of started wants.
        finished: The outcomes of racing steps, by place, until their race is decided.
        is_fresh: Whether this run has performed nothing so far.
    """

    _places: Places
    _generation: int
    wants: dict[str, tuple[Sequence, Wanted]] = field(factory=dict, init=False)
    begun: set[str] = field(factory=set, init=False)
    finished: dict[str, Recorded] = field(factory=dict, init=False)
    is_fresh: bool = field(default=True, init=False)

    def want(self, sequence: Sequence, wanted: Wanted) -> Want:
        """Register an effect to perform, and return the `Want` for the driver."""
        key = self._key_of(wanted)
        self.wants[key] = sequence, wanted
        begun = self._places.at(wanted.place).begun
        return Want(key, _with_copies(wanted.subject), sequence.context, begun)

    def pending(self, *, is_cancelling: bool) -> Perform | None:
        """Return the wants that must be performed before the flow continues, if any.

        Steps of races run in the background, unless the flow is being cancelled: then
        everything that was started is waited for.
        """
        keys = [
            key
            for key, (sequence, wanted) in sorted(self.wants.items())
            if wanted is sequence.wanted or is_cancelling
        ]
        if not keys:
            return None
        return Perform(tuple([self.want(*self.wants[key]) for key in keys]))

    def begin(self, key: str) -> None:
        """Note that a want is started: count it, and make a cancel wait for it."""
        _, wanted = self.wants[key]
        self.begun.add(key)
        self._places.begin(wanted.place)

    def interrupted(self, wanted: Wanted) -> Recorded | None:
        """Return the outcome of a started step that may not be started again."""
        step = wanted.subject
        assert isinstance(step, Step)
        if not step.options.at_most_once or not self._places.at(wanted.place).begun:
            return None
        if self._key_of(wanted) in self.begun:
            return None  # in this very run: it is still running
        # Started in another process, which was lost before it recorded an outcome
        # (docs/internals/replay.md#s5).
        return record_error(step, StepInterrupted(step_name(step)))

    def record(self, outcomes: Mapping[str, Done | Failure]) -> None:
        """Record the outcomes of some wants.

        Raises:
            UsageError: If an outcome is not valid for its effect. Nothing is recorded.
        """
        written = [
            (*self.wants[key], _written(self.wants[key][1], outcome))
            for key, outcome in outcomes.items()
        ]
        for sequence, wanted, outcome in written:
            self.is_fresh = False
            if wanted is sequence.wanted:
                self.end(wanted)
                sequence.record(*outcome)
            else:
                # The record of its place counts the start until its race is recorded.
                key = self._key_of(wanted)
                del self.wants[key]
                self.begun.discard(key)
                self.finished[wanted.place] = outcome

    def end(self, wanted: Wanted) -> None:
        """Note that an effect has an outcome, or that none is needed any more."""
        key = self._key_of(wanted)
        self.wants.pop(key, None)
        self.begun.discard(key)
        self._places.end(wanted.place)

    def keep_begun(self) -> set[str]:
        """Remove the wants that were not started; return their keys."""
        dropped = set(self.wants) - self.begun
        for key in dropped:
            del self.wants[key]
        return dropped

    def _key_of(self, wanted: Wanted) -> str:
        return wire_key(self._generation, wanted.place, 1)


def _with_copies(effect: Effect[Any]) -> Effect[Any]:
    """Return `effect` with copies of the arguments of the steps in it.

    See docs/internals/replay.md#e1.
    """
    match effect:
        case Step():
            values = (*effect.args, *effect.kwargs.values())
            if _LASTING.issuperset(map(type, values)):
                return effect
            args, kwargs = deepcopy((effect.args, dict(effect.kwargs)))
            return effect.with_arguments(args, kwargs)
        case Within():
            return effect.around(_with_copies(effect.effect))
        case FirstOf():
            return effect.around(*map(_with_copies, effect.effects))
        case _:
            return effect


def _written(wanted: Wanted, outcome: Done | Failure) -> Recorded:
    subject, kind = wanted.subject, wanted.row
    if isinstance(outcome, Done):
        return record_value(subject, kind, outcome.value)
    if kind.tag not in ("done", "won") or not isinstance(outcome.error, Exception):
        raise UsageError(
            f"{wanted.key} cannot fail: answer {type(subject).__name__} with Done(...),"
            " and let what is no Exception pass"
        )
    # The original traceback is logged only here; replays rebuild the exception without
    # it.
    logger.info("the step %s raised", wanted.place, exc_info=outcome.error)
    return record_error(subject, outcome.error)
