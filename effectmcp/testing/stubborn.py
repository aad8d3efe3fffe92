"""Let a user refuse, or a step fail, for as long as a handler tries.

A conversation in which a handler asks the same line again after a refusal, or performs
the same step again after a failure, may show a loop. Whether it ends is seen by having
the conversation again with a partner that never gives in.
"""

from __future__ import annotations

from typing import Final

from ..engine import Answer, Done, Failure, Question, Want
from ..errors import Declined, Dismissed, TooManyRounds
from .findings import Found
from .subjects import Subject
from .talks import WAYS, Broken, Recorded, talk
from .transcripts import FAILED, Performed, Said, Transcript
from .words import shown

__all__ = ["Endless", "endless_loop"]

#: Times that a step fails before it is taken that the handler never gives up.
_MOST_FAILURES: Final = 40


class Endless(Exception):
    """Raised when a step was performed again and again."""


def endless_loop(subject: Subject, transcript: Transcript) -> Found | None:
    """The loop of a handler that a stubborn partner does not let end."""
    asked = _asked_again(transcript)
    if asked is not None:
        found = _refusing(subject, transcript, asked)
        if found is not None:
            return found
    performed = _performed_again(transcript)
    return None if performed is None else _failing(subject, transcript, performed)


def _asked_again(transcript: Transcript) -> Said | None:
    """A question that was refused, if the same line asks again later."""
    refused: dict[str | None, Said] = {}
    for each in transcript.rounds:
        for one in each.asked:
            if one.where in refused and "~" not in one.key:
                return refused[one.where]
        for one in each.asked:
            if isinstance(one.answer, (Declined, Dismissed)):
                refused[one.where] = one
    return None


def _performed_again(transcript: Transcript) -> Performed | None:
    """A step that failed, if the same line performs it again later."""
    failed: dict[tuple[str | None, str], Performed] = {}
    for each in transcript.rounds:
        for one in each.performed:
            at = (one.where, one.what)
            if at in failed and failed[at].key != one.key:
                return failed[at]
            if one.tag in FAILED:
                failed[at] = one
    return None


# ---- a user who refuses -------------------------------------------------------------


def _refusing(subject: Subject, transcript: Transcript, asked: Said) -> Found | None:
    try:
        again = talk(
            subject,
            transcript.arguments,
            _Refusing(transcript, asked),
            WAYS[0],
            flow_id=transcript.flow_id,
            early=transcript.early,
        )
    except Broken:
        return None  # another oracle finds the reason
    if not isinstance(again.ending.error, TooManyRounds):
        return None
    return Found(
        "loops",
        "it asks the same question again for as long as the user refuses:"
        f" {asked.what}",
        asked.where,
        "Accept a refusal as an answer: return, or raise ToolError. A loop needs an end"
        " (`for _ in range(3)`), whatever the user answers.",
        again,
    )


class _Refusing(Recorded):
    """The partner of a transcript, who refuses everything from one question on."""

    def __init__(self, transcript: Transcript, asked: Said) -> None:
        super().__init__(transcript)
        self._asked = asked
        self._is_refusing = False

    def answer(self, question: Question) -> Answer | None:
        if question.key == self._asked.key:
            self._is_refusing = True
        return self._asked.answer if self._is_refusing else super().answer(question)


# ---- a step that fails --------------------------------------------------------------


def _failing(
    subject: Subject, transcript: Transcript, performed: Performed
) -> Found | None:
    try:
        talk(
            subject,
            transcript.arguments,
            _Failing(transcript, performed),
            WAYS[0],
            flow_id=transcript.flow_id,
            early=transcript.early,
        )
    except Broken as broken:
        if not isinstance(broken.error, Endless):
            return None
        return Found(
            "loops",
            f"it performs {performed.what} again for as long as that fails",
            performed.where,
            "End after a few tries (`for _ in range(3)`), and raise ToolError. To try"
            " again a little later, declare the step with retries=.",
            transcript,
        )
    return None


class _Failing(Recorded):
    """The partner of a transcript, in whose world one step always fails."""

    def __init__(self, transcript: Transcript, performed: Performed) -> None:
        super().__init__(transcript)
        self._performed = performed
        self._failure: Failure | None = None
        self._left = _MOST_FAILURES

    def perform(self, key: str, want: Want) -> Done | Failure:
        if key == self._performed.key:
            outcome = super().perform(key, want)
            self._failure = outcome if isinstance(outcome, Failure) else None
            return outcome
        if self._failure is None or shown(want.effect) != self._performed.what:
            return super().perform(key, want)
        self._left -= 1
        if not self._left:
            raise Endless
        return self._failure
