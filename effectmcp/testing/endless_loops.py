"""Make a user refuse, or a step fail, for as long as a handler tries.

A loop around a question may end only when the user accepts, and one around a step only
when the step succeeds. Drawn conversations rarely show that, because drawn users give
in. So a conversation is run again with a partner that refuses one question and all
later ones, or that always fails one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from ..effects.base import Effect
from ..effects.steps import Step
from ..engine.answers import Answer
from ..engine.stops import Done, Failure, Question, Want
from ..errors import Declined, Dismissed, TooManyRounds
from .conversations import WAYS, ConversationBroken, RecordedPartner, run_conversation
from .drawn_conversations import failures_of
from .endings import NO_END, loop_of, was_wasteful
from .findings import BareFinding
from .transcripts import FAILED, AskedQuestion, Performed, Transcript

if TYPE_CHECKING:
    from .subjects import Subject

__all__ = ["EndlessLoops"]

#: Failures of a step after which the handler counts as never giving up.
_MOST_FAILURES: Final = 40
#: Conversations where a place ended, after which it is not tried any more.
_ENOUGH: Final = 3
#: Number of failed performances to show.
_SHOWN: Final = 3

#: `file:line` of a question or a step, and what happens to it.
_At: TypeAlias = tuple[str | None, str]


class EndlessLoops:
    """The questions and steps of one handler that may be in an endless loop."""

    def __init__(self) -> None:
        self._ended: Counter[_At] = Counter()

    def found(self, subject: Subject, transcript: Transcript) -> BareFinding | None:
        """Return the first loop that does not end with a stubborn partner."""
        for asked in _first_asked(transcript):
            for answer in (Declined(), Dismissed()):
                at = (asked.where, type(answer).__name__)
                if self._ended[at] < _ENOUGH:
                    found = _refused(subject, transcript, asked, answer)
                    if found is not None:
                        return found
                    self._ended[at] += 1
        for performed in _first_performed(transcript):
            at = (performed.where, "failed")
            if self._ended[at] < _ENOUGH:
                for error in range(_kinds_of(subject, transcript, performed)):
                    found = _failed(subject, transcript, performed, error)
                    if found is not None:
                        return found
                self._ended[at] += 1
        return None


def _first_asked(transcript: Transcript) -> Iterator[AskedQuestion]:
    seen = set()
    for each in transcript.rounds:
        for one in each.asked:
            if one.where not in seen and "~" not in one.key:
                seen.add(one.where)
                yield one


def _first_performed(transcript: Transcript) -> Iterator[Performed]:
    seen = set()
    for each in transcript.rounds:
        for one in each.performed:
            if one.where not in seen and one.tag not in FAILED:
                seen.add(one.where)
                yield one


# ---- a user who refuses -------------------------------------------------------------


def _refused(
    subject: Subject, transcript: Transcript, asked: AskedQuestion, answer: Answer
) -> BareFinding | None:
    try:
        again = run_conversation(
            subject,
            transcript.arguments,
            _Refusing(transcript, asked.key, answer),
            WAYS[0],
            flow_id=transcript.flow_id,
        )
    except ConversationBroken:
        return None  # another oracle finds the reason
    is_over = isinstance(again.ending.error, TooManyRounds)
    if not is_over or was_wasteful(again):
        return None
    return loop_of(again)


class _Refusing(RecordedPartner):
    """Replays a transcript, but refuses every question from one of them on."""

    def __init__(self, transcript: Transcript, key: str, refusal: Answer) -> None:
        super().__init__(transcript)
        self._key = key
        self._refusal = refusal
        self._is_refusing = False

    def answer(self, question: Question) -> Answer | None:
        self._is_refusing = self._is_refusing or question.key == self._key
        return self._refusal if self._is_refusing else super().answer(question)


# ---- a step that fails --------------------------------------------------------------


class _Endless(Exception):
    """Raised when a step was performed too often."""


def _failed(
    subject: Subject, transcript: Transcript, performed: Performed, error: int
) -> BareFinding | None:
    try:
        run_conversation(
            subject,
            transcript.arguments,
            _Failing(transcript, performed, error),
            WAYS[0],
            flow_id=transcript.flow_id,
        )
    except ConversationBroken as broken:
        if not isinstance(broken.error, _Endless):
            return None
        return BareFinding(
            "loops",
            f"it performs {performed.what} again for as long as that fails",
            performed.where,
            f"{NO_END} To try again a little later, declare the step with retries=.",
            _shortened(broken.transcript),
        )
    return None


def _shortened(transcript: Transcript) -> Transcript:
    *before, last = transcript.rounds
    last = attrs.evolve(last, performed=last.performed[:_SHOWN])
    return attrs.evolve(transcript, rounds=(*before, last))


def _kinds_of(subject: Subject, transcript: Transcript, performed: Performed) -> int:
    """Return the number of exceptions that a step can fail with."""
    partner = _Failing(transcript, performed, -1)
    try:
        run_conversation(
            subject,
            transcript.arguments,
            partner,
            WAYS[1],
            flow_id=transcript.flow_id,
        )
    except ConversationBroken:
        pass
    return partner.kinds


class _Failing(RecordedPartner):
    """Replays a transcript, except that one step always fails."""

    def __init__(
        self, transcript: Transcript, performed: Performed, error: int
    ) -> None:
        super().__init__(transcript)
        self.kinds = 0
        self._key = performed.key
        self._error = error
        self._step: Effect[object] | None = None
        self._left = _MOST_FAILURES

    def perform(self, key: str, want: Want) -> Done | Failure:
        if key == self._key and isinstance(want.effect, Step):
            self._step = want.effect
            self.kinds = len(failures_of(want.effect))
        if self._error < 0 or want.effect != self._step:
            return super().perform(key, want)
        assert isinstance(want.effect, Step)
        self._left -= 1
        if not self._left:
            raise _Endless(f"and so on: it fails for the {_MOST_FAILURES}th time")
        return Failure(failures_of(want.effect)[self._error])
