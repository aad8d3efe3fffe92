"""Run exchanges on asyncio: steps run concurrently, blocking functions in threads.

    reply = await handle(app, message, peer, send=send)

Most hosts run asyncio: Starlette, FastAPI, the frameworks of cloud functions. Cancel
`handle()` when the client has disconnected: this suspends the flow and releases all of
it.
"""

from __future__ import annotations

import asyncio
import functools
import math
from asyncio import Event, Lock, Semaphore, sleep
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

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
from .threads import call_in_thread
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
name: Final[LoopName] = "asyncio"

#: The errors of a channel whose other end has gone.
broken: Final = (OSError,)


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
            async with _until(deadline):
                return await _perform(Performer(app, peer), wants)
        case Invoke():
            async with _until(command.deadline):
                performer = Performer(app, peer)
                return await _call(
                    performer, job_of_invoke(command, performer.provided)
                )
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
    loop = asyncio.get_running_loop()
    task = loop.create_task(_awaited(work))
    is_cancelled = False

    def hear(change: Change) -> None:
        if change.what == "end" and not loop.is_closed():
            loop.call_soon_threadsafe(give_up)

    def give_up() -> None:
        if is_cancelled:
            task.cancel()

    end = app.changes.listen(hear)
    try:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                is_cancelled = True
                if app.changes.is_over:
                    task.cancel()
        if is_cancelled:
            if not task.cancelled():
                task.exception()  # read, or asyncio would report it as lost
            raise asyncio.CancelledError
        return task.result()
    finally:
        end()


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


_LOCKS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Lock, Lock]]] = (
    WeakKeyDictionary()
)


def _locks() -> tuple[Lock, Lock]:
    return _LOCKS.setdefault(asyncio.get_running_loop(), (Lock(), Lock()))


#: This loop, for long work that takes turns.
turns: Final = TurnLoop(asyncio.sleep, _locks)


#: Starts to answer one JSON-RPC message; finishes if that needs no waiting. See
#: `drivers.begun.begin`.
begin: Final[BeginExchange] = functools.partial(
    begun.begin, answer=answer, obey=obey, outlast=outlast, turns=turns
)


@asynccontextmanager
async def _until(deadline: float | None) -> AsyncIterator[None]:
    limit = asyncio.timeout(left(deadline))
    # A TimeoutError here is our own: a TimeoutError of a step becomes an outcome.
    try:
        async with limit:
            yield
    except TimeoutError:
        raise Overdue from None


# ---- performing ---------------------------------------------------------------------


async def _perform(
    performer: Performer, wants: tuple[Want, ...]
) -> dict[str, Done | Failure]:
    if len(wants) == 1:
        (want,) = wants  # a task costs more than most steps
        return {want.key: await _value(performer, want.effect, want.context)}
    found = await _together(
        [_value(performer, want.effect, want.context) for want in wants]
    )
    return {want.key: outcome for want, outcome in zip(wants, found, strict=True)}


async def _together(running: list[Any]) -> list[Any]:
    # Not a TaskGroup, whose groups of exceptions would hide a StepError.
    tasks = [asyncio.ensure_future(one) for one in running]
    try:
        # Not `gather`, which would pass each cancellation of this task on.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done() and (error := task.exception()) is not None:
                raise error
        return [task.result() for task in tasks]
    finally:
        await _end(tasks)


async def _end(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait for all of them.

    Each is cancelled only once. A scope of anyio cancels its own task until that ends; if
    this were passed on, it would break through the shields of another task's cleanup.
    """
    for task in tasks:
        task.cancel()
    cancellation: asyncio.CancelledError | None = None
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as exc:
            cancellation = exc
    for task in tasks:
        if not task.cancelled():
            task.exception()  # read, or asyncio would report it as lost
    if cancellation is not None:
        raise cancellation


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
            await asyncio.sleep(pause(seconds))
            return Done(None)
        case Within(seconds, inner):
            # An error of the effect becomes a Failure, so a TimeoutError is our own.
            try:
                async with asyncio.timeout(seconds):
                    return await _value(performer, inner, context)
            except TimeoutError:
                return Done(TimedOut())
        case FirstOf(effects):
            return await _first(performer, effects, context)
        case _:
            raise StepError(f"{type(effect).__name__}() cannot be performed here")


async def _first(
    performer: Performer, effects: tuple[Effect[Any], ...], context: Context
) -> Done | Failure:
    tasks: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(_value(performer, effect, context)) for effect in effects
    ]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        position = min(tasks.index(task) for task in ended)
        outcome: Done | Failure = tasks[position].result()
    finally:
        await _end(tasks)
    if isinstance(outcome, Done):
        return Done((position, outcome.value))
    return outcome


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


async def _call(
    performer: Performer, job: Job, *, has_own_task: bool = False
) -> Done | Failure:
    tried = 0
    while True:
        tried += 1
        try:
            async with _within(job.timeout):
                return Done(await _once(performer, job, has_own_task))
        except LoopError:
            raise  # not an outcome
        except Exception as exc:
            if job.is_last(tried, exc):
                return Failure(exc)


@asynccontextmanager
async def _within(seconds: float | None) -> AsyncIterator[None]:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise  # a timeout of the called function
        # With the same message as in the other drivers.
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


async def _once(performer: Performer, job: Job, has_own_task: bool) -> Any:
    loop = asyncio.get_running_loop()
    if not job.is_async:
        # Abandoned when cancelled: a thread cannot be cancelled, but its awaiting task
        # can.
        call = functools.partial(job.fresh_context().run, job.call)
        return await in_thread(call, job.function, performer.party, performer.each)
    if has_own_task:
        return await job.acall(is_cancel, name)
    context = job.fresh_context()
    task = loop.create_task(job.acall(is_cancel, name), context=context)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await _end([task])
        raise
    return task.result()


def is_cancel(exc: BaseException) -> bool:
    """Return whether `exc` is asyncio's cancellation of the current task."""
    # Any code may raise a CancelledError; awaiting a cancelled task does, too.
    task = asyncio.current_task()
    assert task is not None  # only tasks call this
    return isinstance(exc, asyncio.CancelledError) and task.cancelling() > 0


# ---- waiting for clients ------------------------------------------------------------


class Bell:
    """Wakes the one task that waits for it; any thread may ring it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._is_ringing = False

    def ring(self) -> None:
        """Wake the waiting task, or the next one to wait."""
        # Without this, a thousand changes in a row would schedule a thousand callbacks.
        if self._is_ringing:
            return
        self._is_ringing = True
        try:
            self._loop.call_soon_threadsafe(self._ring)
        except RuntimeError:
            pass  # the loop has ended, and the waiting task with it

    def _ring(self) -> None:
        self._is_ringing = False
        self._rung.set()

    def ring_here(self) -> None:
        """Do as `ring` does; only tasks of this loop may call this."""
        self._rung.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for a ring since the last wait, for at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
                self._rung.clear()


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

_lanes: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Lanes]] = WeakKeyDictionary()


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
    loop = asyncio.get_running_loop()
    lanes = _lanes.get(loop)
    if lanes is None:
        lanes = _lanes[loop] = Lanes()
    started: asyncio.Future[None] = loop.create_future()

    def start() -> None:
        if not started.done():
            started.set_result(None)

    ticket = Ticket(function, party, each)
    lanes.enter(ticket, start)
    try:
        await started
        doing = call_in_thread(call)
    except BaseException:
        lanes.leave(ticket)
        raise

    def ended(doing: Future[T]) -> None:
        # The thread may outlive the loop.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lanes.leave, ticket)

    doing.add_done_callback(ended)
    return await asyncio.wrap_future(doing)


# ---- what a transport needs of the loop ---------------------------------------------


def now() -> float:
    """Return the loop's time, in seconds from an arbitrary start."""
    return asyncio.get_running_loop().time()


#: Keeps tasks alive: the loop has only weak references to them.
_spawned: set[asyncio.Task[None]] = set()


def spawn(work: Doing) -> None:
    """Run `work()` as a background task, which ends with the loop. It must not raise."""
    task = asyncio.get_running_loop().create_task(work())
    _spawned.add(task)
    task.add_done_callback(_spawned.discard)


@asynccontextmanager
async def crew() -> AsyncIterator[Callable[[Doing], None]]:
    """Yield a function that starts a background task; cancel those left at the end.

    If one fails, the block is cancelled, and the error is raised.
    """
    started: set[asyncio.Task[None]] = set()
    failures: list[BaseException] = []
    host = asyncio.current_task()
    assert host is not None
    cancellations = host.cancelling()
    is_over = False

    def start(work: Doing) -> None:
        task = asyncio.get_running_loop().create_task(work())
        started.add(task)
        task.add_done_callback(ended)

    def ended(task: asyncio.Task[None]) -> None:
        started.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failures.append(error)
            if not is_over and len(failures) == 1:
                host.cancel()

    try:
        yield start
    except asyncio.CancelledError:
        # A cancellation by other code must not be suppressed here. See asyncio.timeout.
        if not failures or host.cancelling() > cancellations + 1:
            raise
    finally:
        is_over = True
        if failures:
            host.uncancel()
        await _end(tuple(started))
    if failures:
        raise failures[0]


async def stoppable(
    work: Callable[[], Awaitable[None]], give: Callable[[Callable[[], None]], None]
) -> None:
    """Run `work()`; pass `give` a function that cancels it."""
    task = asyncio.current_task()
    assert task is not None
    cancellations = task.cancelling()
    is_stopped = is_over = False

    def stop() -> None:
        nonlocal is_stopped
        if not (is_stopped or is_over):  # `uncancel` below undoes only one
            is_stopped = True
            task.cancel()

    give(stop)
    try:
        await work()
    except asyncio.CancelledError:
        # A cancellation by other code must not be suppressed here. See asyncio.timeout.
        if not is_stopped or task.cancelling() > cancellations + 1:
            raise
    finally:
        is_over = True
        if is_stopped:
            task.uncancel()


async def within(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work()` for at most so many seconds; return whether it finished."""
    try:
        async with asyncio.timeout(None if seconds == math.inf else seconds):
            await work()
    except TimeoutError:
        return False
    return True


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
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    cancellations = task.cancelling()
    others: list[asyncio.Task[None]] = []
    is_gone = False

    async def watch(one: Doing) -> None:
        nonlocal is_gone
        await one()
        if not is_gone:  # cancel once: `uncancel` below undoes only one
            is_gone = True
            task.cancel()

    def start() -> None:
        others.extend(loop.create_task(watch(one)) for one in (gone, beside))

    # Called when the work first waits. Most work never waits, and needs no tasks.
    beginning = loop.call_soon(start)
    try:
        return await work()
    except asyncio.CancelledError:
        # A cancellation by other code must not be suppressed here. See asyncio.timeout.
        if not is_gone or task.cancelling() > cancellations + 1:
            raise
    finally:
        if is_gone:
            task.uncancel()
        beginning.cancel()
        if others:
            await _end(others)
    return None
