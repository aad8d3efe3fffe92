"""Run exchanges and flows in this thread, without an event loop or other threads.

perform(want)                 perform one local effect → Done | Failure
advance(run, stop)            perform effects until the run asks a question, or ends
run_flow(handler, answer=…)   run a whole flow, and answer its questions immediately
handle(app, message, peer)    answer one JSON-RPC message
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from ..canonical import JSON
from ..effects.local import Caller, CallerInfo, Sleep
from ..effects.steps import Step
from ..engine.answers import Answer, check_answer
from ..engine.journal import Journal
from ..engine.names import name_of
from ..engine.replay import Run
from ..engine.rules import SCRIPT, Rules
from ..engine.steps import step_name
from ..engine.stops import (
    Asked,
    Done,
    Failure,
    Perform,
    Question,
    Raised,
    Returned,
    Stop,
    Want,
)
from ..errors import StepError, TaskStoreError, UsageError
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
from ..exchange.handle import handle as begin
from ..exchange.sessions import Inquiry
from ..logs import logger_for
from .lanes import Performer
from .local import (
    NOTHING,
    Job,
    at_once,
    job_of_invoke,
    job_of_step,
    left,
    lifespan_of,
    opened,
    pause,
)

if TYPE_CHECKING:
    from ..exchange.subscriptions import Subscription
    from ..server.app import Server

__all__ = ["advance", "handle", "perform", "run_flow", "running", "wait_for"]

logger = logger_for("effectmcp.server")

RunAsync: TypeAlias = Callable[[Any], Any]
Send: TypeAlias = Callable[[Mapping[str, JSON]], None]
Wait: TypeAlias = Callable[[Inquiry], None]

#: The rules of `run_flow`, with all checks enabled that help to write a handler.
PLAYED: Final = attrs.evolve(SCRIPT, development=True)


def perform(
    want: Want,
    *,
    provided: Mapping[Any, Any] = NOTHING,
    run_async: RunAsync | None = None,
    caller: CallerInfo | None = None,
) -> Done | Failure:
    """Perform one local effect.

    Args:
        want: One of the wants that a run stopped with.
        provided: Values for parameters that are `= Provided()`, by name or annotation.
        run_async: Runs the coroutine of an async step, such as `asyncio.run`.
        caller: The value of a `Caller()` effect.

    Returns:
        The outcome, for `run.performed`.

    Raises:
        StepError: If this driver cannot perform the effect. This is a limit of the
            driver and not an outcome: nothing was performed, so record nothing.
    """
    done = at_once(want.effect)
    if done is not None:
        return done
    match want.effect:
        case Step() as step:
            return _step(step, want, provided, run_async)
        case Caller():
            return Done(caller or CallerInfo())
        case Sleep(seconds):
            time.sleep(pause(seconds))
            return Done(None)
        case _:
            name = type(want.effect).__name__
            raise StepError(
                f"{name}() needs a driver that can do two things at once, and this one"
                " has no event loop"
            )


def _step(
    step: Step[Any],
    want: Want,
    provided: Mapping[Any, Any],
    run_async: RunAsync | None,
) -> Done | Failure:
    job = job_of_step(step, want.context, provided)
    if job.is_async and run_async is None:
        raise StepError(
            f"{step_name(step)} is async, and this driver has no event loop. Give"
            " run_async=asyncio.run"
        )
    return _call(job, run_async)


def _call(job: Job, run_async: RunAsync | None) -> Done | Failure:
    tried = 0
    while True:
        tried += 1
        try:
            value = job.fresh_context().run(
                job.call, run_async if job.is_async else None
            )
        except Exception as exc:
            if job.is_last(tried, exc):
                return Failure(exc)
        else:
            return Done(value)


def advance(run: Run, stop: Stop, **options: Any) -> Asked | Returned | Raised:
    """Perform the wants of `run`, and wait for its timers, until it asks or ends.

    Args:
        run: The run.
        stop: The last stop of the run.
        **options: As for `perform`.
    """
    while True:
        if isinstance(stop, Perform) or (
            isinstance(stop, Asked) and stop.wants and not stop.questions
        ):
            try:
                outcomes = {want.key: perform(want, **options) for want in stop.wants}
            except BaseException:
                run.close()
                raise
            stop = run.performed(outcomes)
        elif isinstance(stop, Asked) and not stop.questions and stop.due is not None:
            time.sleep(left(stop.due) or 0)
            stop = run.answered()
        else:
            return stop


def run_flow(
    handler: Callable[..., Any],
    *args: Any,
    answer: Callable[[Question], Answer],
    rules: Rules = PLAYED,
    provided: Mapping[Any, Any] = NOTHING,
    run_async: RunAsync | None = None,
    **kwargs: Any,
) -> Any:
    """Run a whole flow in this process, and return what its handler returns.

    At each question the generator is closed, and the flow is resumed from its journal,
    as it would be in another process. So code that replay cannot repeat fails here
    already, and effects that were created but never performed cause a warning.

    Args:
        handler: The handler.
        *args: Its arguments.
        answer: Answers one question, for example by asking a person.
        rules: As for `Run`.
        provided: As for `perform`.
        run_async: As for `perform`.
        **kwargs: The handler's arguments by name.

    Raises:
        Exception: Any exception that the handler raises.
        NondeterminismError: If the handler asked something else in its replay.
        DivergenceError: If the handler did something else in its replay.
    """
    flow_id, journal = secrets.token_bytes(16), Journal()
    answers: dict[str, Answer] = {}
    while True:
        run = Run(
            handler,
            args,
            kwargs,
            flow_id=flow_id,
            journal=journal,
            rules=rules,
            clock=time.time,
        )
        stop = advance(run, run.start(answers), provided=provided, run_async=run_async)
        if isinstance(stop, Raised):
            raise stop.error
        if isinstance(stop, Returned):
            return stop.value
        journal = run.suspend()
        answers = {question.key: answer(question) for question in stop.questions}
        for given in answers.values():
            check_answer(given)


# ---- whole messages -----------------------------------------------------------------


def _drop(message: Mapping[str, JSON]) -> None:
    pass


def wait_for(asking: Inquiry) -> None:
    """Wait for the answers to questions, which arrive in another thread."""
    over = threading.Event()
    asking.listen(over.set)
    over.wait(left(asking.until))


def handle(
    app: Server,
    message: Incoming,
    peer: Peer | None = None,
    *,
    send: Send = _drop,
    run_async: RunAsync | None = None,
    wait: Wait = wait_for,
) -> Reply:
    """Answer one JSON-RPC message.

    This driver cannot interrupt a function, so it checks a feature's timeout only before
    each step, and a subscription ends as soon as it is acknowledged and the client has
    the current status of the tasks that it follows.

    Args:
        app: The server, inside of `running(app)`.
        message: Its JSON text, the value parsed from it, or the result of `read_message`.
        peer: The sender.
        send: Sends a notification, or a question for a legacy client, on the stream of
            this request, immediately.
        run_async: As for `perform`.
        wait: Waits until the inquiry `is_over`, which is once other threads have handled
            the client's answers.
    """
    exchange = begin(app, message, peer, clock=time.time, entropy=os.urandom)
    try:
        command = next(exchange)
        while True:
            try:
                outcome = _obey(app, peer, command, send, run_async, wait)
            except Exception as exc:
                if isinstance(command, (Notify, Ask, Listen)):
                    raise  # an error of the transport
                command = exchange.throw(exc)
            else:
                command = exchange.send(outcome)
    except StopIteration as end:
        reply: Reply = end.value
        return reply
    finally:
        exchange.close()


def _obey(
    app: Server,
    peer: Peer | None,
    command: Command,
    send: Send,
    run_async: RunAsync | None,
    wait: Wait,
) -> Any:
    provided = Performer(app, peer).provided
    match command:
        case PerformAll(wants, deadline):
            _check_time(deadline)
            return {
                want.key: perform(want, provided=provided, run_async=run_async)
                for want in wants
            }
        case Invoke():
            _check_time(command.deadline)
            job = job_of_invoke(command, provided)
            if job.is_async and run_async is None:
                raise StepError(
                    f"{name_of(command.function)} is async, and this driver has no event"
                    " loop. Give run_async=asyncio.run"
                )
            return _call(job, run_async)
        case Notify(message):
            return send(message)
        case Ask(asking):
            for message in asking.take_unsent():
                send(message)
            return wait(asking)
        case Outlast():
            return None  # nothing interrupts this driver
        case Listen(subscription):
            return _tell_now(subscription, send)


def _tell_now(subscription: Subscription, send: Send) -> None:
    send(subscription.acknowledgement)
    for change in subscription.first:
        try:
            message = subscription.message(change)
        except TaskStoreError as exc:
            logger.warning("a change of a task cannot be sent: %s", exc)
            return
        if message is not None:
            if subscription.tap is not None:
                subscription.tap(message)
            send(message)


def _check_time(deadline: float | None) -> None:
    if deadline is not None and time.time() > deadline:
        raise Overdue


@contextmanager
def running(app: Server) -> Iterator[None]:
    """Keep the server's lifespan open.

    Raises:
        UsageError: If the lifespan is async, as this driver has no event loop; and in the
            cases of `lifespan_of` and `opened`.
    """
    manager = lifespan_of(app)
    if not hasattr(manager, "__enter__"):
        raise UsageError(
            f"the lifespan of {app!r} is async, and here is no event loop; write it with"
            " contextlib.contextmanager, or serve on trio or asyncio"
        )
    with manager as provided, opened(app, provided):
        yield
