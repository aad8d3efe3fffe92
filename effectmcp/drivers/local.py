"""Shared by all drivers: the function to call for an effect, and its arguments.

Nothing here calls that function. Drivers differ only in where they do it: in the calling
thread, in a worker thread or on a loop (docs/internals/replay.md#s6).
"""

from __future__ import annotations

import datetime as dt
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from contextvars import Context, copy_context
from functools import partial
from types import GeneratorType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs
from attrs import frozen

from ..canonical import JSON
from ..effects.base import Effect
from ..effects.control import Detach
from ..effects.local import Now, Random, Uuid
from ..effects.steps import Step
from ..engine.names import name_of
from ..engine.steps import given_names, spec_of, step_name
from ..engine.stops import Done
from ..errors import StepError, TaskStoreError, UsageError
from ..logs import logger_for
from ..server.identity import seconds_of_stream
from .wrong_loops import check_loop, loop_error, opening, running_name

if TYPE_CHECKING:
    from ..exchange.commands import Invoke
    from ..exchange.sessions import Inquiry, News
    from ..exchange.subscriptions import Subscription
    from ..server.app import Server
    from ..server.changes import Change
    from ..server.loop_name import LoopName

__all__ = [
    "FUNCTIONS",
    "LONGEST_SLEEP",
    "NOTHING",
    "Job",
    "Mailbox",
    "Ringing",
    "ask_client",
    "at_once",
    "check_open",
    "contain",
    "is_never",
    "job_of_invoke",
    "job_of_step",
    "left",
    "lifespan_of",
    "opened",
    "pause",
    "running",
    "tell_changes",
]

logger = logger_for("effectmcp.server")

#: The provided values of a server whose lifespan provides nothing.
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})

IsCancel: TypeAlias = Callable[[BaseException], bool]


@frozen(eq=False)
class Job:
    """A function to call.

    Attributes:
        function: The function that its author gave.
        is_async: Whether to await it.
        tries: The maximum number of tries.
        timeout: Seconds that one try may take; `None` for no limit.
        raises: Exceptions that are expected outcomes: another try would not change them.
    """

    _name: Callable[[], str]
    function: object
    is_async: bool
    _call: Callable[[], Any]
    _context: Context
    tries: int = 1
    timeout: float | None = None
    raises: tuple[type[Exception], ...] = ()

    def once(self) -> Job:
        """Return this job, to be tried only once."""
        if self.tries == 1:
            return self
        job: Job = attrs.evolve(self, tries=1)
        return job

    def is_last(self, tried: int, error: Exception) -> bool:
        """Return whether `error` is the outcome, after so many tries.

        An exception that a step declares in `raises=` is never retried
        (docs/internals/replay.md#s2b).
        """
        return tried >= self.tries or isinstance(error, self.raises)

    def call(self, run_async: Callable[[Any], Any] | None = None) -> Any:
        """Call the function in a place where it may block.

        Exceptions that would end more than this call are replaced; see `contain`.

        Args:
            run_async: Runs the coroutine that the function returns, if `is_async`.
        """
        try:
            value = self._call()
            return value if run_async is None else run_async(value)
        except BaseException as exc:
            contain(exc, self._name(), is_never)
            raise

    async def acall(self, is_cancel: IsCancel, runs: LoopName) -> Any:
        """Call the function and await its result, with the exceptions of `call`.

        Args:
            is_cancel: Returns whether an exception is this loop's cancellation of a task.
            runs: The loop that runs.

        Raises:
            LoopError: If a library needs another loop. Nothing is recorded.
        """
        try:
            return await self._call()
        except BaseException as exc:
            contain(exc, self._name(), is_cancel)
            wrong = loop_error(exc, self._name(), runs)
            if wrong is not None:
                raise wrong from exc
            raise

    def fresh_context(self) -> Context:
        """Return a new copy of the context, for one try.

        So the function cannot change the context variables of its flow; and a try that
        was abandoned in a worker thread keeps its own copy.
        """
        return self._context.copy()


#: The functions that perform the effects of the kind "function". They look up what they
#: call, as tests replace the clock and the like.
FUNCTIONS: Final[Mapping[type[Effect[Any]], Callable[[], Any]]] = {
    Now: lambda: dt.datetime.now(dt.UTC),
    Uuid: lambda: uuid.uuid4(),
    Random: lambda: random.random(),
    Detach: bool,  # False; the exchange of a server with tasks never asks for it
}


def at_once(effect: Effect[Any]) -> Done | None:
    """Return the outcome of an effect that needs no waiting; `None` for other effects."""
    function = FUNCTIONS.get(type(effect))
    return None if function is None else Done(function())


def job_of_step(step: Step[Any], context: Context, provided: Mapping[Any, Any]) -> Job:
    """Return the call that performs a step.

    Raises:
        StepError: If nothing is provided for one of its parameters.
    """
    spec = spec_of(step)
    given = given_names(step) if spec.provided else set()
    injected = {
        name: _provide(
            name, annotation, provided, f"the parameter {name!r} of {step_name(step)}"
        )
        for name, annotation in spec.provided.items()
        if name not in given
    }

    def call() -> Any:
        return step.fn(*step.args, **step.kwargs, **injected)

    return Job(
        partial(step_name, step),
        step.fn,
        spec.is_async,
        call,
        context,
        tries=step.options.retries + 1,
        timeout=step.options.timeout,
        raises=step.options.raises,
    )


def job_of_invoke(command: Invoke, provided: Mapping[Any, Any]) -> Job:
    """Return the call of a feature that is a plain function.

    Raises:
        StepError: If nothing is provided for one of its parameters.
    """
    function, name = command.function, partial(name_of, command.function)
    kwargs = command.kwargs
    if command.provided:
        kwargs = dict(kwargs)
        for key, annotation in command.provided.items():
            of = f"the parameter {key!r} of {name()}"
            kwargs[key] = _provide(key, annotation, provided, of)
    call = partial(function, **kwargs)
    variables = command.variables or copy_context()
    return Job(name, function, command.is_async, call, variables)


def contain(exc: BaseException, name: str, is_cancel: IsCancel) -> None:
    """Raise a `RuntimeError` if `exc` would end more than the call that raised it.

    `sys.exit()` in one tool must not end a server with all its clients, and a future
    refuses a `StopIteration`. The loop's own cancellation and Ctrl-C are left as they
    are.
    """
    if isinstance(exc, Exception) and not isinstance(exc, StopIteration):
        return
    if isinstance(exc, BaseExceptionGroup):
        passing = exc.subgroup(lambda one: _is_interrupt(one) or is_cancel(one))
        if passing is not None:
            raise passing
    elif _is_interrupt(exc) or is_cancel(exc):
        return
    raise RuntimeError(f"{name} raised {exc!r}") from exc


def _is_interrupt(exc: BaseException) -> bool:
    return isinstance(exc, KeyboardInterrupt)


def is_never(exc: BaseException) -> bool:
    """Return False: without a loop, no exception is a cancellation."""
    return False


#: In seconds. The client waits during an inline sleep; longer pauses are for tasks.
LONGEST_SLEEP: Final = 300.0


def pause(seconds: float) -> float:
    """Return how many seconds to sleep inline.

    Raises:
        StepError: If that is too long for a client that waits.
    """
    if seconds > LONGEST_SLEEP:
        raise StepError(
            f"Sleep({seconds:g}) would keep the client waiting; inline it is at most"
            f" {LONGEST_SLEEP:g} seconds"
        )
    return max(0.0, seconds)  # negative if the time has passed


def _provide(name: str, annotation: Any, provided: Mapping[Any, Any], what: str) -> Any:
    if name in provided:
        return provided[name]
    try:
        if annotation in provided:
            return provided[annotation]
    except TypeError:
        pass  # Annotated[..., {}] is not hashable, so it cannot be a key of `provided`
    raise StepError(
        f"nothing is provided for {what}: let the server's lifespan give {{{name!r}: ...}},"
        f" or the driver provided={{{name!r}: ...}}"
    )


#: Tasks that are read for one subscription before their messages are sent.
_READ_AT_ONCE: Final = 16
#: Seconds until tasks that could not be read are read again.
_PAUSE: Final = 1.0


class Mailbox:
    """The changes that a subscription has not sent yet.

    A pending change is stored once, so a client that reads slowly costs no more than one
    item for each thing that it subscribed to.

    Args:
        subscription: The subscription.
        wake: Called after a change or at the end, in the thread that published it.
    """

    def __init__(
        self, subscription: Subscription | News, wake: Callable[[], None]
    ) -> None:
        self.subscription = subscription
        self.is_over = False
        # Threads share it without a lock: each access is one operation of the dict.
        self._waiting: dict[Change, None] = {}
        self._wake = wake

    def hear(self, change: Change) -> None:
        """Store a change that the subscription covers, or the end; then call `wake`."""
        if change.what == "end":
            self.is_over = True
        elif not self.subscription.wants(change):
            return
        else:
            self._waiting[change] = None
        self._wake()

    def take(self) -> list[dict[str, JSON]]:
        """Remove the pending changes, and return their messages.

        Of tasks, some are returned at a time: each message may hold a whole result.

        Raises:
            TaskStoreError: If a task cannot be read; then all changes stay.
        """
        waiting = list(self._waiting)
        if self.subscription.is_read:
            waiting = waiting[:_READ_AT_ONCE]
        for change in waiting:
            # If it happened again meanwhile, the message below covers that, too.
            self._waiting.pop(change, None)
        try:
            messages = [self.subscription.message(change) for change in waiting]
        except TaskStoreError:
            self._waiting |= dict.fromkeys(waiting)
            raise
        found = [one for one in messages if one is not None]
        if self.subscription.tap is not None:
            for one in found:
                self.subscription.tap(one)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether no change is pending."""
        return not self._waiting


class Ringing(Protocol):
    """Interface of a driver's `Bell`, which wakes the task that waits for it."""

    def ring(self) -> None:
        """Wake the waiting task, or the next one to wait. Any thread may call this."""

    def ring_here(self) -> None:
        """Ring from a task of the same loop, without a wake-up of its thread."""

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for a ring since the last wait. Check again afterwards what has changed.

        Args:
            seconds: The longest time to wait; `None` for no limit.
        """


Send: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[None]]


#: Seconds that every lock and sleep accepts. They refuse 292 years.
_FOREVER: Final = 1e9


def left(until: float | None) -> float | None:
    """Return the seconds until a time, 0 if it has passed; `None` for `None`."""
    return None if until is None else min(max(0.0, until - time.time()), _FOREVER)


async def ask_client(asking: Inquiry, send: Send, bell: Ringing) -> None:
    """Send questions; wait until they are answered or cancelled, or until a deadline."""
    asking.listen(bell.ring)
    for message in asking.take_unsent():
        await send(message)
    while not asking.is_over and left(asking.until) != 0.0:
        await bell.wait(left(asking.until))


#: Calls a function that may block in a worker thread.
Aside: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]


async def tell_changes(
    app: Server,
    subscription: Subscription | News,
    send: Send,
    bell: Ringing,
    aside: Aside,
) -> None:
    """Send the messages of a subscription for each change.

    It ends when the server shuts down, or when the client has to log in again.

    Args:
        app: The server.
        subscription: Selects changes, and turns them into messages.
        send: Sends a message.
        bell: Wakes this task.
        aside: Calls a function that may block.
    """
    mailbox = Mailbox(subscription, bell.ring)
    end = app.changes.listen(mailbox.hear)
    for change in subscription.first:
        mailbox.hear(change)
    until, identity = None, subscription.identity
    if identity is not None:
        until = time.monotonic() + seconds_of_stream(identity, time.time())
    try:
        if subscription.acknowledgement is not None:
            await send(subscription.acknowledgement)
        while True:
            is_over = mailbox.is_over  # read before `take()`, so that nothing is missed
            pause = None
            try:
                messages = (
                    await aside(mailbox.take)
                    if subscription.is_read
                    else mailbox.take()
                )
            except TaskStoreError as exc:
                logger.warning("a change of a task cannot be sent yet: %s", exc)
                messages, pause = [], _PAUSE
            for message in messages:
                await send(message)
            if is_over and (mailbox.is_empty or pause is not None):
                return
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            if mailbox.is_empty or pause is not None:
                waits = [one for one in (pause, left) if one is not None]
                await bell.wait(min(waits, default=None))
    finally:
        end()


@asynccontextmanager
async def running(app: Server) -> AsyncIterator[None]:
    """Keep the server's lifespan open, on trio or asyncio.

    Raises:
        UsageError: If the lifespan is not a context manager, or yields neither a mapping
            nor `None`.
        LoopError: If the server, or its lifespan, needs another loop.
    """
    runs = running_name()
    assert runs is not None  # this is async
    check_loop(app, runs)
    manager = lifespan_of(app)
    if not hasattr(manager, "__aenter__"):
        # A lifespan written for a WSGI host also works here.
        with manager as provided, opened(app, provided):
            yield
        return
    async with AsyncExitStack() as stack:
        with opening(f"the lifespan of {app!r}", runs):
            provided = await stack.enter_async_context(manager)
        with opened(app, provided):
            yield


def lifespan_of(app: Server) -> Any:
    """Return the context manager of the server's lifespan, a plain or an async one.

    Raises:
        UsageError: If the lifespan function returns neither.
    """
    manager = nullcontext() if app.lifespan is None else app.lifespan(app)
    if not hasattr(manager, "__enter__") and not hasattr(manager, "__aenter__"):
        is_plain = isinstance(manager, GeneratorType)
        missing = "contextmanager" if is_plain else "asynccontextmanager"
        raise UsageError(
            f"the lifespan of {app!r} returned {manager!r}, not a context manager;"
            f" decorate it with @{missing}, of contextlib"
        )
    return manager


@contextmanager
def opened(app: Server, provided: Mapping[Any, Any] | None) -> Iterator[None]:
    """Set `app.provided` to the value that its lifespan yielded, for as long as it is open.

    Raises:
        UsageError: If that value is neither a mapping nor `None`.
    """
    if provided is not None and not isinstance(provided, Mapping):
        raise UsageError(
            f"the lifespan of {app!r} yields {provided!r}; yield a dict, and steps find"
            " in it what they take: {'db': db}"
        )
    app.provided = NOTHING if provided is None else provided
    app.changes.is_over = False
    app.is_running = True
    try:
        yield
    finally:
        app.is_running = False
        app.provided = NOTHING


def check_open(app: Server) -> None:
    """Check that the host has opened the lifespan of `app`.

    Raises:
        UsageError: If it has not; the message contains the line to write.
    """
    if app.lifespan is not None and not app.is_running:
        raise UsageError(
            f"the lifespan of {app!r} is not open: mounted applications are"
            " not notified when their host starts and stops. In the host's own lifespan"
            " write `async with effectmcp.drivers.local.running(app): yield`"
        )
