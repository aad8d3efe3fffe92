"""What all drivers do alike: what to call for an effect, and with what.

Nothing here calls it: whether that is done here, in a worker thread or on a loop is the
one thing in which drivers differ.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from types import MappingProxyType
from typing import Any, Final

from attrs import frozen

from .. import effects as fx
from ..canonical import JSON
from ..engine import Done
from ..engine.steps import given_names, spec_of, step_name
from ..engine.turn import name_of
from ..errors import StepError
from ..exchange.commands import Invoke
from ..exchange.subscriptions import Subscription
from ..server import Change, Server

__all__ = [
    "NOTHING",
    "Job",
    "Mailbox",
    "at_once",
    "job_of_invoke",
    "job_of_step",
    "opened",
    "running",
]

#: Nothing is provided.
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@frozen(eq=False)
class Job:
    """A function to call.

    Attributes:
        call: Takes nothing; gives a coroutine where `is_async`.
        is_async: Whether to await it.
        tries: How often, until it does not raise.
        timeout: Seconds that one try may take.
    """

    call: Callable[[], Any]
    is_async: bool
    _context: Context
    tries: int = 1
    timeout: float | None = None

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
        call,
        spec.is_async,
        context,
        tries=step.options.retries + 1,
        timeout=step.options.timeout,
    )


def job_of_invoke(command: Invoke, provided: Mapping[Any, Any]) -> Job:
    """The call that a plain function stands for.

    Raises:
        StepError: Nothing is provided for one of its parameters.
    """
    name = name_of(command.function)
    injected = {
        key: _provide(key, annotation, provided, f"the parameter {key!r} of {name}")
        for key, annotation in command.provided.items()
    }

    def call() -> Any:
        return command.function(**command.kwargs, **injected)

    return Job(call, command.is_async, copy_context())


def _provide(name: str, annotation: Any, provided: Mapping[Any, Any], what: str) -> Any:
    for key in (name, annotation):
        if key in provided:
            return provided[key]
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

    def __init__(self, subscription: Subscription, wake: Callable[[], None]) -> None:
        self.subscription = subscription
        self.is_over = False
        self._lock = threading.Lock()
        self._waiting: dict[Change, None] = {}
        self._wake = wake

    def hear(self, change: Change) -> None:
        """Note a change."""
        if change.what == "end":
            self.is_over = True
        elif self.subscription.message(change) is None:
            return
        else:
            with self._lock:
                self._waiting[change] = None
        self._wake()

    def take(self) -> list[dict[str, JSON]]:
        """The messages to send now."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        taken = [self.subscription.message(change) for change in waiting]
        return [message for message in taken if message is not None]


@asynccontextmanager
async def running(app: Server) -> AsyncIterator[None]:
    """Keep the server's lifespan open, on whichever loop this runs."""
    if app.lifespan is None:
        with opened(app, None):
            yield
        return
    async with app.lifespan(app) as provided:
        with opened(app, provided):
            yield


@contextmanager
def opened(app: Server, provided: Mapping[Any, Any] | None) -> Iterator[None]:
    """Give `app` what its lifespan provides, while that is open."""
    app.provided = NOTHING if provided is None else provided
    app.changes.is_over = False
    app.is_running = True
    try:
        yield
    finally:
        app.is_running = False
        app.provided = NOTHING
