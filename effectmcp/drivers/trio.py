"""Run exchanges on trio: steps run concurrently, blocking functions in threads.

    reply = await handle(app, message, peer, send=send)

Cancel it when the client has disconnected: this suspends the flow and releases all of it.
A transport that watches for disconnects can call `begin()` first, to find out whether
there is anything to wait for:

    found = begin(app, message, peer)  # most rounds only ask, and end here
    reply = found if isinstance(found, Reply) else await found.finish(send)
"""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import trio
from trio import Event, Lock, Semaphore, sleep

from ..effects.base import Effect
from ..effects.control import FirstOf, TimedOut, Within
from ..effects.local import Sleep
from ..effects.steps import Step
from ..engine.stops import Done, Failure, Want
from ..errors import LoopError, StepError
from ..exchange.commands import (
    Ask,
    Command,
    Incoming,
    Invoke,
    Listen,
    Notify,
    Outlast,
    Overdue,
    Peer,
    PerformAll,
    Reply,
)
from ..exchange.handle import handle as answer
from . import begun
from .begun import BeginExchange, Send, drop
from .lanes import Lanes, Performer, Ticket
from .local import (
    Job,
    ask_client,
    at_once,
    job_of_invoke,
    job_of_step,
    left,
    pause,
    running,
    tell_changes,
)
from .loops import Doing
from .turns import TurnLoop

if TYPE_CHECKING:
    from ..exchange.sessions import News
    from ..exchange.subscriptions import Subscription
    from ..server.app import Server
    from ..server.changes import Change
    from ..server.loop_name import LoopName

__all__ = [
    "Bell",
    "Event",
    "Lock",
    "Semaphore",
    "attempt",
    "begin",
    "broken",
    "crew",
    "handle",
    "in_thread",
    "is_cancel",
    "listen",
    "name",
    "now",
    "obey",
    "outlast",
    "running",
    "sleep",
    "spawn",
    "stoppable",
    "turns",
    "unless",
    "within",
]

T = TypeVar("T")

#: The name of this loop; see `loops`.
name: Final[LoopName] = "trio"

#: The errors of a channel whose other end has gone.
broken: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


async def handle(
    app: Server,
    message: Incoming,
    peer: Peer | None = None,
    *,
    send: Send = drop,
) -> Reply:
    """Answer one JSON-RPC message.

    Args:
        app: The server, inside of `running(app)`.
        message: Its JSON text, the value parsed from it, or the result of `read_message`.
        peer: The sender.
        send: Sends a notification, or a question for a legacy client, on the stream of
            this request, immediately.
    """
    found = begin(app, message, peer)
    return found if isinstance(found, Reply) else await found.finish(send)


async def obey(
    app: Server, command: Command, send: Send, peer: Peer | None = None
) -> Any:
    """Execute a command of an exchange with a client, and return its outcome."""
    match command:
        case PerformAll(wants, deadline):
            with trio.move_on_after(_seconds(left(deadline))):
                return await _perform(Performer(app, peer), wants)
            raise Overdue
        case Invoke():
            with trio.move_on_after(_seconds(left(command.deadline))):
                performer = Performer(app, peer)
                return await _call(
                    performer, job_of_invoke(command, performer.provided)
                )
            raise Overdue
        case Notify(message):
            return await send(message)
        case Ask(asking):
            return await ask_client(asking, send, Bell())
        case Outlast():
            return None  # `Begun.finish` does what it says
        case Listen(subscription):
            return await listen(app, subscription, send)


async def outlast(app: Server, work: Callable[[], Awaitable[T]]) -> T:
    """Run `work()` even if this task is cancelled, until the server shuts down."""
    token = trio.lowlevel.current_trio_token()
    with trio.CancelScope(shield=not app.changes.is_over) as scope:

        def lift() -> None:
            scope.shield = False

        def hear(change: Change) -> None:
            if change.what == "end":
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(lift)

        end = app.changes.listen(hear)
        try:
            return await work()
        finally:
            end()
    raise AssertionError("this scope is not cancelled itself")


_LOCKS: Final[trio.lowlevel.RunVar[tuple[Lock, Lock]]] = trio.lowlevel.RunVar("turns")


def _locks() -> tuple[Lock, Lock]:
    try:
        return _LOCKS.get()
    except LookupError:
        _LOCKS.set((Lock(), Lock()))
        return _LOCKS.get()


#: This loop, for long work that takes turns.
turns: Final = TurnLoop(trio.sleep, _locks)


#: Starts to answer one JSON-RPC message; finishes if that needs no waiting. See
#: `drivers.begun.begin`.
begin: Final[BeginExchange] = functools.partial(
    begun.begin, answer=answer, obey=obey, outlast=outlast, turns=turns
)


def _seconds(limit: float | None) -> float:
    return math.inf if limit is None else limit


# ---- performing ---------------------------------------------------------------------


async def _perform(
    performer: Performer, wants: tuple[Want, ...]
) -> dict[str, Done | Failure]:
    if len(wants) == 1:
        (want,) = wants  # a nursery costs more than most steps
        return {want.key: await _value(performer, want.effect, want.context)}
    outcomes: dict[str, Done | Failure] = {}

    async def one(want: Want) -> None:
        outcomes[want.key] = await _value(performer, want.effect, want.context)

    await _together([functools.partial(one, want) for want in wants])
    return outcomes


async def _together(
    tasks: Iterable[Callable[[], Awaitable[None]]],
    scope: trio.CancelScope | None = None,
) -> None:
    # Two steps that cannot be performed here would raise an exception group, but the
    # exchange expects a single error.
    errors: list[StepError] = []

    async def run(task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except StepError as exc:
            errors.append(exc)
            nursery.cancel_scope.cancel()

    with scope or nullcontext():
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(run, task)
    if errors:
        raise errors[0]


async def _value(
    performer: Performer, effect: Effect[Any], context: Context
) -> Done | Failure:
    done = at_once(effect)
    if done is not None:
        return done
    match effect:
        case Step():
            return await _call(
                performer, job_of_step(effect, context, performer.provided)
            )
        case Sleep(seconds):
            await trio.sleep(pause(seconds))
            return Done(None)
        case Within(seconds, inner):
            with trio.move_on_after(max(0.0, seconds)):
                return await _value(performer, inner, context)
            return Done(TimedOut())
        case FirstOf(effects):
            return await _first(performer, effects, context)
        case _:
            raise StepError(f"{type(effect).__name__}() cannot be performed here")


async def attempt(app: Server, want: Want) -> Done | Failure:
    """Perform an effect of a task once: its turn decides whether to try it again.

    It runs in a task of its own, in a copy of the want's context.
    """
    done = at_once(want.effect)
    if done is not None:
        return done
    assert isinstance(want.effect, Step)  # a task waits for all others
    job = job_of_step(want.effect, want.context, app.provided).once()
    return await _call(Performer(app), job, has_own_task=True)


async def _first(
    performer: Performer, effects: tuple[Effect[Any], ...], context: Context
) -> Done | Failure:
    winners: list[Done | Failure] = []
    scope = trio.CancelScope()

    async def race(position: int, effect: Effect[Any]) -> None:
        outcome = await _value(performer, effect, context)
        if isinstance(outcome, Done):
            outcome = Done((position, outcome.value))
        winners.append(outcome)
        scope.cancel()

    racing = [functools.partial(race, *one) for one in enumerate(effects)]
    await _together(racing, scope)
    return winners[0]


async def _call(
    performer: Performer, job: Job, *, has_own_task: bool = False
) -> Done | Failure:
    tried = 0
    while True:
        tried += 1
        try:
            with trio.move_on_after(_seconds(job.timeout)):
                return Done(await _once(performer, job, has_own_task))
            # Not `trio.fail_after`: its error is not a TimeoutError, and a step must fail
            # in the same way on every driver.
            raise TimeoutError(f"it took longer than {job.timeout:g} seconds")
        except LoopError:
            raise  # not an outcome
        except Exception as exc:
            if job.is_last(tried, exc):
                return Failure(exc)


async def _once(performer: Performer, job: Job, has_own_task: bool) -> Any:
    if not job.is_async:
        # Abandoned when cancelled: a thread cannot be cancelled, but its awaiting task
        # can.
        # `in_thread` would lengthen the way of every call.
        return await trio.to_thread.run_sync(
            job.fresh_context().run,
            job.call,
            abandon_on_cancel=True,
            limiter=cast(Any, _Limiter(job.function, performer.party, performer.each)),
        )
    if has_own_task:
        return await job.acall(is_cancel, name)
    # In a separate task, because only a new task can be given a context.
    outcomes: list[Any] = []

    async def run() -> None:
        try:
            outcomes.append(Done(await job.acall(is_cancel, name)))
        except Exception as exc:
            outcomes.append(Failure(exc))

    async with trio.open_nursery() as nursery:
        job.fresh_context().run(nursery.start_soon, run)
    (outcome,) = outcomes
    if isinstance(outcome, Failure):
        raise outcome.error
    return outcome.value


def is_cancel(exc: BaseException) -> bool:
    """Return whether `exc` is trio's cancellation of a task."""
    return isinstance(exc, trio.Cancelled)


# ---- waiting for clients ------------------------------------------------------------


class Bell:
    """Wakes the one task that waits for it; any thread may ring it."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._rung = trio.Event()

    def ring(self) -> None:
        """Wake the waiting task, or the next one to wait."""
        try:
            self._token.run_sync_soon(self.ring_here, idempotent=True)
        except trio.RunFinishedError:
            pass  # the loop has ended, and the waiting task with it

    def ring_here(self) -> None:
        """Do as `ring` does; only tasks of this loop may call this."""
        self._rung.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for a ring since the last wait, for at most so many seconds."""
        if seconds is None:
            await self._rung.wait()
        else:
            with trio.move_on_after(seconds):
                await self._rung.wait()
        if self._rung.is_set():
            self._rung = trio.Event()


async def listen(app: Server, subscription: Subscription | News, send: Send) -> None:
    """Send the messages of a subscription for each change, until the server shuts down.

    Args:
        app: The server.
        subscription: Selects changes, and turns them into messages.
        send: Sends a message.
    """
    await tell_changes(app, subscription, send, Bell(), _aside)


async def _aside(call: Callable[[], Any]) -> Any:
    return await in_thread(call, call, None, _ASIDE)


#: How many threads read tasks for subscriptions at once.
_ASIDE: Final = 20

_lanes: Final[trio.lowlevel.RunVar[Lanes]] = trio.lowlevel.RunVar("lanes")


async def in_thread(
    call: Callable[[], T], function: object, party: str | None, each: int
) -> T:
    """Call a function in a thread, once there is room in its lane.

    If the caller is cancelled, the thread continues, and its outcome is dropped.

    Args:
        call: The function to call.
        function: The function that the lane belongs to.
        party: The party of the client, if any.
        each: How many threads the lane has.
    """
    limiter: Any = _Limiter(function, party, each)
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)


class _Limiter(Ticket):
    """The lane of one call, as `trio.to_thread.run_sync` takes it."""

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Wait until there is room for the call."""
        started = trio.Event()
        self._lanes = _lanes_here()
        self._lanes.enter(self, started.set)
        try:
            await started.wait()
        except BaseException:
            self._lanes.leave(self)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        """Note that the thread has ended, also if its task was cancelled before."""
        self._lanes.leave(self)


def _lanes_here() -> Lanes:
    try:
        return _lanes.get()
    except LookupError:
        _lanes.set(Lanes())
        return _lanes.get()


# ---- what a transport needs of the loop ---------------------------------------------


def now() -> float:
    """Return the loop's time, in seconds from an arbitrary start."""
    return trio.current_time()


def spawn(work: Doing) -> None:
    """Run `work()` as a background task, which ends with the loop. It must not raise."""
    # In the caller's context: a host's middleware may have set context variables.
    trio.lowlevel.spawn_system_task(work, context=copy_context())


@asynccontextmanager
async def crew() -> AsyncIterator[Callable[[Doing], None]]:
    """Yield a function that starts a background task; cancel those left at the end."""
    async with trio.open_nursery() as nursery:
        yield nursery.start_soon
        nursery.cancel_scope.cancel()


async def stoppable(
    work: Callable[[], Awaitable[None]], give: Callable[[Callable[[], None]], None]
) -> None:
    """Run `work()`; pass `give` a function that cancels it."""
    with trio.CancelScope() as scope:
        give(scope.cancel)
        await work()


async def within(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work()` for at most so many seconds; return whether it finished."""
    with trio.move_on_after(seconds):
        await work()
        return True
    return False


async def unless(
    gone: Doing, work: Callable[[], Awaitable[T]], beside: Doing
) -> T | None:
    """Run `work()`; cancel it if `gone()` or `beside()` returns first.

    Args:
        gone: Returns when the client has disconnected.
        work: The work.
        beside: Runs beside the work; returns if it notices that the client has
            disconnected.

    Returns:
        The result of the work; `None` if it was cancelled.
    """

    async def watch(one: Doing) -> None:
        await one()
        nursery.cancel_scope.cancel()

    failure: Exception | None = None
    found: T | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, gone)
        nursery.start_soon(watch, beside)
        try:
            found = await work()
        except Exception as exc:
            failure = exc  # raised below: here the nursery would put it in a group
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found
