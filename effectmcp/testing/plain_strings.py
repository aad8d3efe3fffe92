"""Make the strings of a conversation plain: `''` or `'a'` instead of `'k\\U000b2da9'`.

Hypothesis shrinks a conversation for as long as a check lets it. The strings that
remain are made plain here, one after the other: in arguments, answers and results of
steps. The caller runs each conversation again, and sees whether it still shows the
fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..canonical import JSON
from ..effects.questions import Accepted
from .conversations import RecordedPartner, Unscripted
from .transcripts import FAILED, AskedQuestion, Performed, Round, Transcript

if TYPE_CHECKING:
    from ..engine.answers import Answer
    from ..engine.stops import Question

__all__ = ["PatientPartner", "simpler"]

_PLAIN: Final = ("", "a")


class PatientPartner(RecordedPartner):
    """Replays a transcript, and repeats an answer if a question is asked again.

    A handler that does not repeat itself may ask more often than before.
    """

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._said: dict[str, Answer | None] = {}

    def answer(self, question: Question) -> Answer | None:
        try:
            self._said[question.key] = super().answer(question)
        except Unscripted:
            if question.key not in self._said:
                raise
        return self._said[question.key]


#: Length of the longest string that a reader takes in at a glance.
_SHORT: Final = 8

_Change = Callable[[str], str]


def simpler(transcript: Transcript) -> Iterator[Transcript]:
    """Yield the conversation with plain strings: all of them at once, then each alone."""
    odd = sorted({text for text in _texts(transcript) if not _is_plain(text)})
    if len(odd) > 1:
        for plain in _PLAIN:
            yield _with(transcript, dict.fromkeys(odd, plain))
    for text in odd:
        for plain in _PLAIN:
            yield _with(transcript, {text: plain})


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and len(text) <= _SHORT


def _with(transcript: Transcript, plain: dict[str, str]) -> Transcript:
    return _changed(transcript, lambda text: plain.get(text, text))


def _changed(transcript: Transcript, change: _Change) -> Transcript:
    return attrs.evolve(
        transcript,
        arguments=_in_json(transcript.arguments, change),
        early=tuple(_in_answer(one, change) for one in transcript.early),
        rounds=tuple(_in_round(one, change) for one in transcript.rounds),
    )


def _texts(transcript: Transcript) -> list[str]:
    found: list[str] = []

    def keep(text: str) -> str:
        found.append(text)
        return text

    _changed(transcript, keep)
    return found


def _in_round(one: Round, change: _Change) -> Round:
    return attrs.evolve(
        one,
        performed=tuple(_in_performed(each, change) for each in one.performed),
        asked=tuple(_in_answer(each, change) for each in one.asked),
    )


def _in_performed(one: Performed, change: _Change) -> Performed:
    if one.tag in FAILED:
        return one
    return attrs.evolve(one, payload=_in_json(one.payload, change))


def _in_answer(one: AskedQuestion, change: _Change) -> AskedQuestion:
    if not isinstance(one.answer, Accepted):
        return one
    return attrs.evolve(one, answer=Accepted(_in_json(one.answer.value, change)))


def _in_json(value: JSON, change: _Change) -> Any:
    match value:
        case str():
            return change(value)
        case list():
            return [_in_json(one, change) for one in value]
        case dict():
            return {name: _in_json(one, change) for name, one in value.items()}
        case _:
            return value
