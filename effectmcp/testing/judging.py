"""Judge the conversations of a check, and remember the weak faults and the notices.

A fault that explains all others is reported at once. A fault that matters only if no
other is found, such as an effect that is built and never performed, is kept as weak,
and reported after the last conversation.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..effects.questions import Accepted
from ..engine import development
from ..engine.development import UnperformedEffectWarning
from .conversations import ConversationBroken
from .descriptions import describe
from .drawn_conversations import Looping
from .endings import found_in, was_wasteful
from .endless_loops import EndlessLoops
from .findings import BareFinding, Fault, Finding
from .leaked_state import StateChange, StateChanges
from .line_coverage import LineWatcher, Range
from .muting import without_output
from .notices import notices_of
from .oracles import Case, asked
from .refusals import Differences, NoDifference
from .sanitizer import Sanitizer
from .source_faults import WRITE, suspects_of

if TYPE_CHECKING:
    from .performing import Performer
    from .replay_workers import ReplayWorkers
    from .subjects import Subject
    from .transcripts import Transcript

__all__ = ["At", "Judge"]

#: Times that a question is asked before the lack of any answer is remarkable.
_OFTEN: Final = 3

#: The kind of a finding, and its `file:line`.
At: TypeAlias = tuple[str, str | None]


class Judge:
    """Runs the conversations of one handler, and raises the faults that they show.

    Args:
        subject: The handler.
        performer: Performs steps.

    Attributes:
        subject: The handler.
        workers: Other processes that replay; `None` for none.
        count: The number of conversations.
        notices: Remarks for the report, in order.
        weak: Faults to report if there is no other, in their shortest conversations.
        wanted: The weak fault to raise; all other faults are then ignored.
        differences: The answers that made a difference.
        covering: Lines to watch besides the lines of suspects.
        covered: The lines of `covering` that ran.
    """

    def __init__(self, subject: Subject, performer: Performer) -> None:
        self.subject = subject
        self.workers: ReplayWorkers | None = None
        self.count = 0
        self.notices: dict[str, None] = {}
        self.weak: dict[At, Finding] = {}
        self.wanted: At | None = None
        self.differences = Differences(subject.function)
        self.covering: set[Range] = set()
        self.covered: set[Range] = set()
        self._performer = performer
        self._changes = StateChanges(subject.function)
        self._suspects = suspects_of(subject.function)
        self._endless_loops = EndlessLoops()
        self._noticed: set[str] = set()
        #: The lines that built performed effects.
        self._performed_at: set[str] = set()
        #: Questions per line, and the lines whose question was accepted.
        self._asked_at: Counter[str] = Counter()
        self._accepted_at: set[str] = set()

    @property
    def weak_faults(self) -> dict[At, Finding]:
        """The weak faults that no other conversation disproved."""
        # A handler may build several effects and perform only the one it needs.
        return {
            at: finding
            for at, finding in self.weak.items()
            if finding.kind != "forgotten" or finding.where not in self._performed_at
        }

    @property
    def not_reached(self) -> list[str]:
        """The questions that no conversation got past: `file:line`."""
        return sorted(
            where
            for where, count in self._asked_at.items()
            if count >= _OFTEN and where not in self._accepted_at
        )

    def have(self, having: Callable[[Any], Transcript]) -> None:
        """Run one conversation, and judge it.

        Raises:
            Fault: If it shows a fault.
            Looping: If it was abandoned because it performed too much.
        """
        sanitizer = Sanitizer(of=self.subject.function)
        wanted = {at for one in self._suspects for at in (one.shows_at, one.near)}
        lines = LineWatcher(at for at in wanted | self.covering if at is not None)
        changes = self._changes
        changed: dict[str, StateChange] = {}
        self._performer.begin()

        @contextmanager
        def watch() -> Iterator[None]:
            changes.take()  # the handler did not cause the changes in between
            try:
                with without_output(), lines.watching(), sanitizer.watching():
                    yield
            finally:
                for one in changes.take():
                    changed.setdefault(one.name, one)

        with warnings.catch_warnings(record=True) as warned, self._noting():
            warnings.simplefilter("always", UnperformedEffectWarning)
            warnings.simplefilter("always", RuntimeWarning)
            try:
                transcript = having(watch)
                error: Exception | None = None
            except ConversationBroken as broken:
                transcript, error = broken.transcript, broken.error
            except Looping as looping:
                self.notices[
                    f"{self.subject.name}: {looping.what} is performed in a loop that"
                    " drawn values rarely end. Pass its results in steps="
                ] = None
                raise
        self.count += 1
        self.covered |= lines.seen & self.covering
        self._note_answers(transcript)
        self._judge_lines(transcript, lines)
        self._judge_sights(transcript, sanitizer, changed)
        self._judge_ending(transcript, error, sanitizer.returned_at, changed)
        self._judge_warnings(warned, transcript)
        if error is None:
            with warnings.catch_warnings():
                # They were recorded already. As errors, they would change what the
                # handler does.
                warnings.simplefilter("ignore", RuntimeWarning)
                self._judge_answers(transcript, changed, sanitizer.returned_at)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        before, development.on_performed = (
            development.on_performed,
            self._performed_at.add,
        )
        try:
            yield
        finally:
            development.on_performed = before

    def _note_answers(self, transcript: Transcript) -> None:
        for each in transcript.rounds:
            for one in each.asked:
                if one.where is not None:
                    self._asked_at[one.where] += 1
                    if isinstance(one.answer, Accepted) and one.answer.value != (
                        "nonsense"
                    ):
                        self._accepted_at.add(one.where)

    def _report(self, found: BareFinding | None, transcript: Transcript) -> None:
        """Raise a fault, unless conversations are run for another finding."""
        if found is not None and self.wanted is None:
            raise Fault(found.of(self.subject.name, transcript))

    def _report_weak(self, found: BareFinding, transcript: Transcript) -> None:
        """Keep a fault to report if no other fault is found."""
        finding = found.of(self.subject.name, transcript)
        at = (found.kind, found.where)
        if self.wanted == at:
            raise Fault(finding)
        known = self.weak.get(at)
        if known is None or finding.size < known.size:
            self.weak[at] = finding

    # ---- judges ----

    def _judge_lines(self, transcript: Transcript, lines: LineWatcher) -> None:
        for one in self._suspects:
            found = BareFinding(one.kind, one.problem, one.where, one.advice)
            if one.shows_at in lines.seen and not one.is_weak:
                self._report(found, transcript)
            elif one.shows_at in lines.seen or one.near in lines.seen:
                self._report_weak(found, transcript)

    def _judge_sights(
        self,
        transcript: Transcript,
        sanitizer: Sanitizer,
        changed: Mapping[str, StateChange],
    ) -> None:
        """Report what the sanitizer saw: it explains all other faults."""
        for sight in sanitizer.seen:
            found = BareFinding(
                "unrecorded", sight.problem, sight.where, f"Use {sight.instead}."
            )
            self._report(found, transcript)
        for one in changed.values():
            if one.is_default:
                found = BareFinding(
                    "default",
                    f"{one.what}: a default belongs to the function, and not to one call",
                    one.where,
                    "Make None the default, and a new one inside.",
                )
                self._report(found, transcript)

    def _judge_ending(
        self,
        transcript: Transcript,
        error: Exception | None,
        returned_at: str | None,
        changed: Mapping[str, StateChange],
    ) -> None:
        raised = error or transcript.ending.error
        if raised is not None:
            found = found_in(
                raised,
                transcript,
                subject=self.subject,
                changed=changed,
                returned_at=returned_at,
            )
            self._report(found, transcript)

    def _judge_warnings(
        self, warned: Iterable[warnings.WarningMessage], transcript: Transcript
    ) -> None:
        for one in warned:
            if isinstance(one.message, UnperformedEffectWarning):
                what, where = describe(one.message.effect), one.message.where
                self._report_weak(
                    BareFinding(
                        "forgotten",
                        f"it builds {what} and never performs it",
                        where,
                        WRITE,
                    ),
                    transcript,
                )
            elif "was never awaited" in str(one.message):
                self._report(
                    BareFinding(
                        "forgotten", str(one.message), self.subject.where, WRITE
                    ),
                    transcript,
                )

    def _judge_answers(
        self,
        transcript: Transcript,
        changed: Mapping[str, StateChange],
        returned_at: str | None,
    ) -> None:
        case = Case(
            self.subject,
            transcript,
            self.workers,
            self._performer,
            changed,
            returned_at,
            self._endless_loops,
            self._changes.outlived(),
        )
        if self.wanted is None:
            self._report(asked(case), transcript)
            self._take_notice(case)
        if case.could_be_live:
            for same in self.differences.look(self.subject, case.trace):
                self._report_weak(_swallowed(same), transcript)

    def _take_notice(self, case: Case) -> None:
        name, transcript = self.subject.name, case.transcript
        if transcript.rounds[-1].journal is None and not was_wasteful(transcript):
            self.notices[
                f"{name} can ask in more rounds than clients tolerate, and handles it"
            ] = None
        for one in case.changed.values():
            if one.name not in self._noticed:
                self._noticed.add(one.name)
                self.notices[
                    f"{name}: {one.what}. The result did not change; in another process"
                    " it is as it was"
                ] = None
        self.notices.update(dict.fromkeys(notices_of(case)))


def _swallowed(same: NoDifference) -> BareFinding:
    assert same.swallow is not None
    return BareFinding(
        "refusal",
        f"a user who refuses is ignored: after {same.question} was refused, the handler"
        " does what it does when it is accepted",
        same.swallow.where,
        "Let Declined and Dismissed pass: the client then learns that the user refused. Or"
        " return in the `except`.",
    )
