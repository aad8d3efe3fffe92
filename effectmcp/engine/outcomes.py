"""Find the outcomes that a wave has besides answers: clocks and steps.

clocks    whose time is up: Sleep in a task, Within, FirstOf
steps     that this process performed (`Performing`, docs/internals/replay.md#s1)
races     the part of a Within or FirstOf that was first: an answer, a clock, a step
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ..effects.base import Effect
from ..effects.control import (
    Checkpoint,
    FirstOf,
    Restart,
    Within,
)
from ..effects.local import ClientSupports, Sleep
from ..effects.steps import Step
from ..errors import StepInterrupted, UsageError
from ..logs import logger_for
from .effect_table import Recorded, is_replayable, record_error, record_value, won
from .journal import wire_key
from .sequences import Sequence, Wanted
from .steps import step_name
from .stops import Done, Failure, Perform, Want

if TYPE_CHECKING:
    from .answers import Found, Places
    from .flow_state import FlowState

__all__ = [
    "Performing",
    "Taking",
    "clocks",
]

logger = logger_for("effectmcp.engine")

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

    def put_off(self, key: str) -> None:
        """Note that a started want has failed, and will be started again later."""
        self.begun.discard(key)
        self._places.end(self.wants[key][1].place)

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
            " and raise exceptions that are not an Exception"
        )
    # The original traceback is logged only here; replays rebuild the exception without
    # it.
    logger.info("the step %s raised", wanted.place, exc_info=outcome.error)
    return record_error(subject, outcome.error)


@define(eq=False)
class Taking:
    """Finds the available outcomes in one generation of a flow."""

    _flow: FlowState
    _places: Places
    _performing: Performing

    # ---- available outcomes ---------------------------------------------------------

    def at_hand(self, wanted: Wanted, found: Mapping[str, Found]) -> Recorded | None:
        """Return the outcome of the effect that a leaf waits for, if available."""
        answer = found.get(wanted.place)
        if answer is not None:
            return (*answer, wanted.row.tag == "won")
        if wanted.row.is_question:
            return None
        subject, rules = wanted.subject, self._flow.rules
        match subject:
            case ClientSupports():
                supports = bool(self._flow.supports(subject.what))
                return record_value(subject, wanted.row, supports)
            case Restart():
                return "restart", wanted.row.render(subject), False
            case Checkpoint() if rules.task:
                return "checkpoint", b"null", False
            case Step():
                return self._performing.interrupted(wanted)
            case Sleep() if rules.task:
                is_up = self._is_up(wanted.place)
                return ("known", b"null", False) if is_up else None
            case Within() | FirstOf() if wanted.parts:
                return self._race(wanted, found)
            case _:
                return None

    def _is_up(self, place: str) -> bool:
        due = self._places.at(place).due
        return due is not None and due <= self._flow.now()

    def _race(self, wanted: Wanted, found: Mapping[str, Found]) -> Recorded | None:
        """Return the winner of a `Within` or `FirstOf`, if there is one.

        In a task, an outcome that arrived beats a clock: a stored answer must not lose
        to a deadline that passed while no worker ran. Elsewhere the clock beats an
        answer that arrives with the request: it is too late. See
        docs/internals/replay.md#b3a (5) and docs/internals/replay.md#v3.
        """
        arrived, up = self._arrived(wanted, found), self._up(wanted)
        if self._flow.rules.task:
            return arrived or up
        return up or arrived

    def _arrived(self, wanted: Wanted, found: Mapping[str, Found]) -> Recorded | None:
        may_repeat = is_replayable(wanted.subject)
        for position, part in enumerate(wanted.parts):
            outcome: Recorded | None = None
            if part.row.is_question:
                answer = found.get(part.place)
                outcome = None if answer is None else (*answer, False)
            elif isinstance(part.subject, Step):
                outcome = self._performing.finished.get(
                    part.place
                ) or self._performing.interrupted(part)
            if outcome is not None:
                tag, payload, _ = outcome
                if tag == "failed":
                    return tag, payload, may_repeat
                return "won", won(position, tag, payload), may_repeat
        return None

    def _up(self, wanted: Wanted) -> Recorded | None:
        ups = [
            (self._places.at(one.place).due, position)
            for position, one in enumerate((*wanted.parts, wanted))
            if self._is_up(one.place)
        ]
        if not ups:
            return None
        _, position = min(ups)
        is_limit = position == len(wanted.parts)
        payload = b"null" if is_limit else won(position, "known", b"null")
        return "won", payload, is_replayable(wanted.subject)

    # ---- clocks ---------------------------------------------------------------------

    def start_clock(self, place: str, seconds: float) -> float:
        """Start a clock unless it runs already; return when its time is up."""
        due = self._places.at(place).due
        if due is None:
            due = self._flow.now() + seconds
            self._places.set_due(place, due)
        return due

    def stop_waiting(self, wanted: Wanted) -> None:
        """Withdraw the questions, clocks and steps of an effect that is decided."""
        self._places.end(wanted.place)
        for part in wanted.parts:
            if not part.row.is_question:
                self._performing.finished.pop(part.place, None)
                self._performing.end(part)
            elif self._places.at(part.place).out is not None:
                self._places.withdraw(part.place)
            else:
                # It was asked, and only the race has an entry.
                self._places.count(part.place)


def clocks(wanted: Wanted) -> list[tuple[str, float]]:
    """Return the places with a clock, and the seconds of each."""
    match wanted.subject:
        case Sleep(seconds):
            return [(wanted.place, seconds)]
        case Within(seconds):
            limit = [(wanted.place, seconds)]
        case FirstOf():
            limit = []
        case _:
            return []
    return limit + [
        (part.place, part.subject.seconds)
        for part in wanted.parts
        if isinstance(part.subject, Sleep)
    ]
