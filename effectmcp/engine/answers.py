"""Which answer counts for which question.

An answer counts only for a question whose fingerprint, computed now, equals the one that
it was asked under: consent belongs to the text that was shown. There are two sources:

    own    what came with this request, for the question that is outstanding at this very
           place under this very fingerprint. It comes first, always
    pool   answers that an edit of the handler orphaned: those of entries that were
           dropped, and those of this request whose own question is not reached, or has
           another text now. One is taken if its fingerprint is there exactly once,
           wherever it was given. If it is there more than once, which answer was for
           which question cannot be told any more: all copies go, and the question is
           asked again

An answer stays known under the text that it answered until it is taken, or until its copies
go: nobody is asked twice because of a deploy.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import define

from ..canonical import dumps
from ..effects import Accepted, Confirm, ElicitUrl, InputRequest
from ..errors import CanonicalError, ClientFailed, Declined, Dismissed, UsageError
from ..forms import Unfit
from ..records import record
from .journal import Asking, Entry, Pooled, Tag
from .kinds import Kind
from .places import Places
from .sequences import Wanted
from .stops import Answer, Said, Unread

__all__ = [
    "Answers",
    "Found",
    "Read",
    "check_answer",
    "read_answer",
    "readable",
    "refuse_unread",
]

logger = logging.getLogger("effectmcp.engine")

#: Reads an answer that came unread: given its question and its value.
Read: TypeAlias = Callable[[InputRequest[Any], Any], Said]

#: What to journal: tag and payload.
Found: TypeAlias = tuple[Tag, bytes]


def refuse_unread(effect: InputRequest[Any], value: Any) -> Said:
    """Read nothing: the `read=` of a run to which no unread answer is given."""
    raise UsageError("an Unread answer can be read by Run(read=...) only")


@define(eq=False)
class _Own:
    """An answer of this request, to a question that was outstanding.

    Attributes:
        asking: The question, as it was asked.
        answer: The answer.
    """

    asking: Asking
    answer: Answer


@record
class Unfitting:
    """An answer that does not fit.

    Attributes:
        count: Answers so far, under this fingerprint, that did not.
        problems: Why, in words for the user.
    """

    count: int
    problems: tuple[str, ...]


class Stale(enum.Enum):
    """An answer to a text that has changed meanwhile."""

    STALE = 1


STALE: Final = Stale.STALE


class Answers:
    """The answers of this request, and the pool.

    Args:
        pool: Answers that wait for their question.
        places: What is outstanding, and how often each place was asked.
        read: Reads answers that came unread.

    Attributes:
        own: Answers of this request that no question has taken, by place.
        pool: Those of earlier requests, by fingerprint.
        early: Answers by wire key that came before anything was asked.
    """

    __slots__ = ("_places", "_read", "early", "own", "pool")

    def __init__(
        self,
        pool: Iterable[Pooled],
        places: Places,
        read: Read,
    ) -> None:
        self._places = places
        self._read = read
        self.own: dict[str, _Own] = {}
        self.pool: dict[tuple[bytes, bytes], list[Pooled]] = {}
        self.add(pool)
        self.early: Mapping[str, Answer] = {}

    def arrive(self, answers: Mapping[str, Answer]) -> None:
        """Take in what came with a request, by wire key.

        Answers to questions that are not outstanding are ignored. Those that came before
        and whose question has not been reached since are kept.
        """
        late = [place for place in self.own if not self._is_out(place)]
        self.add(self._leftovers(late))
        for place in late:
            del self.own[place]
        if answers:
            for place, one in self._places.table.items():
                if one.out is not None:
                    answer = answers.get(self._places.wire(place))
                    if answer is not None:
                        self.own[place] = _Own(one.out, answer)

    def pooled(self, *, has_inbox: bool = False) -> tuple[Pooled, ...]:
        """Return the pool as the journal keeps it: with what no question has taken.

        Args:
            has_inbox: Whether answers are kept beside the journal for as long as their
                question is outstanding. In the pool they would be found a second time.
        """
        held = [one for same in self.pool.values() for one in same]
        own = [place for place in self.own if not (has_inbox and self._is_out(place))]
        return (*held, *self._leftovers(own))

    def _is_out(self, place: str) -> bool:
        """Whether the question that was answered at `place` is outstanding still."""
        known = self._places.table.get(place)
        return known is not None and known.out == self.own[place].asking

    def add(self, answers: Iterable[Pooled]) -> None:
        """Put answers into the pool."""
        for one in answers:
            self.pool.setdefault((one.entry.shape, one.entry.render), []).append(one)

    # ---- own ------------------------------------------------------------------------

    def take_own(self, wanted: Wanted) -> Found | Unfitting | Stale | None:
        """Return this request's answer to the question at this place, and settle it.

        An answer that does not fit ends the asking, as does another text now.
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
            found = self._read_one(wanted, own.answer)
        except Unfit as exc:
            self._places.withdraw(wanted.place)
            return Unfitting(out.unfit + 1, tuple(map(readable, exc.problems)))
        self._places.settle(wanted.place)
        return found

    # ---- the pool -------------------------------------------------------------------

    @property
    def are_none(self) -> bool:
        """Whether nothing is known that a question could take."""
        return not (self.own or self.pool or self.early)

    def take_pooled(self, wanted: Wanted) -> tuple[Found, bool] | Unfit | None:
        """Return the one answer in the pool that has this fingerprint, and if it is news.

        If there are several, they are none, and all of them are forgotten.
        """
        shape, render = wanted.shape, wanted.render
        held = self.pool.pop((shape, render), [])
        own = [
            place
            for place, one in self.own.items()
            if one.asking.render == render and one.asking.shape == shape
        ]
        if not held and not own:
            return None
        answers = [self.own.pop(place).answer for place in own]
        for place in own:
            self._places.withdraw(place)
        if len(held) + len(own) > 1:
            return None
        try:
            if own:
                return self._read_one(wanted, answers[0]), True
            return self._read_pooled(wanted, held[0].entry), False
        except Unfit as exc:
            return exc

    def _read_pooled(self, wanted: Wanted, entry: Entry) -> Found:
        if entry.tag != "unread":
            return entry.tag, entry.payload
        kind, *rest = entry.value
        return self._read_one(wanted, _ANSWERS[kind](*rest))

    def _read_one(self, wanted: Wanted, answer: Answer) -> Found:
        subject = wanted.subject
        assert isinstance(subject, InputRequest)  # its shape is a question's
        return read_answer(subject, wanted.row, answer, self._read)

    def _leftovers(self, places: Iterable[str]) -> list[Pooled]:
        found = []
        for place in places:
            own = self.own[place]
            written = _write_unread(own.answer)
            if written is not None:
                path, slash, key = place.rpartition("/")
                asking = own.asking
                entry = Entry(key, asking.shape, asking.render, "unread", written)
                found.append(Pooled(path + slash, entry))
        return found

    # ---- early ----------------------------------------------------------------------

    def take_early(self, wanted: Wanted) -> Found | None:
        """Return an answer that came before its question was asked, if it may count.

        Data may come early; consent belongs to a text that the user was shown. Only a
        question with an explicit key can be known beforehand.
        """
        subject = wanted.subject
        if isinstance(subject, (Confirm, ElicitUrl)) or not isinstance(
            subject, InputRequest
        ):
            return None
        answer = self.early.get(self._places.first_wire(wanted.place))
        if answer is None or subject.key is None:
            return None
        try:
            return read_answer(subject, wanted.row, answer, self._read)
        except Unfit:
            logger.debug("an early answer for %s does not fit", wanted.place)
            return None


#: How an answer in the pool that was not read is written down, and read again.
_ANSWERS: Final[Mapping[str, Callable[..., Answer]]] = {
    "unread": Unread,
    "accepted": Accepted,
    "declined": Declined,
    "dismissed": Dismissed,
}


def _write_unread(answer: Answer) -> bytes | None:
    # What a client reports of itself, an error say, is not the user's word: not kept.
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
        Unfit: The answer does not fit the question, in words for the user.
        UsageError: It is not an answer.
    """
    if isinstance(answer, Unread):
        said = read(subject, answer.value)
        given: object = said
        if isinstance(given, Unread):
            raise UsageError("Run(read=...) returned an answer that is still unread")
        check_answer(said)
    else:
        check_answer(answer)
        said = answer
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
            message = readable(said.message)
            try:
                return "refused", dumps([code, message, said.data])
            except CanonicalError:
                return "refused", dumps([code, message, None])


def readable(text: object) -> str:
    """Return what a client sent as text that can be recorded."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


_KINDS: Final = (Accepted, Declined, Dismissed, ClientFailed, Unfit, Unread)


def check_answer(answer: object) -> None:
    """Refuse what is not an `Answer`.

    Raises:
        UsageError: In words that tell what an answer is.
    """
    if not isinstance(answer, _KINDS):
        raise UsageError(
            "an answer is Accepted(content), Declined(), Dismissed(),"
            f" ClientFailed(code, message) or Unfit([problem]), not {answer!r}"
        )
