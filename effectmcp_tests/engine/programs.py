"""Random programs: handlers as data, for properties that must hold of every handler.

A program is a tuple of statements; `handler_of` makes a handler that interprets it. The
branches of a `Gather` share one Python object, `State`, and write to it: every
mistake of the engine in the order of events shows there.

Answers carry the text of their question, so a handler notices at once when it is fed the
answer to another one. A step's arguments hold how often that step ran so far, so that
performing the same thing twice is visible from outside.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, evolve, field, frozen
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    Checkpoint,
    ClientSupports,
    Confirm,
    Declined,
    Dismissed,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Log,
    Now,
    Outcome,
    Random,
    Refused,
    Sample,
    Step,
    Unsupported,
    Version,
    step,
)
from effectmcp.engine import Answer, Question
from effectmcp.forms import Unfit

# ---- statements ---------------------------------------------------------------------


@frozen
class Stmt:
    """A statement: what it does, a label, and the blocks inside it."""

    kind: str
    label: str = ""
    blocks: tuple[tuple[Stmt, ...], ...] = ()


Program = tuple[Stmt, ...]

SIMPLE = (
    "ask",
    "ask",
    "ask",
    "keyed",
    "confirm",
    "outcome",
    "otherwise",
    "now",
    "random",
    "step",
    "step",
    "failing",
    "replayable",
    "checkpoint",
    "supports",
    "version",
    "idempotency",
    "log",
    "share",
    "raise",
)


@define
class State:
    """The state that the branches of one run share."""

    events: list[Any] = field(factory=list)
    runs: Counter[str] = field(factory=Counter)
    opened: int = 0
    closed: int = 0


class Broken(Exception):
    """The exception that the statement `raise` raises."""


#: Every step performed, by identity: what a test counts.
performed: Counter[tuple[str, int]] = Counter()
#: The state of the newest run of any handler.
newest: list[State] = []


def effect_of_step(name: str, nth: int) -> str:
    performed[name, nth] += 1
    return f"{name}/{nth}"


def failing_step(name: str, nth: int) -> str:
    performed[name, nth] += 1
    raise ValueError(f"{name}/{nth} failed")


@step(replayable=True)
def harmless(name: str, nth: int) -> str:
    return f"{name}/{nth}"


def handler_of(program: Program) -> Callable[[], Flow[Any]]:
    """A handler that interprets `program`."""

    def handler() -> Flow[Any]:
        state = State()
        newest[:] = [state]
        yield from _block(program, state)
        return tuple(state.events)

    return handler


def _block(statements: Program, state: State) -> Flow[Any]:
    state.opened += 1
    try:
        last: Any = None
        for statement in statements:
            last = yield from _statement(statement, state)
        return last
    finally:
        state.closed += 1


def _statement(stmt: Stmt, state: State) -> Flow[Any]:
    label = stmt.label
    value: Any = None
    match stmt.kind:
        case "ask":
            value = yield from Elicit(f"{label}?", str)
            assert value == f"to {label}?", (value, label)
        case "keyed":
            value = yield from Elicit(f"{label}?", str, key=f"k{label}")
            assert value == f"to {label}?", (value, label)
        case "confirm":
            value = yield from Confirm(f"really {label}?")
        case "outcome":
            match (yield from Outcome(Elicit(f"maybe {label}?", str))):
                case Accepted(answer):
                    assert answer == f"to maybe {label}?", answer
                    value = answer
                case Declined():
                    value = "declined"
                case Dismissed():
                    value = "dismissed"
        case "otherwise":
            value = yield from Sample(f"sample {label}", otherwise="nothing")
        case "now":
            value = yield from Now()
        case "random":
            value = yield from Random()
        case "step":
            state.runs[label] += 1
            value = yield from Step(effect_of_step, label, state.runs[label])
        case "failing":
            state.runs[label] += 1
            value = yield from Step(failing_step, label, state.runs[label])
        case "replayable":
            state.runs[label] += 1
            value = yield from harmless(label, state.runs[label])
        case "checkpoint":
            yield from Checkpoint()
            value = "after the checkpoint"
        case "supports":
            value = yield from ClientSupports(Elicit)
        case "version":
            value = yield from Version(label, default=0, latest=1)
        case "idempotency":
            value = yield from IdempotencyKey(label)
        case "log":
            yield from Log("info", label)
            value = "logged"
        case "share":
            value = len(state.events)
        case "raise":
            raise Broken(label)
        case "branch":
            # On what the other branches have done so far: only an order of events that
            # is the same in every replay makes this the same in every replay.
            odd = zlib.crc32(repr(state.events).encode()) % 2
            value = yield from _block(stmt.blocks[odd], state)
        case "loop":
            value = 0
            for _ in range(2):
                yield from _block(stmt.blocks[0], state)
        case "sub":
            value = yield from _block(stmt.blocks[0], state)
        case "gather":
            value = yield from Gather.each(
                [_block(block, state) for block in stmt.blocks]
            )
        case "try":
            value = yield from _try(stmt, state)
        case other:
            raise AssertionError(other)
    state.events.append((stmt.kind, label, repr(value)))
    return value


def _try(stmt: Stmt, state: State) -> Flow[Any]:
    body, handler, final = stmt.blocks
    try:
        return (yield from _block(body, state))
    except (Broken, Refused, ValueError, Unsupported) as exc:
        state.events.append(("caught", stmt.label, repr(exc)))
        return (yield from _block(handler, state))
    finally:
        state.events.append(("finally", stmt.label, ""))
        yield from _block(final, state)


# ---- strategies ---------------------------------------------------------------------

labels = st.sampled_from("abcdefg")


def simple(kinds: tuple[str, ...] = SIMPLE) -> st.SearchStrategy[Stmt]:
    return st.builds(Stmt, st.sampled_from(kinds), labels)


def blocks(inner: st.SearchStrategy[Stmt], most: int = 3) -> st.SearchStrategy[Program]:
    return st.lists(inner, max_size=most).map(tuple)


def _compound(inner: st.SearchStrategy[Stmt]) -> st.SearchStrategy[Stmt]:
    block = blocks(inner)
    local = blocks(simple(("step", "replayable", "now", "share", "log")), 2)
    return st.one_of(
        st.builds(Stmt, st.just("branch"), labels, st.tuples(block, block)),
        st.builds(Stmt, st.just("loop"), labels, st.tuples(block)),
        st.builds(Stmt, st.just("sub"), labels, st.tuples(block)),
        st.builds(
            Stmt, st.just("gather"), labels, st.lists(block, max_size=3).map(tuple)
        ),
        st.builds(Stmt, st.just("try"), labels, st.tuples(block, block, local)),
    )


statements = st.recursive(simple(), _compound, max_leaves=20)
programs = blocks(statements, 5)


# ---- answers ------------------------------------------------------------------------


def _crc(text: str) -> int:
    return zlib.crc32(text.encode())


def answer_of(question: Question) -> Answer:
    """Return the answer to a message: always the same one, sometimes a refusal."""
    effect = question.effect
    match effect:
        case Elicit(message=message):
            if _crc(message) % 7 == 0:
                return Declined()
            if _crc(message) % 11 == 0:
                return Dismissed()
            return Accepted({"value": f"to {message}"})
        case Confirm(message=message):
            return Accepted({}) if _crc(message) % 3 else Declined()
        case _:
            return Accepted(
                {
                    "role": "assistant",
                    "model": "m",
                    "content": {"type": "text", "text": "sampled"},
                }
            )


class Reluctant:
    """A client that leaves answers out and sends some that do not fit, at first."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._seen: Counter[str] = Counter()

    def __call__(self, question: Question) -> Answer | None:
        place = question.key.partition("~")[0]
        self._seen[place] += 1
        mood = _crc(f"{place}{self._seed}") % 4
        if self._seen[place] == 1 and mood == 0:
            return None
        if self._seen[place] == 1 and mood == 1:
            return Unfit(["not like that"])
        return answer_of(question)


# ---- edits --------------------------------------------------------------------------


@st.composite
def edited(draw: st.DrawFn, program: Program) -> Program:
    """`program` with one statement changed, added, moved, wrapped or removed."""
    # Half of the edits at the top, where answers and steps are most likely to follow.
    spots = list(_spots(program, ())) if draw(st.booleans()) else [()]
    path = draw(st.sampled_from(spots))
    return _at(program, path, lambda block: _edit(draw, block))


def _spots(program: Program, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    yield path
    for index, stmt in enumerate(program):
        for number, block in enumerate(stmt.blocks):
            yield from _spots(block, (*path, index, number))


def _at(
    program: Program, path: tuple[int, ...], change: Callable[[Program], Program]
) -> Program:
    if not path:
        return change(program)
    index, number, *rest = path
    stmt = program[index]
    inner = list(stmt.blocks)
    inner[number] = _at(inner[number], tuple(rest), change)
    changed = evolve(stmt, blocks=tuple(inner))
    return (*program[:index], changed, *program[index + 1 :])


def _edit(draw: st.DrawFn, block: Program) -> Program:
    index = draw(st.integers(0, len(block)))
    kinds = ["insert"]
    if index < len(block):
        kinds += ["delete", "reword", "replace", "wrap", "swap"]
        if block[index].blocks:
            kinds += ["unwrap"]
    before, after = block[:index], block[index:]
    match draw(st.sampled_from(kinds)):
        case "insert":
            return (*before, draw(statements), *after)
        case "delete":
            return (*before, *after[1:])
        case "reword":
            return (*before, evolve(after[0], label=draw(labels)), *after[1:])
        case "replace":
            return (*before, draw(statements), *after[1:])
        case "wrap":
            beside = draw(blocks(simple(), 2))
            return (*before, Stmt("gather", "w", (after[:1], beside)), *after[1:])
        case "unwrap":
            return (*before, *(s for b in after[0].blocks for s in b), *after[1:])
        case _:
            return (*before, *after[1:2], after[0], *after[2:])
