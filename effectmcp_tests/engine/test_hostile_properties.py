"""No program, however hostile, hangs the engine or leaks a generator."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effectmcp import (
    Accepted,
    BudgetError,
    Cancelled,
    Confirm,
    Declined,
    Detach,
    DivergenceError,
    Elicit,
    Gather,
    Log,
    Now,
    Restart,
    Step,
)
from effectmcp.engine import Asked, Journal, Perform, Raised, Run, Stop
from effectmcp.engine.generators import GRAVEYARD

from ..helpers import FLOW_ID, UNCAPPED, perform

#: Small, so that a program which never ends is quickly at its end.
RULES = attrs.evolve(UNCAPPED, yields=200)

ACTIONS = (
    "ask",
    "confirm",
    "now",
    "step",
    "log",
    "junk none",
    "junk text",
    "junk class",
    "junk flow",
    "detach",
    "restart",
    "raise",
    "raise base",
    "return",
)
WRAPS = (
    "plain",
    "swallow all",
    "swallow for ever",
    "raise in finally",
    "return in finally",
    "effect in finally",
    "ask in finally",
    "translate",
    "loop",
    "gather",
    "sub",
)


def boom(text: str) -> str:
    raise OSError(text)


class Hostile:
    """A handler made of wraps and actions, which notes every generator it makes."""

    def __init__(self, plan: list[tuple[str, list[str]]]) -> None:
        self.plan = plan
        self.made: list[weakref.ref[Any]] = []
        self.__qualname__ = "Hostile"

    def __call__(self) -> Generator[Any, Any, Any]:
        return self._note(self._main())

    def _note(self, flow: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        self.made.append(weakref.ref(flow))
        return flow

    def _main(self) -> Generator[Any, Any, Any]:
        for wrap, actions in self.plan:
            yield from self._note(self._wrap(wrap, actions))
        return "ended"

    def _wrap(self, wrap: str, actions: list[str]) -> Generator[Any, Any, Any]:
        def body() -> Generator[Any, Any, Any]:
            return self._note(self._actions(actions))

        match wrap:
            case "swallow all":
                try:
                    yield from body()
                except BaseException:  # noqa: B036
                    pass
            case "swallow for ever":
                while True:
                    try:
                        # Always a yield: a loop without one is the handler's own, and
                        # only a watchdog could end it.
                        yield Confirm("again?")
                        yield from body()
                    except BaseException:  # noqa: B036
                        pass
            case "raise in finally":
                try:
                    yield from body()
                finally:
                    raise KeyError("in finally")
            case "return in finally":
                try:
                    yield from body()
                finally:
                    return "from finally"  # noqa: B012
            case "effect in finally":
                try:
                    yield from body()
                finally:
                    yield Step(str.upper, "cleanup")
            case "ask in finally":
                try:
                    yield from body()
                finally:
                    yield Elicit("in cleanup?", str)
            case "translate":
                try:
                    yield from body()
                except BaseException as exc:
                    raise RuntimeError("something else") from exc
            case "loop":
                for _ in range(3):
                    yield from body()
            case "gather":
                yield Gather(body(), body(), Now())
            case "sub":
                yield from body()
            case _:
                yield from body()

    def _actions(self, actions: list[str]) -> Generator[Any, Any, Any]:
        for action in actions:
            match action:
                case "ask":
                    yield Elicit("a text?", str)
                case "confirm":
                    yield Confirm("sure?")
                case "now":
                    yield Now()
                case "step":
                    yield Step(boom, "step")
                case "log":
                    yield Log("info", "a line")
                case "junk none":
                    yield None
                case "junk text":
                    yield from "ab"
                case "junk class":
                    yield Now
                case "junk flow":
                    yield self._note(self._actions([]))
                case "detach":
                    yield Detach()
                case "restart":
                    yield Restart(self)
                case "raise":
                    raise ValueError("raised")
                case "raise base":
                    raise SystemExit(3)
                case _:
                    return


plans = st.lists(
    st.tuples(st.sampled_from(WRAPS), st.lists(st.sampled_from(ACTIONS), max_size=3)),
    max_size=3,
)
ends = st.sampled_from(["play", "suspend", "cancel", "decline"])


def perform_all(run: Run, stop: Stop, *, cancelling: bool = False) -> Stop:
    """Perform until it asks or ends; `cancelling` it in the first wave."""
    for _ in range(400):
        if not isinstance(stop, Perform):
            return stop
        if cancelling:
            run.begin(*[want.key for want in stop.wants])
            run.cancel()
            cancelling = False
        stop = run.performed({want.key: perform(want) for want in stop.wants})
    raise AssertionError("it never ends")


def play(handler: Callable[..., Any], end: str) -> str:
    """Play a few rounds, end them as `end` demands, and return the outcome."""
    journal = Journal()
    answers: dict[str, Any] = {}
    for _ in range(6):
        run = Run(handler, flow_id=FLOW_ID, journal=journal, rules=RULES)
        try:
            stop = perform_all(run, run.start(answers), cancelling=end == "cancel")
            if isinstance(stop, Asked) and end == "cancel":
                stop = perform_all(run, run.cancel())
                assert not isinstance(stop, Asked), stop
        except DivergenceError:
            return "diverged"
        if not isinstance(stop, Asked):
            if isinstance(stop, Raised):
                return type(stop.error).__name__
            return "returned"
        journal = run.suspend()
        if end == "suspend":
            return "suspended"
        answers = {
            question.key: Declined() if end == "decline" else Accepted({"value": "x"})
            for question in stop.questions
        }
    return "asking"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    # Exceptions while unwinding are logged, and these handlers raise many.
    caplog.set_level(logging.CRITICAL, logger="effectmcp.engine")
    # Garbage is collected after each program; earlier objects need no scan.
    gc.freeze()
    yield
    gc.unfreeze()


def check(plan: list[tuple[str, list[str]]], end: str) -> None:
    handler = Hostile(plan)
    before = GRAVEYARD.buried
    play(handler, end)
    gc.collect()
    alive = sum(ref() is not None for ref in handler.made)
    if GRAVEYARD.buried == before:
        assert alive == 0, "a generator outlived its run"


@example([("swallow for ever", ["ask"])], "suspend")
@example([("gather", ["restart"])], "play")
@example([("ask in finally", ["ask"])], "cancel")
@example([("return in finally", ["restart"])], "play")
@settings(max_examples=200)
@given(plans, ends)
def test_no_program_hangs_the_engine_or_leaks_a_generator(
    plan: list[tuple[str, list[str]]], end: str
) -> None:
    check(plan, end)


@pytest.mark.long
@settings(max_examples=20_000)
@given(plans, ends)
def test_no_program_hangs_the_engine_or_leaks_a_generator_long(
    plan: list[tuple[str, list[str]]], end: str
) -> None:
    check(plan, end)


def test_hostile_loop_of_local_effects_spends_its_budget() -> None:
    assert play(Hostile([("swallow for ever", ["log"])]), "play") in (
        "asking",
        BudgetError.__name__,
    )


def test_hostile_swallower_is_buried_on_cancel() -> None:
    before = GRAVEYARD.buried
    said = play(Hostile([("swallow for ever", ["ask"])]), "cancel")
    assert said == Cancelled.__name__
    assert GRAVEYARD.buried == before + 1


def test_buried_generator_does_not_keep_the_process_from_exiting() -> None:
    """A loop that swallows everything would spin once its module is taken apart."""
    program = """
from effectmcp import Elicit
from effectmcp.engine import Run

def handler():
    while True:
        try:
            yield from Elicit("Name?", str)
        except:
            pass

run = Run(handler, flow_id=bytes(16))
run.start()
run.suspend()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    # The log line that names the handler is all there is to read.
    assert "must re-raise it" in done.stderr
    assert "Exception ignored" not in done.stderr
