"""A small model of the engine, and a host of one task on it, without I/O.

The engine keeps one object: its state, its queue, requests for later, and the journal of
the invocation that runs. It executes what an attempt writes frame by frame. An attempt may
be lost before each frame, and before each acknowledgement; then the engine begins another
one, with the state and the journal as they are.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from attrs import define, field

from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.tasks.restate.attempts import Attempt, owner_tag
from effectmcp.tasks.restate.kept import CREATE, POST, Kept, write_letter, write_new
from effectmcp.tasks.turn import ReadMail, Save, Start, TurnCommand, Wait, turn

from ...tasks import simulated
from .wire import Message, decode, encode, frame, unframe

__all__ = ["RETENTION", "SERVICE", "Engine", "Host", "Invocation"]

SERVICE: Final = "shop.Task"
RETENTION: Final = 60.0


def is_command(kind: int) -> bool:
    """Return whether frames of this type count, as the protocol defines."""
    return 0x0400 <= kind <= 0x7FFF


@define(eq=False)
class Invocation:
    """A request that the object runs.

    Attributes:
        id: Its id.
        handler: The handler.
        journal: Its stored messages: its input, commands and notifications.
        completions: The numbers of its commands that have one.
    """

    id: bytes
    handler: str
    journal: list[Message] = field(factory=list)
    completions: set[int] = field(factory=set)

    @property
    def commands(self) -> int:
        """The number of stored commands."""
        return sum(is_command(one.kind) for one in self.journal)


@define(eq=False)
class Engine:
    """One object.

    Attributes:
        state: Its state.
        queue: The requests that wait: a handler, and what it is sent.
        later: The same with a time before them, in milliseconds.
        running: What it runs.
        tell: Sends bytes to the attempt that runs.
    """

    state: dict[bytes, bytes] = field(factory=dict)
    queue: deque[tuple[str, bytes]] = field(factory=deque)
    later: list[tuple[int, str, bytes]] = field(factory=list)
    running: Invocation | None = None
    tell: Callable[[bytes], None] = lambda data: None
    _count: int = 0

    def pass_time(self, now: float) -> None:
        """Queue what is due."""
        due = [one for one in self.later if one[0] <= now * 1000 + 1e-3]
        for one in sorted(due):
            self.later.remove(one)
            self.queue.append(one[1:])

    def begin(self, key: str) -> tuple[Invocation, bytes]:
        """Return what the object runs next, and what the engine tells an attempt."""
        if self.running is None:
            self._count += 1
            handler, value = self.queue.popleft()
            self.running = Invocation(self._count.to_bytes(24, "big"), handler)
            body = encode([(14, encode([(1, value)]))])
            self.running.journal.append(Message(0x0400, 0, decode(body)))
        one = self.running
        start = frame(
            0x0000,
            [
                (1, one.id),
                (2, f"inv_{self._count}".encode()),
                (3, len(one.journal)),
                *((4, encode([(1, at), (2, it)])) for at, it in self.state.items()),
                (6, key.encode()),
            ],
        )
        return one, start + b"".join(
            frame(each.kind, each.fields, flags=each.flags) for each in one.journal
        )

    def signal(self, ear: str, value: bytes) -> None:
        """Send a signal; to an invocation that has ended, it is lost."""
        assert ear.startswith("sign_1")
        text = ear.removeprefix("sign_1")
        address = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        number = int.from_bytes(address[24:], "big")
        assert number > 16
        one = self.running
        if one is not None and one.id == address[:24]:
            self._note(one, 0xFBFF, [(2, number), (5, encode([(1, value)]))])

    def _note(self, one: Invocation, kind: int, fields: Any) -> None:
        one.journal.append(Message(kind, 0, fields))
        self.tell(frame(kind, fields))

    def execute(self, command: Message) -> bytes:
        """Store a command; return what the engine tells then."""
        one = self.running
        assert one is not None
        number = one.commands
        fields: dict[int, Any] = dict(command.fields)
        if command.kind == 0x0003:
            assert one.journal[-1].kind == 0x0401, "it has a result"
            self.running = None
            return b""
        one.journal.append(command)
        match command.kind:
            case 0x0401:
                assert fields == {14: b""}
            case 0x0403:
                self.state[fields[1]] = dict(decode(fields[3])).get(1, b"")  # type: ignore[assignment]  # bytes
            case 0x0404:
                self.state.pop(fields[1], None)
            case 0x0405:
                self.state.clear()
            case 0x040E:
                assert fields[1] == SERVICE.encode()
                assert fields[10] not in one.completions, "it was used before"
                one.completions.add(fields[10])
                request = fields[2].decode(), fields.get(3, b"")
                if 4 in fields:
                    self.later.append((fields[4], *request))
                else:
                    self.queue.append(request)
                self._note(one, 0x800E, [(1, fields[10]), (16, b"inv_x")])
            case kind:
                raise AssertionError(f"a command {kind:#x}")
        if not command.flags:
            return b""
        assert command.flags == 0x8000
        return frame(0x0004, [(1, number)] if number else [])


@define(eq=False)
class Host(simulated.Host):
    """A host of one task on the engine.

    Attributes:
        engine: The engine.
        skew: Seconds that the engine's clock is ahead of the worker's.
        deaf: The numbers of the mail whose signals are lost.
        split: The size of the pieces in which bytes arrive.
    """

    engine: Engine = field(factory=Engine)
    skew: float = 0.0
    deaf: Collection[int] = ()
    split: int = 10_000
    _attempt: Attempt = field(factory=lambda: Attempt(SERVICE, CREATE, RETENTION))
    _heard: list[Mail] = field(factory=list)
    #: Saves that are written with the next bytes.
    _unsent: list[tuple[bytes, Save]] = field(factory=list)
    _sent: int = 0

    def __attrs_post_init__(self) -> None:
        self.engine.queue.append((CREATE, write_new(self.row)))

    @property
    def kept(self) -> Kept | None:
        """The task in the object's state."""
        data = self.engine.state.get(b"task")
        return None if data is None else Kept.loads(data)

    def post(self, mail: Mail) -> None:
        super().post(mail)
        self._sent += 1
        letter = write_letter([mail])
        self.engine.queue.append((POST, letter))
        kept = self.kept
        if kept is not None and self._sent not in self.deaf:
            self.engine.signal(kept.ear, letter)

    def run(self, seconds: float | None = None) -> TaskRow:
        assert seconds is None
        while True:
            self.engine.pass_time(self.now + self.skew)
            if self.engine.running is not None or self.engine.queue:
                self.turn()
                continue
            self.check_rest()
            times = [at for at, _ in self._later]
            times += [at / 1000 - self.skew for at, *_ in self.engine.later]
            if not times:
                return self.row
            self._pass(min(times))

    def turn(self) -> None:
        self.turns += 1
        assert self.turns < 500, "it never ends"
        self._read, self._running, self._heard, self._unsent = 0, {}, [], []
        one, data = self.engine.begin(self.row.id)
        attempt = self._attempt = Attempt(SERVICE, one.handler, RETENTION)
        for piece in _pieces(data, self.split):
            attempt.feed(piece)
        assert attempt.is_open, "all of it has arrived"
        assert attempt.sent == one.commands - 1
        self.engine.tell = attempt.feed
        try:
            self._play(attempt)
        except simulated.Cut:
            self._lose()
        finally:
            self.engine.tell = lambda data: None

    def _play(self, attempt: Attempt) -> None:
        row, kept = attempt.row, self.kept
        if kept is not None:
            assert row is not None
            assert row.dumps() == kept.row.dumps() == self.row.dumps()
        if row is not None and attempt.is_due(self.now):
            going = turn(self.app, row)
            outcome: Any = None
            try:
                while True:
                    command = going.send(outcome)
                    self._count(command)
                    outcome = self._obey(command)
            except StopIteration:
                pass
            finally:
                going.close()
        self._flush(attempt.leave(self.now))

    def _obey(self, command: TurnCommand) -> Any:
        match command:
            case ReadMail():
                mail, self._heard = [*self._heard, *self._attempt.take_mail()], []
                return mail
            case Save(row, dropped):
                self._unsent.append((self._attempt.save(row, dropped), command))
                return None
            case Start(wants):
                try:
                    self._settle()
                except simulated.Cut:
                    if not self._unsent:
                        # The journal has their beginnings, though they were not performed.
                        self._note(wants)
                        self._interrupt(want.key for want in wants)
                    raise
                return super()._obey(command)
            case Wait():
                self._settle()
                return super()._obey(command)
            case _:
                return super()._obey(command)

    def _settle(self) -> None:
        """Wait until the saved row is durable, as an endpoint does."""
        number = self._attempt.sent
        self._flush()
        assert self._attempt.acknowledged == number

    def _flush(self, more: bytes = b"") -> None:
        """Write the saves and more; the attempt may be lost at each frame."""
        while self._unsent:
            data, save = self._unsent[0]
            for command in unframe(data):
                self._point()
                told = self.engine.execute(command)
                if told:
                    del self._unsent[0]
                    self._save(save.row, save.dropped)
                    self._point()
                    self._attempt.feed(told)
        for command in unframe(more):
            self._point()
            assert not self.engine.execute(command)

    def _point(self) -> None:
        number, self.commands = self.commands, self.commands + 1
        if number in self.cuts:
            self.story.append("LOST")
            raise simulated.Cut

    def _wait(self, until: float | None) -> Any:
        while True:
            ended = {
                key: one for key, (at, one) in self._running.items() if at <= self.now
            }
            for key in ended:
                del self._running[key]
            self._heard += self._attempt.take_mail()
            is_late = until is not None and until <= self.now
            if ended or self._heard or is_late:
                return ended
            times = [at for at, _ in (*self._running.values(), *self._later)]
            if until is not None:
                times.append(until)
            assert times, "it waits for ever"
            self._pass(min(times))

    def check_rest(self) -> None:
        """Check what holds while no invocation runs and none waits."""
        kept, row, orders = self.kept, self.row, self.engine.later
        if kept is None:
            assert row.is_ended
            assert row.updated + RETENTION <= self.now
            assert not self.engine.state, "all of it is removed"
            return
        assert kept.row.dumps() == row.dumps(), "what was saved last is kept"
        is_open = self.engine.state.get(b"open")
        assert is_open == (None if row.is_ended else owner_tag(row.owner))
        for mail in () if row.is_ended else self.mail:
            match mail.kind:
                case "answer":
                    # While another branch performs something, it may wait there.
                    assert mail.key not in row.questions or mail in kept.mail
                case "cancel":
                    assert row.cancelled_at is not None, mail
                case "retry":
                    assert row.report is None, mail
        wake = row.kept_until(RETENTION) if row.is_ended else row.wake
        if wake is not None:
            # An engine that is behind the worker is late by that, and an engine
            # that is ahead by a quarter of a second at most.
            first = min((at for at, *_ in orders), default=None)
            assert first is not None, "it is woken"
            late = first / 1000 - self.skew - wake
            assert late < max(0.0, -self.skew) + 0.252


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]
