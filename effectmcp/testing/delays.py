"""Delay one branch of each Gather, and see whether the others notice.

The engine delivers in waves, so branches that read each other's work replay the same.
They are still wrong: what such a branch asks depends on how many questions another has,
and the next edit of that other branch changes what the user is asked. An independent
branch asks the same, no matter how late it runs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..effects.base import Effect
from ..effects.control import Checkpoint, Gather
from ..effects.local import ClientSupports
from ..effects.questions import Accepted, Elicit
from ..errors import Signal
from .conversations import WAYS, ConversationBroken, RecordedPartner, run_conversation
from .descriptions import describe

if TYPE_CHECKING:
    from ..engine.answers import Answer
    from ..engine.stops import Done, Failure, Question, Want
    from .subjects import Subject
    from .transcripts import AskedQuestion, Ending, Performed, Transcript

__all__ = ["LateBranch", "late_branches"]

#: Number of branches that are delayed, one after the other.
_MOST: int = 3


@frozen
class LateBranch:
    """A branch that yields something else when another branch is delayed.

    Attributes:
        first: What it yielded; the result, if only that differs.
        second: What it yielded when another branch was delayed.
        where: `file:line` of the yield; `None` for a result.
    """

    first: str
    second: str
    where: str | None


class _Noting(RecordedPartner):
    """Replays a transcript, and notes what the handler yields."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self.wanted: dict[str, str] = {}
        #: Set when a Gather failed: which branch fails first depends on timing, so what
        #: the handler does afterwards is not compared.
        self.has_failed = False
        self.ending: Ending | None = None

    def _note(self, key: str, effect: Effect[Any]) -> None:
        if not self.has_failed:
            self.wanted.setdefault(key, describe(effect))

    def answer(self, question: Question) -> Answer | None:
        self._note(question.key, question.effect)
        return super().answer(question)

    def perform(self, key: str, want: Want) -> Done | Failure:
        self._note(key, want.effect)
        return super().perform(key, want)


@frozen
class _Delay:
    """The branch that is delayed, and the partner that takes notes."""

    path: str
    partner: _Noting


def late_branches(subject: Subject, transcript: Transcript) -> LateBranch | None:
    """Run a conversation again with delays; its branches must yield the same."""
    before: dict[str, tuple[str, str | None]] = {}
    for each in transcript.rounds:
        wanted: list[AskedQuestion | Performed] = [*each.performed, *each.asked]
        for one in wanted:
            if "/" in one.key:
                before.setdefault(one.key, (one.what, one.where))
    for late in islice(_branches(before), _MOST):
        partner = _had(subject, transcript, late)
        for key, what in partner.wanted.items():
            if key in before and before[key][0] != what:
                first, where = before[key]
                return LateBranch(first, what, where)
            if "/" in key and key not in before and _is_smooth(subject, transcript):
                last, where = list(before.values())[-1]
                return LateBranch(f"no more than {last}", what, where)
        if _returns_another(transcript, partner) and _is_smooth(subject, transcript):
            return LateBranch(str(transcript.ending), str(partner.ending), None)
    return None


def _returns_another(transcript: Transcript, partner: _Noting) -> bool:
    ending = transcript.ending
    return (
        partner.ending is not None
        and not partner.has_failed
        and ending.how == partner.ending.how == "returned"
        and ending != partner.ending
    )


def _had(subject: Subject, transcript: Transcript, late: str) -> _Noting:
    """Run it again with one branch late; return the partner with its notes."""
    partner = _Noting(transcript)
    delayed = _delayed(subject, _Delay(late, partner))
    try:
        partner.ending = run_conversation(
            delayed,
            transcript.arguments,
            partner,
            WAYS[1],
            flow_id=transcript.flow_id,
        ).ending
    except ConversationBroken:
        pass  # for example, another branch fails first; compare the effects before that
    return partner


def _is_smooth(subject: Subject, transcript: Transcript) -> bool:
    """Whether all questions were accepted and nothing failed: no branch ends early."""
    # Questions that were answered early were never asked.
    is_accepted = not transcript.early and all(
        isinstance(asked.answer, Accepted) and "~" not in asked.key
        for each in transcript.rounds
        for asked in each.asked
    )
    return is_accepted and not _had(subject, transcript, "").has_failed


def _branches(keys: Iterable[str]) -> Iterator[str]:
    """Yield the paths of all branches, outer ones first: `gather-1/0/gather-1/1/`."""
    found = {}
    for key in keys:
        parts = key.partition(":")[2].split("/") if ":" in key else key.split("/")
        if not parts[0].startswith("gather-"):
            continue  # of a later generation, whose handler is not wrapped
        for depth in range(2, len(parts), 2):
            found["/".join(parts[:depth]) + "/"] = depth
    return iter(sorted(found, key=lambda path: (found[path], path)))


def _delayed(subject: Subject, late: _Delay) -> Subject:
    function = subject.function

    def handler(**kwargs: Any) -> Any:
        return _forwarded(function(**kwargs), late)

    return subject.standing_for(handler)


def _forwarded(flow: Any, late: _Delay, here: str = "") -> Generator[Any, Any, Any]:
    """Forward `flow`, with the delay added to every Gather on the way."""
    value, error = None, None
    gathers = 0
    while True:
        try:
            effect = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value
        value, error = None, None
        if isinstance(effect, Gather):
            gathers += 1
            effect = _with_delay(effect, late, f"{here}gather-{gathers}/")
        try:
            value = yield effect
        except BaseException as exc:
            error = exc
            if isinstance(effect, Gather) and not isinstance(exc, Signal):
                late.partner.has_failed = True


def _with_delay(gather: Gather[Any], late: _Delay, here: str) -> Gather[Any]:
    branches = [
        _branch(one, late, f"{here}{place}/")
        for place, one in enumerate(gather.branches)
    ]
    made: Gather[Any] = Gather.each(branches) if gather.as_list else Gather(*branches)
    return made


def _branch(branch: Any, late: _Delay, here: str) -> Generator[Any, Any, Any]:
    if here == late.path:
        # One local wave, and one wave of the client.
        yield ClientSupports(Elicit)
        yield Checkpoint()
    if isinstance(branch, Effect):
        return (yield branch)
    return (yield from _forwarded(branch, late, here))
