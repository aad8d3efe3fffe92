"""Perform what a run wants, in this thread: no event loop, no other threads.

perform(want)               one local effect → Done | Failure
advance(run, stop)          perform until there is something to ask, or the end
play(handler, *args, answer=…)   a whole flow, answered on the spot
"""

from __future__ import annotations

import datetime as dt
import random
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from .. import effects as fx
from ..effects import CallerInfo
from ..engine import (
    SCRIPT,
    Answer,
    Asked,
    Done,
    Failure,
    Journal,
    Perform,
    Question,
    Raised,
    Returned,
    Rules,
    Run,
    Stop,
    Want,
)
from ..engine.askings import check_answer
from ..engine.steps import given_names, spec_of, step_name
from ..errors import StepError

__all__ = ["advance", "perform", "play"]

_NOTHING: Mapping[Any, Any] = {}

#: In process, with everything on that helps to write a handler.
PLAYED: Final = attrs.evolve(SCRIPT, development=True)


def perform(
    want: Want,
    *,
    provided: Mapping[Any, Any] = _NOTHING,
    run_async: Callable[[Any], Any] | None = None,
    caller: CallerInfo | None = None,
) -> Done | Failure:
    """Perform one local effect.

    Args:
        want: What a run stopped with.
        provided: What fills parameters that are `= Provided()`, by name or annotation.
        run_async: Runs the coroutine of an async step, such as `asyncio.run`.
        caller: What `Caller()` gives.

    Returns:
        What to hand to `run.performed`.

    Raises:
        StepError: It cannot be performed *here*. That is the driver's affair and not an
            outcome: nothing was performed, so nothing should be recorded.
    """
    match want.effect:
        case fx.Step() as step:
            return _step(step, want, provided, run_async)
        case fx.Now():
            return Done(dt.datetime.now(dt.UTC))
        case fx.Uuid():
            return Done(uuid.uuid4())
        case fx.Random():
            return Done(random.random())
        case fx.Caller():
            return Done(caller or CallerInfo())
        case fx.Detach():
            return Done(False)
        case fx.Sleep(seconds):
            time.sleep(seconds)
            return Done(None)
        case _:
            name = type(want.effect).__name__
            raise StepError(
                f"{name}() needs a driver that can do two things at once, and this one"
                " has no event loop"
            )


def _step(
    step: fx.Step[Any],
    want: Want,
    provided: Mapping[Any, Any],
    run_async: Callable[[Any], Any] | None,
) -> Done | Failure:
    spec = spec_of(step)
    given = given_names(step)
    injected = {
        name: _provide(name, annotation, provided, step)
        for name, annotation in spec.provided.items()
        if name not in given
    }
    if spec.is_async and run_async is None:
        raise StepError(
            f"{step_name(step)} is async, and this driver has no event loop. Give"
            " run_async=asyncio.run"
        )
    tries = step.options.retries + 1
    while True:
        tries -= 1
        try:
            # A copy, so that a step cannot change the context variables of its flow.
            context = want.context.copy()
            value = context.run(step.fn, *step.args, **step.kwargs, **injected)
            if spec.is_async and run_async is not None:
                value = context.run(run_async, value)
        except Exception as exc:
            if not tries:
                return Failure(exc)
        else:
            return Done(value)


def _provide(
    name: str, annotation: Any, provided: Mapping[Any, Any], step: fx.Step[Any]
) -> Any:
    for key in (name, annotation):
        if key in provided:
            return provided[key]
    raise StepError(
        f"nothing is provided for the parameter {name!r} of {step_name(step)}: give"
        f" provided={{{name!r}: ...}}"
    )


def advance(run: Run, stop: Stop, **options: Any) -> Asked | Returned | Raised:
    """Perform whatever `run` wants until it asks, returns or raises.

    Args:
        run: The run.
        stop: What it stopped with last.
        **options: As for `perform`.
    """
    while isinstance(stop, Perform):
        try:
            outcomes = {want.key: perform(want, **options) for want in stop.wants}
        except BaseException:
            run.suspend()
            raise
        stop = run.performed(outcomes)
    return stop


def play(
    handler: Callable[..., Any],
    *args: Any,
    answer: Callable[[Question], Answer],
    rules: Rules = PLAYED,
    provided: Mapping[Any, Any] = _NOTHING,
    run_async: Callable[[Any], Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Run a whole flow in this process, and return what its handler returns.

    At each question the generator is ended, and the flow goes on from its journal, as
    it would in another process. So what replay cannot repeat shows here already, and
    effects that were built and never performed are warned about.

    Args:
        handler: The handler.
        *args: Its arguments.
        answer: Answers one question, by asking a person for example.
        rules: As for `Run`.
        provided: As for `perform`.
        run_async: As for `perform`.
        **kwargs: The handler's arguments by name.

    Raises:
        Exception: whatever the handler raises.
        NondeterminismError: The handler asked something else in its replay.
        DivergenceError: The handler did something else in its replay.
    """
    flow_id, journal = secrets.token_bytes(16), Journal()
    answers: dict[str, Answer] = {}
    while True:
        run = Run(handler, args, kwargs, flow_id=flow_id, journal=journal, rules=rules)
        stop = advance(run, run.start(answers), provided=provided, run_async=run_async)
        if isinstance(stop, Raised):
            raise stop.error
        if isinstance(stop, Returned):
            return stop.value
        journal = run.suspend()
        answers = {question.key: answer(question) for question in stop.questions}
        for given in answers.values():
            check_answer(given)
