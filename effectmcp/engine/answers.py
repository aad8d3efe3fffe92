"""Match answers to questions, and remember where questions are outstanding.

An answer counts only for a question whose current fingerprint equals its fingerprint
when it was asked, because consent belongs to the text that was shown
(docs/internals/replay.md#q1). There are two sources (docs/internals/replay.md#q1a):

    own    the answers of this request, each for the question that is outstanding at
           this very place under this very fingerprint. They always come first
    pool   answers that an edit of the handler orphaned: the answers of dropped entries,
           and the answers of this request whose own question is not reached, or has
           another text now. An answer is taken if its fingerprint is there exactly
           once, no matter where it was given. If it is there more than once, the
           answers cannot be assigned any more: all copies are dropped, and the question
           is asked again

An answer is kept under the text that it answered until it is taken or its copies are
dropped, so no user is asked twice because of a deploy.

Most places are asked once and answered, and then the entry is enough. `Places` has a
record only of the others, because every record is part of the state. A wire key is never
used again (docs/internals/replay.md#e3), so the count of askings is kept for the life of
the flow (docs/internals/replay.md#q2).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from attrs import define, field

from ..canonical import dumps
from ..effects.base import InputRequest
from ..effects.questions import Accepted
from ..errors import CanonicalError, ClientFailed, Declined, Dismissed, UsageError
from ..forms.form import Unfit
from ..logs import logger_for
from .journal import Asking, Entry, Place, Pooled, Tag, wire_key
from .stops import Unread

if TYPE_CHECKING:
    from .effect_table import Kind
    from .flow_state import FlowState
    from .sequences import Sequence, Wanted

__all__ = [
    "STALE",
    "UNASKED",
    "Answer",
    "Answers",
    "Found",
    "Places",
    "Read",
    "Said",
    "Stale",
    "check_answer",
    "read_answer",
    "readable",
    "refuse_unread",
]

_NOTHING: Final = Place()


@attrs.define(eq=False)
class Places:
    """The places of one generation of a flow.

    Attributes:
        table: The records, by place.
    """

    table: dict[str, Place]
    _generation: int

    def at(self, place: str) -> Place:
        """Return the record of a place; an empty record if it has none."""
        return self.table.get(place, _NOTHING)

    def wire(self, place: str) -> str:
        """Return the wire key of the question that is outstanding at `place`."""
        asked = self.table[place].asked
        if asked < 2 and not self._generation:
            return place  # as nearly all: what `wire_key` returns
        return wire_key(self._generation, place, asked)

    def first_wire(self, place: str) -> str:
        """Return the wire key of the first question that will be asked at `place`."""
        return wire_key(self._generation, place, 1)

    def ask(self, place: str, shape: bytes, render: bytes, unfit: int = 0) -> str:
        """Record a question, and return its wire key, which was never used before."""
        # Appended in the order of asking, which is the order on the wire.
        one = self.table.pop(place, _NOTHING)
        asked = one.asked + 1
        asking = Asking(place, shape, render, unfit)
        self.table[place] = Place(asked, one.stale, asking, one.due, one.begun)
        return self.wire(place)

    def settle(self, place: str) -> None:
        """Note that the question at `place` was answered: its entry records that."""
        one = self.table[place]
        if one.asked == 1 and not one.stale and one.due is None and not one.begun:
            del self.table[place]
        else:
            self.table[place] = attrs.evolve(one, out=None)

    def withdraw(self, place: str) -> None:
        """Note that a question is no longer asked; its wire key is never used again."""
        one = self.table.get(place)
        if one is not None and one.out is not None:
            self.table[place] = attrs.evolve(one, out=None)

    def count(self, place: str) -> None:
        """Record that `place` was asked, because it has no entry any more."""
        one = self.at(place)
        if not one.asked:
            self.table[place] = attrs.evolve(one, asked=1)

    def note_stale(self, place: str) -> int:
        """Count an answer to a question whose text has changed.

        See docs/internals/replay.md#d1.
        """
        one = self.at(place)
        self.table[place] = attrs.evolve(one, stale=one.stale + 1)
        return one.stale + 1

    def begin(self, place: str) -> None:
        """Count another start of the step at `place` (docs/internals/replay.md#s5)."""
        one = self.at(place)
        self.table[place] = attrs.evolve(one, begun=one.begun + 1)

    def set_due(self, place: str, due: float) -> None:
        """Start the clock at `place`."""
        self.table[place] = attrs.evolve(self.at(place), due=due)

    def end(self, place: str) -> None:
        """Note that nothing runs at `place` any more: no clock, and no step."""
        one = self.table.get(place)
        if one is not None and (one.due is not None or one.begun):
            one = attrs.evolve(one, due=None, begun=0)
            if one == _NOTHING:
                del self.table[place]
            else:
                self.table[place] = one

    def keep_only(self, places: Collection[str]) -> None:
        """Withdraw the questions and stop the clocks at all other places."""
        for place, one in list(self.table.items()):
            if place not in places:
                if one.out is not None:
                    self.withdraw(place)
                if one.due is not None:
                    self.end(place)


logger = logger_for("effectmcp.engine")

#: `Accepted(content)` has the wire content of the answer, as JSON. An `Unfit` is an
#: answer that the protocol layer could not read.
Said: TypeAlias = Accepted[Any] | Declined | Dismissed | ClientFailed | Unfit
Answer: TypeAlias = Said | Unread

#: Reads an `Unread` answer, given its question and its value.
Read: TypeAlias = Callable[[InputRequest[Any], Any], Said]

#: The tag and payload to journal.
Found: TypeAlias = tuple[Tag, bytes]


def refuse_unread(effect: InputRequest[Any], value: Any) -> Said:
    """Raise: the default `read=` of runs that never get an `Unread` answer."""
    raise UsageError("an Unread answer can be read by Run(read=...) only")


#: The tags of what a user decided.
_DECIDED: Final[frozenset[Tag]] = frozenset({"accepted", "declined", "dismissed"})

#: The outcome of a question that the client cannot be asked.
UNASKED: Final[Found] = ("unasked", b"null")


class Stale(enum.Enum):
    """Marks an answer to a question whose text has changed since."""

    STALE = 1


STALE: Final = Stale.STALE


@define(eq=False)
class Answers:
    """The answers of this request, and the pool.

    Args:
        places: The outstanding questions, and how often each place was asked.
        flow: The flow.

    Attributes:
        heard: Places of the current wave whose answer is from an earlier round.
        own: Answers of this request that no question has taken, by place, each with the
            question as it was asked.
        pool: Answers of earlier requests, by fingerprint.
        early: Answers that came before any question was asked, by wire key.
    """

    _places: Places
    _flow: FlowState
    heard: set[str] = field(factory=set, init=False)
    own: dict[str, tuple[Asking, Answer]] = field(factory=dict, init=False)
    pool: dict[tuple[bytes, bytes], list[Pooled]] = field(factory=dict, init=False)
    early: Mapping[str, Answer] = field(factory=dict, init=False)

    def arrive(self, answers: Mapping[str, Answer]) -> None:
        """Receive the answers of a request, by wire key.

        Answers to questions that are not outstanding are ignored.

        Raises:
            UsageError: If one of them is not an `Answer`.
        """
        for answer in answers.values():
            if type(answer) is not Unread:  # as nearly every answer
                check_answer(answer)
        if self.own:
            self.add(self._leftovers())
            self.own = {
                place: one
                for place, one in self.own.items()
                if self._places.at(place).out is one[0]
            }
        if answers:
            for place, one in self._places.table.items():
                asking = one.out
                if asking is None:
                    continue
                said = answers.get(self._places.wire(place))
                if said is not None:
                    self.own[place] = asking, said
                    if self.pool:
                        self._forget_earlier(place, asking)

    def _forget_earlier(self, place: str, asking: Asking) -> None:
        # A journal that was saved before the question was reached has kept the answer,
        # and a store returns it again until it is taken: it must not count twice.
        print_ = asking.shape, asking.render
        held = self.pool.pop(print_, [])
        kept = [
            one
            for one in held
            if one.entry.tag != "unread" or one.path + one.entry.key != place
        ]
        if kept:
            self.pool[print_] = kept

    def pooled(self) -> tuple[Pooled, ...]:
        """Return the pool as the journal keeps it, with the answers not taken yet."""
        if not self.pool and not self.own:
            return ()
        held = [one for same in self.pool.values() for one in same]
        return (*held, *self._leftovers())

    def add(self, answers: Iterable[Pooled]) -> None:
        """Put answers into the pool."""
        for one in answers:
            self.pool.setdefault((one.entry.shape, one.entry.render), []).append(one)

    # ---- a wave ---------------------------------------------------------------------

    def take(
        self, fresh: list[tuple[Sequence, Wanted]]
    ) -> tuple[dict[str, Found], list[tuple[Sequence, Wanted]]]:
        """Take the answers to the questions of a wave.

        Returns:
            The answers, by place; and the questions that got a stale answer.
        """
        places, supports = self._places, self._flow.supports
        found: dict[str, Found] = {}
        stale: list[tuple[Sequence, Wanted]] = []
        open_: list[Wanted] = []
        self.heard.clear()
        # First this request's own answers of all questions: none may go to another
        # question (docs/internals/replay.md#q1a).
        for sequence, wanted in fresh:
            for one in wanted.questions():
                answer = self.take_own(one)
                if answer is STALE:
                    stale.append((sequence, one))
                    open_.append(one)
                elif answer is not None:
                    found[one.place] = answer
                elif not one.problems or places.at(one.place).out is None:
                    open_.append(one)  # if it was not just asked again
            if not wanted.row.is_question:
                open_.append(wanted)
        if not (self.own or self.pool or self.early):
            for one in open_:
                if one.row.is_question and not supports(one.subject):
                    places.withdraw(one.place)
                    found[one.place] = UNASKED
            return found, stale
        for one in open_:
            pooled = self.take_pooled(one)
            if isinstance(pooled, Unfit):
                one.problems = tuple(map(readable, pooled.problems))
            elif pooled is not None:
                places.withdraw(one.place)
                found[one.place], is_news = pooled
                if not is_news:
                    self.heard.add(one.place)
                continue
            if one.row.is_question and not supports(one.subject):
                places.withdraw(one.place)
                found[one.place] = UNASKED
            elif self.early:
                early = self.take_early(one)
                if early is not None:
                    found[one.place] = early
        return found, stale

    # ---- own ------------------------------------------------------------------------

    def take_own(self, wanted: Wanted) -> Found | Stale | None:
        """Return the outcome of this request's answer to the question at this place.

        The question is settled. It is withdrawn if the text has changed, and asked again
        if the answer does not fit (docs/internals/replay.md#q2) and the client can still
        be asked (docs/internals/replay.md#q4).
        """
        known = self._places.table.get(wanted.place)
        out = None if known is None else known.out
        if out is None:
            return None
        if out.render != wanted.render or out.shape != wanted.shape:
            self._places.withdraw(wanted.place)
            return STALE if wanted.place in self.own else None
        own = self.own.pop(wanted.place, None)
        if own is None:
            return None
        try:
            subject: Any = wanted.subject  # its shape is a question
            found = read_answer(subject, wanted.row, own[1], self._flow.read)
        except Unfit as exc:
            self._places.withdraw(wanted.place)
            return self._unfit(
                wanted, out.unfit + 1, tuple(map(readable, exc.problems))
            )
        self._places.settle(wanted.place)
        if subject.once:
            self._consent(found)
        return found

    def _consent(self, found: Found) -> None:
        """Note that the user answered a question with `once=True`."""
        if found[0] in _DECIDED:
            self._flow.consented()

    def _unfit(
        self, wanted: Wanted, count: int, problems: tuple[str, ...]
    ) -> Found | None:
        """Return the outcome of an answer that does not fit; `None` to ask again.

        Args:
            wanted: The question.
            count: Answers so far, under its fingerprint, that did not fit.
            problems: The reasons, in words for the user.
        """
        if count >= self._flow.rules.unfit:
            return "invalid", dumps(list(problems))
        if not self._flow.supports(wanted.subject):
            return UNASKED
        wanted.problems = problems
        self._places.ask(wanted.place, wanted.shape, wanted.render, count)
        return None

    # ---- the pool -------------------------------------------------------------------

    def take_pooled(self, wanted: Wanted) -> tuple[Found, bool] | Unfit | None:
        """Return the only answer with this fingerprint, and whether it is new.

        If there are several, drop all of them and return `None`.
        """
        shape, render = wanted.shape, wanted.render
        held = self.pool.pop((shape, render), [])
        own = [
            place
            for place, (asking, _) in self.own.items()
            if asking.render == render and asking.shape == shape
        ]
        if not held and not own:
            return None
        answers = [self.own.pop(place)[1] for place in own]
        for place in own:
            self._places.withdraw(place)
        if len(held) + len(own) > 1:
            return None
        try:
            found = (
                self._read_one(wanted, answers[0])
                if own
                else self._read_pooled(wanted, held[0].entry)
            )
        except Unfit as exc:
            return exc
        subject = wanted.subject
        if isinstance(subject, InputRequest) and subject.once:
            self._consent(found)
        return found, bool(own)

    def _read_pooled(self, wanted: Wanted, entry: Entry) -> Found:
        if entry.tag != "unread":
            return entry.tag, entry.payload
        kind, *rest = entry.value
        return self._read_one(wanted, _ANSWERS[kind](*rest))

    def _read_one(self, wanted: Wanted, answer: Answer) -> Found:
        subject = wanted.subject
        assert isinstance(subject, InputRequest)  # its shape is a question
        return read_answer(subject, wanted.row, answer, self._flow.read)

    def _leftovers(self) -> list[Pooled]:
        """Return the answers whose question is no longer asked, as the pool keeps them.

        The other answers need not be kept: their sender has them until the question is
        answered.
        """
        found = []
        for place, (asking, answer) in self.own.items():
            if self._places.at(place).out is asking:
                continue
            written = _write_unread(answer)
            if written is not None:
                path, slash, key = place.rpartition("/")
                entry = Entry(key, asking.shape, asking.render, "unread", written)
                found.append(Pooled(path + slash, entry))
        return found

    # ---- early ----------------------------------------------------------------------

    def take_early(self, wanted: Wanted) -> Found | None:
        """Return an answer that came before its question was asked, if it may count.

        Data may come early, but consent belongs to the text that the user was shown.
        Only a question with an explicit key can be known beforehand
        (docs/internals/replay.md#q3).
        """
        subject = wanted.subject
        if wanted.row.is_consent or not isinstance(subject, InputRequest):
            return None
        answer = self.early.get(self._places.first_wire(wanted.place))
        if answer is None or subject.key is None:
            return None
        try:
            return read_answer(subject, wanted.row, answer, self._flow.read)
        except Unfit:
            logger.debug("an early answer for %s does not fit", wanted.place)
            return None


#: The JSON names of unread answers in the pool, to write and to read them.
_ANSWERS: Final[Mapping[str, Callable[..., Answer]]] = {
    "unread": Unread,
    "accepted": Accepted,
    "declined": Declined,
    "dismissed": Dismissed,
}


def _write_unread(answer: Answer) -> bytes | None:
    # A client's own report, such as an error, is not the user's answer: not kept.
    match answer:
        case Unread(value):
            written = ["unread", value]
        case Accepted(content):
            written = ["accepted", content]
        case Declined():
            written = ["declined"]
        case Dismissed():
            written = ["dismissed"]
        case _:
            return None
    try:
        return dumps(written)
    except CanonicalError:
        return None  # no question could take it


def read_answer(
    subject: InputRequest[Any],
    kind: Kind,
    answer: Answer,
    read: Read = refuse_unread,
) -> Found:
    """Return what to journal for `answer`.

    Raises:
        Unfit: If the answer does not fit the question, in words for the user.
        UsageError: If `answer` is not an `Answer`.
    """
    if isinstance(answer, Unread):
        said = read(subject, answer.value)
        given: object = said
        if isinstance(given, Unread):
            raise UsageError("Run(read=...) returned an answer that is still unread")
        if not isinstance(given, _KINDS):
            check_answer(given)
    else:
        said = answer
    if isinstance(said, Accepted):
        try:
            return "accepted", kind.write(subject, said.value)
        except CanonicalError as exc:
            raise Unfit([exc.problem]) from None
    match said:
        case Declined():
            return "declined", b"null"
        case Dismissed():
            return "dismissed", b"null"
        case Unfit():
            # A new exception, because `said` may be kept, and would keep its frames.
            raise Unfit(said.problems)
        case ClientFailed(code=-1):
            # Clients of the older eras send this for "the user said no"
            # (docs/internals/replay.md#q5).
            return "declined", b"null"
        case _:
            check_answer(said)  # any other ClientFailed
            code = said.code if type(said.code) is int else 0
            message = readable(said.message)
            try:
                return "refused", dumps([code, message, said.data])
            except CanonicalError:
                return "refused", dumps([code, message, None])


def readable(text: object) -> str:
    """Return a client's text as a string that can be recorded."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


_KINDS: Final = (Accepted, Declined, Dismissed, ClientFailed, Unfit, Unread)


def check_answer(answer: object) -> None:
    """Refuse values that are not an `Answer`.

    Raises:
        UsageError: If `answer` is not an `Answer`.
    """
    if not isinstance(answer, _KINDS):
        raise UsageError(
            "an answer is Accepted(content), Declined(), Dismissed(),"
            f" ClientFailed(code, message) or Unfit([problem]), not {answer!r}"
        )
