"""Record the conversations of a running server, with their secrets masked.

    Recorder(app, Path("transcripts"))

By default, the results of steps are masked, but the answers of users are not: they are
the users' data, so ask for consent, or mask them, too. A masked value may lead the
handler elsewhere. So the file is not the journal with some strings replaced: the
handler is run again, with the masked values and without performing anything, and that
conversation is written. If the handler then yields an effect that the journal does not
have, nothing true can be written, and a warning is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from ..canonical import JSON, dumps
from ..effects.base import Effect, InputRequest
from ..effects.local import Caller
from ..effects.questions import (
    Accepted,
    ListRoots,
    Sample,
)
from ..engine.answers import Answer
from ..engine.effect_table import KINDS, QUESTIONS, deliver, options_of, steps_in
from ..engine.failures import failure_from
from ..engine.rules import RETRY
from ..engine.steps import step_name
from ..engine.stops import Done, Failure, Question, Want
from ..errors import ClientFailed, Declined, Dismissed
from ..logs import logger_for
from ..protocol.modern import can_answer
from ..server.events import Event, RoundBegan, RoundEnded
from ..server.features import Prompt, ResourceTemplate
from ..server.handlers import values_of_texts
from .conversations import ConversationBroken, Unscripted, Way, run_conversation
from .descriptions import describe
from .subjects import Subject, subjects_of

if TYPE_CHECKING:
    from ..engine.journal import Entry, Journal
    from ..server.app import Server
    from .transcripts import Transcript

__all__ = ["Mask", "Recorder", "mask_private", "recorded"]

logger = logger_for("effectmcp.testing")

#: Given an effect and its outcome in journal form, returns the outcome to write.
Mask: TypeAlias = Callable[[Effect[Any], JSON], JSON]

MASKED: Final = "***"


def mask_private(effect: Effect[Any], value: JSON) -> JSON:
    """Mask the strings in the results of steps that are not public, and the caller.

    Strings that the step's annotation reads as another type are kept: dates, decimals,
    members of an Enum or a Literal. Numbers and the names in objects are kept, too.
    """
    if isinstance(effect, Caller):
        who = ("principal", "subject", "tenant")
        hidden = {name: MASKED for name in who if value.get(name)}
        if "claims" in value:
            hidden["claims"] = _masked(value["claims"], lambda masked: True)
        return {**value, **hidden}
    if all(step.options.public for step in steps_in(effect)):
        return value

    def fits(masked: JSON) -> bool:
        try:
            KINDS[type(effect)].read(effect, dumps(masked))
        except Exception:
            return False
        return True

    # The message of a failure has no annotation.
    return _masked(value, fits if fits(value) else lambda masked: True)


def _masked(value: JSON, fits: Callable[[JSON], bool]) -> JSON:
    """Return `value` with each string masked, if its mask fits in that place."""
    match value:
        case str():
            return MASKED if fits(MASKED) else value
        case list() | dict():
            keys = range(len(value)) if isinstance(value, list) else list(value)
            made = value.copy()
            for key in keys:

                def fits_here(one: JSON, key: Any = key) -> bool:
                    before, made[key] = made[key], one
                    try:
                        return fits(made)
                    finally:
                        made[key] = before

                made[key] = _masked(made[key], fits_here)
            return made
        case _:
            return value


class Recorder:
    """An observer that writes a transcript of each conversation into a folder.

    The file is written after each round, by the replica that served the round. So
    conversations that were never finished are recorded, too.

    Args:
        app: The server to observe.
        folder: The folder to write to.
        mask: Returns the outcome to write for an effect.
        mask_arguments: Returns the arguments to write. Called with the name of the tool
            or prompt, or the URI of the resource, and with the arguments.
    """

    def __init__(
        self,
        app: Server,
        folder: Path | str,
        *,
        mask: Mask = mask_private,
        mask_arguments: Callable[[str, JSON], JSON] = lambda name, arguments: arguments,
    ) -> None:
        self._app = app
        self._folder = Path(folder)
        self._mask = mask
        self._mask_arguments = mask_arguments
        self._begun: dict[str, RoundBegan] = {}
        # Whether the last save failed: one warning is enough for a full disk.
        self._is_failing = False
        app.observers = (*app.observers, self)

    def __call__(self, event: Event) -> None:
        """Receive an event."""
        match event:
            case RoundBegan():
                self._begun[event.flow_id] = event
            case RoundEnded():
                began = self._begun.pop(event.flow_id, None)
                if began is not None and event.journal is not None:
                    self._record(began, event.journal)
            case _:
                pass

    def _record(self, began: RoundBegan, journal: Journal) -> None:
        found = _found(self._app, began)
        if found is None:
            return  # the server does not offer it any more
        subject, arguments = found
        supports = partial(can_answer, began.capabilities)
        try:
            transcript = recorded(
                subject,
                arguments,
                bytes.fromhex(began.flow_id),
                journal,
                lacks=frozenset(
                    name for name, one in QUESTIONS.items() if not supports(one)
                ),
                mask=self._mask,
                mask_arguments=self._mask_arguments,
            )
        except Exception as exc:
            logger.warning("%s is not recorded: %s", began.target, exc)
            return
        try:
            transcript.save(self._folder, mark=began.flow_id)
        except OSError as exc:
            if not self._is_failing:
                logger.warning("no conversation can be recorded for now: %s", exc)
            self._is_failing = True
        else:
            self._is_failing = False


def _found(app: Server, began: RoundBegan) -> tuple[Subject, JSON] | None:
    """Return the called handler, and its arguments as JSON."""
    for subject in subjects_of(app):
        if subject.method != began.method:
            continue
        feature = subject.feature
        if isinstance(feature, ResourceTemplate):
            texts = feature.template.match(began.target)
            if texts is not None:
                return subject, values_of_texts(feature.handler, texts)
        elif subject.target == began.target:
            if isinstance(feature, Prompt):
                return subject, values_of_texts(feature.handler, began.arguments)
            return subject, began.arguments or {}
    return None


#: Nothing is sealed, so nothing can be too large.
_WAY: Final = Way(
    "from a journal",
    attrs.evolve(RETRY, policy="strict", rounds=None, state_rounds=None),
    may_stay_open=True,
)


def recorded(
    subject: Subject,
    arguments: JSON,
    flow_id: bytes,
    journal: Journal,
    *,
    lacks: frozenset[str] = frozenset(),
    mask: Mask = mask_private,
    mask_arguments: Callable[[str, JSON], JSON] = lambda name, arguments: arguments,
) -> Transcript:
    """Return the conversation that a journal records, masked.

    Raises:
        Unscripted: If the handler yields other effects with masked values.
        DivergenceError: If it diverges from the journal.
    """
    if journal.generation:
        raise Unscripted("what was before a Restart, which is not in the journal", None)
    known: dict[str, str] = {}

    def had(mask: Mask, arguments: JSON, flow_id: bytes) -> Transcript:
        partner = _JournaledPartner(journal, lacks, mask, known)
        try:
            return run_conversation(subject, arguments, partner, _WAY, flow_id=flow_id)
        except ConversationBroken as broken:
            raise broken.error from None

    had(_unmasked, arguments, flow_id)  # to learn the effect at each place
    # Another id, because idempotency keys are made of the real one.
    other = sha256(b"recorded" + flow_id).digest()[:16]
    return had(mask, mask_arguments(subject.target, arguments), other)


def _unmasked(effect: Effect[Any], value: JSON) -> JSON:
    return value


class _JournaledPartner:
    """A partner that answers as a journal records."""

    def __init__(
        self,
        journal: Journal,
        lacks: frozenset[str],
        mask: Mask,
        known: dict[str, str],
    ) -> None:
        self.lacks = lacks
        self._entries = dict(_places(journal.entries, ""))
        self._mask = mask
        self._known = known

    def _entry(
        self, place: str, effect: Effect[Any], where: str | None = None
    ) -> Entry | None:
        """Return the entry at `place`, if the same kind of effect is yielded there."""
        name = " ".join(map(step_name, steps_in(effect))) or type(effect).__name__
        name = f"{name} at {where}"
        if self._known.setdefault(place, name) != name:
            raise Unscripted(describe(effect), None)
        return self._entries.get(place)

    def answer(self, question: Question) -> Answer | None:
        """Return the recorded answer, no matter how often the question was asked."""
        place, _, _ = question.key.partition("~")
        entry = self._entry(place, question.effect, question.where)
        if entry is None:
            return None
        match entry.tag:
            case "accepted":
                value = self._mask(question.effect, entry.value)
                return Accepted(_sent(question.effect, value))
            case "declined":
                return Declined()
            case "dismissed":
                return Dismissed()
            case "refused":
                return ClientFailed(*entry.value)
            case _:
                return Accepted("nonsense")  # until the question is given up

    def perform(self, key: str, want: Want) -> Done | Failure:
        """Return the recorded outcome, masked."""
        entry = self._entry(key.partition(":")[2], want.effect)
        if entry is None:
            raise Unscripted(describe(want.effect), None)
        value = entry.value
        if entry.tag in ("failed", "refailed"):
            # Only the message is masked: the handler depends on the class.
            for part in _SAID & value.keys():
                value[part] = self._mask(want.effect, value[part])
            return Failure(failure_from(dumps(value), options_of(want.effect)))
        if entry.tag != "won":
            value = self._mask(want.effect, value)
        elif value is not None:
            value[2] = self._mask(want.effect, value[2])
        masked = attrs.evolve(entry, payload=dumps(value))
        return Done(deliver(want.effect, KINDS[type(want.effect)], masked))


#: The fields of a failure besides its class.
_SAID: Final = frozenset({"args", "message", "data"})


def _places(entries: tuple[Entry, ...], path: str) -> Iterator[tuple[str, Entry]]:
    for entry in entries:
        yield path + entry.key, entry
        for place, branch in enumerate(entry.branches):
            yield from _places(branch, f"{path}{entry.key}/{place}/")


def _sent(question: InputRequest[Any], value: Any) -> JSON:
    """Return a client's answer, rebuilt from the journal's form of it."""
    match question:
        case Sample():
            sent = {"role": "assistant", "content": value["content"]}
            sent["model"] = value["model"]
            if value["stop"] is not None:
                sent["stopReason"] = value["stop"]
            return sent
        case ListRoots():
            return {"roots": [_root(*one) for one in value]}
        case _:
            return value


def _root(uri: str, name: str | None) -> JSON:
    return {"uri": uri} if name is None else {"uri": uri, "name": name}
