"""Notices: remarks on behaviour that may be intended. They do not fail a check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import Unsupported
from .effect_traces import changed_answers

if TYPE_CHECKING:
    from .oracles import Case
    from .transcripts import Transcript

__all__ = ["notices_of"]

_PERFORMED = frozenset({"done", "failed"})


def notices_of(case: Case) -> Iterator[str]:
    """Yield the notices about one conversation."""
    transcript, name = case.transcript, case.subject.name
    if case.could_be_live:
        for where in sorted(changed_answers(case.trace.effects)):
            yield (
                f"{name}: the answer at {where} is changed later. That is harmless,"
                " and not kept: each round builds it afresh"
            )
    first = transcript.rounds[0]
    for one in first.performed:
        if first.asked and one.tag in _PERFORMED:
            yield (
                f"{name}: {one.what.partition('(')[0]}, at {one.where}, is performed"
                " before the first question. A client that sends its first request"
                " again performs it again, and its IdempotencyKey is another one"
            )
    if isinstance(transcript.ending.error, Unsupported):
        before = _before_unasked(transcript)
        for one in (p for each in transcript.rounds for p in each.performed):
            if one.tag in _PERFORMED and one.key.partition(":")[2] in before:
                yield (
                    f"{name}: {one.what.partition('(')[0]}, at {one.where}, is"
                    " performed for clients that cannot be asked the question after"
                    " it. Pass requires=(...) to refuse them first"
                )


def _before_unasked(transcript: Transcript) -> set[str]:
    """Return the places before the first question that could not be asked."""
    found: set[str] = set()
    for journal in transcript.journals[-1:]:
        for entry in journal.entries:
            if entry.tag == "unasked":
                return found
            found.add(entry.key)
    return set()
