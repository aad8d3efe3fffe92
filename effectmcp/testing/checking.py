"""Find mistakes in a handler, in one line.

    check(app)

Conversations are drawn (`drawn_conversations`); every round is replayed from a sealed
state while the sanitizer watches. Each conversation is judged (`judging`) by

    source_faults   faults that can be read in the source, if those lines ran
    sanitizer       calls of the handler that no replay can repeat
    endings         the result or the error
    oracles         questions that every correct handler answers alike
    refusals        the answers that made no difference

Hypothesis shrinks the conversation that shows a fault. The finding is a sentence, the
line, and the shortest conversation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
from hypothesis import HealthCheck, Phase, Verbosity, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, Unsatisfiable

from ..effects.steps import StepFunction
from ..errors import UsageError
from ..server.app import Server
from ..server.target import load
from .conversations import WATCHED, RecordedPartner, run_conversation
from .drawn_conversations import Looping, Options, converse
from .dry_replay import WorkerError
from .findings import BareFinding, Checked, CheckError, Fault, Finding
from .judging import Judge
from .muting import without_logging, without_output
from .performing import Fakes, Performer
from .plain_strings import PatientPartner, simpler
from .refusals import NoDifference, branches_of
from .replay_workers import ReplayWorkers
from .subjects import Subject, subject_of, subjects_of

if TYPE_CHECKING:
    from .transcripts import Transcript

__all__ = ["check", "options_at"]


def check(
    what: Server | Callable[..., Any],
    *,
    conversations: int = 100,
    only: Iterable[str] | None = None,
    steps: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    answers: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    arguments: Mapping[str, st.SearchStrategy[Any]] | None = None,
    perform: Fakes = False,
    workers: ReplayWorkers | int = 3,
    again: Iterable[Transcript] = (),
    raises: bool = True,
) -> Checked:
    """Check handlers for every known fault, in drawn conversations.

    A step that `perform` does not name is not performed: its result is drawn from its
    return annotation, or it fails.

    Args:
        what: One handler; or a server, to check its tools, prompts and resources that
            ask, one after the other.
        conversations: How many to have with each.
        only: The names or URIs to check, if `what` is a server.
        steps: Strategies for the results of steps, by function, where a step's
            annotation is missing or too wide.
        answers: Strategies for what users fill in, by form as `Elicit` is given it: for
            forms with validators that random values rarely satisfy.
        arguments: Strategies for arguments, by name. They draw the values that a
            handler receives.
        perform: Functions that perform steps, by the step: a fake that takes the same
            arguments, or `True` for the step itself. `True` alone performs every step
            itself. A function without parameters that returns such a dict is called
            before each conversation, so that fakes can keep state. Each step is
            performed twice, with copies of its arguments.
        workers: Other processes that replay: their number, or the `ReplayWorkers` of an
            earlier check.
        again: Earlier conversations to run first, such as failed conversations.
        raises: Whether to raise if there are findings; if not, they are only returned.

    Raises:
        CheckError: If something is wrong.
        UsageError: If nothing can be checked, or a value cannot be drawn.
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
    running = ReplayWorkers(workers) if isinstance(workers, int) else workers
    findings: list[Finding] = []
    notices: dict[str, None] = {}
    count = 0
    try:
        for subject in subjects:
            one = _HandlerCheck(subject, _fitting(options, subject), running)
            finding = one.run(conversations, again)
            if finding is not None:
                findings.append(finding)
            count += one.judge.count
            notices.update(one.judge.notices)
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
    """Read the options of `check` at `module:name`: a dict of some of `_OPTIONS`.

    Raises:
        UsageError: If `target` is something else.
    """
    if target is None:
        return {}
    found = load(target)
    if not isinstance(found, Mapping) or not _OPTIONS.issuperset(found):
        raise UsageError(
            f"{target!r} is not a dict with some of {', '.join(sorted(_OPTIONS))}"
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
    # With several handlers, each gets the strategies for its own parameters.
    takes = subject.feature.handler.takes.schema.get("properties", {})
    fitting = {name: one for name, one in options.arguments.items() if name in takes}
    return attrs.evolve(options, arguments=fitting)


# ---- one handler --------------------------------------------------------------------

#: Seconds to spend on making a conversation shorter.
_SHRINKING: Final = 1.5
#: Seconds to spend on making the strings of the shortest one plain.
_PLAINER: Final = 0.5


class _HandlerCheck:
    def __init__(
        self, subject: Subject, options: Options, workers: ReplayWorkers
    ) -> None:
        performer = options.performer or Performer(False)
        self.judge = Judge(subject, performer)
        self._subject = subject
        self._options = options
        self._performer = performer
        self._workers = workers
        self._best: Finding | None = None
        self._until = float("inf")

    def run(self, conversations: int, again: Iterable[Transcript]) -> Finding | None:
        """Return the most important fault; `None` if no fault is found."""
        self._load()
        with without_logging(), without_output():
            for transcript in again:
                if transcript.target == self._subject.target:
                    self._have_again(transcript)
            if self._best is None:
                self._explore(conversations)
                self._shorten_weak(conversations)
                self._judge_decisions(conversations)
            self._make_plain()
        self._notice_what_was_not_reached()
        return self._best

    def _shorten_weak(self, conversations: int) -> None:
        """Report the first weak fault, in a short conversation, if there is no other."""
        if self._best is not None:
            return
        weak = self.judge.weak_faults
        if not weak:
            return
        self.judge.wanted = next(iter(weak))
        count, notices = self.judge.count, dict(self.judge.notices)
        if conversations:
            self._explore(conversations)
        self.judge.count, self.judge.notices = count, notices
        found = [weak[self.judge.wanted], self._best]
        self._best = min(filter(None, found), key=lambda one: one.size)

    def _judge_decisions(self, conversations: int) -> None:
        """Report a yes and a no with the same outcome, if all dependent lines ran."""
        name = self._subject.name
        same = [] if self._best else list(self.judge.differences.without())
        for one in same:
            branches = branches_of(self._subject.function, one.where)
            if branches is not None and self._best is None:
                self.judge.covering, self.judge.wanted = branches, ("covering", None)
                count = self.judge.count
                self._explore(conversations)
                self.judge.count = count
                if branches <= self.judge.covered:
                    self._best = _undecided(one).of(name, one.transcript)
                    return
            self.judge.notices[
                f"{name}: a yes and a no at {one.where} led to the same, in all"
                f" {one.count} conversations that were compared"
            ] = None

    def _notice_what_was_not_reached(self) -> None:
        name = self._subject.name
        for where in self.judge.not_reached:
            self.judge.notices[
                f"{name}: no drawn value fits the question at"
                f" {where}, so the code after it was not checked. Pass the users' answers"
                " in answers=, or the results of steps in steps="
            ] = None
        self.judge.notices.update(self._performer.notices)

    def _load(self) -> None:
        origin = self._subject.origin
        problem = "it is not an attribute of a module that can be imported"
        if origin is not None:
            try:
                self._workers.load(origin)
                self.judge.workers = self._workers
                return
            except WorkerError as exc:
                problem = str(exc)
        self.judge.notices[
            f"{self._subject.name} was replayed in this process only: {problem}"
        ] = None

    def _explore(self, conversations: int) -> None:
        # Hypothesis reports by raising. The shortest finding is kept here, shrunk or
        # not, so nothing else of its report is needed.
        @settings(
            max_examples=conversations,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate, Phase.shrink],
            verbosity=Verbosity.quiet,
            print_blob=False,
            # Hypothesis does not type the iteration over its metaclass.
            suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
        )
        @given(st.data())
        def explore(data: st.DataObject) -> None:
            if time.monotonic() < self._until:
                self._have(
                    lambda watch: converse(
                        data.draw, self._subject, self._options, around=watch
                    )
                )

        try:
            explore()
        except Unsatisfiable:
            if self._best is None:
                self._best = self._undrawn(
                    "nothing that fits its arguments, or the results of its steps, is drawn"
                )
        except UsageError as exc:
            self._best = self._undrawn(str(exc))
        except (Fault, HypothesisException, BaseExceptionGroup) as exc:
            if self._best is not None:
                return
            if isinstance(exc, HypothesisException) and self._performer.performs:
                self.judge.notices[
                    f"{self._subject.name}: the functions of perform= keep state from one"
                    " conversation to the next, so not all were had. Give perform= a"
                    " function that makes them"
                ] = None
                return
            raise

    def _undrawn(self, problem: str) -> Finding:
        found = BareFinding(
            "undrawn",
            f"it was not checked: {problem}",
            self._subject.where,
            "Say with arguments= and steps= what may come.",
        )
        return found.of(self._subject.name)

    def _make_plain(self) -> None:
        """Make the conversation's strings plain while it still shows the fault."""
        until = time.monotonic() + _PLAINER
        count, notices = self.judge.count, dict(self.judge.notices)
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
        self.judge.count, self.judge.notices = count, notices

    def _same_in(self, transcript: Transcript, finding: Finding) -> Finding | None:
        """Return a fault at the same line in another conversation."""
        best = self._best
        try:
            self._have(self._as(transcript, PatientPartner(transcript)))
        except Fault as fault:
            # State that outlives a call may show as another fault the next time.
            if fault.finding.where == finding.where:
                return fault.finding
        except Exception:
            pass  # the handler refuses such a plain string
        finally:
            self._best = best
        return None

    def _as(
        self, transcript: Transcript, partner: RecordedPartner
    ) -> Callable[[Any], Transcript]:
        def same(watch: Any) -> Transcript:
            self._subject.read(transcript.arguments)  # may be refused now
            return run_conversation(
                self._subject,
                transcript.arguments,
                partner,
                WATCHED,
                flow_id=transcript.flow_id,
                early=transcript.early,
                around=watch,
            )

        return same

    def _have_again(self, transcript: Transcript) -> None:
        try:
            self._have(self._as(transcript, RecordedPartner(transcript)))
        except Fault:
            pass
        except Exception as exc:
            # For example, the handler takes other arguments now.
            self.judge.notices[
                f"a conversation that failed cannot be had again: {exc}"
            ] = None

    def _have(self, having: Callable[[Any], Transcript]) -> None:
        try:
            self.judge.have(having)
        except Looping:
            reject()
        except Fault as fault:
            self._keep(fault.finding)
            raise

    def _keep(self, finding: Finding) -> None:
        if self._best is None:
            self._until = time.monotonic() + _SHRINKING
        if self._best is None or finding.size < self._best.size:
            self._best = finding


def _undecided(same: NoDifference) -> BareFinding:
    return BareFinding(
        "unused",
        f"a yes and a no lead to the same steps and to the same result: {same.question}",
        same.where,
        "Return when the user says no: `if not (yield from Confirm(...)): return ...`.",
    )
