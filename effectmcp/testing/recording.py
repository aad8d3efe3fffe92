"""Record the conversations of a running server, with their secrets masked.

    Recorder(app, Path("transcripts"))

Whatever a server learned from its steps is masked, by default; what users answered is
not, and it is theirs: ask them, or mask that, too. A masked value may lead the handler
elsewhere, so what is written is not the journal with some texts replaced: the handler is
run again, with the masked values, and that conversation is written. Nothing is performed
for it. Where the handler then wants something that it did not want before, there is
nothing honest to write, and a line of the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from .. import effects as fx
from ..canonical import JSON, dumps
from ..effects import Accepted, Effect, InputRequest
from ..engine.failures import failure_from
from ..engine.kinds import KINDS, deliver, options_of, steps_in
from ..engine.rules import RETRY
from ..engine.steps import step_name
from ..engine.stops import Answer, Done, Failure, Question, Want
from ..errors import ClientFailed, Declined, Dismissed
from ..protocol.modern import supporter
from ..server.events import Event, RoundBegan, RoundEnded
from ..server.features import Prompt, Template
from ..server.handlers import values_of_texts
from .subjects import Subject, subjects_of
from .talks import Broken, Unscripted, Way, talk
from .words import shown

if TYPE_CHECKING:
    from ..engine.journal import Entry, Journal
    from ..server.app import Server
    from .transcripts import Transcript

__all__ = ["Mask", "Recorder", "mask_private", "recorded"]

logger = logging.getLogger("effectmcp.testing")

#: Given an effect and what came of it, as a journal has it: what to write instead.
Mask: TypeAlias = Callable[[Effect[Any], JSON], JSON]

MASKED: Final = "***"


def mask_private(effect: Effect[Any], value: JSON) -> JSON:
    """Mask the texts in what steps gave, unless they are public, and who called.

    Texts that are something else by the step's annotation stay: dates, decimals, members
    of an Enum or a Literal. So do numbers and the names in objects.
    """
    if isinstance(effect, fx.Caller):
        return {**value, "principal": value["principal"] and MASKED}
    if all(step.options.public for step in steps_in(effect)):
        return value

    def fits(masked: JSON) -> bool:
        try:
            KINDS[type(effect)].read(effect, dumps(masked))
        except Exception:
            return False
        return True

    # What a failure says has no annotation.
    return _masked(value, fits if fits(value) else lambda masked: True)


def _masked(value: JSON, fits: Callable[[JSON], bool]) -> JSON:
    """`value` with each text masked whose mask fits where it stands."""
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

    It is written anew after each round, so a conversation that nobody finished is there
    as well; and by whichever replica had the last round.

    Args:
        app: The server, which it observes from now on.
        folder: Where to write.
        mask: What to write instead of what came of an effect.
        mask_arguments: What to write instead of what was called with; it is given the
            tool's or prompt's name, or the resource's URI, and the arguments.
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
        app.observers = (*app.observers, self)

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
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
            return  # it is not offered any more
        subject, arguments = found
        supports = supporter(began.capabilities)
        try:
            transcript = recorded(
                subject,
                arguments,
                bytes.fromhex(began.flow_id),
                journal,
                lacks=frozenset(one.__name__ for one in _ASKING if not supports(one)),
                mask=self._mask,
                mask_arguments=self._mask_arguments,
            )
        except Exception as exc:
            logger.warning("%s is not recorded: %s", began.target, exc)
        else:
            transcript.save(self._folder, mark=began.flow_id)


def _found(app: Server, began: RoundBegan) -> tuple[Subject, JSON] | None:
    """What was called, and its arguments as JSON."""
    for subject in subjects_of(app):
        if subject.method != began.method:
            continue
        feature = subject.feature
        if isinstance(feature, Template):
            texts = feature.template.match(began.target)
            if texts is not None:
                return subject, values_of_texts(feature.handler, texts)
        elif subject.target == began.target:
            if isinstance(feature, Prompt):
                return subject, values_of_texts(feature.handler, began.arguments)
            return subject, began.arguments or {}
    return None


_ASKING: Final = (fx.Elicit, fx.Confirm, fx.ElicitUrl, fx.Sample, fx.ListRoots)


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
    """The conversation that a journal tells of, masked.

    Raises:
        Unscripted: With masked values the handler wants something else.
        DivergenceError: The same.
    """
    if journal.generation:
        raise Unscripted("what was before a Restart, which is not in the journal", None)
    known: dict[str, str] = {}

    def had(mask: Mask, arguments: JSON, flow_id: bytes) -> Transcript:
        partner = _Journaled(journal, lacks, mask, known)
        try:
            return talk(subject, arguments, partner, _WAY, flow_id=flow_id)
        except Broken as broken:
            raise broken.error from None

    had(_unmasked, arguments, flow_id)  # to learn what stood where
    # Under another id: of the real one, idempotency keys are made.
    other = sha256(b"recorded" + flow_id).digest()[:16]
    return had(mask, mask_arguments(subject.target, arguments), other)


def _unmasked(effect: Effect[Any], value: JSON) -> JSON:
    return value


class _Journaled:
    """The partner whom a journal tells of."""

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
        """What is recorded there, if the same kind of thing stood there before."""
        name = " ".join(map(step_name, steps_in(effect))) or type(effect).__name__
        name = f"{name} at {where}"
        if self._known.setdefault(place, name) != name:
            raise Unscripted(shown(effect), None)
        return self._entries.get(place)

    def answer(self, question: Question) -> Answer | None:
        """What was answered, however often it was asked."""
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
                return Accepted("nonsense")  # until it is given up

    def perform(self, key: str, want: Want) -> Done | Failure:
        """What came of it."""
        entry = self._entry(key.partition(":")[2], want.effect)
        if entry is None:
            raise Unscripted(shown(want.effect), None)
        value = entry.value
        if entry.tag in ("failed", "refailed"):
            # Of what class it is decides what becomes of it.
            for part in _SAID & value.keys():
                value[part] = self._mask(want.effect, value[part])
            return Failure(failure_from(dumps(value), options_of(want.effect)))
        if entry.tag != "won":
            value = self._mask(want.effect, value)
        elif value is not None:
            value[2] = self._mask(want.effect, value[2])
        masked = attrs.evolve(entry, payload=dumps(value))
        return Done(deliver(want.effect, KINDS[type(want.effect)], masked))


#: What a failure says, beside of what class it is.
_SAID: Final = frozenset({"args", "message", "data"})


def _places(entries: tuple[Entry, ...], path: str) -> Iterator[tuple[str, Entry]]:
    for entry in entries:
        yield path + entry.key, entry
        for place, branch in enumerate(entry.branches):
            yield from _places(branch, f"{path}{entry.key}/{place}/")


def _sent(question: InputRequest[Any], value: Any) -> JSON:
    """What a client sends, of what a journal keeps of it."""
    match question:
        case fx.Sample():
            sent = {"role": "assistant", "content": value["content"]}
            sent["model"] = value["model"]
            if value["stop"] is not None:
                sent["stopReason"] = value["stop"]
            return sent
        case fx.ListRoots():
            return {"roots": [_root(*one) for one in value]}
        case _:
            return value


def _root(uri: str, name: str | None) -> JSON:
    return {"uri": uri} if name is None else {"uri": uri, "name": name}
