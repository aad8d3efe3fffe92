"""A turn: one short run of a task's handler, from one wait to the next. No I/O.

    going = turn(app, row)
    command = next(going)
    while True:
        match command:
            case TellTime():  outcome = time.time()
            case ReadMail():  outcome = ...  # the new mail since the last time
            case Save():      outcome = ...  # store the row durably, drop consumed mail
            case Start():     ...            # start to perform effects; do not wait
            case Wait():      outcome = ...  # outcomes, by key; empty for mail or time
            case Forget():    ...            # inform these effects that they are cancelled
        command = going.send(outcome)        # or going.throw(error), if a save failed

until `StopIteration` carries the row, whose `wake` says when the next turn is due. Mail
makes it due at once. A host drives turns: by a loop, by threads, or by an engine for
workflows.

The guarantees of a turn, even if it is cut off between two commands:

    the row is saved before a step begins, with the mark that it begins: so every step is
        performed with the arguments that its journal has, and a step that is
        `at_most_once` never begins twice
    an answer stays in the mail until a saved journal has it
    mail is read before each wave, also while a step runs
    the outcomes of steps and the new questions are saved before a wait
    the count of a step's failed tries is stored until a saved journal has its outcome

So each step of a sequence costs one save. A step is performed again only if the process
was lost between its beginning and the save of its outcome, under the same idempotency key
(docs/internals/replay.md#s1, docs/internals/replay.md#s5).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
from attrs import define, field

from ..canonical import JSON, parse
from ..effects.base import Effect
from ..effects.control import Detach
from ..effects.local import Caller, Progress, Sleep, Status
from ..effects.steps import Step
from ..engine.journal import Journal, JournalError, wire_key
from ..engine.replay import Run
from ..engine.rules import TASK, Rules
from ..engine.steps import step_name
from ..engine.stops import (
    Asked,
    Done,
    Failure,
    Perform,
    Raised,
    Returned,
    Stop,
    Unread,
    Want,
)
from ..errors import (
    ArgumentsError,
    Cancelled,
    CanonicalError,
    DivergenceError,
    ProtocolError,
    TaskRowError,
    TaskStoreError,
    Unsupported,
)
from ..exchange.calls import checked, contained
from ..exchange.commands import PerformAll
from ..exchange.intercepting import intercept_end
from ..exchange.results import error_of, tool_failure, tool_result
from ..exchange.task_rows import Mail, TaskRow
from ..exchange.telling import tell, with_own_context
from ..logs import logger_for
from ..protocol.jsonrpc import INTERNAL_ERROR, encode
from ..protocol.modern import (
    can_answer,
    missing_capability,
    read_result,
    request_of,
)
from ..records import record
from ..server.events import (
    QuestionsAsked,
    StepBegan,
    StepPerformed,
    TurnBegan,
    TurnEnded,
)

if TYPE_CHECKING:
    from ..exchange.commands import Command
    from ..server.app import Server
    from ..server.features import Tool

__all__ = [
    "PARKED",
    "Forget",
    "ReadMail",
    "Save",
    "Start",
    "TellTime",
    "Turn",
    "TurnCommand",
    "Wait",
    "turn",
]

logger = logger_for("effectmcp.tasks")

#: The message of a parked task for its client: the report may quote the source.
PARKED: Final = (
    "The task has stopped, because the server has changed. Its operator knows."
)
#: The error of a task that ended because its `ttl` had passed.
EXPIRED: Final = "The task expired before it ended"


class _NoToolError(Exception):
    """Raised when the server does not have the tool of a task."""


class _UnsavedError(Exception):
    """Raised when the host cannot save. Interceptors must not handle this."""

    def __init__(self, error: TaskStoreError) -> None:
        super().__init__(error)
        self.error = error


#: Reasons to park that have a report of their own.
_EXPECTED: Final = (
    ArgumentsError,
    DivergenceError,
    JournalError,
    TaskRowError,
    _NoToolError,
)

#: Seconds for the cleanup of a cancelled task (docs/internals/replay.md#l4).
CLEANUP: Final = 30.0

#: Seconds before the second try of a step. Each further pause is twice as long.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0


@record
class TellTime:
    """Tell the time, in seconds since 1970. An engine that replays turns records it."""


@record
class ReadMail:
    """Return the mail that has come since the last time; all of it, the first time."""


@record(eq=False)
class Save:
    """Store the row durably, and drop mail, in one transaction.

    Attributes:
        row: The row.
        dropped: The ids of mail that the row covers.
    """

    row: TaskRow
    dropped: tuple[str, ...] = ()


@record(eq=False)
class Start:
    """Begin to perform effects, each once; a later `Wait` returns their outcomes."""

    wants: tuple[Want, ...]


@record
class Wait:
    """Wait until a started effect ends, mail arrives, or a time is reached.

    Send back the outcomes of the effects that have ended, by key.

    Attributes:
        until: The time, in seconds since 1970; `None` for no limit.
    """

    until: float | None


@record
class Forget:
    """Inform started steps that they are cancelled. Some must be waited for nevertheless.

    Attributes:
        keys: Their keys.
        is_over: Whether their outcomes are not needed any more.
    """

    keys: tuple[str, ...]
    is_over: bool


TurnCommand: TypeAlias = TellTime | ReadMail | Save | Start | Wait | Forget
Turn: TypeAlias = Generator[TurnCommand, Any, TaskRow]


def turn(
    app: Server, row: TaskRow, is_stopping: Callable[[], bool] = lambda: False
) -> Turn:
    """Yield the commands of one turn of a task; return its row at the end.

    Args:
        app: The server that has the task's tool.
        row: The task as it was saved last.
        is_stopping: Returns whether the host shuts down. Then the turn starts no more
            effects, and ends when the running effects have ended: the next turn is due at
            once, elsewhere.
    """
    return _Turn(app, row, is_stopping).play()


@define(eq=False)
class _Watched:
    """A turn that has observers.

    Attributes:
        began: When it began.
        variables: The context whose copies its handler and steps run in.
        steps: When each running step began, by key.
    """

    began: float
    variables: Variables = field(factory=copy_context)
    steps: dict[str, float] = field(factory=dict)

    def make(self, *args: Any, **options: Any) -> Run:
        return self.variables.run(Run, *args, **options)


def _status_of(row: TaskRow) -> str:
    return "parked" if row.report is not None and not row.is_ended else row.status


def _task_rules(app: Server) -> Rules:
    ours = app.rules[True, False]
    return attrs.evolve(TASK, branches=ours.branches, development=ours.development)


def _rules(app: Server, row: TaskRow) -> Rules:
    if row.is_whole:
        return _task_rules(app)
    # Up to its Detach, the flow follows the rules of its rounds, so that the replay
    # delivers the same waves; but nothing is dropped, as no client could be asked again.
    sealer = app.sealer
    is_readable = sealer is not None and sealer.keys.readable
    by_retry = app.rules[True, False]
    return attrs.evolve(by_retry, policy="park", private_steps=not is_readable)


@define(eq=False)
class _Turn:
    """One turn.

    Attributes:
        now: The time, as the host sent it last.
        inbox: The answers that no saved journal has yet, by wire key.
        dropped: The ids of mail to drop with the next save.
        running: The effects that were started, by key.
        settled: The keys of steps that failed before, and whose outcome the run has now.
        said: The latest status message.
        has_arrived: Whether the run has more than the last save: the outcome of a step,
            or questions. A wait may be long, so this is saved before it.
    """

    _app: Server
    _row: TaskRow
    _is_stopping: Callable[[], bool]
    _now: float = 0.0
    _inbox: dict[str, Mail] = field(factory=dict)
    _dropped: list[str] = field(factory=list)
    _running: dict[str, Want] = field(factory=dict)
    _settled: set[str] = field(factory=set)
    _said: str | None = None
    _has_arrived: bool = False
    _watched: _Watched | None = None

    def play(self) -> Turn:
        was = _status_of(self._row)  # mail may have a parked task tried again
        yield from self._look()
        if not self._app.is_watched:
            return (yield from self._play())
        row, self._watched = self._row, _Watched(self._now)
        tell(
            self._app,
            TurnBegan(
                task=row.id,
                tool=row.tool,
                flow_id=row.flow_id.hex(),
                principal=row.owner,
                first_trace=row.trace,
                context=self._watched.variables,
            ),
        )
        status = "dropped"
        try:
            yield from self._play()
            self._now = yield TellTime()
            status = _status_of(self._row)
        finally:
            tell(
                self._app,
                TurnEnded(
                    task=row.id,
                    tool=row.tool,
                    flow_id=row.flow_id.hex(),
                    principal=row.owner,
                    status=status,
                    was=was,
                    seconds=self._now - self._watched.began,
                ),
            )
        return self._row

    def _play(self) -> Turn:
        row = self._row
        if row.is_ended:
            # Its mail arrived too late.
            yield from self._save(attrs.evolve(row, wake=None), self._inbox)
            return self._row
        if row.report is not None:
            return (yield from self._stay_parked())
        try:
            run, tool = self._run()
        except Exception as exc:
            return (yield from self._park(exc))
        try:
            return (yield from self._drive(run, tool))
        except Exception as exc:
            if isinstance(exc, TaskStoreError) and not isinstance(exc, TaskRowError):
                raise  # a save failed: the next turn starts from the last one
            # A divergence, or a fault that the next turn would meet again.
            return (yield from self._park(exc))
        finally:
            run.close()

    def _run(self) -> tuple[Run, Tool]:
        app, row = self._app, self._row
        tool = app.tools.get(row.tool)
        if tool is None:
            raise _NoToolError(f"this server has no tool {row.tool!r} any more")
        kwargs = tool.handler.takes.read(row.arguments)
        make = Run if self._watched is None else self._watched.make
        run = make(
            tool.handler.function,
            (),
            kwargs,
            flow_id=row.flow_id,
            journal=Journal.loads(row.journal),
            rules=_rules(app, row),
            detached=_task_rules(app),
            supports=partial(can_answer, row.capabilities),
            emit=self._hear,
            read=read_result,
            clock=lambda: self._now,
            name=tool.handler.name,
            version=row.version,
        )
        return run, tool

    def _hear(self, effect: Effect[Any]) -> None:
        # No progress and no log leaves a task: clients see its message only.
        match effect:
            case Status(text) | Progress(_, _, str() as text):
                self._said = _sendable(text)
            case _:
                logger.debug("task %s: %r", self._row.id, effect)

    # ---- mail and time --------------------------------------------------------------

    def _look(self) -> Generator[TurnCommand, Any, None]:
        """Ask for the time and the mail, and note in the row what they change."""
        self._now = yield TellTime()
        mail: list[Mail] = yield ReadMail()
        row = self._row
        for one in mail:
            match one.kind:
                case "answer":
                    self._inbox[one.key] = one
                case "cancel":
                    self._dropped.append(one.id)
                    if row.cancelled_at is None and not row.is_ended:
                        row = attrs.evolve(row, cancelled_at=self._now)
                case "retry":
                    self._dropped.append(one.id)
                    if row.report is not None and not row.is_ended:
                        row = attrs.evolve(row, report=None, message=None, tries={})
        is_late = row.expires is not None and self._now >= row.expires
        if is_late and not row.is_ended:
            at = self._now if row.cancelled_at is None else row.cancelled_at
            row = attrs.evolve(row, is_expired=True, cancelled_at=at)
        self._row = row

    def _answers(self) -> dict[str, Unread]:
        # The run ignores the answers that it has already.
        return {key: Unread(one.value) for key, one in self._inbox.items()}

    # ---- the run --------------------------------------------------------------------

    def _drive(self, run: Run, tool: Tool) -> Turn:
        is_ending = self._row.cancelled_at is not None
        if is_ending and run.journal.cancelled is None:
            stop = yield from self._cancelled(run)
        else:
            stop = run.start(self._answers())
        while True:
            yield from self._drop_losers(stop)
            if isinstance(stop, (Returned, Raised)):
                ended = yield from self._ended(run, stop, tool)
                yield from self._save(ended, self._inbox)
                return self._row
            fresh = self._runnable(stop)
            outcomes: dict[str, Done | Failure] = {
                want.key: one
                for want in fresh
                if (one := self._known(want)) is not None
            }
            started = [want for want in fresh if want.key not in outcomes]
            held = bool(started) and self._is_stopping()
            if held:
                started = []
                if not outcomes and not self._running:
                    yield from self._save_waiting(run, stop, wake=0.0)
                    return self._row
            steps = [want.key for want in started if isinstance(want.effect, Step)]
            if steps:
                run.begin(*steps)
                yield from self._save_waiting(run, stop, wake=0.0)
            if started:
                yield self._start(started)
            if not outcomes:
                # Effects that are held back may be due: only running effects count.
                until = None if held else self._until(stop)
                if not self._running and not self._is_due(until):
                    yield from self._save_waiting(run, stop, wake=until)
                    return self._row
                if self._running:
                    if self._has_arrived:
                        yield from self._save_waiting(run, stop, wake=0.0)
                    outcomes = yield Wait(until)
            yield from self._look()
            outcomes = self._tried(run, outcomes)
            if self._row.cancelled_at is not None and not is_ending:
                is_ending = True
                yield from self._tell_cancelled()
                stop = run.cancel()
                if outcomes and isinstance(stop, Perform):
                    stop = run.performed(outcomes)
                continue
            if self._is_cleanup_over():
                stop = run.cancel()
                continue
            if outcomes:
                stop = run.performed(outcomes, self._answers())
            else:
                stop = run.answered(self._answers())
            self._has_arrived |= isinstance(stop, Asked)

    def _cancelled(self, run: Run) -> Generator[TurnCommand, Any, Stop]:
        """Cancel a task in its first stop.

        Steps that a lost process had started are started again: otherwise the cleanup
        would not know what they did (docs/internals/replay.md#l4).
        """
        if any(one.begun for one in run.journal.places.values()):
            stop = run.start()
            lost: list[Want] = []
            if isinstance(stop, (Perform, Asked)):
                lost = [want for want in stop.wants if want.begun]
            if lost:
                run.begin(*[want.key for want in lost])
                yield from self._save_waiting(run, stop, wake=0.0)
                yield self._start(lost)
                yield from self._tell_cancelled()
        return run.cancel()

    def _start(self, wants: list[Want]) -> Start:
        if self._watched is not None:
            wants = [with_own_context(want) for want in wants]
        self._running |= {want.key: want for want in wants}
        if self._watched is not None:
            for want in wants:
                self._tell_begun(self._watched, want)
        return Start(tuple(wants))

    def _tell_begun(self, watched: _Watched, want: Want) -> None:
        if isinstance(want.effect, Step):
            watched.steps[want.key] = self._now
            event = StepBegan(
                flow_id=self._row.flow_id.hex(),
                key=want.key,
                name=step_name(want.effect),
                number=None,
                task=self._row.id,
                context=want.context,
            )
            tell(self._app, event)

    def _known(self, want: Want) -> Done | None:
        match want.effect:
            case Detach():
                return Done(True)
            case Caller():
                return Done(self._row.caller)
            case _:
                return None

    def _runnable(self, stop: Perform | Asked) -> list[Want]:
        """Return the wants that are not started, and not waiting for their next try."""
        tries = self._row.tries
        return [
            want
            for want in stop.wants
            if want.key not in self._running
            and (want.key not in tries or tries[want.key][1] <= self._now)
        ]

    def _tried(
        self, run: Run, outcomes: dict[str, Done | Failure]
    ) -> dict[str, Done | Failure]:
        """Take out the failures after which a step is tried again; note when."""
        final: dict[str, Done | Failure] = {}
        tries = dict(self._row.tries)
        for key, outcome in outcomes.items():
            want = self._running.pop(key, None)
            if self._watched is not None and want is not None:
                self._tell_performed(self._watched, want, outcome)
            self._has_arrived |= want is not None and isinstance(want.effect, Step)
            count, _ = tries.get(key, (0, 0.0))
            if want is not None and self._is_tried_again(want, outcome, count):
                # No float is as large as the power for a thousand tries.
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(count, 99))
                tries[key] = count + 1, self._now + pause
                run.put_off(key)
                logger.warning(
                    "task %s: %s failed, and is tried again in %g seconds",
                    self._row.id,
                    key,
                    pause,
                    exc_info=outcome.error if isinstance(outcome, Failure) else None,
                )
            else:
                final[key] = outcome
                if count:
                    self._settled.add(key)
        if tries != self._row.tries:
            self._row = attrs.evolve(self._row, tries=tries)
        return final

    def _tell_performed(
        self, watched: _Watched, want: Want, outcome: Done | Failure
    ) -> None:
        began = watched.steps.pop(want.key, None)
        if began is None:
            return  # no step
        assert isinstance(want.effect, Step)
        tell(
            self._app,
            StepPerformed(
                flow_id=self._row.flow_id.hex(),
                key=want.key,
                name=step_name(want.effect),
                seconds=self._now - began,
                task=self._row.id,
                error=outcome.error if isinstance(outcome, Failure) else None,
            ),
        )

    def _is_tried_again(self, want: Want, outcome: Done | Failure, count: int) -> bool:
        effect = want.effect
        if not isinstance(effect, Step) or not isinstance(outcome, Failure):
            return False
        options = effect.options
        return (
            count < options.retries
            and not isinstance(outcome.error, options.raises)
            and self._row.cancelled_at is None
        )

    # ---- waiting --------------------------------------------------------------------

    def _until(self, stop: Perform | Asked) -> float | None:
        """Return when something is due that needs no mail."""
        row = self._row
        waiting = {want.key for want in stop.wants} - self._running.keys()
        times = [at for key, (_, at) in row.tries.items() if key in waiting]
        if isinstance(stop, Asked) and stop.due is not None:
            times.append(stop.due)
        if row.cancelled_at is not None:
            times.append(row.cancelled_at + CLEANUP)
        elif row.expires is not None:
            times.append(row.expires)
        return min(times, default=None)

    def _is_due(self, until: float | None) -> bool:
        return until is not None and until <= self._now

    def _is_cleanup_over(self) -> bool:
        at = self._row.cancelled_at
        return at is not None and self._now >= at + CLEANUP

    def _drop_losers(self, stop: Stop) -> Generator[TurnCommand, Any, None]:
        if isinstance(stop, Perform):
            return  # the steps of races run on, and are not among its wants
        wanted = {one.key for one in stop.wants} if isinstance(stop, Asked) else ()
        lost = tuple(key for key in self._running if key not in wanted)
        for key in lost:
            del self._running[key]
        if lost:
            yield Forget(lost, is_over=True)

    def _tell_cancelled(self) -> Generator[TurnCommand, Any, None]:
        if self._running:
            yield Forget(tuple(self._running), is_over=False)

    # ---- saving ---------------------------------------------------------------------

    def _save(
        self, row: TaskRow, covered: Iterable[str] = ()
    ) -> Generator[TurnCommand, Any, None]:
        """Save a row; drop the answers that it covers, by their keys."""
        row = attrs.evolve(row, updated=self._now)
        answers = [self._inbox[key] for key in covered]
        yield Save(row, (*self._dropped, *(one.id for one in answers)))
        # Only now: if this row cannot be stored, the task parks as it was, with its mail.
        self._row = row
        self._dropped.clear()
        for one in answers:
            del self._inbox[one.key]
        self._has_arrived = False

    def _save_waiting(
        self, run: Run, stop: Stop, *, wake: float | None
    ) -> Generator[TurnCommand, Any, None]:
        journal = run.journal
        asked = journal.asked
        questions: dict[str, JSON] = {}
        shown = self._row.questions
        if self._row.cancelled_at is not None:
            pass  # it asks nothing any more
        elif isinstance(stop, Asked):
            # A key is used for one asking. Its text may name the reason why the last
            # answer did not fit, and no journal has that reason.
            questions = {
                one.key: shown[one.key] if one.key in shown else request_of(one)
                for one in stop.questions
            }
            new = tuple(one for one in stop.questions if one.key not in shown)
            if new and self._watched is not None:
                tell(
                    self._app,
                    QuestionsAsked(
                        flow_id=self._row.flow_id.hex(),
                        method="tools/call",
                        target=self._row.tool,
                        principal=self._row.owner,
                        task=self._row.id,
                        questions=new,
                    ),
                )
        else:
            # They stay outstanding while other branches perform something.
            questions = {key: one for key, one in shown.items() if key in asked}
        row = attrs.evolve(
            self._row,
            journal=journal.dumps(),
            status="input_required" if questions else "working",
            questions=questions,
            tries=self._tries_of(stop, journal),
            message=self._row.message if self._said is None else self._said,
            wake=wake,
        )
        yield from self._save(row, [key for key in self._inbox if key not in asked])

    def _tries_of(
        self, stop: Stop, journal: Journal
    ) -> Mapping[str, tuple[int, float]]:
        """Return the failed tries of the steps that may still be performed."""
        tries = self._row.tries
        if not tries:
            return tries
        if isinstance(stop, Asked):
            # A step that lost its race is not tried again.
            wanted = {want.key for want in stop.wants}
            return {key: one for key, one in tries.items() if key in wanted}
        # The journal has the outcome of a racing step only when its race is decided. If
        # the step is lost before, the same try is performed again
        # (docs/internals/replay.md#what-must-be-equal).
        begun = {
            wire_key(journal.generation, place, 1)
            for place, one in journal.places.items()
            if one.begun
        }
        over = self._settled - begun
        return {key: one for key, one in tries.items() if key not in over}

    def _ended(
        self, run: Run, stop: Returned | Raised, tool: Tool
    ) -> Generator[TurnCommand, Any, TaskRow]:
        row = attrs.evolve(
            self._row,
            journal=self._row.journal if run.is_over_limit else run.journal.dumps(),
            questions={},
            tries={},
            message=self._row.message if self._said is None else self._said,
            wake=None,
        )
        if row.cancelled_at is not None and isinstance(stop, Raised):
            if not row.is_expired and not isinstance(stop.error, Cancelled):
                logger.error(
                    "%s failed as it was cancelled", row.id, exc_info=stop.error
                )
            return _cut_short(row)

        def fields_of_end() -> Mapping[str, JSON]:
            if isinstance(stop, Raised):
                raise _told(contained(stop.error, tool.handler.name), row)
            return tool_result(tool, checked(stop.value, tool.handler))

        try:
            chain = self._app.around.get(tool)
            if chain is None:
                fields = fields_of_end()
            else:
                going = intercept_end(
                    chain,
                    tool,
                    row.caller,
                    row.arguments,
                    run.journal.rounds + 1,
                    None if self._watched is None else self._watched.variables,
                    fields_of_end,
                )
                try:
                    fields = yield from self._performed(going)
                finally:
                    # The mail that has come meanwhile came too late.
                    row = attrs.evolve(
                        row,
                        cancelled_at=self._row.cancelled_at,
                        is_expired=self._row.is_expired,
                    )
            # Encoded as for the wire, because the store keeps plain JSON.
            return attrs.evolve(row, status="completed", result=parse(encode(fields)))
        except _UnsavedError as exc:
            raise exc.error from None
        except Exception as exc:
            return self._failure(row, exc, tool)

    def _performed(
        self, going: Generator[Command, Any, Mapping[str, JSON]]
    ) -> Generator[TurnCommand, Any, Mapping[str, JSON]]:
        """Perform what interceptors yield; return what they make of the result.

        None of it is kept: if the turn is cut off, the next one runs them again.
        """
        try:
            command = next(going)
            while True:
                assert isinstance(command, PerformAll)  # they have no other command
                outcomes: dict[str, Done | Failure] = {}
                (want,) = command.wants  # they yield one effect at a time
                try:
                    if isinstance(want.effect, Sleep):
                        yield from self._wait_until(self._now + want.effect.seconds)
                        outcomes[want.key] = Done(None)
                    else:
                        if self._watched is not None:
                            self._tell_begun(self._watched, want)
                        yield Start(command.wants)
                    while not outcomes:
                        outcomes |= yield Wait(None)
                        yield from self._look()
                    if self._watched is not None:
                        self._tell_performed(self._watched, want, outcomes[want.key])
                except TaskStoreError as exc:
                    raise _UnsavedError(exc) from exc
                command = going.send(outcomes)
        except StopIteration as end:
            fields: Mapping[str, JSON] = end.value
            return fields
        finally:
            going.close()

    def _wait_until(self, due: float) -> Generator[TurnCommand, Any, None]:
        while self._now < due:
            yield Wait(due)
            yield from self._look()

    def _failure(self, row: TaskRow, error: Exception, tool: Tool) -> TaskRow:
        try:
            fields = tool_failure(error, tool.name)
        except ProtocolError as exc:
            return _failed(row, _fields_of(exc, tool.name))
        return attrs.evolve(row, status="completed", result=parse(encode(fields)))

    # ---- parking --------------------------------------------------------------------

    def _park(self, exc: Exception) -> Turn:
        """Stop the task where it is, until an operator has it tried again."""
        if self._row.cancelled_at is not None:
            return (yield from self._give_up(exc))
        unexpected = None if isinstance(exc, _EXPECTED) else exc
        row = self._row
        logger.error(
            "task %s (%s) is parked: %s", row.id, row.tool, exc, exc_info=unexpected
        )
        report = _sendable(str(exc) if unexpected is None else repr(exc))
        row = attrs.evolve(row, report=report, message=PARKED, wake=row.expires)
        yield from self._save(row)
        return self._row

    def _stay_parked(self) -> Turn:
        row = self._row
        if row.cancelled_at is not None:
            return (yield from self._give_up(None))
        yield from self._save(attrs.evolve(row, wake=row.expires))
        return self._row

    def _give_up(self, exc: Exception | None) -> Turn:
        """End a task that is cancelled or expired, and whose handler cannot be resumed."""
        row = self._row
        report = row.report if exc is None else _sendable(str(exc))
        logger.error(
            "task %s (%s) ends without its cleanup: %s", row.id, row.tool, report
        )
        row = attrs.evolve(row, report=report, questions={}, tries={}, wake=None)
        yield from self._save(_cut_short(row), self._inbox)
        return self._row


def _fields_of(error: ProtocolError, of: str) -> dict[str, JSON]:
    fields: dict[str, JSON] = {"code": error.code, "message": error.message}
    try:
        if error.data is not None:
            fields["data"] = parse(encode(error.data))
    except CanonicalError as exc:
        return _fields_of(error_of(exc, of), of)  # it is nested too deeply
    return fields


def _failed(row: TaskRow, error: Mapping[str, JSON]) -> TaskRow:
    return attrs.evolve(
        row, status="failed", error=dict(error), message=str(error["message"])
    )


def _cut_short(row: TaskRow) -> TaskRow:
    """Return the last row of a task that was cancelled, or has expired."""
    if row.is_expired:
        return _failed(row, {"code": INTERNAL_ERROR, "message": EXPIRED})
    return attrs.evolve(row, status="cancelled")


def _sendable(text: str) -> str:
    # Lone surrogates are escaped: neither a store nor a client can read them.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _told(error: BaseException, row: TaskRow) -> BaseException:
    if isinstance(error, Unsupported):
        capabilities = row.capabilities
        return missing_capability([error.kind], capabilities, "tools/call") or error
    return error
