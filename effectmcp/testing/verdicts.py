"""Decide whether calls in progress can continue with an edited handler.

Each journal of a transcript is a point that a client could be at when a new version is
deployed. Replayed by the current handler, as by a server, it has one of these verdicts:

    replays    exactly the questions that were asked, or exactly the same end
    differs    no recorded answer is lost, but the questions or the result differ
    salvages   some entries are dropped; their answers wait for their questions
    stops      the client must start again: a step that was performed would be
               forgotten, the arguments do not fit any more, or the handler is gone
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from attrs import frozen

from ..errors import ArgumentsError
from .dry_replay import Arrival, arrive, marks_of, shown_result
from .muting import without_logging
from .subjects import Subject, subjects_of

if TYPE_CHECKING:
    from ..engine.journal import Journal
    from ..server.app import Server
    from .transcripts import Transcript

__all__ = ["ORDER", "Verdict", "verdict_of"]

#: From harmless to harmful.
ORDER: Final = ("replays", "differs", "salvages", "stops")


@frozen
class Verdict:
    """The outcome of a conversation under an edited handler.

    Attributes:
        word: One of `ORDER`: the worst verdict of all its journals.
        place: The round whose journal that is, from 1; 0 for the whole conversation.
        why: The reason, in words.
        where: `file:line` in the current handler.
    """

    word: str
    place: int = 0
    why: str = ""
    where: str | None = None

    def __str__(self) -> str:
        after = f" after round {self.place}" if self.why and self.place else ""
        at = f" at {self.where}" if self.where else ""
        return f"{self.word}{after}{at}{': ' if self.why else ''}{self.why}"


def verdict_of(app: Server, transcript: Transcript) -> Verdict:
    """Return the outcome of a conversation if `app` is deployed in the middle of it."""
    subject = _found(subjects_of(app), transcript)
    if subject is None:
        what = f"{transcript.method} {transcript.target}"
        return Verdict("stops", why=f"there is no {what} any more, or it does not ask")
    try:
        subject.read(transcript.arguments)
    except ArgumentsError as exc:
        return Verdict("stops", why=str(exc), where=subject.where)
    with without_logging():  # a salvage logs what the verdict has
        verdicts = [
            _judged(subject, transcript, place, each.journal)
            for place, each in enumerate(transcript.rounds, 1)
            if each.journal is not None
        ]
    return max(
        verdicts, key=lambda one: ORDER.index(one.word), default=Verdict("replays")
    )


def _found(subjects: Iterable[Subject], transcript: Transcript) -> Subject | None:
    for one in subjects:
        if (one.method, one.target) == (transcript.method, transcript.target):
            return one
    return None


def _judged(
    subject: Subject, transcript: Transcript, place: int, journal: Journal
) -> Verdict:
    arrival = arrive(
        subject,
        transcript.arguments,
        journal,
        flow_id=transcript.flow_id,
        lacks=transcript.lacks,
        policy="salvage",
    )
    is_last = place == len(transcript.rounds)
    if is_last and transcript.ending.how in ("returned", "raised"):
        # The client is done, so no answer can be lost.
        return _judged_end(transcript, place, arrival)
    if not arrival.is_there:
        return Verdict("stops", place, arrival.what[0], arrival.where)
    if arrival.salvaged:
        return Verdict("salvages", place, arrival.salvaged[0], arrival.where)
    if (arrival.how, arrival.marks) == ("asks", marks_of(journal)):
        return Verdict("replays", place)
    return Verdict("differs", place, f"it {arrival}", arrival.where)


def _judged_end(transcript: Transcript, place: int, arrival: Arrival) -> Verdict:
    ending = transcript.ending
    if ending.how == "returned":
        before = Arrival("returns", (shown_result(ending.value),))
    else:
        before = Arrival("raises", (ending.value,))
    if arrival.is_same(before):
        return Verdict("replays", place)
    return Verdict(
        "differs", place, f"where it {before}, it {arrival} now", arrival.where
    )
