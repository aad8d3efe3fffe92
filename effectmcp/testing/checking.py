"""Find what is wrong with a handler, in one line.

    check(app)

Conversations are drawn (`conversations`), each round of which is replayed from a sealed
state while the sanitizer watches. Each one is judged by

    suspects    faults that can be read in the source, if it ran those lines
    sanitizer   what the handler did that no replay can repeat
    endings     how it ended
    oracles     what every correct handler answers alike
    refusals    the answers that made no difference

Hypothesis shrinks the conversation that shows a fault. The finding is a sentence, the
line, and the shortest conversation.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs
from hypothesis import HealthCheck, Phase, Verbosity, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, Unsatisfiable

from ..effects import Accepted, StepFunction
from ..engine import UnperformedEffectWarning, development
from ..errors import UsageError
from ..server import Server
from ..server.target import load
from .changes import Change, Changes
from .conversations import Looping, Options, converse
from .endings import found_in, was_wasteful
from .findings import Checked, CheckError, Fault, Finding, Found
from .lines import Lines
from .notices import notices_of
from .oracles import Case, asked
from .performing import Fakes, Performer
from .refusals import Differences, Same
from .sanitizer import Sanitizer
from .silence import muted, silent
from .simpler import simpler
from .subjects import Subject, subject_of, subjects_of
from .suspects import WRITE, suspects_of
from .talks import WATCHED, Broken, Recorded, talk
from .transcripts import Transcript
from .words import shown
from .workers import WorkerError, Workers

__all__ = ["CheckError", "Checked", "Finding", "check", "options_at"]


def check(
    what: Server | Callable[..., Any],
    *,
    conversations: int = 100,
    only: Iterable[str] | None = None,
    steps: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    answers: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    arguments: Mapping[str, st.SearchStrategy[Any]] | None = None,
    perform: Fakes = False,
    workers: Workers | int = 3,
    again: Iterable[Transcript] = (),
    raises: bool = True,
) -> Checked:
    """Look for everything that can be wrong with handlers, in drawn conversations.

    A step that `perform` does not name is not performed: its result is drawn from its
    return annotation, or it fails.

    Args:
        what: A server, whose tools, prompts and resources that ask are checked one after
            the other; or one handler.
        conversations: How many to have with each.
        only: Of a server, the names or URIs of those to check.
        steps: Strategies for the results of steps, by function, where their annotation
            does not say it or says too much.
        answers: Strategies for what users fill in, by form as `Elicit` is given it,
            where validators of yours want what chance hardly ever draws.
        arguments: Strategies for arguments, by name; of values as a handler has them.
        perform: Functions that perform steps, by the step: a fake that takes the same
            arguments, or `True` for the step itself. `True` alone performs all steps by
            themselves. A function without parameters that returns such a dict is called
            before each conversation, so that fakes can keep state. Each step is
            performed twice, with copies of its arguments.
        workers: Other processes that replay: how many, or those of earlier checks.
        again: Conversations to have first: those that failed before.
        raises: Whether to raise what is found; otherwise it is only returned.

    Raises:
        CheckError: Something is wrong.
        UsageError: There is nothing to check, or something cannot be drawn.
    """
    subjects = _subjects(what, only)
    again = list(again)
    made = {
        step.fn if isinstance(step, StepFunction) else step: one
        for step, one in (steps or {}).items()
    }
    options = Options(
        steps=made,
        answers=answers or {},
        arguments=arguments or {},
        performer=Performer(perform),
    )
    running = Workers(workers) if isinstance(workers, int) else workers
    findings: list[Finding] = []
    notices: dict[str, None] = {}
    count = 0
    try:
        for subject in subjects:
            one = _Check(subject, _fitting(options, subject), running)
            finding = one.run(conversations, again)
            if finding is not None:
                findings.append(finding)
            count += one.count
            notices.update(one.notices)
    finally:
        if running is not workers:
            running.close()
    names = tuple(subject.name for subject in subjects)
    checked = Checked(names, count, tuple(findings), tuple(notices))
    if findings and raises:
        raise CheckError(checked)
    return checked


_OPTIONS: Final = frozenset({"steps", "answers", "arguments", "perform"})


def options_at(target: str | None) -> dict[str, Any]:
    """What `module:name` says of how to check: a dict of some of `_OPTIONS`.

    Raises:
        UsageError: It is something else.
    """
    if target is None:
        return {}
    found = load(target)
    if not isinstance(found, Mapping) or not _OPTIONS.issuperset(found):
        raise UsageError(
            f"{target!r} is no dict with some of {', '.join(sorted(_OPTIONS))}"
        )
    return dict(found)


def _subjects(
    what: Server | Callable[..., Any], only: Iterable[str] | None
) -> list[Subject]:
    if not isinstance(what, Server):
        return [subject_of(what)]
    subjects = list(subjects_of(what))
    if only is None:
        return subjects
    wanted = [only] if isinstance(only, str) else list(only)
    known = {subject.name: subject for subject in subjects}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(
            f"{what!r} has nothing that asks by the name of {', '.join(unknown)}; there"
            f" is {', '.join(known) or 'nothing at all'}"
        )
    return [known[name] for name in wanted]


def _fitting(options: Options, subject: Subject) -> Options:
    # Of several handlers each takes what it knows.
    takes = subject.feature.handler.takes.schema.get("properties", {})
    fitting = {name: one for name, one in options.arguments.items() if name in takes}
    return attrs.evolve(options, arguments=fitting)


# ---- one handler --------------------------------------------------------------------

#: Seconds in which a conversation is made shorter.
_SHRINKING: Final = 1.5
#: Seconds in which the texts of the shortest one are made plain.
_PLAINER: Final = 0.5


class _Check:
    def __init__(self, subject: Subject, options: Options, workers: Workers) -> None:
        self.subject = subject
        self.count = 0
        self.notices: dict[str, None] = {}
        self._options = options
        self._performer: Performer = options.performer or Performer(False)
        self._best: Finding | None = None
        self._until = float("inf")
        self._workers: Workers | None = workers
        self._changes = Changes(subject.function)
        self._noticed: set[str] = set()
        #: Where effects were built that were performed.
        self._performed_at: set[str] = set()
        #: Where was asked, and where an answer was accepted.
        self._asked_at: set[str] = set()
        self._accepted_at: set[str] = set()
        self._suspects = suspects_of(subject.function)
        self._differences = Differences(subject.function)
        #: Faults to report if there is no other, each with its shortest conversation;
        #: and that one of them for which conversations are made shorter.
        self._weak: dict[tuple[str, str | None], Finding] = {}
        self._wanted: tuple[str, str | None] | None = None

    def run(self, conversations: int, again: Iterable[Transcript]) -> Finding | None:
        """The worst that there is, or nothing."""
        self._load()
        with silent(), muted():
            for transcript in again:
                if transcript.target == self.subject.target:
                    self._have_again(transcript)
            if self._best is None:
                self._explore(conversations)
                self._shorten_weak(conversations)
            self._make_plain()
        self._notice_what_was_not_reached()
        return self._best

    def _shorten_weak(self, conversations: int) -> None:
        """Report a fault that is only one where no other is; in a short conversation."""
        if self._best is not None:
            return
        weak = {
            at: finding
            for at, finding in self._weak.items()
            # Of several effects that are built, the one that is needed may be picked.
            if finding.kind != "forgotten" or finding.where not in self._performed_at
        }
        if not weak:
            return
        self._wanted = next(iter(weak))
        count, notices = self.count, dict(self.notices)
        if conversations:
            self._explore(conversations)
        self.count, self.notices = count, notices
        found = [weak[self._wanted], self._best]
        self._best = min(filter(None, found), key=lambda one: one.size)

    def _notice_what_was_not_reached(self) -> None:
        name = self.subject.name
        for where in sorted(self._asked_at - self._accepted_at):
            self.notices[
                f"{name}: nothing that was drawn fits what is asked at"
                f" {where}, so what comes after it was not checked. Say what users fill"
                " in with answers=, or what steps give with steps="
            ] = None
        if self._best is None:
            for same in self._differences.without():
                self.notices[
                    f"{name}: a yes and a no at {same.where} led to the same, in all"
                    f" {same.count} conversations that were compared"
                ] = None
        self.notices.update(self._performer.notices)

    def _load(self) -> None:
        assert self._workers is not None
        origin = self.subject.origin
        problem = "it is no attribute of a module that can be imported"
        if origin is not None:
            try:
                self._workers.load(origin)
                return
            except WorkerError as exc:
                problem = str(exc)
        self._stay_here(problem)

    def _stay_here(self, problem: str) -> None:
        self._workers = None
        self.notices[
            f"{self.subject.name} was replayed in this process only: {problem}"
        ] = None

    def _explore(self, conversations: int) -> None:
        # Hypothesis says what it found by raising it; shrunk or not, the shortest is
        # kept here, so whatever else it says is of no interest.
        @settings(
            max_examples=conversations,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate, Phase.shrink],
            verbosity=Verbosity.quiet,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def explore(data: st.DataObject) -> None:
            if time.monotonic() < self._until:
                self._have(
                    lambda watch: converse(
                        data.draw, self.subject, self._options, around=watch
                    )
                )

        try:
            explore()
        except Unsatisfiable:
            if self._best is None:
                self._best = self._undrawn(
                    "nothing that fits its arguments, or what its steps give, is drawn"
                )
        except UsageError as exc:
            self._best = self._undrawn(str(exc))
        except (Fault, HypothesisException, BaseExceptionGroup):
            if self._best is None:
                raise

    def _undrawn(self, problem: str) -> Finding:
        found = Found(
            "undrawn",
            f"it was not checked: {problem}",
            self.subject.where,
            "Say with arguments= and steps= what may come.",
        )
        return found.of(self.subject.name)

    def _make_plain(self) -> None:
        """Make the texts of the conversation plain, as far as it still shows the fault."""
        until = time.monotonic() + _PLAINER
        count, notices = self.count, dict(self.notices)
        while self._best is not None and self._best.transcript is not None:
            found = None
            for transcript in simpler(self._best.transcript):
                if time.monotonic() > until:
                    break
                found = self._same_in(transcript, self._best)
                if found is not None:
                    break
            if found is None:
                break
            self._best = found
        self.count, self.notices = count, notices

    def _same_in(self, transcript: Transcript, finding: Finding) -> Finding | None:
        """The same finding in another conversation."""
        best = self._best
        try:
            self._have(self._as(transcript))
        except Fault as fault:
            found = fault.finding
            if (found.kind, found.where) == (finding.kind, finding.where):
                return found
        except Exception:
            pass  # it does not take a text as plain as that
        finally:
            self._best = best
        return None

    def _as(self, transcript: Transcript) -> Callable[[Any], Transcript]:
        def same(watch: Any) -> Transcript:
            self.subject.read(transcript.arguments)  # which it may take no more
            return talk(
                self.subject,
                transcript.arguments,
                Recorded(transcript),
                WATCHED,
                flow_id=transcript.flow_id,
                early=transcript.early,
                around=watch,
            )

        return same

    def _have_again(self, transcript: Transcript) -> None:
        try:
            self._have(self._as(transcript))
        except Fault:
            pass
        except Exception as exc:
            # The handler takes other arguments now, say.
            self.notices[f"a conversation that failed cannot be had again: {exc}"] = (
                None
            )

    # ---- one conversation ----

    def _have(self, having: Callable[[Any], Transcript]) -> None:
        """Have one conversation, and judge it."""
        sanitizer = Sanitizer(of=self.subject.function)
        lines = Lines(
            at
            for one in self._suspects
            for at in (one.shows_at, one.near)
            if at is not None
        )
        changes = self._changes
        changed: dict[str, Change] = {}
        self._performer.begin()

        @contextmanager
        def watch() -> Iterator[None]:
            changes.take()  # what changed in between is not the handler's doing
            try:
                with muted(), lines.watching(), sanitizer.watching():
                    yield
            finally:
                for one in changes.take():
                    changed.setdefault(one.name, one)

        try:
            with warnings.catch_warnings(record=True) as warned, self._noting():
                warnings.simplefilter("always", UnperformedEffectWarning)
                warnings.simplefilter("always", RuntimeWarning)
                try:
                    transcript = having(watch)
                    error: Exception | None = None
                except Broken as broken:
                    transcript, error = broken.transcript, broken.error
                except Looping as looping:
                    self.notices[
                        f"{self.subject.name}: {looping.what} is performed in a loop that"
                        " what is drawn hardly ever ends. Say what it gives with steps="
                    ] = None
                    reject()
            self.count += 1
            self._note_answers(transcript)
            self._judge_lines(transcript, lines)
            self._judge_sights(transcript, sanitizer, changed)
            self._judge_ending(transcript, error, sanitizer.returned_at, changed)
            self._judge_warnings(warned, transcript)
            if error is None:
                self._judge_answers(transcript, changed, sanitizer.returned_at)
        except Fault as fault:
            self._keep(fault.finding)
            raise

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
                    self._asked_at.add(one.where)
                    if isinstance(one.answer, Accepted) and one.answer.value != (
                        "nonsense"
                    ):
                        self._accepted_at.add(one.where)

    def _keep(self, finding: Finding) -> None:
        if self._best is None:
            self._until = time.monotonic() + _SHRINKING
        if self._best is None or finding.size < self._best.size:
            self._best = finding

    def _report(self, found: Found | None, transcript: Transcript) -> None:
        """Raise what is found, unless conversations are had for another finding."""
        if found is not None and self._wanted is None:
            raise Fault(found.of(self.subject.name, transcript))

    def _report_weak(self, found: Found, transcript: Transcript) -> None:
        """Keep what is to be reported if nothing else is found."""
        finding = found.of(self.subject.name, transcript)
        at = (found.kind, found.where)
        if self._wanted == at:
            raise Fault(finding)
        known = self._weak.get(at)
        if known is None or finding.size < known.size:
            self._weak[at] = finding

    # ---- judges ----

    def _judge_lines(self, transcript: Transcript, lines: Lines) -> None:
        for one in self._suspects:
            found = Found(one.kind, one.problem, one.where, one.advice)
            if one.shows_at in lines.seen and not one.is_weak:
                self._report(found, transcript)
            elif one.shows_at in lines.seen or one.near in lines.seen:
                self._report_weak(found, transcript)

    def _judge_sights(
        self,
        transcript: Transcript,
        sanitizer: Sanitizer,
        changed: Mapping[str, Change],
    ) -> None:
        """What was noticed while the handler ran: that explains all the rest."""
        for sight in sanitizer.seen:
            found = Found(
                "unrecorded", sight.problem, sight.where, f"Use {sight.instead}."
            )
            self._report(found, transcript)
        for one in changed.values():
            if one.is_default:
                found = Found(
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
        changed: Mapping[str, Change],
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
                what, where = shown(one.message.effect), one.message.where
                self._report_weak(
                    Found(
                        "forgotten",
                        f"it builds {what} and never performs it",
                        where,
                        WRITE,
                    ),
                    transcript,
                )
            elif "was never awaited" in str(one.message):
                self._report(
                    Found("forgotten", str(one.message), self.subject.where, WRITE),
                    transcript,
                )

    def _judge_answers(
        self,
        transcript: Transcript,
        changed: Mapping[str, Change],
        returned_at: str | None,
    ) -> None:
        case = Case(
            self.subject,
            transcript,
            self._workers,
            self._performer,
            changed,
            returned_at,
        )
        if self._wanted is None:
            self._report(asked(case), transcript)
            self._take_notice(case)
        if case.could_be_live:
            for same in self._differences.look(self.subject, case.overheard):
                self._report_weak(_swallowed(same), transcript)

    def _take_notice(self, case: Case) -> None:
        name, transcript = self.subject.name, case.transcript
        if transcript.rounds[-1].journal is None and not was_wasteful(transcript):
            self.notices[
                f"{name} can ask in more rounds than clients put up with, and handles it"
            ] = None
        for one in case.changed.values():
            if one.name not in self._noticed:
                self._noticed.add(one.name)
                self.notices[
                    f"{name}: {one.what}. Nothing came of it; in another process it is as"
                    " it was"
                ] = None
        self.notices.update(dict.fromkeys(notices_of(case)))


def _swallowed(same: Same) -> Found:
    assert same.swallow is not None
    return Found(
        "refusal",
        f"a user who refuses is ignored: after {same.question} was refused, the handler"
        " does what it does when it is accepted",
        same.swallow.where,
        "Let Declined and Dismissed pass: the client is told that the user refused. Or"
        " return in the `except`.",
    )
