"""Check a finished conversation by questions that correct handlers answer alike.

repeats      is each thing performed once?
elsewhere    does each journal, replayed cold, reach the same point, here and in
             other processes?
ways         do the other ways that answers can arrive reach the same end? One of
             them has a new decimal context, like the threads of a server
late         does a branch ask the same, no matter how late the others are?
keys         does each charge have a key of its own, which stays the same?
performed    does the handler depend on a change that a step made to its arguments?
"""

from __future__ import annotations

import ast
import contextvars
import decimal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from .conversations import (
    WAYS,
    ConversationBroken,
    RecordedPartner,
    Way,
    run_conversation,
)
from .delays import late_branches
from .dry_replay import ArrivalElsewhere, WorkerError, arrive
from .effect_traces import EffectTrace, trace_effects
from .endings import ADDRESS, drifts, last_asked, said_of
from .findings import BareFinding
from .idempotency_keys import shared_key, unstable_key
from .performing import Performer, relied_on

if TYPE_CHECKING:
    from .endless_loops import EndlessLoops
    from .leaked_state import StateChange
    from .replay_workers import ReplayWorkers
    from .subjects import Subject
    from .transcripts import Transcript

__all__ = ["ORACLES", "Case", "asked"]


@define
class Case:
    """A conversation, with the facts that the oracles need to judge it.

    Attributes:
        subject: The handler.
        transcript: The conversation, which is finished.
        workers: Other processes; `None` if they cannot load the handler.
        performer: The performer of steps.
        changed: Defaults and globals that changed meanwhile.
        returned_at: `file:line` at which the handler returned.
        endless_loops: The loops of the handler that are known to end.
        outlived: Defaults and globals that changed since the check began.
    """

    subject: Subject
    transcript: Transcript
    workers: ReplayWorkers | None
    performer: Performer
    changed: Mapping[str, StateChange]
    returned_at: str | None
    endless_loops: EndlessLoops
    outlived: Mapping[str, StateChange]
    _trace: EffectTrace | None = field(default=None, init=False)

    @property
    def trace(self) -> EffectTrace:
        """The conversation, effect by effect, as the handler saw it."""
        if self._trace is None:
            self._trace = trace_effects(self.subject, self.transcript)
        return self._trace

    @property
    def could_be_live(self) -> bool:
        """Whether it can be run in the other ways.

        Limits on rounds and early answers exist only where clients retry.
        """
        is_over = self.transcript.rounds[-1].journal is None
        return not is_over and not self.transcript.early

    def drifts(self, problem: str, where: str | None) -> BareFinding:
        """Return the fault of a handler that diverges, or of a step that causes it."""
        for one in self.performer.changed:
            if not one.is_argument:
                return BareFinding(
                    "mutates",
                    f"the step {one.name}() changes the handler's variable"
                    f" {one.variable}; a replay does not perform the step, and finds the"
                    " variable as it was",
                    _performed_at(self.transcript, one.name) or where,
                    "Return the value from the step, and use what `yield from` gives.",
                )
        return drifts(problem, where or last_asked(self.transcript), self.changed)


def asked(case: Case) -> BareFinding | None:
    """Return the first fault that an oracle finds."""
    for oracle in ORACLES:
        found = oracle(case)
        if found is not None:
            return found
    return None


def _performed_at(transcript: Transcript, name: str) -> str | None:
    for each in transcript.rounds:
        for one in each.performed:
            if one.what.partition("(")[0] == name:
                return one.where
    return None


# ---- replays ------------------------------------------------------------------------


def _repeats(case: Case) -> BareFinding | None:
    rounds = case.transcript.rounds
    done = Counter(p.key for each in rounds for p in each.performed)
    for each in rounds:
        for one in each.performed:
            if done[one.key] > 1:
                return BareFinding(
                    "repeats",
                    f"{one.what} is performed {done[one.key]} times in one call",
                    one.where,
                )
    return None


def _elsewhere(case: Case) -> BareFinding | None:
    transcript, subject = case.transcript, case.subject
    journals = transcript.journals
    elsewhere: list[list[ArrivalElsewhere]] = [[] for _ in journals]
    if case.workers is not None:
        try:
            elsewhere = case.workers.arrivals(transcript)
        except WorkerError as exc:
            return BareFinding("elsewhere", f"in another process {exc}", subject.where)
    for journal, others in zip(journals, elsewhere, strict=True):
        here = arrive(
            subject,
            transcript.arguments,
            journal,
            flow_id=transcript.flow_id,
            lacks=transcript.lacks,
        )
        if not here.is_there:
            return case.drifts(here.what[0], here.where)
        for other in others:
            if not here.is_same(other.arrival):
                advice = _DIFFERS
                if " at 0x" in str(here):
                    advice = ADDRESS
                if case.outlived:
                    advice = f"{_OUTLIVES} Here {said_of(case.outlived)}."
                return BareFinding(
                    "elsewhere",
                    "it does something else in another process: here it"
                    f" {here}, and with {other.differs} it {other.arrival}",
                    other.arrival.where or here.where or subject.where,
                    advice,
                )
    return None


_DIFFERS: Final = (
    "What differs from process to process must not decide: sort sets, and record the rest"
    " with Now, Random or a Step."
)


_OUTLIVES: Final = (
    "What one call leaves in a module decides in the next one, and other processes do not"
    " have it: read it in a Step, or ask again."
)


# ---- ways ---------------------------------------------------------------------------


def _ways(case: Case) -> BareFinding | None:
    if not case.could_be_live:
        return None
    for way in WAYS:
        if way.stores and case.transcript.lacks:
            continue  # unsupported questions are refused before the rest is answered
        found = _way(case, way)
        if found is not None:
            return found
    return None


def _way(case: Case, way: Way) -> BareFinding | None:
    if way is not WAYS[-1]:
        return _unlike(case, way)
    found = contextvars.copy_context().run(_with_new_decimals, case, way)
    if found is None or _unlike(case, way) is not None:
        return found
    return BareFinding(
        "context",
        "it calculates something else in another thread: the decimal context that is set"
        " while its module is imported applies to the importing thread only",
        _decimals_at(case.subject.function) or case.subject.where,
        "Set it inside the handler (`with decimal.localcontext() as context: ...`), or"
        " set decimal.DefaultContext, before any thread starts.",
    )


def _with_new_decimals(case: Case, way: Way) -> BareFinding | None:
    decimal.setcontext(decimal.Context())  # copies DefaultContext, as threads do
    return _unlike(case, way)


def _unlike(case: Case, way: Way) -> BareFinding | None:
    transcript = case.transcript
    last = transcript.rounds[-1].journal
    assert last is not None
    try:
        other = run_conversation(
            case.subject,
            transcript.arguments,
            RecordedPartner(transcript),
            way,
            flow_id=transcript.flow_id,
        )
    except ConversationBroken as broken:
        error: Any = broken.error
        return case.drifts(f"{way.name}: {error}", getattr(error, "where", None))
    journal = other.rounds[-1].journal
    assert journal is not None
    if (other.ending, journal.entries) != (transcript.ending, last.entries):
        return case.drifts(
            f"it {transcript.ending}; and when the same was had {way.name} again,"
            f" it {other.ending}",
            None,
        )
    return None


def _decimals_at(function: Callable[..., Any]) -> str | None:
    """Return `file:line` of a module's statement that sets the decimal context."""
    module = sys.modules.get(getattr(function, "__module__", ""))
    file = getattr(module, "__file__", None)
    try:
        with open(file or "", encoding="utf-8") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return None
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            continue
        if "getcontext" in (text := ast.dump(statement)) or "setcontext" in text:
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                return f"{file}:{statement.lineno}"
    return None


# ---- branches, keys, steps ----------------------------------------------------------


def _late(case: Case) -> BareFinding | None:
    late = late_branches(case.subject, case.transcript)
    if late is None:
        return None
    if late.where is None:
        return BareFinding(
            "timing",
            "its result depends on which branch of a Gather ends first: it"
            f" {late.first}, and where another branch is later it {late.second}",
            case.returned_at or last_asked(case.transcript),
            "Let each branch return its part, and put them together from the result"
            " of Gather, in the order of the branches.",
        )
    return BareFinding(
        "timing",
        "a branch of a Gather depends on how far another one has come: it wants"
        f" {late.first}, and where another is later {late.second}",
        late.where,
        "Read what branches share after the Gather, when all have ended.",
    )


def _loops(case: Case) -> BareFinding | None:
    return case.endless_loops.found(case.subject, case.transcript)


def _keys(case: Case) -> BareFinding | None:
    if not case.could_be_live:
        return None
    shared = shared_key(case.trace.effects)
    if shared is not None:
        return BareFinding(
            "charges",
            f"one IdempotencyKey, {shared.name!r}, is given to two different calls:"
            f" {shared.first}, and then {shared.second}. A service that knows the key"
            " repeats its first reply",
            shared.where,
            "Make a key for each call, of what it is about:"
            f" IdempotencyKey({shared.name!r}, ...).",
        )
    unstable = unstable_key(case.subject, case.transcript, case.trace)
    if unstable is not None:
        return BareFinding(
            "charges",
            f"the IdempotencyKey {unstable.name!r} is made of what {unstable.because}"
            " gave in the same round: if the reply is lost, the client sends its request"
            " again, and the key is another one",
            unstable.where,
            "Make the key of arguments and of answers; or ask for it before the clock,"
            " the random value or the step.",
        )
    return None


def _performed(case: Case) -> BareFinding | None:
    if not case.performer.changed or not case.could_be_live:
        return None
    relied = relied_on(case.subject, case.trace, case.performer)
    if relied is None:
        return None
    changed, where = relied
    return BareFinding(
        "mutates",
        f"the step {changed.name}() changes its argument {changed.variable}, and the"
        " handler goes by the change; a step is given a copy, and a replay does not"
        " perform it",
        where,
        "Return the value from the step, and use what `yield from` gives.",
    )


ORACLES: Final[tuple[Callable[[Case], BareFinding | None], ...]] = (
    _repeats,
    _elsewhere,
    _ways,
    _late,
    _loops,
    _keys,
    _performed,
)
