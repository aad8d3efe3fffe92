"""Carry a conversation through, in each of the ways in which answers can arrive.

    retry        a new run each round; between them the journal is sealed in a token
    live         the running generator is resumed, and nothing is replayed
    task         a new run at each stop; between them the journal lies in a store
    in process   a new run each round; the journal is handed on

For one handler and one partner all four come to the same journal and the same end
(docs/internals/replay.md#what-must-be-equal): `talk` gives a transcript,
which is the partner that says the same in another way.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
from attrs import frozen

from ..canonical import JSON, dumps, loads
from ..engine.answers import read_answer
from ..engine.failures import failure_from
from ..engine.journal import Entry, Journal
from ..engine.kinds import KINDS, deliver, options_of, record_error, record_value
from ..engine.replay import Run
from ..engine.rules import LIVE, RETRY, SCRIPT, TASK, Rules
from ..engine.stops import (
    Answer,
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
from ..engine.turn import GRAVEYARD
from ..forms.form import Unfit
from ..lowlevel import is_call
from ..state.claims import Call, Claims
from ..state.keys import Keys, make_key
from ..state.seal import Sealer
from .transcripts import FAILED, Ending, Performed, Round, Said, Transcript
from .words import shown

if TYPE_CHECKING:
    from .subjects import Subject

__all__ = [
    "WATCHED",
    "WAYS",
    "Around",
    "Broken",
    "Buried",
    "Partner",
    "Played",
    "Recorded",
    "Talk",
    "Unscripted",
    "Way",
    "answers_of",
    "in_earnest",
    "sealed",
    "talk",
]

#: A round, and whatever watches it.
Around = Callable[[], AbstractContextManager[Any]]


class Partner(Protocol):
    """The client and the world, for one conversation."""

    @property
    def lacks(self) -> frozenset[str]:
        """What the client cannot be asked, by the names of the effects."""

    def answer(self, question: Question) -> Answer | None:
        """What comes back for a question; `None` if nothing does."""

    def perform(self, key: str, want: Want) -> Done | Failure:
        """What comes of performing something. The key has the generation in front."""


class Unscripted(Exception):
    """A handler wants something that it did not want when this was recorded.

    Attributes:
        what: What it wants.
        where: `file:line` of the yield.
    """

    def __init__(self, what: str, where: str | None) -> None:
        self.what = what
        self.where = where
        super().__init__(f"{what} at {where}, which was not wanted before")


class Buried(Exception):
    """A handler swallowed what ends it.

    Attributes:
        where: `file:line` of the yield at which it was to end.
    """

    def __init__(self, where: str | None) -> None:
        self.where = where
        super().__init__(f"it goes on yielding while it is being ended, at {where}")


class Broken(Exception):
    """A conversation came to nothing.

    Attributes:
        transcript: What took place so far.
        error: Why.
    """

    def __init__(self, transcript: Transcript, error: Exception) -> None:
        self.transcript = transcript
        self.error = error
        super().__init__(str(transcript))


def in_earnest(want: Want) -> Done | None:
    """What comes of a function that keeps its own state, which is no step to replace.

    Its last call gives the handler's result past the journal (`lowlevel`), and so does
    what it raises. So it is called in each way; `None` of everything else.
    """
    effect: Any = want.effect
    if not is_call(effect):
        return None
    context = want.context.copy()
    value = context.run(effect.fn, *effect.args, **effect.kwargs)
    if inspect.iscoroutine(value):
        value = context.run(asyncio.run, value)
    return Done(value)


class Recorded:
    """The partner of a transcript: says what was said, does what was done."""

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
        """What came back for this question."""
        known = self._answers.get(question.key)
        if not known:
            raise Unscripted(shown(question.effect), question.where)
        return known.popleft()

    def perform(self, key: str, want: Want) -> Done | Failure:
        """What came of this; the last of it again, where it is performed once more."""
        own = in_earnest(want)
        if own is not None:
            return own
        known = self._outcomes.get(key)
        if not known:
            raise Unscripted(shown(want.effect), None)
        one = known.popleft() if len(known) > 1 else known[0]
        return _outcome(want, one.tag, one.payload)

    def race(self, key: str, want: Want) -> Done | Failure | None:
        """What came of a step inside a `Within` or `FirstOf`; `None` if it lost."""
        outer, index, _ = key.rsplit("/", 2)
        known = self._outcomes.get(outer)
        if not known:
            raise Unscripted(shown(want.effect), None)
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
    """An exception that is recorded as this payload again."""
    if isinstance(payload, dict) and "type" in payload:
        # As a StepFailed it would be recorded as one that failed with a StepFailed.
        class_ = type(payload["type"], (Exception,), {"data": payload.get("data")})
        error: Exception = class_(payload["message"])
        return error
    return failure_from(dumps(payload), options_of(want.effect))


# ---- one round ----------------------------------------------------------------------


@frozen
class Played:
    """What one round came to.

    Attributes:
        stop: What it stopped with.
        journal: What is to be carried to the next one; `None` if nothing may be.
        performed: What was performed.
        salvaged: What a salvage said, where the handler was edited.
    """

    stop: Asked | Returned | Raised
    journal: Journal | None
    performed: tuple[Performed, ...]
    salvaged: tuple[str, ...] = ()


class Talk:
    """A conversation that is going on.

    Args:
        subject: Whose.
        arguments: What it was called with, as JSON.
        partner: Who answers.
        way: How answers arrive.
        flow_id: The flow's.
        around: What watches the handler run.
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
        self._early: tuple[Said, ...] = ()
        self._performed: list[Performed] = []
        self._now = float(_NOW)
        #: Of a task: what was answered and not delivered, and what of it does not fit.
        self._held: dict[str, Answer] = {}
        self._unfit: set[str] = set()

    def round(self, journal: Journal, answers: Mapping[str, Answer]) -> Played:
        """One request: what it brought is delivered, and the round taken to its end.

        Of a way that carries journals, the same round can be had any number of times.

        Raises:
            DivergenceError: The handler does something else than it did.
            StateSizeError: The state is larger than clients carry.
            Buried: It cannot be ended.
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
                    # Another worker goes on from what was stored.
                    stored = self.way.carry(self._end(run), self)
                    run = self._run(stored)
                    with self._around():
                        stop = run.start()
            assert not isinstance(stop, Perform)
            return self._played(run, stop)
        except BaseException:
            # A draw that is given up, too: no generator is left.
            run.close()
            raise

    def _together(
        self, journal: Journal, answers: Mapping[str, Answer]
    ) -> Mapping[str, Answer]:
        """What of the answers so far is delivered now.

        In a task what arrives first is delivered first. A conversation that was had by
        retry is the same there only where the answers of a round arrive together.
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
        """Whatever needs no client; `None` where nothing is left but its answers."""
        if isinstance(stop, Perform):
            return self._perform(run, stop)
        if not isinstance(stop, Asked) or not self.way.stores:
            return None
        partner = self.partner
        # Of a race that was recorded as one, the others have lost.
        race = partner.race if isinstance(partner, Recorded) else partner.perform
        for want in stop.wants:
            outcome = race(self._key(run, want), want)
            if outcome is not None:
                with self._around():
                    return run.performed({want.key: outcome})
        if stop.questions or stop.due is None:
            return None
        self._now = stop.due
        with self._around():
            return run.answered()

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
            rules=self.way.rules,
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
            outcome = outcomes[want.key] = self.partner.perform(key, want)
            tag, payload = _recorded(want, outcome)
            where = run.line_of(want.key)
            self._performed.append(
                Performed(key, shown(want.effect), where, tag, loads(payload))
            )
        with self._around():
            return run.performed(outcomes)

    def _played(self, run: Run, stop: Asked | Returned | Raised) -> Played:
        performed, salvaged = tuple(self._performed), tuple(map(str, run.salvaged))
        if not isinstance(stop, Asked):
            journal = None if run.is_over_limit else _unnumbered(run.journal)
            return Played(stop, journal, performed, salvaged)
        if self.way.resumes:
            self._live = run
            return Played(stop, run.journal, performed, salvaged)
        return Played(stop, self.way.carry(self._end(run), self), performed, salvaged)

    def _end(self, run: Run) -> Journal:
        where, buried = run.where, GRAVEYARD.buried
        journal = run.suspend()
        if GRAVEYARD.buried > buried:
            raise Buried(where)
        return journal

    def ask(self, stop: Asked) -> tuple[Said, ...]:
        """Ask the partner."""
        asked = []
        for one in stop.questions:
            if one.key in self._held:
                continue  # answered already
            answer = self.partner.answer(one)
            if answer is not None and not _fits(one, answer):
                self._unfit.add(one.key)
            asked.append(Said(one.key, shown(one.effect), one.where, answer))
        return tuple(asked)

    def ending(self, stop: Returned | Raised) -> Ending:
        """How it ended, as the client gets to know.

        Raises:
            OutputError: The result is not what was promised.
        """
        if isinstance(stop, Returned):
            return Ending("returned", self.subject.result(stop.value))
        error = stop.error
        return Ending("raised", f"{type(error).__name__}: {error}", error)

    @property
    def early(self) -> tuple[Said, ...]:
        """What was answered before it was asked."""
        return self._early

    def begin_early(self, asked: tuple[Said, ...]) -> None:
        """Have it begin with answers to what was not asked yet."""
        self._early = asked

    def so_far(self, rounds: Iterable[Round], error: Exception) -> Transcript:
        """What took place until a round came to nothing."""
        broken = Round(tuple(self._performed), (), None)
        return self.transcript([*rounds, broken], Ending("broke off", str(error)))

    def transcript(self, rounds: Iterable[Round], ending: Ending) -> Transcript:
        """What took place."""
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
    """A journal as it is where all answers of a round arrive together."""

    def clean(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple(
            attrs.evolve(one, wave=None, branches=tuple(map(clean, one.branches)))
            for one in entries
        )

    return attrs.evolve(journal, entries=clean(journal.entries))


def _recorded(want: Want, outcome: Done | Failure) -> tuple[str, bytes]:
    """The tag and payload of what was performed; `re` for what may be performed again."""
    if isinstance(outcome, Done):
        kind = KINDS[type(want.effect)]
        tag, payload, replayable = record_value(want.effect, kind, outcome.value)
    else:
        tag, payload, replayable = record_error(want.effect, outcome.error)
    return f"re{tag}" if replayable and tag != "won" else tag, payload


def answers_of(asked: Iterable[Said]) -> dict[str, Answer]:
    """What came back, by wire key."""
    return {one.key: one.answer for one in asked if one.answer is not None}


# ---- the four ways ------------------------------------------------------------------


@frozen
class Way:
    """A way in which answers arrive.

    Attributes:
        name: What messages call it.
        rules: How the engine is to behave.
        resumes: Whether the generator is kept from one round to the next.
        carry: How a journal gets from one round to the next.
        stores: Whether it is stored in between, too.
        may_stay_open: Whether it ends where nobody answers.
    """

    name: str
    rules: Rules
    resumes: bool = False
    carry: Callable[[Journal, Talk], Journal] = lambda journal, talk: journal
    stores: bool = False
    may_stay_open: bool = False


_SEALER: Final = Sealer(keys=Keys(make_key(os.urandom(32))), audience="testing")
_NOW: Final = 1_800_000_000


def sealed(journal: Journal, talk: Talk) -> Journal:
    """A journal that went to the client and came back.

    Raises:
        StateSizeError: It is larger than clients carry.
    """
    subject = talk.subject
    call = Call(method=subject.method, target=subject.target, arguments=talk.arguments)
    claims = Claims(flow_id=talk.flow_id, started=_NOW, journal=journal)
    token = _SEALER.seal(claims, call, now=_NOW)
    return _SEALER.open(token, call, now=_NOW).journal


def _stored(journal: Journal, talk: Talk) -> Journal:
    """A journal that lay in a store."""
    return Journal.loads(journal.dumps())


def _strict(rules: Rules) -> Rules:
    return attrs.evolve(rules, policy="strict")


#: The first is how conversations begin; the others must agree with it.
WAYS: Final = (
    Way("by retry", _strict(RETRY), carry=sealed),
    Way("live", _strict(LIVE), resumes=True),
    Way("in a task", _strict(TASK), carry=_stored, stores=True),
    Way("in process", _strict(SCRIPT)),
)


#: The first, with forgotten effects warned about.
WATCHED: Final = attrs.evolve(
    WAYS[0], rules=attrs.evolve(WAYS[0].rules, development=True)
)


def talk(
    subject: Subject,
    arguments: JSON,
    partner: Partner,
    way: Way = WAYS[0],
    *,
    flow_id: bytes,
    early: tuple[Said, ...] = (),
    around: Around = nullcontext,
) -> Transcript:
    """Carry a whole conversation through.

    Raises:
        Broken: It came to nothing, for the reason that is its cause: the partner knows
            no answer (`Unscripted`), the handler does something else in a replay
            (`DivergenceError`), the state is larger than clients carry
            (`StateSizeError`), the result is not what was promised (`OutputError`), or
            the handler cannot be ended (`Buried`).
    """
    going = Talk(subject, arguments, partner, way, flow_id=flow_id, around=around)
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
        raise Broken(going.so_far(rounds, exc), exc) from exc
    finally:
        going.close()
