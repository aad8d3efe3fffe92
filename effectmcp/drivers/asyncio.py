"""Do what exchanges ask for on asyncio: steps side by side, blocking ones in threads.

    reply = await handle(app, message, peer, send=send)

Most hosts run asyncio: Starlette, FastAPI, the frameworks of cloud functions. Cancel it
when the client is gone: the flow is suspended then, and nothing of it is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from .. import effects as fx
from ..effects import TimedOut
from ..engine.stops import Done, Failure, Want
from ..errors import StepError
from ..exchange.commands import (
    Ask,
    Command,
    Incoming,
    Invoke,
    Listen,
    Notify,
    Overdue,
    Peer,
    PerformAll,
    Reply,
)
from . import begun
from .begun import Begun, Send, drop
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

if TYPE_CHECKING:
    from ..exchange.sessions import News
    from ..exchange.subscriptions import Subscription
    from ..server.app import Server

__all__ = ["Bell", "begin", "handle", "is_cancel", "listen", "obey", "running"]


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
        message: Its text, what a JSON reader made of it, or what `read_message` did.
        peer: Who sent it.
        send: Sends a notification, or a question for a client that shook hands, on the
            stream of this request, at once.
    """
    found = begin(app, message, peer)
    return found if isinstance(found, Reply) else await found.finish(send)


def begin(
    app: Server,
    message: Incoming,
    peer: Peer | None = None,
) -> Reply | Begun:
    """Answer one JSON-RPC message, as far as that goes without waiting.

    Args:
        app: The server, inside of `running(app)`.
        message: Its text, what a JSON reader made of it, or what `read_message` did.
        peer: Who sent it.

    Returns:
        The answer, or what has to be finished.
    """
    return begun.begin(app, message, peer, obey)


async def obey(app: Server, command: Command, send: Send) -> Any:
    """Do what an exchange asks for."""
    match command:
        case PerformAll(wants, deadline):
            async with _until(deadline):
                return await _perform(app, wants)
        case Invoke():
            async with _until(command.deadline):
                return await _call(job_of_invoke(command, app.provided))
        case Notify(message):
            return await send(message)
        case Ask(asking):
            return await ask_client(asking, send, Bell())
        case Listen(subscription):
            return await listen(app, subscription, send)


@asynccontextmanager
async def _until(deadline: float | None) -> AsyncIterator[None]:
    limit = asyncio.timeout(left(deadline))
    # What is called raises nothing: its TimeoutErrors are outcomes.
    try:
        async with limit:
            yield
    except TimeoutError:
        raise Overdue from None


# ---- performing ---------------------------------------------------------------------


async def _perform(app: Server, wants: tuple[Want, ...]) -> dict[str, Done | Failure]:
    if len(wants) == 1:
        (want,) = wants  # a task costs more than most steps
        return {want.key: await _value(app, want.effect, want.context)}
    found = await _together([_value(app, want.effect, want.context) for want in wants])
    return {want.key: outcome for want, outcome in zip(wants, found, strict=True)}


async def _together(running: list[Any]) -> list[Any]:
    # Not a TaskGroup, whose groups of exceptions would hide a StepError.
    tasks = [asyncio.ensure_future(one) for one in running]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await _end(tasks)


async def _end(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _value(
    app: Server, effect: fx.Effect[Any], context: Context
) -> Done | Failure:
    done = at_once(effect)
    if done is not None:
        return done
    match effect:
        case fx.Step():
            return await _call(job_of_step(effect, context, app.provided))
        case fx.Sleep(seconds):
            await asyncio.sleep(pause(seconds))
            return Done(None)
        case fx.Within(seconds, inner):
            # What the effect itself raises is a Failure, so this is our own clock.
            try:
                async with asyncio.timeout(seconds):
                    return await _value(app, inner, context)
            except TimeoutError:
                return Done(TimedOut())
        case fx.FirstOf(effects):
            return await _first(app, effects, context)
        case _:
            raise StepError(f"{type(effect).__name__}() is nothing to perform here")


async def _first(
    app: Server, effects: tuple[fx.Effect[Any], ...], context: Context
) -> Done | Failure:
    tasks: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(_value(app, effect, context)) for effect in effects
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


async def _call(job: Job) -> Done | Failure:
    tried = 0
    while True:
        tried += 1
        try:
            async with _within(job.timeout):
                return Done(await _once(job))
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
            raise  # what was called has limits of its own
        # In the words of the other drivers: steps look alike on each.
        raise TimeoutError(f"it took longer than {seconds:g} seconds") from None


async def _once(job: Job) -> Any:
    loop = asyncio.get_running_loop()
    if not job.is_async:
        # Abandoned when cancelled: a thread cannot be stopped, and who waits for it may.
        return await loop.run_in_executor(None, job.fresh_context().run, job.call)
    context = job.fresh_context()
    return await loop.create_task(job.acall(is_cancel), context=context)


def is_cancel(exc: BaseException) -> bool:
    """Whether this is how asyncio ends the task that runs."""
    # Anybody may raise a CancelledError, and awaiting what was cancelled does.
    task = asyncio.current_task()
    assert task is not None  # called by one
    return isinstance(exc, asyncio.CancelledError) and task.cancelling() > 0


# ---- waiting for clients ------------------------------------------------------------


class Bell:
    """Wakes the task that waits for it, from whatever thread it is rung in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._is_ringing = False

    def ring(self) -> None:
        """Wake who waits, or will wait next."""
        # A thousand changes in a row are one thing to wake up for.
        if self._is_ringing:
            return
        self._is_ringing = True
        try:
            self._loop.call_soon_threadsafe(self._ring)
        except RuntimeError:
            pass  # the loop is gone, and so is whoever waited

    def _ring(self) -> None:
        self._is_ringing = False
        self._rung.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until it was rung since the last time, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
                self._rung.clear()


async def listen(app: Server, subscription: Subscription | News, send: Send) -> None:
    """Send what a subscription makes of every change, until the server shuts down.

    Args:
        app: The server.
        subscription: What to tell of.
        send: Sends a message.
    """
    await tell_changes(app, subscription, send, Bell())
