"""One attempt of the engine to have a task's object run a request. No I/O.

    attempt = Attempt(service, handler)
    while not attempt.is_open:
        attempt.feed(...)                  # what the engine sends
    ...                                    # write attempt.save(row, dropped) and others
    ...                                    # at last, write attempt.leave(now)

The engine keeps a journal of each invocation. An attempt that follows a lost one gets
that journal again, and usually has to repeat it. Ours does not: all that it needs is the
object's state, which the engine sends as it is now. So it counts the known messages, and
appends its own.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import ceil
from typing import Final

from attrs import define, field

from ...errors import TaskRowError, TaskStoreError
from ...exchange.task_rows import Mail, TaskRow
from ...logs import logger_for
from . import frames
from .frames import Start
from .kept import CREATE, POST, STATE, WAKE, Kept, is_news, read_letter, read_new
from .openings import Opening

__all__ = ["OPEN", "OWNER", "Attempt", "owner_tag"]

logger = logger_for("effectmcp.tasks")

#: The number of the signal that carries mail. The first 16 belong to the engine.
_MAIL: Final = 17

#: The most bytes of a task. The engine does not send a state beyond 32 MiB as a whole.
LARGEST: Final = 20 * 2**20
#: What a task may have more that ends, or parks because it is too large.
_SPARE: Final = 8 * 2**20

#: A state beside the task: when the object is woken next, in milliseconds since 1970. The
#: request that wakes it carries the same bytes.
_ALARM: Final = b"alarm"
#: No alarm is later, in seconds: so it is a number that the engine takes.
_LATEST: Final = 1e11
#: Milliseconds that an alarm may be late, so that it is not too early several times.
_STEP: Final = 250

#: A state that only tasks have which are alive: its value names the owner.
OPEN: Final = b"open"
#: A state that all tasks have, with the same value.
OWNER: Final = b"owner"


def owner_tag(owner: str | None) -> bytes:
    """Return a short text for the owner of a task, the same each time."""
    data = b"" if owner is None else b"=" + owner.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=8).hexdigest().encode()


@define(eq=False)
class Attempt:
    """One attempt: its state, and the bytes that answer it.

    Attributes:
        service: The name of the service.
        handler: The handler that is called.
        retention: Seconds that a task is kept after it has ended.
        is_open: Whether all has arrived that the engine sends first.
        sent: The number of the last command that was written.
        acknowledged: The number of the last command that is known to be durable.
        row: The task as it was saved last; `None` if it is missing.
    """

    service: str
    handler: str
    retention: float
    is_open: bool = field(default=False, init=False)
    sent: int = field(default=-1, init=False)
    acknowledged: int = field(default=-1, init=False)
    row: TaskRow | None = field(default=None, init=False)
    _opening: Opening = field(factory=Opening, init=False)
    _signals: list[bytes] = field(factory=list, init=False)
    _completion: int = field(default=0, init=False)
    _alarm: int | None = field(default=None, init=False)
    #: The alarm that has brought this about.
    _ringing: int | None = field(default=None, init=False)
    _is_open: bool = field(default=False, init=False)
    _is_owned: bool = field(default=False, init=False)
    #: The mail that no saved row covers, by id; and the part of it that was not taken yet.
    _held: dict[str, Mail] = field(factory=dict, init=False)
    _unread: list[Mail] = field(factory=list, init=False)

    # ---- what the engine sends ------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes of the engine.

        Raises:
            TaskStoreError: If this version cannot read them.
        """
        for one in self._opening.feed(data):
            if self._opening.is_open and not self.is_open:
                self._open(self._started)
            match one.kind:
                case frames.COMMAND_ACK:
                    self.acknowledged = frames.ack_index(one.body)
                case frames.SIGNAL:
                    number, value = frames.signal_value(one.body)
                    if number == _MAIL:
                        self._signals.append(value)
                case _:
                    pass  # what earlier attempts have done is in the state
        if self.is_open:
            signals, self._signals = self._signals, []
            for value in signals:
                try:
                    mail = read_letter(value)
                except TaskStoreError as exc:
                    # If it is mail, its request comes, too.
                    logger.warning("a signal is left out: %s", exc)
                else:
                    self._receive(mail)

    @property
    def _started(self) -> Start:
        start = self._opening.start
        assert start is not None  # nothing is written before
        return start

    def _open(self, start: Start) -> None:
        self.is_open = True
        self.sent = self._opening.commands - 1
        self.acknowledged = self.sent  # known commands are durable
        # Earlier attempts have used fewer numbers than there are known messages.
        self._completion = start.known
        data = start.state.get(STATE)
        if data is not None:
            kept = Kept.loads(data)
            self.row = kept.row
            self._receive(kept.mail)
        elif self.handler == CREATE:
            self.row = read_new(self._opening.input)
        self._is_open = OPEN in start.state
        self._is_owned = OWNER in start.state
        alarm = start.state.get(_ALARM)
        if alarm is not None:
            # The clock does not tell whether this is the alarm: the engine's clock may be
            # ahead of our clock.
            if self.handler == WAKE and self._opening.input == alarm:
                self._ringing = _time(alarm)
            else:
                self._alarm = _time(alarm)
        if self.handler == POST:
            self._receive(read_letter(self._opening.input))

    def _receive(self, mail: Iterable[Mail]) -> None:
        row = self.row
        for one in mail:
            if row is not None and one.id not in self._held and is_news(row, one):
                self._held[one.id] = one
                self._unread.append(one)

    # ---- for a turn -----------------------------------------------------------------

    @property
    def ear(self) -> str:
        """The address of signals to this invocation, for the engine's HTTP interface."""
        address = self._started.invocation + _MAIL.to_bytes(4, "big")
        return "sign_1" + base64.urlsafe_b64encode(address).decode().rstrip("=")

    def is_due(self, now: float) -> bool:
        """Return whether there is something to do for a turn."""
        row = self.row
        if row is None or row.is_ended:
            return False
        return bool(self._unread) or (row.wake is not None and row.wake <= now)

    def take_mail(self) -> list[Mail]:
        """Return the mail that has come since the last time."""
        mail, self._unread = self._unread, []
        return mail

    def save(self, row: TaskRow, dropped: Sequence[str] = ()) -> bytes:
        """Return the bytes that store the row; it is durable when they are acknowledged.

        Args:
            row: The row.
            dropped: The ids of mail that the row covers.

        Raises:
            TaskRowError: If no save can store it.
        """
        held = {id_: one for id_, one in self._held.items() if id_ not in dropped}
        data = Kept(row=row, mail=tuple(held.values()), ear=self.ear).dumps()
        most = LARGEST
        if row.is_ended or row.is_parked:
            most += _SPARE
            if len(data) > most:
                # It must end, or park, so it does without the answers.
                data = Kept(row=row, ear=self.ear).dumps()
        if len(data) > most:
            raise TaskRowError(f"the task cannot be stored: it has {len(data):,} bytes")
        written = frames.set_state(STATE, data, is_acknowledged=True)
        self._held, self.row = held, row
        self.sent += 1
        if self._is_open != (not row.is_ended):
            self._is_open = not row.is_ended
            self.sent += 1
            before = (
                frames.set_state(OPEN, owner_tag(row.owner))
                if self._is_open
                else frames.clear_state(OPEN)
            )
            written = before + written
        if not self._is_owned:
            self._is_owned = True
            self.sent += 1
            written = frames.set_state(OWNER, owner_tag(row.owner)) + written
        return written

    def leave(self, now: float) -> bytes:
        """Return the bytes that end the invocation, and order the next one."""
        row = self.row
        if row is None:
            written = b""
        elif not row.is_ended:
            written = self._order(row.id, row.wake, now)
        elif row.kept_until(self.retention) <= now:
            written = frames.clear_all()
        else:
            written = self._order(row.id, row.kept_until(self.retention), now)
        return written + frames.output() + frames.end()

    def _order(self, id_: str, wake: float | None, now: float) -> bytes:
        rest = b"" if self._ringing is None else frames.clear_state(_ALARM)
        if wake is None:
            return rest
        at, value = 0, b""
        if wake > now:
            at = ceil(min(wake, _LATEST) * 1000)
            if self._alarm is not None and now * 1000 < self._alarm <= at:
                return rest  # the object is woken early enough already
            if self._ringing is not None:
                # If the alarm was too early, the engine's clock is ahead: by so much, or
                # by more if it was in the engine's past.
                early = max(0, self._ringing - int(now * 1000))
                at += early + min(early, _STEP)
            value = b"%d" % at
            rest = frames.set_state(_ALARM, value)
        self._completion += 1
        call = frames.send(
            self.service, WAKE, id_, value, completion=self._completion, at=at
        )
        return call + rest


def _time(data: bytes) -> int:
    if not data.isdigit() or len(data) > 20:
        raise TaskStoreError(f"an alarm that is not a time: {data[:20]!r}")
    return int(data)
