"""Run a whole conversation, in each of the ways that answers can arrive.

    retry        a new run each round; between them the journal is sealed in a token
    live         the running generator is resumed, and nothing is replayed
    task         a new run at each stop; between them the journal lies in a store
    in process   a new run each round; the journal is handed on

For one handler and one partner, all four must reach the same journal and the same end
(docs/internals/replay.md#what-must-be-equal). `run_conversation` returns a transcript, and a
`RecordedPartner` partner gives its answers again in another way.
"""

from __future__ import annotations

import inspect
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs
from attrs import frozen

from ..canonical import JSON, dumps, loads
from ..engine.answers import Answer, read_answer
from ..engine.effect_table import KINDS, deliver, options_of, record_error, record_value
from ..engine.failures import failure_from
from ..engine.generators import GRAVEYARD
from ..engine.journal import Entry, Journal
from ..engine.replay import Run
from ..engine.rules import LIVE, RETRY, SCRIPT, TASK, Rules
from ..engine.stops import (
    Asked,
    Done,
    Failure,
    Perform,
    Question,
    Raised,
    Returned,
    Stop,
    Want,
)
from ..forms.form import Unfit
from ..lowlevel import is_call
from ..state.codec import Claims
from ..state.keys import Keys, make_key
from ..state.seal import BoundCall, Sealer
from .descriptions import describe
from .transcripts import FAILED, AskedQuestion, Ending, Performed, Round, Transcript

if TYPE_CHECKING:
    from .subjects import Subject

__all__ = [
    "WATCHED",
    "WAYS",
    "Around",
    "ConversationBroken",
    "HandlerNotEnded",
    "Partner",
    "RecordedPartner",
    "RoundResult",
    "RunningConversation",
    "Unscripted",
    "Way",
    "answers_of",
    "call_stateful",
    "run_conversation",
    "sealed",
]

Given = TypeVar("Given", Done | Failure, Done | Failure | None)

#: Makes a context manager that watches the handler run.
Around = Callable[[], AbstractContextManager[Any]]


class Partner(Protocol):
    """The client and the world, for one conversation."""

    @property
    def lacks(self) -> frozenset[str]:
        """The names of the effects that the client cannot be asked."""
        ...

    def answer(self, question: Question) -> Answer | None:
        """Return the answer to a question; `None` if there is no answer."""
        ...

    def perform(self, key: str, want: Want) -> Done | Failure:
        """Return the outcome of an effect. The key begins with the generation."""
        ...


class Unscripted(Exception):
    """Raised when a handler yields an effect that the recorded conversation lacks.

    Attributes:
        what: The effect, in words.
        where: `file:line` of the yield.
    """

    def __init__(self, what: str, where: str | None) -> None:
        self.what = what
        self.where = where
        super().__init__(f"{what} at {where}, which was not wanted before")


class HandlerNotEnded(Exception):
    """Raised when a handler swallowed the exception that ends it.

    Attributes:
        where: `file:line` of the yield where it should have ended.
    """

    def __init__(self, where: str | None) -> None:
        self.where = where
        super().__init__(f"it continues to yield while it is being ended, at {where}")


class ConversationBroken(Exception):
    """Raised when a conversation cannot be completed.

    Attributes:
        transcript: The conversation so far.
        error: The cause.
    """

    def __init__(self, transcript: Transcript, error: Exception) -> None:
        self.transcript = transcript
        self.error = error
        super().__init__(str(transcript))


def call_stateful(want: Want) -> Done | None:
    """Call a function that keeps its own state, because no partner can replace it.

    The result or the exception of its last call bypasses the journal (`lowlevel`), so
    the function is called in each way of answering. Return `None` for all other
    effects.
    """
    effect: Any = want.effect
    if not is_call(effect):
        return None
    context = want.context.copy()
    value = context.run(effect.fn, *effect.args, **effect.kwargs)
    return Done(_Unawaited(context, value) if inspect.iscoroutine(value) else value)


@frozen(eq=False)
class _Unawaited:
    """The coroutine that a function returned, and the context to await it in."""

    context: Context
    coroutine: Coroutine[Any, Any, Any]


class RecordedPartner:
    """A partner that gives the answers and outcomes of a transcript again."""

    def __init__(self, transcript: Transcript) -> None:
        self.lacks = transcript.lacks
        self._answers: dict[str, deque[Answer | None]] = {}
        self._outcomes: dict[str, deque[Performed]] = {}
        for one in transcript.rounds:
            for asked in one.asked:
                self._answers.setdefault(asked.key, deque()).append(asked.answer)
            for performed in one.performed:
                self._outcomes.setdefault(performed.key, deque()).append(performed)

    def answer(self, question: Question) -> Answer | None:
        """Return the recorded answer to this question."""
        known = self._answers.get(question.key)
        if not known:
            raise Unscripted(describe(question.effect), question.where)
        return known.popleft()

    def perform(self, key: str, want: Want) -> Done | Failure:
        """Return the next recorded outcome; repeat the last if there is no other."""
        own = call_stateful(want)
        if own is not None:
            return own
        known = self._outcomes.get(key)
        if not known:
            raise Unscripted(describe(want.effect), None)
        one = known.popleft() if len(known) > 1 else known[0]
        return _outcome(want, one.tag, one.payload)

    def race(self, key: str, want: Want) -> Done | Failure | None:
        """Return the outcome of a step in a race; `None` if it lost the race."""
        outer, index, _ = key.rsplit("/", 2)
        known = self._outcomes.get(outer)
        if not known:
            raise Unscripted(describe(want.effect), None)
        one = known[0]
        if one.tag == "won" and (one.payload is None or one.payload[0] != int(index)):
            return None
        if one.tag == "won":
            return _outcome(want, one.payload[1], one.payload[2])
        return _outcome(want, one.tag, one.payload)


def _outcome(want: Want, tag: str, payload: JSON) -> Done | Failure:
    if tag in FAILED:
        return Failure(_failure(payload, want))
    kind = KINDS[type(want.effect)]
    entry = Entry("", b"", b"", kind.tag, dumps(payload))
    return Done(deliver(want.effect, kind, entry))


def _failure(payload: Any, want: Want) -> Exception:
    """Return an exception that is recorded as this payload again."""
    if isinstance(payload, dict) and "type" in payload:
        # A StepFailed would be recorded as a step that raised StepFailed itself.
        class_ = type(payload["type"], (Exception,), {"data": payload.get("data")})
        error: Exception = class_(payload["message"])
        return error
    return failure_from(dumps(payload), options_of(want.effect))


# ---- one round ----------------------------------------------------------------------


@frozen
class RoundResult:
    """The outcome of one round.

    Attributes:
        stop: The stop of the run.
        journal: The journal for the next round; `None` if the limit on rounds is
            passed.
        performed: The performed effects, in order.
        salvaged: The reports of a salvage, if the handler was edited.
    """

    stop: Asked | Returned | Raised
    journal: Journal | None
    performed: tuple[Performed, ...]
    salvaged: tuple[str, ...] = ()


class RunningConversation:
    """A conversation in progress.

    Args:
        subject: The handler.
        arguments: The arguments that it was called with, as JSON.
        partner: The client and the world that answer.
        way: How answers arrive.
        flow_id: The flow's id.
        around: Makes a context manager that watches the handler run.
    """

    def __init__(
        self,
        subject: Subject,
        arguments: JSON,
        partner: Partner,
        way: Way,
        *,
        flow_id: bytes,
        around: Around = nullcontext,
    ) -> None:
        self.subject = subject
        self.arguments = arguments
        self.partner = partner
        self.way = way
        self.flow_id = flow_id
        self._around = around
        self._live: Run | None = None
        self._early: tuple[AskedQuestion, ...] = ()
        self._performed: list[Performed] = []
        self._now = float(_NOW)
        #: In a task: answers that are not delivered yet, and the keys that did not fit.
        self._held: dict[str, Answer] = {}
        self._unfit: set[str] = set()

    def round(self, journal: Journal, answers: Mapping[str, Answer]) -> RoundResult:
        """Run one request: deliver its answers, and run the round to its end.

        If the way carries journals, the same round can be run any number of times.

        Raises:
            DivergenceError: If the handler diverges from its journal.
            StateSizeError: If the state is larger than clients carry.
            HandlerNotEnded: If the handler cannot be ended.
        """
        self._performed = []
        if self.way.stores:
            answers = self._together(journal, answers)
        run = self._live or self._run(journal)
        try:
            with self._around():
                stop = run.start(answers) if not self._live else run.answered(answers)
            while (gone_on := self._go_on(run, stop)) is not None:
                stop = gone_on
                if self.way.stores and not isinstance(stop, (Returned, Raised)):
                    # Another worker resumes from the stored journal.
                    stored = self.way.carry(self._end(run), self)
                    run = self._run(stored)
                    with self._around():
                        stop = run.start()
            assert not isinstance(stop, Perform)
            return self._played(run, stop)
        except BaseException:
            # Close the generator for abandoned draws, too.
            run.close()
            raise

    def _together(
        self, journal: Journal, answers: Mapping[str, Answer]
    ) -> Mapping[str, Answer]:
        """Return the answers to deliver now.

        A task delivers answers in the order of their arrival. A conversation that was
        run by retry is the same in a task only if the answers of a round arrive
        together.
        """
        self._held |= answers
        again = {
            key: self._held[key]
            for key in self._unfit & self._held.keys() & journal.asked.keys()
            if journal.asked[key].unfit + 1 < self.way.rules.unfit
        }
        if again:
            for key in again:
                del self._held[key]
            return again
        if journal.asked.keys() - self._held.keys():
            return {}
        arrived, self._held = self._held, {}
        return arrived

    def _go_on(self, run: Run, stop: Stop) -> Stop | None:
        """Continue without the client; return `None` if only answers are missing."""
        if isinstance(stop, Perform):
            return self._perform(run, stop)
        if not isinstance(stop, Asked) or not self.way.stores:
            return None
        partner = self.partner
        # A race was recorded as one effect, so the other effects in it have lost.
        race = partner.race if isinstance(partner, RecordedPartner) else partner.perform
        for want in stop.wants:
            outcome = self._awaited(race(self._key(run, want), want))
            if outcome is not None:
                with self._around():
                    return run.performed({want.key: outcome})
        if stop.questions or stop.due is None:
            return None
        self._now = stop.due
        with self._around():
            return run.answered()

    def _awaited(self, outcome: Given) -> Given | Done:
        if not isinstance(outcome, Done) or not isinstance(outcome.value, _Unawaited):
            return outcome
        context, coroutine = outcome.value.context, outcome.value.coroutine
        return Done(context.run(self.subject.run_async, coroutine))

    def _key(self, run: Run, want: Want) -> str:
        generation = run.journal.generation
        return f"{generation}:{want.key.removeprefix(f'r{generation}/')}"

    def close(self) -> None:
        """End a generator that is kept for the next round."""
        if self._live is not None:
            self._live.close()

    def _run(self, journal: Journal) -> Run:
        feature = self.subject.feature
        return Run(
            self.subject.function,
            (),
            self.subject.read(self.arguments),
            flow_id=self.flow_id,
            journal=journal,
            rules=self.subject.rules_of(self.way.rules),
            supports=self._supports,
            clock=lambda: self._now,
            name=feature.handler.name,
            version=feature.version,
        )

    def _supports(self, what: Any) -> bool:
        class_ = what if isinstance(what, type) else type(what)
        return class_.__name__ not in self.partner.lacks

    def _perform(self, run: Run, stop: Perform) -> Stop:
        outcomes = {}
        for want in stop.wants:
            key = self._key(run, want)
            outcome = self._awaited(self.partner.perform(key, want))
            outcomes[want.key] = outcome
            tag, payload = _recorded(want, outcome)
            where = run.line_of(want.key)
            self._performed.append(
                Performed(key, describe(want.effect), where, tag, loads(payload))
            )
        with self._around():
            return run.performed(outcomes)

    def _played(self, run: Run, stop: Asked | Returned | Raised) -> RoundResult:
        performed, salvaged = tuple(self._performed), tuple(map(str, run.salvaged))
        if not isinstance(stop, Asked):
            journal = None if run.is_over_limit else _unnumbered(run.journal)
            return RoundResult(stop, journal, performed, salvaged)
        if self.way.resumes:
            self._live = run
            return RoundResult(stop, run.journal, performed, salvaged)
        return RoundResult(
            stop, self.way.carry(self._end(run), self), performed, salvaged
        )

    def _end(self, run: Run) -> Journal:
        where, buried = run.where, GRAVEYARD.buried
        journal = run.suspend()
        if GRAVEYARD.buried > buried:
            raise HandlerNotEnded(where)
        return journal

    def ask(self, stop: Asked) -> tuple[AskedQuestion, ...]:
        """Ask the partner the questions of a stop."""
        asked = []
        for one in stop.questions:
            if one.key in self._held:
                continue  # answered already
            answer = self.partner.answer(one)
            if answer is not None and not _fits(one, answer):
                self._unfit.add(one.key)
            asked.append(
                AskedQuestion(one.key, describe(one.effect), one.where, answer)
            )
        return tuple(asked)

    def ending(self, stop: Returned | Raised) -> Ending:
        """Return the ending, as the client gets it.

        Raises:
            OutputError: If the result does not match its annotation or schema.
        """
        if isinstance(stop, Returned):
            return Ending("returned", self.subject.result(stop.value))
        error = stop.error
        return Ending("raised", f"{type(error).__name__}: {error}", error)

    @property
    def early(self) -> tuple[AskedQuestion, ...]:
        """The questions that were answered before they were asked."""
        return self._early

    def begin_early(self, asked: tuple[AskedQuestion, ...]) -> None:
        """Set the answers that the client sends with its first request."""
        self._early = asked

    def so_far(self, rounds: Iterable[Round], error: Exception) -> Transcript:
        """Return the transcript of a conversation whose last round failed."""
        broken = Round(tuple(self._performed), (), None)
        return self.transcript([*rounds, broken], Ending("broke off", str(error)))

    def transcript(self, rounds: Iterable[Round], ending: Ending) -> Transcript:
        """Return the transcript of these rounds."""
        return Transcript(
            method=self.subject.method,
            target=self.subject.target,
            arguments=self.arguments,
            flow_id=self.flow_id,
            lacks=self.partner.lacks,
            early=self._early,
            rounds=tuple(rounds),
            ending=ending,
        )


def _fits(question: Question, answer: Answer) -> bool:
    try:
        read_answer(question.effect, KINDS[type(question.effect)], answer)
    except Unfit:
        return False
    return True


def _unnumbered(journal: Journal) -> Journal:
    """Return the journal as if all answers of each round arrived together."""

    def clean(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple(
            attrs.evolve(one, wave=None, branches=tuple(map(clean, one.branches)))
            for one in entries
        )

    return attrs.evolve(journal, entries=clean(journal.entries))


def _recorded(want: Want, outcome: Done | Failure) -> tuple[str, bytes]:
    """Return the tag and payload of an outcome; `re` marks a replayable step."""
    if isinstance(outcome, Done):
        kind = KINDS[type(want.effect)]
        tag, payload, replayable = record_value(want.effect, kind, outcome.value)
    else:
        tag, payload, replayable = record_error(want.effect, outcome.error)
    return f"re{tag}" if replayable and tag != "won" else tag, payload


def answers_of(asked: Iterable[AskedQuestion]) -> dict[str, Answer]:
    """Return the answers of the client, by wire key."""
    return {one.key: one.answer for one in asked if one.answer is not None}


# ---- the four ways ------------------------------------------------------------------


@frozen
class Way:
    """A way for answers to arrive.

    Attributes:
        name: Its name in messages.
        rules: The rules of the engine.
        resumes: Whether the generator is kept from one round to the next.
        carry: Carries a journal from one round to the next.
        stores: Whether the journal is stored at each stop, too.
        may_stay_open: Whether the conversation ends if no question gets an answer.
    """

    name: str
    rules: Rules
    resumes: bool = False
    carry: Callable[[Journal, RunningConversation], Journal] = (
        lambda journal, conversation: journal
    )
    stores: bool = False
    may_stay_open: bool = False


_SEALER: Final = Sealer(keys=Keys(make_key(os.urandom(32))), audience="testing")
_NOW: Final = 1_800_000_000


def sealed(journal: Journal, conversation: RunningConversation) -> Journal:
    """Seal a journal, as for the client, and open it again.

    Raises:
        StateSizeError: If the state is larger than clients carry.
    """
    subject = conversation.subject
    call = BoundCall(
        method=subject.method, target=subject.target, arguments=conversation.arguments
    )
    claims = Claims(flow_id=conversation.flow_id, started=_NOW, journal=journal)
    token = _SEALER.seal(claims, call, now=_NOW)
    return _SEALER.open(token, call, now=_NOW).journal


def _stored(journal: Journal, conversation: RunningConversation) -> Journal:
    """Write a journal, as to a store, and read it again."""
    return Journal.loads(journal.dumps())


def _strict(rules: Rules) -> Rules:
    return attrs.evolve(rules, policy="strict")


#: Conversations are drawn with the first way; the others must agree with it.
WAYS: Final = (
    Way("by retry", _strict(RETRY), carry=sealed),
    Way("live", _strict(LIVE), resumes=True),
    Way("in a task", _strict(TASK), carry=_stored, stores=True),
    Way("in process", _strict(SCRIPT)),
)


#: The first way, with warnings about effects that are never performed.
WATCHED: Final = attrs.evolve(
    WAYS[0], rules=attrs.evolve(WAYS[0].rules, development=True)
)


def run_conversation(
    subject: Subject,
    arguments: JSON,
    partner: Partner,
    way: Way = WAYS[0],
    *,
    flow_id: bytes,
    early: tuple[AskedQuestion, ...] = (),
    around: Around = nullcontext,
) -> Transcript:
    """Run a whole conversation.

    Raises:
        ConversationBroken: If the conversation cannot be completed. Its cause has the reason: the
            partner has no answer (`Unscripted`), the handler diverges in a replay
            (`DivergenceError`), the state is larger than clients carry
            (`StateSizeError`), the result does not match its annotation or schema
            (`OutputError`), or the handler cannot be ended (`HandlerNotEnded`).
    """
    going = RunningConversation(
        subject, arguments, partner, way, flow_id=flow_id, around=around
    )
    going.begin_early(early)
    rounds: list[Round] = []
    journal, asked = Journal(), early
    try:
        while True:
            played = going.round(journal, answers_of(asked))
            if not isinstance(played.stop, Asked):
                ending = going.ending(played.stop)
                rounds.append(Round(played.performed, (), played.journal))
                return going.transcript(rounds, ending)
            assert played.journal is not None
            journal, asked = played.journal, going.ask(played.stop)
            rounds.append(Round(played.performed, asked, journal))
            if asked and way.may_stay_open and not answers_of(asked):
                return going.transcript(rounds, Ending("open", None))
    except Exception as exc:
        raise ConversationBroken(going.so_far(rounds, exc), exc) from exc
    finally:
        going.close()
