"""Notice answers that a handler changes. It is harmless: each round builds them afresh.

It is worth knowing all the same, since whoever changes a list that was answered may think
that the change is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from ..engine.turn import where
from .subjects import Subject
from .talks import WAYS, Broken, Recorded, talk
from .transcripts import Transcript

__all__ = ["changed_answers"]

_MUTABLE: Final = (list, dict, set, bytearray)


def changed_answers(subject: Subject, transcript: Transcript) -> set[str]:
    """Where a handler got an answer that it changed later: `file:line` of the yields."""
    seen: list[tuple[Any, str, str]] = []
    try:
        talk(
            _observed(subject, seen),
            transcript.arguments,
            Recorded(transcript),
            WAYS[1],
            flow_id=transcript.flow_id,
        )
    except Broken:
        pass  # whatever it is, others find it
    return {at for value, before, at in seen if repr(value) != before}


def _observed(subject: Subject, seen: list[tuple[Any, str, str]]) -> Subject:
    function: Callable[..., Any] = subject.function

    def handler(**kwargs: Any) -> Generator[Any, Any, Any]:
        flow = function(**kwargs)
        value, error = None, None
        while True:
            try:
                effect = flow.send(value) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value
            at = where(flow)
            value, error = None, None
            try:
                value = yield effect
            except BaseException as exc:
                error = exc
            if isinstance(value, _MUTABLE) and at is not None:
                seen.append((value, repr(value), at))

    return subject.standing_for(handler)
