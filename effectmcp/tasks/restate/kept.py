"""The state of a task's object, and the requests to it, as bytes.

No I/O. A task is created by a request that carries its first row, and mail is a request
that carries the mail. Until the object runs such a request, it waits in the object's own
queue, where every process can read it: so there is no mailbox beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ...canonical import MAX_DEPTH, dumps, parse
from ...errors import CanonicalError, TaskRowError, TaskStoreError
from ...exchange.task_rows import Mail, TaskRow
from ...records import record

__all__ = [
    "CREATE",
    "POST",
    "STATE",
    "WAKE",
    "Kept",
    "is_news",
    "read_letter",
    "read_new",
    "write_letter",
    "write_new",
]

#: The handlers of the object: each runs a turn. They differ in what they carry.
CREATE: Final = "create"
POST: Final = "post"
WAKE: Final = "wake"

#: The name of the object's one state: so each save is atomic.
STATE: Final = b"task"

_KINDS: Final = ("answer", "cancel", "retry")

_DEPTH: Final = MAX_DEPTH + 8


@record(kw_only=True)
class Kept:
    """The state of a task's object. Immutable.

    Attributes:
        row: The task.
        mail: What its turns have received, and the row does not cover yet.
        ear: Where signals to the turn that saved this arrive.
    """

    row: TaskRow
    mail: tuple[Mail, ...] = ()
    ear: str = ""

    def dumps(self) -> bytes:
        """Return this as bytes: two lines of JSON, and the journal.

        Raises:
            TaskRowError: If JSON cannot carry it.
        """
        try:
            more = dumps([self.ear, _plain(self.mail)], max_depth=_DEPTH)
            return b"\n".join((self.row.dumps(), more, self.row.journal))
        except CanonicalError as exc:
            raise TaskRowError(f"the task cannot be stored: {exc}") from exc

    @classmethod
    def loads(cls, data: bytes) -> Kept:
        """Return what `dumps` wrote.

        Raises:
            TaskStoreError: If this version cannot read it.
        """
        row, more, journal = _split(data, 3)
        try:
            ear, mail = parse(more, max_depth=_DEPTH)
            found = tuple(_mail(mail))
            if not isinstance(ear, str):
                raise TypeError("its ear is not a string")
        except (CanonicalError, TypeError, ValueError) as exc:
            raise TaskStoreError(
                f"a task that this version cannot read: {exc}"
            ) from None
        return cls(row=TaskRow.loads(row, journal), mail=found, ear=ear)


def is_news(row: TaskRow, mail: Mail) -> bool:
    """Return whether mail can change anything for a task that was saved so.

    Mail may be received twice: by a signal, and when its request runs. No key of a
    question is used again, so what the row covers is recognized.
    """
    if row.is_ended:
        return False
    if mail.kind == "answer":
        return mail.key in row.questions
    if mail.kind == "cancel":
        return row.cancelled_at is None
    return row.report is not None  # another try of a parked task


def write_new(row: TaskRow) -> bytes:
    """Return the request that creates a task."""
    return row.dumps() + b"\n" + row.journal


def read_new(data: bytes) -> TaskRow:
    """Return the row that `write_new` wrote.

    Raises:
        TaskStoreError: If this version cannot read it.
    """
    row, journal = _split(data, 2)
    return TaskRow.loads(row, journal)


def write_letter(mail: Iterable[Mail]) -> bytes:
    """Return the request that carries mail."""
    return dumps(_plain(mail), max_depth=_DEPTH)


def read_letter(data: bytes) -> list[Mail]:
    """Return the mail that `write_letter` wrote.

    Raises:
        TaskStoreError: If this version cannot read it.
    """
    try:
        return _mail(parse(data, max_depth=_DEPTH))
    except (CanonicalError, TypeError, ValueError) as exc:
        raise TaskStoreError(f"mail that this version cannot read: {exc}") from None


def _plain(mail: Iterable[Mail]) -> list[Any]:
    return [[one.id, one.kind, one.key, one.value] for one in mail]


def _mail(value: Any) -> list[Mail]:
    found = []
    for id_, kind, key, answer in value:
        if not isinstance(id_, str) or not isinstance(key, str) or kind not in _KINDS:
            raise ValueError(f"mail {id_!r} of the kind {kind!r} for {key!r}")
        found.append(Mail(id_, kind, key, answer))
    return found


def _split(data: bytes, count: int) -> list[bytes]:
    # Canonical JSON is one line; the journal may be any bytes.
    parts = data.split(b"\n", count - 1)
    if len(parts) != count:
        raise TaskStoreError("a task that this version cannot read: it is cut off")
    return parts
