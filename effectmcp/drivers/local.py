"""What all drivers do alike: what to call for an effect, and with what.

Nothing here calls it: whether that is done here, in a worker thread or on a loop is the
one thing in which drivers differ (docs/internals/replay.md#s6).
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import Context, copy_context
from functools import partial
from types import GeneratorType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from attrs import frozen

from .. import effects as fx
from ..canonical import JSON
from ..engine.names import name_of
from ..engine.steps import given_names, spec_of, step_name
from ..engine.stops import Done
from ..errors import StepError, UsageError

if TYPE_CHECKING:
    from ..exchange.commands import Invoke
    from ..exchange.sessions import Inquiry, News
    from ..exchange.subscriptions import Subscription
    from ..server.app import Server
    from ..server.changes import Change

__all__ = [
    "LONGEST_SLEEP",
    "NOTHING",
    "Job",
    "Mailbox",
    "Ringing",
    "ask_client",
    "at_once",
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

#: Nothing is provided.
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})

IsCancel: TypeAlias = Callable[[BaseException], bool]


@frozen(eq=False)
class Job:
    """A function to call.

    Attributes:
        is_async: Whether to await it.
        tries: How often to try at most.
        timeout: Seconds that one try may take.
        raises: Exceptions that are answers: trying again would not change them.
    """

    _name: Callable[[], str]
    is_async: bool
    _call: Callable[[], Any]
    _context: Context
    tries: int = 1
    timeout: float | None = None
    raises: tuple[type[Exception], ...] = ()

    def is_last(self, tried: int, error: Exception) -> bool:
        """Whether `error` is the outcome, after so many tries.

        What a step declares in `raises=` is never retried (docs/internals/replay.md#s2b).
        """
        return tried >= self.tries or isinstance(error, self.raises)

    def call(self, run_async: Callable[[Any], Any] | None = None) -> Any:
        """Call it where it may block. Nothing comes out that would end more than this.

        Args:
            run_async: Runs the coroutine where `is_async`.
        """
        try:
            value = self._call()
            return value if run_async is None else run_async(value)
        except BaseException as exc:
            contain(exc, self._name(), is_never)
            raise

    async def acall(self, is_cancel: IsCancel) -> Any:
        """Await it on a loop, likewise.

        Args:
            is_cancel: Whether an exception is how this loop ends a task.
        """
        try:
            return await self._call()
        except BaseException as exc:
            contain(exc, self._name(), is_cancel)
            raise

    def fresh_context(self) -> Context:
        """A context to call it in: a copy for each try.

        So it cannot change the context variables of its flow; and a try that was given
        up in a worker thread is still inside of its own.
        """
        return self._context.copy()


def at_once(effect: fx.Effect[Any]) -> Done | None:
    """What an effect gives that nobody waits for; `None` for the others."""
    match effect:
        case fx.Now():
            return Done(dt.datetime.now(dt.UTC))
        case fx.Uuid():
            return Done(uuid.uuid4())
        case fx.Random():
            return Done(random.random())
        case fx.Detach():
            return Done(False)
        case _:
            return None


def job_of_step(
    step: fx.Step[Any], context: Context, provided: Mapping[Any, Any]
) -> Job:
    """The call that a step stands for.

    Raises:
        StepError: Nothing is provided for one of its parameters.
    """
    spec = spec_of(step)
    given = given_names(step)
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
        spec.is_async,
        call,
        context,
        tries=step.options.retries + 1,
        timeout=step.options.timeout,
        raises=step.options.raises,
    )


def job_of_invoke(command: Invoke, provided: Mapping[Any, Any]) -> Job:
    """The call that a plain function stands for.

    Raises:
        StepError: Nothing is provided for one of its parameters.
    """
    function, name = command.function, partial(name_of, command.function)
    kwargs = command.kwargs
    if command.provided:
        kwargs = dict(kwargs)
        for key, annotation in command.provided.items():
            of = f"the parameter {key!r} of {name()}"
            kwargs[key] = _provide(key, annotation, provided, of)
    return Job(name, command.is_async, partial(function, **kwargs), copy_context())


def contain(exc: BaseException, name: str, is_cancel: IsCancel) -> None:
    """Raise something in place of what would end more than the call that raised it.

    `sys.exit()` in one tool is not to end a server with all its clients, and a future
    refuses a `StopIteration`. Cancellation, where it is one, and Ctrl-C pass.
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
    """Say that no exception ends a task: here are none."""
    return False


#: Inline, a client waits meanwhile; longer pauses are for tasks.
LONGEST_SLEEP: Final = 300.0


def pause(seconds: float) -> float:
    """How long to sleep inline.

    Raises:
        StepError: Too long for a client that waits.
    """
    if seconds > LONGEST_SLEEP:
        raise StepError(
            f"Sleep({seconds:g}) would keep the client waiting; inline it is at most"
            f" {LONGEST_SLEEP:g} seconds"
        )
    return max(0.0, seconds)  # a time that has passed


def _provide(name: str, annotation: Any, provided: Mapping[Any, Any], what: str) -> Any:
    if name in provided:
        return provided[name]
    try:
        if annotation in provided:
            return provided[annotation]
    except TypeError:
        pass  # Annotated[..., {}] has no hash, so nothing is provided under it
    raise StepError(
        f"nothing is provided for {what}: let the server's lifespan give {{{name!r}: ...}},"
        f" or the driver provided={{{name!r}: ...}}"
    )


class Mailbox:
    """What a subscription has to send, and not sent yet.

    A change that waits is not noted twice, so a client that reads slowly costs no more
    than one entry for each thing it asked to hear of.

    Args:
        subscription: The subscription.
        wake: Called, in whatever thread a change comes from, when there is news.
    """

    def __init__(
        self, subscription: Subscription | News, wake: Callable[[], None]
    ) -> None:
        self.subscription = subscription
        self.is_over = False
        self._lock = threading.Lock()
        self._waiting: dict[Change, None] = {}
        self._wake = wake

    def hear(self, change: Change) -> None:
        """Note a change."""
        if change.what == "end":
            self.is_over = True
        elif not self.subscription.wants(change):
            return
        else:
            with self._lock:
                self._waiting[change] = None
        self._wake()

    def take(self) -> list[dict[str, JSON]]:
        """The messages to send now."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        return [self.subscription.message(change) for change in waiting]


class Ringing(Protocol):
    """A driver's `Bell`: wakes the task that waits for it, from whatever thread."""

    def ring(self) -> None:
        """Wake who waits, or will wait next."""

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until it was rung since the last time. Look around afterwards.

        Args:
            seconds: How long at most.
        """


Send: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[None]]


#: Seconds that any clock can wait for at once. Locks and sleeps refuse 292 years.
_FOREVER: Final = 1e9


def left(until: float | None) -> float | None:
    """Seconds until a time, 0 if it has passed; `None` where there is none."""
    return None if until is None else min(max(0.0, until - time.time()), _FOREVER)


async def ask_client(asking: Inquiry, send: Send, bell: Ringing) -> None:
    """Send questions, and wait until they are answered, or nobody will, or time is up."""
    asking.listen(bell.ring)
    for message in asking.messages.values():
        await send(message)
    while not asking.is_over and left(asking.until) != 0.0:
        await bell.wait(left(asking.until))


async def tell_changes(
    app: Server, subscription: Subscription | News, send: Send, bell: Ringing
) -> None:
    """Send what a subscription makes of every change, until the server shuts down."""
    mailbox = Mailbox(subscription, bell.ring)
    end = app.changes.listen(mailbox.hear)
    try:
        if subscription.acknowledgement is not None:
            await send(subscription.acknowledgement)
        while True:
            is_over = mailbox.is_over  # before the last look, so that nothing is missed
            for message in mailbox.take():
                await send(message)
            if is_over:
                return
            await bell.wait()
    finally:
        end()


@asynccontextmanager
async def running(app: Server) -> AsyncIterator[None]:
    """Keep the server's lifespan open, on whichever loop this runs.

    Raises:
        UsageError: It is no context manager, or does not yield what one can look things
            up in.
    """
    manager = lifespan_of(app)
    if not hasattr(manager, "__aenter__"):
        # As a WSGI host wants it, and whoever wrote it for one has other ways to serve.
        with manager as provided, opened(app, provided):
            yield
        return
    async with manager as provided:
        with opened(app, provided):
            yield


def lifespan_of(app: Server) -> Any:
    """The context manager that the server's lifespan is, of either kind.

    Raises:
        UsageError: It is neither.
    """
    manager = nullcontext() if app.lifespan is None else app.lifespan(app)
    if not hasattr(manager, "__enter__") and not hasattr(manager, "__aenter__"):
        is_plain = isinstance(manager, GeneratorType)
        missing = "contextmanager" if is_plain else "asynccontextmanager"
        raise UsageError(
            f"the lifespan of {app!r} gives {manager!r}, which is no context manager; is"
            f" @{missing} (of contextlib) missing above it?"
        )
    return manager


@contextmanager
def opened(app: Server, provided: Mapping[Any, Any] | None) -> Iterator[None]:
    """Give `app` what its lifespan provides, while that is open."""
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
