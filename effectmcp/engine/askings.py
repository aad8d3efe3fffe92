"""The questions that are out with the client, and which answer counts for which.

An answer counts only for a question that is out in this round and whose fingerprint,
computed now, equals the one it was asked under: consent belongs to the text that was
shown. So each question out has a wire key, and a wire key is used once in the flow's
life: `~n` rises when an answer did not fit, when the text changed, and when a question
is asked again after its answer was dropped. A *missing* answer keeps its key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import attrs

from ..canonical import dumps
from ..effects import Accepted, Confirm, Effect, ElicitUrl, InputRequest
from ..errors import CanonicalError, ClientFailed, Declined, Dismissed, UsageError
from ..forms import Unfit
from .branches import Node
from .journal import Asking, Journal, Tag, Tally, wire_key
from .kinds import Kind
from .rules import Rules
from .stops import Answer, Said, Unread

__all__ = ["Askings", "check_answer", "read_answer"]

logger = logging.getLogger("effectmcp.engine")


class Askings:
    """What is out, by wire key and by place; and how often each place was asked.

    Attributes:
        answers: What came with this request, by wire key.
        asked: By wire key, as the journal holds it.
        tallies: By place. Most places are asked once and never again, and then their
            entry or their being in `asked` says so: a tally is kept from the moment
            when neither does, because every one of them travels in the state.
        wires: The wire keys of what is out, by place.
        unreached: Places that were out when this run began, and that its replay has
            not come to yet.
        takes_early: Whether answers count that came before anything was asked.
        stale: Places at which this run met an answer to a text that has changed.
    """

    __slots__ = (
        "_generation",
        "_rules",
        "_supports",
        "answers",
        "asked",
        "stale",
        "takes_early",
        "tallies",
        "unreached",
        "wires",
    )

    def __init__(
        self, journal: Journal, rules: Rules, supports: Callable[[Any], bool]
    ) -> None:
        self.answers: dict[str, Answer] = {}
        self._rules = rules
        self._supports = supports
        self.takes_early = rules.early_answers and journal.is_empty
        self.asked = dict(journal.asked)
        self.tallies = dict(journal.tallies)
        self.wires = {one.place: wire for wire, one in journal.asked.items()}
        self._generation = journal.generation
        self.unreached = set(self.wires)
        self.stale: set[str] = set()

    def at(self, place: str) -> tuple[str, Asking] | None:
        """The wire key and question that are out at `place`, if any."""
        wire = self.wires.get(place)
        return None if wire is None else (wire, self.asked[wire])

    def add(self, place: str, shape: bytes, render: bytes, unfit: int = 0) -> str:
        """Ask at `place`, under a wire key that was never used before."""
        tally = self.tallies.get(place)
        nth = 1
        if tally is not None:
            nth = tally.asked + 1
            self.tallies[place] = attrs.evolve(tally, asked=nth)
        wire = wire_key(self._generation, place, nth)
        self.asked[wire] = Asking(place, shape, render, unfit)
        self.wires[place] = wire
        return wire

    def settle(self, place: str) -> None:
        """The question at `place` was answered; its entry remembers that it was out."""
        wire = self.wires.pop(place, None)
        if wire is not None:
            del self.asked[wire]

    def withdraw(self, place: str) -> None:
        """The question at `place` is no longer asked; its key is never used again."""
        if place in self.wires:
            self.count(place)
            self.settle(place)

    def keep_only(self, places: set[str]) -> None:
        """Withdraw whatever is out and not in this round."""
        for place in [one for one in self.wires if one not in places]:
            self.withdraw(place)

    def count(self, place: str) -> None:
        """Remember that `place` was asked, now that nothing else does."""
        self.tallies.setdefault(place, Tally(1))

    def note_stale(self, place: str) -> None:
        """An answer at `place` belongs to a text that is no longer the question's."""
        self.count(place)
        tally = self.tallies[place]
        self.tallies[place] = attrs.evolve(tally, stale=tally.stale + 1)
        self.stale.add(place)

    # ---- this request's answers ------------------------------------------------------

    def take(self, leaf: Node, subject: InputRequest[Any]) -> None:
        """Record on `leaf` what this request has to say about its question, if it does.

        That is an answer, or that the client cannot be asked.
        """
        out = self.at(leaf.place)
        if out is not None:
            wire, asking = out
            answer = self.answers.get(wire)
            if (asking.shape, asking.render) != (leaf.shape, leaf.render):
                if answer is not None:
                    self.note_stale(leaf.place)
                self.withdraw(leaf.place)
            elif answer is not None:
                self._take_response(leaf, subject, asking, answer)
                return
            elif self._supports(subject):
                return  # still out, under the same key
            else:
                self.withdraw(leaf.place)
        if not self._supports(subject):
            leaf.record("unasked", b"null")
        elif self.takes_early and subject.key is not None and not _is_consent(subject):
            early = self.answers.get(wire_key(self._generation, leaf.place, 1))
            if early is not None:
                self._take_early(leaf, subject, early)

    def plain(self, leaf: Node, kind: Kind, subject: Effect[Any]) -> bytes | None:
        """What to record of an answer to the question of `leaf`, at the root, if it fits.

        Where it does not, or there is none, it is for `take` to say what that means.
        Nothing is settled here, and no `Unread` is read again there.
        """
        wire = self.wires[leaf.key]
        answer, asking = self.answers.get(wire), self.asked[wire]
        if (
            answer is None
            or asking.shape != leaf.shape
            or asking.render != leaf.render
            or not isinstance(subject, InputRequest)
        ):
            return None
        try:
            said = self.answers[wire] = _said_by(answer, subject)
            if type(said) is Accepted:
                return kind.write(subject, said.value)
        except Unfit as exc:
            self.answers[wire] = Unfit(exc.problems)
        except CanonicalError as exc:
            self.answers[wire] = Unfit([exc.problem])
        return None

    def _take_response(
        self, leaf: Node, subject: InputRequest[Any], asking: Asking, answer: Answer
    ) -> None:
        self.settle(leaf.place)
        try:
            leaf.record(*read_answer(subject, leaf.row, answer))
        except Unfit as exc:
            unfit = asking.unfit + 1
            if unfit >= self._rules.unfit:
                leaf.record("invalid", dumps(list(map(_readable, exc.problems))))
                return
            leaf.problems = tuple(map(_readable, exc.problems))
            self.count(leaf.place)
            self.add(leaf.place, leaf.shape, leaf.render, unfit)

    def _take_early(
        self, leaf: Node, subject: InputRequest[Any], answer: Answer
    ) -> None:
        try:
            leaf.record(*read_answer(subject, leaf.row, answer))
        except Unfit:
            logger.debug("an early answer for %s does not fit", leaf.place)


def _is_consent(subject: InputRequest[Any]) -> bool:
    # Data may come early; consent belongs to a text that somebody was shown.
    return isinstance(subject, (Confirm, ElicitUrl))


def _said_by(answer: Answer, subject: InputRequest[Any]) -> Said:
    """What an answer says, to this question.

    Raises:
        UsageError: when it is no answer at all.
    """
    said = answer.read(subject) if isinstance(answer, Unread) else answer
    if isinstance(said, Unread):
        raise UsageError(f"{said!r} was read as another answer to be read")
    if type(said) is not Accepted:  # as nearly all are
        check_answer(said)
    return said


def read_answer(
    subject: InputRequest[Any], kind: Kind, answer: Answer
) -> tuple[Tag, bytes]:
    """What to journal for `answer`.

    Raises:
        Unfit: when it does not fit the question, in words for the user.
        UsageError: when it is no answer at all.
    """
    said = _said_by(answer, subject)
    match said:
        case Accepted(content):
            try:
                return "accepted", kind.write(subject, content)
            except CanonicalError as exc:
                raise Unfit([exc.problem]) from None
        case Declined():
            return "declined", b"null"
        case Dismissed():
            return "dismissed", b"null"
        case Unfit():
            # Another one, as this may be kept, and would keep the frames it came from.
            raise Unfit(said.problems)
        case ClientFailed(code=-1):
            # What clients of the older eras send for "the user said no".
            return "declined", b"null"
        case _:  # any other ClientFailed
            code = said.code if type(said.code) is int else 0
            message = _readable(said.message)
            try:
                return "refused", dumps([code, message, said.data])
            except CanonicalError:
                return "refused", dumps([code, message, None])


def _readable(text: object) -> str:
    # What a client sent, in an error: it must be recorded whatever it is.
    return str(text).encode("utf-8", "replace").decode("utf-8")


_KINDS: Final = (Accepted, Declined, Dismissed, ClientFailed, Unfit, Unread)


def check_answer(answer: object) -> None:
    """Refuse what is no `Answer`.

    Raises:
        UsageError: saying what an answer is.
    """
    if not isinstance(answer, _KINDS):
        raise UsageError(
            "an answer is Accepted(content), Declined(), Dismissed(),"
            f" ClientFailed(code, message) or Unfit([problem]), not {answer!r}"
        )
