from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

import pytest
import trio

from effectmcp import (
    Accepted,
    CanonicalError,
    Confirm,
    Elicit,
    Flow,
    ListRoots,
    NotAnEffectError,
    Now,
    Sample,
    UsageError,
)
from effectmcp.engine import Asked, Raised, Run
from effectmcp.engine.misuse import (
    forgotten,
    located,
    not_an_effect,
    text_of,
    translated,
)
from effectmcp.engine.sequences import Rows, Sequence

from ..helpers import FLOW_ID, run, shown


def ask() -> Flow[bool]:
    return (yield from Confirm("Sure?"))


async def aask() -> bool:
    return await Confirm("Sure?")


def node(path: str = "", running: Any = None) -> Sequence:
    if running is not None:
        running.send(None)
    return Sequence(path, Context(), [], Rows(0), running=running)


# ---- located ----


def test_located_adds_the_line_and_keeps_the_class() -> None:
    one = node(running=ask())
    error = located(CanonicalError("a set"), one)
    assert type(error) is CanonicalError
    assert (error.problem, error.where) == ("a set", one.where)
    assert str(error).startswith(__file__)


def test_located_keeps_a_line_that_is_known() -> None:
    error = UsageError("no", where="shop.py:3")
    assert located(error, node(running=ask())) is error


def test_located_without_a_known_line() -> None:
    assert str(located(UsageError("no"), node())) == "no"


# ---- translated ----

SCOPE = "Cancel scope stack corrupted: attempted to exit an inner scope"


def test_translated_explains_trios_cancel_scopes_in_branches() -> None:
    """The cause is always the same: a scope open across a yield in a Gather."""
    error = RuntimeError(SCOPE)
    known = translated(error, node("gather-1/0/"))
    assert isinstance(known, UsageError)
    assert "Put what needs it into a Step" in str(known)
    assert known.__cause__ is error


@pytest.mark.parametrize(
    ("error", "path"),
    [
        (RuntimeError(SCOPE), ""),
        (RuntimeError("something else"), "gather-1/0/"),
        (ValueError(SCOPE), "gather-1/0/"),
    ],
)
def test_translated_leaves_others_alone(error: Exception, path: str) -> None:
    assert translated(error, node(path)) is error


# ---- strings ----


def test_text_of() -> None:
    assert text_of(Elicit("Who?", str)) == "Who?"
    for other in (ListRoots(), Sample("Write"), Now(), None):
        assert text_of(other) is None


def test_forgotten_yield_from() -> None:
    flow = ask()
    assert forgotten(Confirm("Sure?")) == (
        "the effect Confirm came back instead of its answer: a forgotten `yield from`?"
    )
    assert forgotten(flow) == (
        "the flow ask came back instead of its answer: a forgotten `yield from`?"
    )
    flow.close()


@pytest.mark.parametrize("value", [None, 5, "text", [Confirm("Sure?")], ask])
def test_forgotten_returns_none_for_other_values(value: object) -> None:
    assert forgotten(value) is None


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("a", "'a' is not an effect. `yield from` a string yields its characters"),
        (Confirm, r"That is the class. Write Confirm(...)"),
        (ask(), "That is a flow. Write `yield from`, not `yield`"),
        (ask, "Write Step(function, ...) to call it and record the result"),
        (int, "Write Step(function, ...)"),
        ([Now()], "[Now()] is not an effect. To do several things at once, write Gath"),
        ((Now(),), "write Gather(...)"),
        (None, "None is not an effect. A bare `yield` does nothing here"),
        (5, "5 is not an effect. A handler yields effects only"),
    ],
    ids=shown,
)
def test_not_an_effect_suggests_a_fix(value: object, hint: str) -> None:
    assert hint in not_an_effect(node(running=ask()), value)


@pytest.mark.parametrize("value", [None, object()])
def test_not_an_effect_of_a_foreign_await(value: object) -> None:
    """asyncio and trio yield things of their own through a coroutine."""
    running = aask()
    text = not_an_effect(node(running=running), value)
    assert "A handler may await effects only" in text
    assert "wrap it in a `Step`" in text
    assert "`Gather`" in text
    running.close()


# ---- foreign awaits ----


async def over_asyncio() -> bool:
    await asyncio.sleep(0.1)
    return await Confirm("Sure?")


async def over_trio() -> bool:
    await trio.sleep(0.1)
    return await Confirm("Sure?")


async def over_a_nursery() -> bool:
    async with trio.open_nursery():
        return await Confirm("Sure?")


async def over_gather() -> tuple[bool, bool]:
    asks = aask(), aask()
    try:
        return await asyncio.gather(*asks)
    finally:
        for one in asks:
            one.close()


def started(handler: Any) -> Any:
    """Return the first stop of a run in its own thread, without an event loop."""
    with ThreadPoolExecutor() as threads:
        return threads.submit(run(handler).start).result()


@pytest.mark.parametrize(
    "handler", [over_asyncio, over_trio, over_a_nursery, over_gather]
)
def test_foreign_await_without_its_loop_is_explained(handler: Any) -> None:
    stop = started(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert str(stop.error).endswith(
        ". A handler may await effects only: wrap it in a `Step`, and ask"
        " several things at once with `Gather`"
    )
    assert isinstance(stop.error.__cause__, (RuntimeError, AttributeError))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_gather_of_asyncio_inside_of_its_loop_is_explained() -> None:
    """There it makes tasks, which cannot perform effects either."""

    async def main() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        return run(over_gather).start()

    stop = asyncio.run(main())
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NotAnEffectError)
    assert "_GatheringFuture" in str(stop.error)
    assert "ask several things at once with `Gather`" in str(stop.error)


def test_args_that_are_not_a_tuple_are_refused() -> None:
    with pytest.raises(UsageError, match="args are a tuple, not 'Dune'"):
        Run(ask, "Dune", flow_id=FLOW_ID)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [False, "yes", []])
def test_confirm_refuses_answers_with_content(content: Any) -> None:
    """An accepted `False` must not count as consent."""
    one = run(ask)
    stop = one.start()
    assert isinstance(stop, Asked)
    stop = one.answered({stop.questions[0].key: Accepted(content)})
    assert isinstance(stop, Asked)
    assert stop.questions[0].problems == (
        "the answer has no content; accept, decline or dismiss",
    )
