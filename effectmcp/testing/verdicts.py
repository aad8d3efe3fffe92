"""May calls that are under way go on with an edited handler?

Each journal of a transcript is a place at which a client could be when a new version is
deployed. Replayed by today's handler, as a server would, it comes to one of these:

    replays    just the questions that were asked, or just the same end
    differs    no recorded answer is lost, but something else is asked or comes out
    salvages   some of what was recorded is dropped; answers wait for their questions
    stops      the client is told to start again: a step that was performed would be
               forgotten, the arguments do not fit any more, or the handler is gone
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from attrs import frozen

from ..errors import ArgumentsError
from .cold import Arrival, arrive, marks_of, shown_result
from .silence import silent
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
    """What becomes of a conversation.

    Attributes:
        word: One of `ORDER`: the worst of all places in it.
        place: After which round that is, counted from 1; 0 if it is all of it.
        why: In words.
        where: `file:line` in today's handler.
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
    """What becomes of a conversation if `app` is deployed in the middle of it."""
    subject = _found(subjects_of(app), transcript)
    if subject is None:
        what = f"{transcript.method} {transcript.target}"
        return Verdict("stops", why=f"there is no {what} any more, or it does not ask")
    try:
        subject.read(transcript.arguments)
    except ArgumentsError as exc:
        return Verdict("stops", why=str(exc), where=subject.where)
    with silent():  # what a salvage logs is in the verdict
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
        # No client is there any more, so nothing can be lost.
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
