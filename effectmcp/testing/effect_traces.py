"""Listen to a handler: each effect that it yields, and each outcome that it gets.

A journal has only what a replay needs. Some judges need more: the values that a key was
made of, the round, and whether an exception reached the handler. So a conversation is
run again, live, with a generator around the handler and around each branch of a
`Gather` that passes everything on and takes notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final

from attrs import define, frozen

from ..effects.base import Effect, InputRequest
from ..effects.control import Checkpoint, Gather
from ..effects.questions import Outcome
from ..engine.generators import where
from ..errors import Signal
from .conversations import WAYS, ConversationBroken, RecordedPartner, run_conversation

if TYPE_CHECKING:
    from ..engine.answers import Answer
    from ..engine.stops import Question
    from .subjects import Subject
    from .transcripts import Transcript

__all__ = ["EffectTrace", "TracedEffect", "changed_answers", "trace_effects"]

_MUTABLE: Final = (list, dict, set, bytearray)
#: The address of an object, such as a flow in a Gather: it differs each time.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


@frozen(eq=False)
class TracedEffect:
    """An effect that a handler yielded, and its outcome.

    Attributes:
        path: The branch that yielded it: `gather-1/0/`; empty for the handler itself.
        effect: The effect.
        where: `file:line` of the yield.
        round: The number of the round that delivered its outcome, from 1.
        value: The value that the handler got.
        error: The exception that was raised at the yield instead.
        key: The wire key, if it was asked as a question.
        what: The effect's repr when it was yielded, without addresses.
        before: The value's repr when it was delivered, if a handler can change it.
    """

    path: str
    effect: Effect[Any]
    where: str | None
    round: int
    value: Any = None
    error: BaseException | None = None
    key: str | None = None
    what: str = ""
    before: str | None = None

    @property
    def question(self) -> InputRequest[Any] | None:
        """The question, with or without an `Outcome` around it."""
        effect = self.effect
        if isinstance(effect, Outcome):
            return effect.request
        return effect if isinstance(effect, InputRequest) else None


@define
class EffectTrace:
    """A conversation, effect by effect, as the handler saw it.

    Attributes:
        effects: The effects, in the order of their outcomes.
        transcript: The conversation; the part before the error, if it broke off.
        error: The reason why it broke off; `None` if it did not.
    """

    effects: list[TracedEffect]
    transcript: Transcript
    error: Exception | None = None

    @property
    def in_words(self) -> list[tuple[str, str]]:
        """The effects and the ending in words, to compare two conversations."""
        did = [(one.path, one.what) for one in self.effects]
        ending = self.transcript.ending
        return [*did, (ending.how, repr(ending.value))]


def changed_answers(traced: Iterable[TracedEffect]) -> set[str]:
    """Find the yields, as `file:line`, whose values a handler changed later.

    That is harmless, because each round builds values again. But an author who changes
    a list may think that the change is kept.
    """
    return {
        one.where
        for one in traced
        if one.before is not None
        and one.where is not None
        and repr(one.value) != one.before
    }


def trace_effects(
    subject: Subject,
    transcript: Transcript,
    partner: RecordedPartner | None = None,
    *,
    deliver: Callable[[Effect[Any]], None] = lambda effect: None,
) -> EffectTrace:
    """Run a conversation again, live, and listen.

    Args:
        subject: The handler.
        transcript: The conversation.
        partner: The partner that answers; `None` to answer as recorded.
        deliver: Called with each effect before its outcome is delivered.
    """
    ear = _Tracer(deliver)
    answering = _TracingPartner(partner or RecordedPartner(transcript), ear)
    try:
        again = run_conversation(
            _traced(subject, ear),
            transcript.arguments,
            answering,
            WAYS[1],
            flow_id=transcript.flow_id,
        )
    except ConversationBroken as broken:
        return EffectTrace(ear.effects, broken.transcript, broken.error)
    return EffectTrace(ear.effects, again)


class _Tracer:
    def __init__(self, deliver: Callable[[Effect[Any]], None]) -> None:
        self.effects: list[TracedEffect] = []
        self.deliver = deliver
        self.round = 1
        self.is_asking = False
        self._keys: dict[int, str] = {}

    def ask(self, question: Question) -> None:
        self._keys[id(question.effect)] = question.key
        # The questions of one round follow each other.
        if not self.is_asking:
            self.is_asking = True
            self.round += 1

    def key_of(self, effect: Effect[Any]) -> str | None:
        inner = effect.request if isinstance(effect, Outcome) else effect
        return self._keys.pop(id(inner), None)

    def hear(self, one: TracedEffect) -> None:
        self.is_asking = False
        self.effects.append(one)
        if isinstance(one.effect, Checkpoint):
            self.round += 1


class _TracingPartner:
    """A partner that notes when it is asked."""

    def __init__(self, partner: RecordedPartner, ear: _Tracer) -> None:
        self._partner = partner
        self._ear = ear
        self.lacks = partner.lacks
        self.perform = partner.perform

    def answer(self, question: Question) -> Answer | None:
        self._ear.ask(question)
        return self._partner.answer(question)


def _traced(subject: Subject, ear: _Tracer) -> Subject:
    function = subject.function

    def handler(**kwargs: Any) -> Any:
        return _forwarded(function(**kwargs), ear, "")

    return subject.standing_for(handler)


def _forwarded(
    flow: Any, ear: _Tracer, path: str, place: str | None = None
) -> Generator[Any, Any, Any]:
    """Forward `flow`, and note its effects and outcomes, at `place` if it is given."""
    value: Any = None
    error: BaseException | None = None
    gathers = 0
    while True:
        try:
            effect = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value
        at, sent = place or where(flow), effect
        what = _ADDRESS.sub("", repr(effect))
        if isinstance(effect, Gather):
            gathers += 1
            sent = _listening(effect, ear, f"{path}gather-{gathers}/", at)
        value, error = None, None
        try:
            value = yield sent
        except BaseException as exc:
            error = exc
        if not isinstance(error, (Signal, GeneratorExit)):
            if isinstance(effect, Effect):
                ear.deliver(effect)
            before = repr(value) if isinstance(value, _MUTABLE) else None
            key = ear.key_of(effect)
            ear.hear(
                TracedEffect(
                    path, effect, at, ear.round, value, error, key, what, before
                )
            )


def _listening(
    gather: Gather[Any], ear: _Tracer, path: str, at: str | None
) -> Gather[Any]:
    branches = [
        _forwarded(_single(one), ear, f"{path}{place}/", at)
        if isinstance(one, Effect)
        else _forwarded(one, ear, f"{path}{place}/")
        for place, one in enumerate(gather.branches)
    ]
    made: Gather[Any] = Gather.each(branches) if gather.as_list else Gather(*branches)
    return made


def _single(effect: Effect[Any]) -> Generator[Any, Any, Any]:
    return (yield effect)
