"""Find the available outcomes for a wave: answers, clocks, racing steps.

answers   of this request, of the pool, early ones; or that the client cannot be asked
clocks    whose time is up: Sleep in a task, Within, FirstOf
races     the part of a Within or FirstOf that was first

The order of taking answers is specified in docs/internals/replay.md#q1a.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from attrs import define, field

from ..canonical import dumps
from ..effects.control import (
    Checkpoint,
    FirstOf,
    Restart,
    Within,
)
from ..effects.local import ClientSupports, Sleep
from ..effects.steps import Step
from ..forms.form import Unfit
from .answers import STALE, Answers, Found, Stale, Unfitting, readable
from .kinds import Recorded, is_replayable, record_value, won
from .performing import Performing
from .places import Places
from .sequences import Sequence, Wanted

if TYPE_CHECKING:
    from .shared import Shared

__all__ = ["UNASKED", "Taking", "clocks"]

#: The outcome of a question that the client cannot be asked.
UNASKED: Final[Found] = ("unasked", b"null")


@define(eq=False)
class Taking:
    """Finds the available outcomes in one generation of a flow.

    Attributes:
        heard: Places of the current wave whose answer is from an earlier round.
    """

    _flow: Shared
    _places: Places
    _answers: Answers
    _performing: Performing
    heard: set[str] = field(factory=set, init=False)

    def is_nothing_known(self, questions: list[tuple[Sequence, Wanted]]) -> bool:
        """Whether these are new questions without answers, the usual end of a round."""
        answers = self._answers
        if self._places.table or answers.own or answers.pool or answers.early:
            return False
        supports = self._flow.supports
        for _, one in questions:
            if not one.row.is_question or not supports(one.subject):
                return False
        return True

    # ---- answers --------------------------------------------------------------------

    def answers(
        self, fresh: list[tuple[Sequence, Wanted]]
    ) -> tuple[dict[str, Found], list[tuple[Sequence, Wanted]]]:
        """Take the answers to the questions of a wave.

        Returns:
            The answers, by place; and the questions that got a stale answer.
        """
        answers, places, supports = self._answers, self._places, self._flow.supports
        found: dict[str, Found] = {}
        stale: list[tuple[Sequence, Wanted]] = []
        open_: list[Wanted] = []
        self.heard.clear()
        # First this request's own answers of all questions: none may go to another
        # question (docs/internals/replay.md#q1a).
        for sequence, wanted in fresh:
            for one in wanted.questions():
                answer = self.own(one)
                if answer is STALE:
                    stale.append((sequence, one))
                    open_.append(one)
                elif answer is not None:
                    found[one.place] = answer
                elif not one.problems or places.at(one.place).out is None:
                    open_.append(one)  # if it was not just asked again
            if not wanted.row.is_question:
                open_.append(wanted)
        if answers.are_none:
            for one in open_:
                if one.row.is_question and not supports(one.subject):
                    places.withdraw(one.place)
                    found[one.place] = UNASKED
            return found, stale
        for one in open_:
            pooled = answers.take_pooled(one)
            if isinstance(pooled, Unfit):
                one.problems = tuple(map(readable, pooled.problems))
            elif pooled is not None:
                places.withdraw(one.place)
                found[one.place], is_news = pooled
                if not is_news:
                    self.heard.add(one.place)
                continue
            if one.row.is_question and not supports(one.subject):
                places.withdraw(one.place)
                found[one.place] = UNASKED
            elif answers.early:
                early = answers.take_early(one)
                if early is not None:
                    found[one.place] = early
        return found, stale

    def own(self, wanted: Wanted) -> Found | Stale | None:
        """Return the outcome of this request's answer to the question at this place.

        See docs/internals/replay.md#q2 on answers that do not fit, and
        docs/internals/replay.md#q4 on clients that can no longer be asked.
        """
        answer = self._answers.take_own(wanted)
        if not isinstance(answer, Unfitting):
            return answer
        if answer.count >= self._flow.rules.unfit:
            return "invalid", dumps(list(answer.problems))
        if not self._flow.supports(wanted.subject):
            return UNASKED
        wanted.problems = answer.problems
        self._places.ask(wanted.place, wanted.shape, wanted.render, answer.count)
        return None

    # ---- whatever is at hand --------------------------------------------------------

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
