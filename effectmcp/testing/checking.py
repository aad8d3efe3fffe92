"""Find what is wrong with a handler, in one line.

    check(app)

Conversations are drawn (`conversations`), each round of which is replayed from a sealed
state while the sanitizer watches. Then every one is put to the oracles:

    cold        each journal, replayed, comes to just the same questions
    elsewhere   ... in other processes, under other hashes, clocks and time zones, too
    ways        by retry, live, in a task and in process it comes to the same end
    late        a branch asks the same however late the others are

What is found is shrunk by Hypothesis and told in words, with the line and with the
shortest conversation that shows it.
"""

from __future__ import annotations

import ast
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import attrs
from attrs import field, frozen
from hypothesis import HealthCheck, Phase, Verbosity, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, Unsatisfiable

from ..canonical import dumps
from ..effects import Accepted, StepFunction, StepOptions
from ..engine import UnperformedEffectWarning, development
from ..engine.failures import failure_from
from ..errors import (
    DivergenceError,
    FlowError,
    NondeterminismError,
    OutputError,
    ProtocolError,
    Signal,
    StateSizeError,
    ToolError,
    TooManyRounds,
    Unsupported,
    UsageError,
)
from ..server import Server
from ..server.target import load
from .changes import Change, Changes
from .cold import arrive
from .conversations import Looping, Options, Unsteady, converse
from .delays import late_branches
from .forgotten import forgotten_flow
from .mutations import changed_answers
from .sanitizer import Sanitizer
from .silence import silent
from .subjects import Subject, subject_of, subjects_of
from .talks import WATCHED, WAYS, Broken, Buried, Recorded, Unscripted, talk
from .transcripts import Transcript
from .words import place_of, shown
from .workers import Elsewhere, WorkerError, Workers

__all__ = ["CheckError", "Checked", "Finding", "check", "options_at"]


@frozen
class Finding:
    """Something that is wrong with a handler.

    Attributes:
        subject: The handler, as clients call it.
        kind: What is wrong, one of a few words.
        problem: The same in words.
        where: `file:line`.
        advice: What to do about it.
        transcript: The shortest conversation that shows it.
    """

    subject: str
    kind: str
    problem: str
    where: str | None
    advice: str
    transcript: Transcript | None = field(default=None, repr=False)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.problem}"]
        if self.where:
            lines.append(f"  at {self.where}")
        if self.advice:
            lines.append(f"  {self.advice}")
        if self.transcript is not None:
            lines.append("  It shows in this conversation:")
            lines += [f"    {line}" for line in _few(self.transcript.lines)]
        return "\n".join(lines)


def _few(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    half = _MOST_LINES // 2
    return [*lines[:half], f"... ({len(lines) - 2 * half} more)", *lines[-half:]]


_MOST_LINES: Final = 24


@frozen
class Checked:
    """What a check came to.

    Attributes:
        subjects: What was checked.
        conversations: How many there were.
        findings: What is wrong.
        notices: What may be meant, and is worth knowing.
    """

    subjects: tuple[str, ...]
    conversations: int
    findings: tuple[Finding, ...]
    notices: tuple[str, ...]

    def __str__(self) -> str:
        what = ", ".join(self.subjects) or "nothing"
        lines = [f"checked {what}: {self.conversations:,} conversations"]
        lines += [str(one) for one in self.findings]
        lines += [f"note: {one}" for one in self.notices]
        return "\n".join(lines)


class CheckError(AssertionError):
    """A check found something wrong.

    Attributes:
        checked: What.
    """

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        super().__init__(str(checked))


def check(
    what: Server | Callable[..., Any],
    *,
    conversations: int = 100,
    only: Iterable[str] | None = None,
    steps: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    answers: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    arguments: Mapping[str, st.SearchStrategy[Any]] | None = None,
    workers: Workers | int = 3,
    again: Iterable[Transcript] = (),
    raises: bool = True,
) -> Checked:
    """Look for everything that can be wrong with handlers, in drawn conversations.

    No step is performed: what it gives is drawn from its return annotation, or it fails.

    Args:
        what: A server, whose tools, prompts and resources that ask are checked one after
            the other; or one handler.
        conversations: How many to have with each.
        only: Of a server, the names or URIs of those to check.
        steps: Strategies for what steps give, by function, where their annotation does
            not say it or says too much.
        answers: Strategies for what users fill in, by form as `Elicit` is given it,
            where validators of yours want what chance hardly ever draws.
        arguments: Strategies for arguments, by name; of values as a handler has them.
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
    options = Options(steps=made, answers=answers or {}, arguments=arguments or {})
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


_OPTIONS: Final = frozenset({"steps", "answers", "arguments"})


def options_at(target: str | None) -> dict[str, Any]:
    """What `module:name` says of how to check: a dict of `steps`, `answers`, `arguments`.

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


class _Fault(Exception):
    """One conversation shows that something is wrong."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.kind)


#: Seconds in which a conversation is made shorter.
_SHRINKING: Final = 1.5


class _Check:
    def __init__(self, subject: Subject, options: Options, workers: Workers) -> None:
        self.subject = subject
        self.count = 0
        self.notices: dict[str, None] = {}
        self._options = options
        self._best: Finding | None = None
        self._until = float("inf")
        self._workers: Workers | None = workers
        #: Where effects were built that were performed, and where others were not.
        self._performed_at: set[str] = set()
        self._noticed: set[str] = set()
        self._unperformed: dict[str, Finding] = {}
        #: Where was asked, and where an answer was accepted.
        self._asked_at: set[str] = set()
        self._accepted_at: set[str] = set()
        self._changes = Changes(subject.function)

    def run(self, conversations: int, again: Iterable[Transcript]) -> Finding | None:
        """The worst that there is, or nothing."""
        self._load()
        with silent():
            for transcript in again:
                if transcript.target == self.subject.target:
                    self._have_again(transcript)
            if self._best is None:
                self._explore(conversations)
        if self._best is None:
            forgotten = (
                finding
                for where, finding in self._unperformed.items()
                # Of several that are built, the one that is needed may be picked.
                if where not in self._performed_at
            )
            self._best = next(forgotten, None) or self._forgotten_flow()
        for where in sorted(self._asked_at - self._accepted_at):
            self.notices[
                f"{self.subject.name}: nothing that was drawn fits what is asked at"
                f" {where}, so what comes after it was not checked. Say what users fill"
                " in with answers=, or what steps give with steps="
            ] = None
        return self._best

    def _forgotten_flow(self) -> Finding | None:
        found = forgotten_flow(self.subject.function)
        if found is None:
            return None
        what, where = found
        return Finding(
            self.subject.name,
            "forgotten",
            f"it makes the flow {what} and never runs it",
            where,
            _WRITE,
        )

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
        except (_Fault, HypothesisException, BaseExceptionGroup):
            if self._best is None:
                raise

    def _undrawn(self, problem: str) -> Finding:
        return Finding(
            self.subject.name,
            "undrawn",
            f"it was not checked: {problem}",
            self.subject.where,
            "Say with arguments= and steps= what may come.",
        )

    def _have_again(self, transcript: Transcript) -> None:
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

        try:
            self._have(same)
        except _Fault:
            pass
        except Exception as exc:
            # The handler takes other arguments now, say.
            self.notices[f"a conversation that failed cannot be had again: {exc}"] = (
                None
            )

    def _have(self, having: Callable[[Any], Transcript]) -> None:
        """Have one conversation, and put it to the oracles."""
        sanitizer = Sanitizer(of=self.subject.function)
        changes = self._changes
        changed: dict[str, Change] = {}

        @contextmanager
        def watch() -> Iterator[None]:
            changes.take()  # what changed in between is not the handler's doing
            try:
                with sanitizer.watching():
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
                    error: BaseException | None = None
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
            self._judge(transcript, error, sanitizer, changed)
            self._judge_warnings(warned, transcript)
            if error is None:
                self._ask_oracles(transcript, changed)
                self._judge_ending(transcript, changed)
                self._take_notice(transcript)
        except _Fault as fault:
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
        if self._best is None or _size(finding) < _size(self._best):
            self._best = finding

    # ---- what is wrong ----

    def _fault(
        self,
        kind: str,
        problem: str,
        where: str | None,
        advice: str = "",
        transcript: Transcript | None = None,
    ) -> _Fault:
        return _Fault(
            Finding(self.subject.name, kind, problem, where, advice, transcript)
        )

    def _judge(
        self,
        transcript: Transcript,
        error: BaseException | None,
        sanitizer: Sanitizer,
        changed: Mapping[str, Change],
    ) -> None:
        """What was noticed while the handler ran: that explains all the rest."""
        for sight in sanitizer.seen:
            raise self._fault(
                "unrecorded",
                f"{sight.what} is not recorded: each replay does it again, and may come"
                " to something else",
                sight.where,
                f"Use {sight.instead}.",
                transcript,
            )
        for one in changed.values():
            if one.is_default:
                raise self._fault(
                    "default",
                    f"{one.what}: a default belongs to the function, and not to one call",
                    one.where,
                    "Make None the default, and a new one inside.",
                    transcript,
                )
        raised = error or transcript.ending.error
        if raised is not None:
            self._judge_error(raised, transcript, changed, sanitizer.returned_at)

    def _judge_error(
        self,
        error: BaseException,
        transcript: Transcript,
        changed: Mapping[str, Change],
        returned_at: str | None,
    ) -> None:
        where = place_of(error)
        match error:
            case DivergenceError():
                raise self._drifts(
                    str(error.report), error.report.where, transcript, changed
                )
            case NondeterminismError():
                raise self._drifts(error.problem, error.where, transcript, changed)
            case Unsteady():
                raise self._drifts(str(error), error.where, transcript, changed)
            case Unscripted():
                return  # a conversation of long ago, with a handler of long ago
            case Buried():
                raise self._fault(
                    "swallows",
                    "it goes on yielding while it is being ended, so a round of it never"
                    " ends",
                    _except_at(error.where) or error.where,
                    "Catch Exception, or raise again: what ends a generator is a"
                    " BaseException.",
                    transcript,
                )
            case StateSizeError():
                raise self._fault(
                    "size", str(error), _last_asked(transcript), transcript=transcript
                )
            case OutputError():
                raise self._fault(
                    "result",
                    f"its result is not what it promised: {'; '.join(error.problems)}",
                    returned_at or self.subject.where,
                    transcript=transcript,
                )
            case UsageError():
                raise self._fault(
                    "misuse",
                    error.problem,
                    error.where or where or returned_at,
                    transcript=transcript,
                )
            case TooManyRounds():
                if not _was_wasteful(transcript):
                    raise self._fault(
                        "rounds",
                        "it asks in more rounds than clients put up with",
                        where or _last_asked(transcript),
                        "Ask several questions at once with Gather(...).",
                        transcript,
                    )
            case ToolError() | ProtocolError() | FlowError() | Signal():
                return
            case _ if _is_of_a_step(error, transcript):
                return  # which failed; the handler lets it pass
            case _:
                raise self._fault(
                    "crash",
                    f"it raises {type(error).__name__}: {error}",
                    where or self.subject.where,
                    "Clients are told nothing but that it failed. Raise ToolError to"
                    f" tell them, or handle it.{_never(transcript)}",
                    transcript,
                )

    def _drifts(
        self,
        problem: str,
        where: str | None,
        transcript: Transcript,
        changed: Mapping[str, Change],
    ) -> _Fault:
        advice = ""
        if changed:
            advice = f"Meanwhile {_said(changed)}."
        return self._fault(
            "drifts",
            f"it does something else when it is replayed: {problem}",
            where or _last_asked(transcript),
            advice,
            transcript,
        )

    def _judge_warnings(
        self, warned: Iterable[warnings.WarningMessage], transcript: Transcript
    ) -> None:
        for one in warned:
            if isinstance(one.message, UnperformedEffectWarning):
                what, where = shown(one.message.effect), one.message.where
                finding = Finding(
                    self.subject.name,
                    "forgotten",
                    f"it builds {what} and never performs it",
                    where,
                    _WRITE,
                    transcript,
                )
                known = self._unperformed.get(where)
                if known is None or _size(finding) < _size(known):
                    self._unperformed[where] = finding
            elif "was never awaited" in str(one.message):
                raise self._fault(
                    "forgotten",
                    str(one.message),
                    self.subject.where,
                    _WRITE,
                    transcript,
                )

    def _judge_ending(
        self, transcript: Transcript, changed: Mapping[str, Change]
    ) -> None:
        if transcript.rounds[-1].journal is None and not _was_wasteful(transcript):
            self.notices[
                f"{self.subject.name} can ask in more rounds than clients put up with,"
                " and handles it"
            ] = None
        for one in changed.values():
            if one.name not in self._noticed:
                self._noticed.add(one.name)
                self.notices[
                    f"{self.subject.name}: {one.what}. Nothing came of it; in another"
                    " process it is as it was"
                ] = None

    # ---- oracles ----

    def _ask_oracles(
        self, transcript: Transcript, changed: Mapping[str, Change]
    ) -> None:
        self._ask_how_often(transcript)
        self._ask_elsewhere(transcript, changed)
        self._ask_other_ways(transcript, changed)
        self._ask_late(transcript)

    def _ask_how_often(self, transcript: Transcript) -> None:
        done = Counter(p.key for each in transcript.rounds for p in each.performed)
        for each in transcript.rounds:
            for one in each.performed:
                if done[one.key] > 1:
                    raise self._fault(
                        "repeats",
                        f"{one.what} is performed {done[one.key]} times in one call",
                        one.where,
                        "",
                        transcript,
                    )

    def _ask_elsewhere(
        self, transcript: Transcript, changed: Mapping[str, Change]
    ) -> None:
        journals = transcript.journals
        elsewhere = self._elsewhere(transcript)
        for journal, others in zip(journals, elsewhere, strict=True):
            here = arrive(
                self.subject,
                transcript.arguments,
                journal,
                flow_id=transcript.flow_id,
                lacks=transcript.lacks,
            )
            if not here.is_there:
                raise self._drifts(here.what[0], here.where, transcript, changed)
            for other in others:
                if not here.is_same(other.arrival):
                    raise self._fault(
                        "elsewhere",
                        "it does something else in another process: here it"
                        f" {here}, and with {other.differs} it {other.arrival}",
                        other.arrival.where or here.where or self.subject.where,
                        "What differs from process to process must not decide: sort sets,"
                        " and record the rest with Now, Random or a Step."
                        + (f" Meanwhile {_said(changed)}." if changed else ""),
                        transcript,
                    )

    def _elsewhere(self, transcript: Transcript) -> list[list[Elsewhere]]:
        if self._workers is None:
            return [[] for _ in transcript.journals]
        try:
            return self._workers.arrivals(transcript)
        except WorkerError as exc:
            raise self._fault(
                "elsewhere",
                f"in another process {exc}",
                self.subject.where,
                "",
                transcript,
            ) from None

    def _ask_other_ways(
        self, transcript: Transcript, changed: Mapping[str, Change]
    ) -> None:
        last = transcript.rounds[-1].journal
        if last is None or transcript.early:
            return  # limits on rounds and early answers are only there by retry
        for way in WAYS:
            if way.stores and transcript.lacks:
                continue  # what cannot be asked is told before the rest is answered
            try:
                other = talk(
                    self.subject,
                    transcript.arguments,
                    Recorded(transcript),
                    way,
                    flow_id=transcript.flow_id,
                )
            except Broken as broken:
                error: Any = broken.error
                raise self._drifts(
                    f"{way.name}: {error}",
                    getattr(error, "where", None),
                    transcript,
                    changed,
                ) from None
            journal = other.rounds[-1].journal
            assert journal is not None
            if (other.ending, journal.entries) != (transcript.ending, last.entries):
                raise self._drifts(
                    f"it {transcript.ending}; and when the same was had {way.name} again,"
                    f" it {other.ending}",
                    None,
                    transcript,
                    changed,
                )

    def _ask_late(self, transcript: Transcript) -> None:
        late = late_branches(self.subject, transcript)
        if late is not None:
            raise self._fault(
                "timing",
                "a branch of a Gather depends on how far another one has come: it wants"
                f" {late.first}, and where another is later {late.second}",
                late.where,
                "Read what branches share after the Gather, when all have ended.",
                transcript,
            )

    # ---- what may be meant ----

    def _take_notice(self, transcript: Transcript) -> None:
        first = transcript.rounds[0]
        name = self.subject.name
        for where in changed_answers(self.subject, transcript):
            self.notices[
                f"{name}: what is answered at {where} is changed later. That is harmless,"
                " and not kept: each round builds it afresh"
            ] = None
        for one in first.performed:
            if first.asked and one.tag in ("done", "failed"):
                self.notices[
                    f"{name}: {one.what.partition('(')[0]}, at {one.where}, is performed"
                    " before the first question. A client that sends its first request"
                    " again performs it again, and its IdempotencyKey is another one"
                ] = None
        if isinstance(transcript.ending.error, Unsupported):
            before = _before_unasked(transcript)
            for one in (p for each in transcript.rounds for p in each.performed):
                if (
                    one.tag in ("done", "failed")
                    and one.key.partition(":")[2] in before
                ):
                    self.notices[
                        f"{name}: {one.what.partition('(')[0]}, at {one.where}, is"
                        " performed for clients that cannot be asked what comes after"
                        " it. Say requires=(...) to turn them away first"
                    ] = None


#: What to write where something is built and not run.
_WRITE: Final = "Write `yield from` in front of it (in an async handler, `await`)."


def _said(changed: Mapping[str, Change]) -> str:
    return "; ".join(one.what for one in changed.values())


def _never(transcript: Transcript) -> str:
    if any(each.performed for each in transcript.rounds):
        return " If a step never gives that, say what it gives with steps=."
    return ""


def _before_unasked(transcript: Transcript) -> set[str]:
    """The places before the first question that could not be asked."""
    found: set[str] = set()
    for journal in transcript.journals[-1:]:
        for entry in journal.entries:
            if entry.tag == "unasked":
                return found
            found.add(entry.key)
    return set()


def _size(finding: Finding) -> int:
    return 0 if finding.transcript is None else len(str(finding.transcript))


def _last_asked(transcript: Transcript) -> str | None:
    asked = [one for each in transcript.rounds for one in each.asked]
    return asked[-1].where if asked else None


def _was_wasteful(transcript: Transcript) -> bool:
    """Whether some of the rounds were the client's fault."""
    asked = [one for each in transcript.rounds for one in each.asked]
    return any(one.answer is None or "~" in one.key for one in asked)


def _is_of_a_step(error: BaseException, transcript: Transcript) -> bool:
    for each in transcript.rounds:
        for one in each.performed:
            if one.tag in ("failed", "refailed"):
                raised = failure_from(dumps(one.payload), StepOptions())
                if str(error) in (str(raised), getattr(raised, "message", None)):
                    return True
    return False


@lru_cache(64)
def _except_at(where: str | None) -> str | None:
    """`file:line` of the `except` around a line that catches everything."""
    file, _, line = (where or "").rpartition(":")
    try:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return None
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            one.lineno <= int(line) <= (one.end_lineno or one.lineno)
            for one in node.body
        ):
            for handler in node.handlers:
                if handler.type is None or "BaseException" in ast.dump(handler.type):
                    found = f"{file}:{handler.lineno}"
    return found
