"""A simulated host of one task: a virtual clock, a store in memory, and cuts.

The host drives `turn` as a real one must, without threads and without waiting. It checks
in passing what a turn guarantees wherever it is cut off:

    a step is performed only if the saved journal has its beginning
    a step is performed again only if no save had its outcome, and with equal arguments
    a step that is `at_most_once` is performed once
    the count of a step's failed tries is kept until a save has its outcome
    mail is dropped only if the saved journal does not need it any more
    the key of a question is never used again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID
from zlib import crc32

from attrs import define, field

from effectmcp import Accepted, Elicit, Now, Random, Server, Sleep, Step, Uuid
from effectmcp.effects.local import CallerInfo
from effectmcp.engine import RETRY, Journal, Perform, Run
from effectmcp.engine.stops import Asked, Done, Failure, Want
from effectmcp.errors import TaskRowError
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.exchange.tasks import task_id
from effectmcp.tasks.turn import (
    Forget,
    ReadMail,
    Save,
    Start,
    TellTime,
    TurnCommand,
    Wait,
    turn,
)

__all__ = [
    "CAPABILITIES",
    "FLOW_ID",
    "START",
    "Host",
    "accepted",
    "detached",
    "drawn",
    "new",
]

#: The time when every story begins.
START: Final = 1_000_000.0
FLOW_ID: Final = b"the id of a flow"
CAPABILITIES: Final[dict[str, Any]] = {
    "elicitation": {"form": {}},
    "sampling": {},
    "roots": {},
}

#: The most commands at one moment, and the most turns: more is a loop without an end.
_PATIENCE: Final = 500
#: Keys of what interceptors perform at the end: no journal has it, so it is repeated.
_UNSAVED: Final = "interceptor-"


def accepted(value: Any = None) -> dict[str, Any]:
    """Return the answer of a client that accepts; `value` is what its form has."""
    return {"action": "accept", "content": {} if value is None else {"value": value}}


def new(tool: str, arguments: Any = None, **more: Any) -> TaskRow:
    """Return the first row of a task that is a whole call, unless `more` has another."""
    fields: dict[str, Any] = {
        "id": task_id(FLOW_ID, Journal()),
        "tool": tool,
        "arguments": {} if arguments is None else arguments,
        "owner": None,
        "capabilities": CAPABILITIES,
        "caller": CallerInfo(client="a test"),
        "flow_id": FLOW_ID,
        "is_whole": True,
        "created": START,
        "updated": START,
    }
    return TaskRow(**(fields | more))


def detached(tool: str, handler: Callable[..., Any], *answers: Any) -> TaskRow:
    """Return the first row of a flow that answers by retry led to its `Detach`."""
    journal, said = Journal(), list(answers)
    replies: dict[str, Any] = {}
    while True:
        run = Run(handler, flow_id=FLOW_ID, journal=journal, rules=RETRY)
        stop = run.start(replies)
        while isinstance(stop, Perform) and isinstance(stop.wants[0].effect, Step):
            stop = run.performed({want.key: _called(want) for want in stop.wants})
        journal = run.suspend()
        if not isinstance(stop, Asked):
            return new(
                tool,
                id=task_id(FLOW_ID, journal),
                is_whole=False,
                journal=journal.dumps(),
            )
        replies = {}
        for one in stop.questions:
            value = said.pop(0)
            is_form = isinstance(one.effect, Elicit)
            replies[one.key] = Accepted({"value": value} if is_form else {})


def _called(want: Want) -> Done | Failure:
    effect = want.effect
    assert isinstance(effect, Step)
    try:
        return Done(want.context.copy().run(effect.fn, *effect.args, **effect.kwargs))
    except Exception as exc:
        return Failure(exc)


class Cut(Exception):
    """The process is lost."""


@define(eq=False)
class Host:
    """The host of one task.

    Attributes:
        app: The server.
        row: The row in the store.
        now: The virtual time.
        cuts: Numbers of commands at which the turn is lost, instead of obeyed.
        lasts: Returns the seconds that a performance takes.
        result: Returns the outcome of a performance; by default, of a call.
        asked: Called with each new question and its key.
        saved: Called with each row that is saved.
        fits: Whether the store can keep such a row.
        commands: The number of commands so far.
        story: The names of all commands so far.
        saves: All rows that were saved.
        performed: All steps that were performed: name or key, and the arguments.
        times: When each of them was performed, in seconds after `START`.
        shown: The keys of all questions that clients were asked, in order.
        lost: The steps whose outcome no save had when a turn was lost: which turn that was
            last, by key and number of failed tries.
        interrupted: The steps that were lost though they may not be repeated: when, by
            key.
        forgotten: The keys of `Forget`, with `is_over`.
        effects: The function and the arguments of all steps that were to start, by key.
        started: The tries of steps that were to start, by key and number of failed tries.
        turns: The number of turns.
    """

    app: Server
    row: TaskRow
    now: float = START
    cuts: Collection[int] = ()
    lasts: Callable[[Want], float] = lambda want: 0.0
    result: Callable[[Want], Done | Failure] = _called
    asked: Callable[[str, Any], None] = lambda key, request: None
    saved: Callable[[TaskRow], None] = lambda row: None
    fits: Callable[[TaskRow], bool] = lambda row: True
    commands: int = 0
    story: list[str] = field(factory=list)
    saves: list[TaskRow] = field(factory=list)
    performed: list[tuple[str, Any]] = field(factory=list)
    times: list[float] = field(factory=list)
    forgotten: list[tuple[str, bool]] = field(factory=list)
    lost: dict[tuple[str, int], int] = field(factory=dict)
    interrupted: dict[str, float] = field(factory=dict)
    effects: dict[str, Any] = field(factory=dict)
    started: set[tuple[str, int]] = field(factory=set)
    turns: int = 0
    _mail: list[tuple[int, Mail]] = field(factory=list)
    _posted: int = 0
    _read: int = 0
    _later: list[tuple[float, Callable[[], None]]] = field(factory=list)
    _running: dict[str, tuple[float, Done | Failure]] = field(factory=dict)
    shown: dict[str, None] = field(factory=dict)
    _counts: Counter[str] = field(factory=Counter)
    #: The keys of all `at_most_once` steps that were to start.
    _once: set[str] = field(factory=set)
    #: Performances by key whose outcome no save has.
    _open: Counter[str] = field(factory=Counter)
    _moment: tuple[float, int] = (0.0, 0)

    # ---- what others do -------------------------------------------------------------

    @property
    def journal(self) -> Journal:
        """The saved journal."""
        return Journal.loads(self.row.journal)

    @property
    def mail(self) -> list[Mail]:
        """The mail that is stored."""
        return [one for _, one in self._mail]

    def post(self, mail: Mail) -> None:
        """Store mail, once for each id."""
        if all(one.id != mail.id for one in self.mail):
            self._posted += 1
            self._mail.append((self._posted, mail))

    def answer(self, key: str, value: Any) -> None:
        """Answer a question, as `tasks/update` does."""
        self.post(Mail(f"answer:{key}", "answer", key, value))

    def cancel(self) -> None:
        """Ask the task to end."""
        self.post(Mail("cancel", "cancel"))

    def retry(self) -> None:
        """Have a parked task tried again."""
        self.post(Mail("retry", "retry"))

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Call `act` that many seconds after the start."""
        self._later.append((START + seconds, act))

    # ---- turns ----------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a turn is due now."""
        row = self.row
        is_late = row.wake is not None and row.wake <= self.now
        return is_late or any(number > self._read for number, _ in self._mail)

    def run(self, seconds: float | None = None) -> TaskRow:
        """Run turns until the task has ended, or until nothing happens any more.

        Args:
            seconds: The seconds after the start at which to stop.
        """
        end = None if seconds is None else START + seconds
        while not self.row.is_ended:
            if self.is_due:
                self.turn()
                continue
            times = [at for at, _ in self._later]
            if self.row.wake is not None:
                times.append(self.row.wake)
            if not times or (end is not None and min(times) > end):
                break
            self._pass(min(times))
        if end is not None and not self.row.is_ended:
            self._pass(end)
        return self.row

    def turn(self) -> None:
        """Run one turn, or lose it at a cut."""
        self.turns += 1
        assert self.turns < _PATIENCE, "it never ends"
        self._read = 0
        self._running = {}
        # Stored and loaded, as every turn may run in another process.
        returned: TaskRow | None = None
        going = turn(self.app, TaskRow.loads(self.row.dumps(), self.row.journal))
        try:
            command = next(going)
            while True:
                self._count(command)
                try:
                    outcome = self._obey(command)
                except TaskRowError as exc:
                    command = going.throw(exc)
                else:
                    command = going.send(outcome)
        except StopIteration as exc:
            returned = exc.value
        except Cut:
            self._read = 0
            self._lose()
            return
        finally:
            going.close()
        assert returned is not None
        assert returned.dumps() == self.row.dumps(), "it returns what it saved"

    def _lose(self) -> None:
        """Note the steps that were lost with a turn."""
        keys = [key for key, count in self._open.items() if count]
        self.lost |= {(key, self._failures(key)): self.turns for key in keys}
        self._interrupt(keys)

    def _failures(self, key: str) -> int:
        return self.row.tries.get(key, (0, 0.0))[0]

    def _interrupt(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self._once:
                self.interrupted.setdefault(key, self.now)

    def _count(self, command: TurnCommand) -> None:
        number, self.commands = self.commands, self.commands + 1
        if number in self.cuts:
            self.story.append("CUT")
            if isinstance(command, Start):
                # The journal has their beginnings, though they were not performed.
                self._note(command.wants)
                self._interrupt(want.key for want in command.wants)
            raise Cut
        self.story.append(type(command).__name__)
        at, count = self._moment
        self._moment = self.now, count + 1 if at == self.now else 0
        assert self._moment[1] < _PATIENCE, "it waits hot"

    def _obey(self, command: TurnCommand) -> Any:
        match command:
            case TellTime():
                return self.now
            case ReadMail():
                mail = [one for number, one in self._mail if number > self._read]
                self._read = self._posted
                return mail
            case Save(row, dropped):
                return self._save(row, dropped)
            case Start(wants):
                self._note(wants)
                for want in wants:
                    self._perform(want)
                return None
            case Wait(until):
                return self._wait(until)
            case Forget(keys, is_over):
                self.forgotten += [(key, is_over) for key in keys]
                for key in keys if is_over else ():
                    self._running.pop(key, None)
                return None

    def _note(self, wants: Iterable[Want]) -> None:
        """Note steps that start, and check that none starts as another one."""
        for want in wants:
            key, effect = want.key, want.effect
            if not isinstance(effect, Step) or key.startswith(_UNSAVED):
                continue
            given = effect.fn, effect.args, dict(effect.kwargs)
            assert self.effects.setdefault(key, given) == given, f"{key} is another"
            self.started.add((key, self._failures(key)))
            if effect.options.at_most_once:
                self._once.add(key)

    # ---- saving ---------------------------------------------------------------------

    def _save(self, row: TaskRow, dropped: Iterable[str]) -> None:
        if not self.fits(row):
            raise TaskRowError("the row is too large")
        loaded = TaskRow.loads(row.dumps(), row.journal)
        assert loaded.dumps() == row.dumps(), "a row outlives its process"
        before, self.row = self.row, row
        self.saves.append(row)
        self.saved(row)
        try:
            journal = self.journal
        except Exception:
            assert row.journal == before.journal  # an unreadable one is kept
            journal = Journal()
        ids = set(dropped)
        assert ids <= {one.id for one in self.mail}, "it drops each mail once"
        for one in self.mail:
            if one.id in ids and one.kind == "answer" and not row.is_ended:
                assert one.key not in journal.asked, f"{one} is lost"
        self._mail = [(number, one) for number, one in self._mail if one.id not in ids]
        if row.is_ended:
            assert not row.questions, "nobody can answer them"
            assert not row.tries, "no try follows"
            late = [one for number, one in self._mail if number <= self._read]
            assert not late, f"{late} was read, and is kept for ever"
            self._mail = []
        elif row.report is None:
            assert row.questions.keys() <= journal.asked.keys()
        prefix = f"r{journal.generation}/" if journal.generation else ""
        begun = {prefix + at for at, one in journal.places.items() if one.begun}
        for key in [key for key in self._open if key not in begun]:
            del self._open[key]
        if not row.is_ended and before.report is None:  # a manual retry starts at 0
            for key in before.tries.keys() & begun:
                kept, _ = row.tries.get(key, (0, 0.0))
                assert kept >= before.tries[key][0], f"{key} forgets its failed tries"
        for key, request in row.questions.items():
            if key not in before.questions:
                assert key not in self.shown, f"{key} is used again"
                self.shown[key] = None
                self.asked(key, request)

    # ---- performing -----------------------------------------------------------------

    def _perform(self, want: Want) -> None:
        key, effect = want.key, want.effect
        assert key not in self._running, f"{key} runs already"
        outcome: Done | Failure | None = drawn(want, self.now)
        seconds = 0.0
        if isinstance(effect, Sleep):  # of an interceptor
            outcome, seconds = Done(None), effect.seconds
        if isinstance(effect, Step):
            if not key.startswith(_UNSAVED):
                self._check(key, effect)
            name = str(getattr(effect.fn, "__name__", key))
            self.performed.append((name, (*effect.args, *effect.kwargs.values())))
            self.times.append(self.now - START)
            outcome, seconds = self.result(want), self.lasts(want)
            limit = effect.options.timeout
            if limit is not None and seconds > limit:
                outcome, seconds = Failure(TimeoutError("too long")), limit
        assert outcome is not None, effect
        self._running[key] = self.now + seconds, outcome

    def _check(self, key: str, effect: Step[Any]) -> None:
        journal = self.journal
        prefix = f"r{journal.generation}/" if journal.generation else ""
        wake = self.row.wake
        assert wake is not None, f"{key} would be lost with this turn"
        assert wake <= self.now, f"{key} would be lost with this turn"
        place = journal.places.get(key.removeprefix(prefix))
        assert place is not None, f"{key}: no save has its beginning"
        assert place.begun, f"{key}: no save has its beginning"
        self._counts[key] += 1
        if effect.options.at_most_once:
            assert self._counts[key] == 1, f"{key} is performed twice"
        self._open[key] += 1
        # Only beginnings that no save has ended count.
        assert self._open[key] <= place.begun, f"{key} is performed without a beginning"

    def _wait(self, until: float | None) -> dict[str, Done | Failure]:
        is_due = self.row.wake is not None and self.row.wake <= self.now
        assert is_due or not any(self._open.values()), "a step may be lost"
        while True:
            ended = {
                key: one for key, (at, one) in self._running.items() if at <= self.now
            }
            if ended:
                for key in ended:
                    del self._running[key]
                return ended
            has_mail = any(number > self._read for number, _ in self._mail)
            if has_mail or (until is not None and until <= self.now):
                return {}
            times = [at for at, _ in (*self._running.values(), *self._later)]
            if until is not None:
                times.append(until)
            assert times, "it waits for ever"
            self._pass(min(times))

    def _pass(self, to: float) -> None:
        """Let time pass, and what happens until then."""
        while due := [one for one in self._later if one[0] <= to]:
            first = min(due, key=lambda one: one[0])
            self._later.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = max(self.now, to)


def drawn(want: Want, now: float) -> Done | None:
    """Return the outcome of an effect other than a step: the same for equal keys."""
    number = crc32(want.key.encode())
    match want.effect:
        case Now():
            return Done(datetime.fromtimestamp(now, UTC))
        case Uuid():
            return Done(UUID(int=number))
        case Random():
            return Done(number % 1000 / 1000)
        case _:
            return None
