"""Plain functions that many tests use: ways of playing a handler to its end.

Everything here is a stand-in, in memory, for what a server, a session of an older client
or a task store does. `WAYS` are the four ways that an answer can arrive.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from effectmcp import (
    Accepted,
    Caller,
    CallerInfo,
    Confirm,
    Detach,
    Effect,
    Elicit,
    ElicitUrl,
    ListRoots,
    Now,
    Random,
    Sample,
    Sleep,
    Step,
    Uuid,
)
from effectmcp.engine import (
    LIVE,
    RETRY,
    SCRIPT,
    TASK,
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
from effectmcp.engine.steps import spec_of
from effectmcp.server.target import load_app

FLOW_ID = b"a flow of a test"
assert len(FLOW_ID) == 16

Answerer = Callable[[Question], Answer | None]

#: By retry, without the caps that only that way has.
UNCAPPED = attrs.evolve(RETRY, rounds=None, state_rounds=None)


def perform(want: Want) -> Done | Failure:
    """Perform a local effect with a fixed clock and a fixed random number."""
    match want.effect:
        case Step() as step:
            try:
                value = step.fn(*step.args, **step.kwargs)
                if spec_of(step).is_async:
                    value = finish(value)
            except Exception as exc:
                return Failure(exc)
            return Done(value)
        case Now():
            return Done(dt.datetime(2026, 7, 28, 12, 30, tzinfo=dt.UTC))
        case Uuid():
            return Done(uuid.UUID(int=7))
        case Random():
            return Done(0.25)
        case Caller():
            return Done(CallerInfo(principal="ann"))
        case Detach():
            return Done(False)
        case Sleep():
            return Done(None)
        case other:
            raise AssertionError(f"nothing here performs {other!r}")


def shown(value: object) -> str:
    """`repr`, alike in every process: tests are named by it, and run in several."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def finish(coroutine: Any) -> Any:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits for something")


def advance(
    run: Run, stop: Stop, perform: Callable[[Want], Done | Failure] = perform
) -> Asked | Returned | Raised:
    """Perform until there is something to ask, or the end."""
    while isinstance(stop, Perform):
        stop = run.performed({want.key: perform(want) for want in stop.wants})
    return stop


def yes(question: Question) -> Answer:
    """An obliging client: accepts everything with the simplest content."""
    match question.effect:
        case Elicit() as elicit:
            return Accepted(simplest(elicit.spec.schema))
        case Confirm() | ElicitUrl():
            return Accepted(None)
        case Sample():
            content = {"type": "text", "text": "a text"}
            return Accepted({"role": "assistant", "content": content, "model": "m"})
        case ListRoots():
            return Accepted({"roots": [{"uri": "file:///home", "name": "home"}]})
        case other:
            raise AssertionError(f"no answer for {other!r}")


def simplest(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The simplest content that a form's schema admits, required fields only."""
    required = schema.get("required", [])
    properties = schema["properties"]
    return {name: _simplest(properties[name]) for name in required}


def _simplest(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    if "oneOf" in schema:
        return schema["oneOf"][0]["const"]
    match schema["type"]:
        case "string":
            formats = {
                "date": "2026-07-28",
                "date-time": "2026-07-28T09:30:00Z",
                "email": "ann@example.com",
                "uri": "https://example.com",
            }
            text = formats.get(schema.get("format", ""), "text")
            return text.ljust(schema.get("minLength", 0), "x")
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            items = schema["items"]
            choices = items.get("enum") or [one["const"] for one in items["anyOf"]]
            return [choices[0]] * schema.get("minItems", 0)


def answers_to(asked: Asked, answer: Answerer) -> dict[str, Answer]:
    """The replies of `answer` to the questions; `None` leaves one out."""
    said = {question.key: answer(question) for question in asked.questions}
    return {key: value for key, value in said.items() if value is not None}


# ---- the four ways ------------------------------------------------------------------


def by_retry(
    handler: Callable[..., Any],
    *args: Any,
    answer: Answerer = yes,
    rules: Rules = UNCAPPED,
    journal: Journal | None = None,
    **options: Any,
) -> Returned | Raised:
    """Each round in a `Run` of its own; between them only the journal's text."""
    journal = journal or Journal()
    answers: dict[str, Answer] = {}
    for _ in range(1_000):
        run = Run(
            handler, args, flow_id=FLOW_ID, journal=journal, rules=rules, **options
        )
        stop = advance(run, run.start(answers))
        if not isinstance(stop, Asked):
            return stop
        journal = Journal.loads(run.suspend().dumps())
        answers = answers_to(stop, answer)
    raise AssertionError("a thousand rounds, and no end")


def live(
    handler: Callable[..., Any],
    *args: Any,
    answer: Answerer = yes,
    rules: Rules = LIVE,
    **options: Any,
) -> Returned | Raised:
    """The running generator is resumed; nothing is replayed."""
    run = Run(handler, args, flow_id=FLOW_ID, rules=rules, **options)
    stop = advance(run, run.start())
    for _ in range(1_000):
        if not isinstance(stop, Asked):
            return stop
        stop = advance(run, run.answered(answers_to(stop, answer)))
    raise AssertionError("a thousand rounds, and no end")


def by_store(
    handler: Callable[..., Any],
    *args: Any,
    answer: Answerer = yes,
    rules: Rules = TASK,
    **options: Any,
) -> Returned | Raised:
    """The journal is stored at every stop, and another worker resumes from it."""
    stored = Journal().dumps()
    answers: dict[str, Answer] = {}
    clock = [0.0]
    for _ in range(10_000):
        run = Run(
            handler,
            args,
            flow_id=FLOW_ID,
            journal=Journal.loads(stored),
            rules=rules,
            clock=lambda: clock[0],
            **options,
        )
        stop = run.start(answers)
        answers = {}
        if isinstance(stop, Perform | Asked) and stop.wants:
            # One wave, and then this worker is gone.
            stop = run.performed({want.key: perform(want) for want in stop.wants})
        if isinstance(stop, Returned | Raised):
            return stop
        if isinstance(stop, Asked):
            answers = answers_to(stop, answer)
            if not stop.questions and stop.due is not None:
                clock[0] = stop.due
        stored = run.suspend().dumps()
    raise AssertionError("ten thousand workers, and no end")


def by_script(
    handler: Callable[..., Any],
    *args: Any,
    answer: Answerer = yes,
    rules: Rules = SCRIPT,
    **options: Any,
) -> Returned | Raised:
    """One uninterrupted run, whose journal must then replay cold to the same end."""
    run = Run(handler, args, flow_id=FLOW_ID, rules=rules, **options)
    stop = advance(run, run.start())
    while isinstance(stop, Asked):
        stop = advance(run, run.answered(answers_to(stop, answer)))
    return stop


WAYS = {"retry": by_retry, "live": live, "store": by_store, "script": by_script}


def returns(stop: Stop) -> Any:
    """The value of a run that returned; its error is raised."""
    if isinstance(stop, Raised):
        raise stop.error
    assert isinstance(stop, Returned), stop
    return stop.value


def run(handler: Callable[..., Any], *args: Any, **options: Any) -> Run:
    """A run with a flow id, by retry unless `rules=` says otherwise."""
    return Run(handler, args, **{"flow_id": FLOW_ID, **options})


def messages(asked: Stop) -> list[str]:
    """The messages of a round's questions."""
    assert isinstance(asked, Asked), asked
    return [
        getattr(q.effect, "message", type(q.effect).__name__) for q in asked.questions
    ]


def keys(asked: Stop) -> list[str]:
    """The wire keys of a round's questions."""
    assert isinstance(asked, Asked), asked
    return [question.key for question in asked.questions]


def flow_of(*effects: Effect[Any]) -> Callable[[], Any]:
    """A handler that performs `effects` in order and returns their answers."""

    def handler() -> Any:
        answers = []
        for effect in effects:
            answers.append((yield from effect))
        return answers

    return handler


# ---- the examples -------------------------------------------------------------------


def example(name: str) -> Any:
    """An example that has a server, imported as `effectmcp serve` does it."""
    load_app(str(Path(__file__).parent.parent / "examples" / f"{name}.py"))
    return sys.modules[name]
