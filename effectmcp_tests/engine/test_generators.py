from __future__ import annotations

import contextvars
import datetime as dt
import decimal
import functools
import gc
import logging
import sys
import types
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import Context, copy_context
from typing import Any

import pytest

from effectmcp import (
    Confirm,
    Elicit,
    Flow,
    NotAnEffectError,
    Now,
    Suspended,
    UsageError,
)
from effectmcp.engine.generators import (
    GRAVEYARD,
    PATIENCE,
    Ended,
    Failed,
    Graveyard,
    Yielded,
    check_branch,
    is_running,
    own_context,
    send,
    start,
    suspend,
    throw,
    where,
)
from effectmcp.engine.names import find, name_of

LOGGER = "effectmcp.engine"
THIS_FILE = __file__

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


def ask(name: str = "Ann") -> Flow[str]:
    yield from Confirm(f"Are you {name}?")
    return name


async def aask(name: str = "Ann") -> str:
    await Confirm(f"Are you {name}?")
    return name


def plain() -> int:
    return 5


class Asker:
    """A callable object, as a framework may register one."""

    def __call__(self) -> Flow[str]:
        return ask()

    def method(self) -> Flow[str]:
        return ask()


class ByHand(Generator[Any, Any, Any]):
    """A generator not made by a function: it ends when it is sent anything but None."""

    def send(self, value: Any) -> Any:
        if value is not None:
            raise StopIteration(value)
        return Now()

    def throw(self, *args: Any) -> Any:
        raise args[0]


def opened(running: Any, context: Context | None = None) -> Any:
    """`running`, after its first turn."""
    assert isinstance(send(running, context or Context(), None), Yielded)
    return running


def line_of(text: str) -> str:
    """`file:line` of the one line of this file that ends with `text`."""
    with open(THIS_FILE, encoding="utf-8") as lines:
        (found,) = [n for n, line in enumerate(lines, 1) if line.endswith(text + "\n")]
    return f"{THIS_FILE}:{found}"


# ---- one turn ----


@pytest.mark.parametrize("handler", [ask, aask])
def test_send_gives_effect_then_result(handler: Callable[[], Any]) -> None:
    running, context = handler(), Context()
    assert send(running, context, None) == Yielded(Confirm("Are you Ann?"))
    assert send(running, context, True) == Ended("Ann")


def test_send_gives_the_failure() -> None:
    def failing() -> Flow[None]:
        yield from Now()
        raise KeyError("x")

    out = send(opened(failing()), Context(), None)
    assert isinstance(out, Failed)
    assert isinstance(out.error, KeyError)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), Suspended()])
def test_send_returns_failures_that_are_not_exceptions(error: BaseException) -> None:
    def failing() -> Flow[None]:
        yield from Now()
        raise error

    assert send(opened(failing()), Context(), None) == Failed(error)


def test_throw_raises_at_the_yield() -> None:
    def handler() -> Flow[str]:
        try:
            yield from Now()
        except ValueError as exc:
            return str(exc)
        return "nothing"

    assert throw(opened(handler()), Context(), ValueError("no")) == Ended("no")


def test_throw_may_be_answered_with_an_effect() -> None:
    def handler() -> Flow[None]:
        try:
            yield from Now()
        except ValueError:
            yield from Confirm("Sure?")

    assert throw(opened(handler()), Context(), ValueError()) == Yielded(
        Confirm("Sure?")
    )


def test_throw_returns_the_error_raised_instead() -> None:
    def handler() -> Flow[None]:
        try:
            yield from Now()
        except ValueError:
            raise KeyError("x") from None

    out = throw(opened(handler()), Context(), ValueError())
    assert isinstance(out, Failed)
    assert isinstance(out.error, KeyError)


def test_interrupt_is_the_operators() -> None:
    """Ctrl-C in a handler ends the process, and is not a handler's failure."""

    def handler() -> Flow[None]:
        try:
            yield from Now()
        finally:
            raise KeyboardInterrupt

    def at_once() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send(opened(handler()), Context(), None)
    with pytest.raises(KeyboardInterrupt):
        throw(opened(handler()), Context(), ValueError())
    with pytest.raises(KeyboardInterrupt):
        start(at_once, (), {}, Context())


def test_turns_share_one_context() -> None:
    """Variables and decimal settings last from turn to turn, and leak nowhere."""

    def handler() -> Flow[tuple[str, int]]:
        color.set("red")
        decimal.setcontext(decimal.Context(prec=7))
        yield from Now()
        return color.get(), decimal.getcontext().prec

    mine = decimal.getcontext().prec
    context = copy_context()
    running = opened(handler(), context)
    assert (color.get(), decimal.getcontext().prec) == ("none", mine)
    assert send(running, context, None) == Ended(("red", 7))
    assert (color.get(), decimal.getcontext().prec) == ("none", mine)


def nested(depth: int) -> Flow[int]:
    if depth == 0:
        yield from Now()  # the innermost
        return 0
    return 1 + (yield from nested(depth - 1))


@pytest.mark.parametrize("depth", [0, 5, 500])
def test_turns_of_nested_flows(depth: int) -> None:
    running = opened(nested(depth))
    assert where(running) == line_of("# the innermost")
    assert send(running, Context(), None) == Ended(depth)


def test_turns_of_flows_nested_too_deep_fail_like_any_recursion() -> None:
    out = send(nested(100_000), Context(), None)
    assert isinstance(out, Failed)
    assert isinstance(out.error, RecursionError)


# ---- what a handler is ----


@pytest.mark.parametrize(
    "handler",
    [
        ask,
        aask,
        Asker(),
        Asker().method,
        functools.partial(ask, "Bob"),
        functools.wraps(ask)(lambda: ask()),
        lambda: ask(),
        ByHand,
    ],
)
def test_start_returns_generators_and_coroutines(handler: Callable[[], Any]) -> None:
    running = start(handler, (), {}, Context())
    assert is_running(running)
    assert not isinstance(running, (Ended, Failed))
    running.close()


def test_start_of_a_plain_function_is_its_result() -> None:
    assert start(plain, (), {}, Context()) == Ended(5)


def test_start_hands_over_the_arguments() -> None:
    assert start(lambda *a, **k: (a, k), (1,), {"b": 2}, Context()) == Ended(
        ((1,), {"b": 2})
    )


def test_start_of_a_failing_function() -> None:
    out = start(plain, (1,), {}, Context())
    assert isinstance(out, Failed)
    assert isinstance(out.error, TypeError)


def test_start_of_an_async_generator_is_refused_by_name() -> None:
    async def both() -> AsyncGenerator[int]:
        yield 1

    out = start(both, (), {}, Context())
    assert isinstance(out, Failed)
    assert isinstance(out.error, NotAnEffectError)
    assert "both is an async generator. Write a plain generator" in str(out.error)


def test_start_runs_in_the_context() -> None:
    context = Context()
    start(lambda: color.set("red"), (), {}, context)
    assert context[color] == "red"
    assert color.get() == "none"


def test_is_running() -> None:
    flow, coroutine = ask(), aask()
    assert is_running(flow)
    assert is_running(coroutine)
    assert is_running(ByHand())
    others: list[object] = [Now(), ask, 5, None, iter([])]
    assert not any(map(is_running, others))
    coroutine.close()


def test_start_of_a_flow_that_has_started_is_refused() -> None:
    """A handler that caches its flow would continue in the middle of it."""
    for handler in (ask, aask):
        running = opened(handler())
        out = start(lambda one=running: one, (), {}, Context())
        assert isinstance(out, Failed)
        assert "a flow that has already started" in str(out.error)
        running.close()


def test_own_context_has_its_own_decimal_settings() -> None:
    """Copying a context copies variables, and not the object in decimal's."""

    def set_precision() -> None:
        decimal.getcontext().prec = 7

    mine = decimal.getcontext().prec
    own_context(copy_context()).run(set_precision)
    assert decimal.getcontext().prec == mine


# ---- names ----


def test_name_of_functions() -> None:
    assert name_of(ask) == f"{__name__}:ask"
    assert name_of(Asker().method) == f"{__name__}:Asker.method"
    assert name_of(Asker) == f"{__name__}:Asker"
    assert name_of(len) == "builtins:len"


def test_name_of_a_method_of_a_builtin_class_is_in_its_module() -> None:
    assert name_of(dt.date.isoformat) == "datetime:date.isoformat"
    assert find("datetime:date.isoformat") is dt.date.isoformat


def test_name_of_looks_through_partials() -> None:
    assert name_of(functools.partial(functools.partial(ask, "B"))) == name_of(ask)


def test_name_of_a_callable_object_is_its_class() -> None:
    assert name_of(Asker()) == f"{__name__}:Asker"


def test_find_is_the_way_back() -> None:
    for function in (ask, Asker, Asker.method, len):
        assert find(name_of(function)) is function


@pytest.mark.parametrize(
    "name",
    [
        "",
        ":",
        "no_such_module:ask",
        "no_such_module:__class__",
        f"{__name__}:no_such",
        f"{__name__}:ask.no.such",
        f"{__name__}:LOGGER",
        f"{__name__}:test.<locals>.local",
    ],
)
def test_find_returns_none_for_unknown_names(name: str) -> None:
    assert find(name) is None


def test_find_imports_nothing() -> None:
    """A name out of a journal must not run code by being looked up."""
    sys.modules.pop("this", None)
    assert find("this:s") is None
    assert "this" not in sys.modules


# ---- where ----


def test_where_is_the_authors_line() -> None:
    def inner() -> Flow[None]:
        yield from Confirm("Sure?")  # the question

    def outer() -> Flow[None]:
        yield from inner()

    assert where(opened(outer())) == line_of("# the question")


def test_where_of_a_bare_yield() -> None:
    def handler() -> Any:
        yield Confirm("Sure?")  # bare

    assert where(opened(handler())) == line_of("# bare")


def test_where_of_a_coroutine() -> None:
    async def inner() -> None:
        await Confirm("Sure?")  # awaited

    async def outer() -> None:
        await inner()

    assert where(opened(outer())) == line_of("# awaited")


def test_where_of_an_object_with_generator_attributes() -> None:
    def handler() -> Any:
        yield from ask()  # wrapped

    inner: Any = opened(handler())
    compiled: Any = types.SimpleNamespace(gi_frame=inner.gi_frame, gi_yieldfrom=None)
    assert where(compiled) == line_of("# wrapped")


def test_where_of_flows_without_a_line() -> None:
    """An effect as a branch, a hand-written generator, an ended generator, and None."""
    ended = ask()
    ended.close()
    for running in (opened(iter(Now())), ByHand(), ended, None):
        assert where(running) is None


# ---- the end ----


def test_suspend_runs_cleanup() -> None:
    done = []

    def handler() -> Flow[None]:
        try:
            yield from Confirm("Sure?")
        finally:
            done.append("plain")

    suspend(opened(handler()), Context())
    assert done == ["plain"]


def test_suspend_performs_no_effects_of_cleanup() -> None:
    reached = []

    def handler() -> Flow[None]:
        try:
            yield from Confirm("Sure?")
        finally:
            yield from Now()
            reached.append("after")

    suspend(opened(handler()), Context())
    assert reached == []


@pytest.mark.parametrize("handler", [ask, aask])
def test_suspend_of_a_flow_that_never_started(
    handler: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Suspending unwinds nothing, without a warning about a coroutine never awaited."""
    running = handler()
    suspend(running, Context())
    del running
    gc.collect()
    assert caplog.messages == []


def test_suspend_of_a_generator_by_hand() -> None:
    suspend(ByHand(), Context())


def test_suspend_is_not_caught_by_except_exception() -> None:
    caught: list[BaseException] = []

    def handler() -> Flow[None]:
        try:
            yield from Confirm("Sure?")
        except Exception as exc:
            caught.append(exc)
        except BaseException as exc:
            caught.append(exc)
            raise

    suspend(opened(handler()), Context())
    assert [type(one) for one in caught] == [Suspended]


def test_suspend_logs_an_exception_and_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler() -> Flow[None]:
        try:
            yield from Confirm("Sure?")
        finally:
            raise KeyError("cleanup")

    suspend(opened(handler()), Context())
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "suspended" in record.message


def test_suspend_swallowed_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """`return` in a `finally` loses the signal; the round is over all the same."""

    def handler() -> Flow[int]:
        try:
            yield from Confirm("Sure?")
        finally:
            return 5  # noqa: B012  # that is the point

    suspend(opened(handler()), Context())
    assert not caplog.records


def stubborn(throws: list[int], patience: int) -> Any:
    """A handler that answers so many signals with another yield."""
    while len(throws) < patience:
        try:
            yield Confirm("Sure?")
        except BaseException:
            throws.append(1)


def test_suspend_is_patient() -> None:
    """Thrown once, and again at most 16 times; who ends by then is not buried."""
    before = GRAVEYARD.buried
    throws: list[int] = []
    suspend(opened(stubborn(throws, PATIENCE + 1)), Context())
    assert len(throws) == 17
    assert GRAVEYARD.buried == before


def test_suspend_buries_who_never_ends(caplog: pytest.LogCaptureFixture) -> None:
    before = GRAVEYARD.buried
    for _ in range(2):
        throws: list[int] = []
        suspend(opened(stubborn(throws, 1_000)), Context())
        assert len(throws) == 17
    assert GRAVEYARD.buried == before + 2
    # One line a handler, however often it happens.
    (record,) = caplog.records
    assert "stubborn continues to yield" in record.message
    assert "must re-raise it" in record.message
    assert THIS_FILE in record.message


def noting(closed: list[str], name: str) -> Any:
    try:
        yield Now()
    finally:
        closed.append(name)


def test_graveyard_is_bounded() -> None:
    """The oldest is let go of, and so closed: a leak would be worse."""
    graveyard = Graveyard(1)
    closed: list[str] = []
    for name in ("first", "second", "last"):
        graveyard.bury(opened(noting(closed, name)))
    assert closed == ["first", "second"]
    assert graveyard.buried == 3


def test_graveyard_is_cleared_without_output() -> None:
    """CPython prints generators that refuse to close, but not at exit."""
    hook = sys.unraisablehook
    graveyard = Graveyard(3)
    closed: list[str] = []
    graveyard.bury(opened(noting(closed, "polite")))
    graveyard.bury(opened(stubborn([], 1_000)))
    graveyard.clear()
    assert closed == ["polite"]
    assert sys.unraisablehook is hook


def in_a_cycle() -> Any:
    """A handler that never ends, and whose frame holds its generator."""
    itself = yield Confirm("Sure?")
    while itself:
        try:
            yield Confirm("Sure?")
        except BaseException:
            pass


def test_graveyard_is_cleared_of_generators_in_a_cycle() -> None:
    """The graveyard is cleared at once: the collector would do it later, with output."""
    graveyard = Graveyard(1)
    running = opened(in_a_cycle())
    running.send(running)
    ended = weakref.ref(running)
    graveyard.bury(running)
    del running
    gc.disable()
    try:
        graveyard.clear()
        assert ended() is None
    finally:
        gc.enable()


def test_graveyard_names_generators_without_a_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Graveyard(1).bury(ByHand())
    assert "ByHand object" in caplog.text


# ---- branches ----


@pytest.mark.parametrize("make", [Now, ask, aask, ByHand])
def test_check_branch_takes_effects_and_flows(make: Callable[[], Any]) -> None:
    branch = make()
    check_branch(branch)
    if not isinstance(branch, Now):
        branch.close()


@pytest.mark.parametrize(
    ("branch", "hint"),
    [
        (Elicit, r"is neither; write Elicit\(\.\.\.\)"),
        (ask, r"is neither; call it: ask\(\.\.\.\)"),
        (Asker(), r"is neither; call it: flow\(\.\.\.\)"),
        (5, r"5 is neither$"),
        (None, r"None is neither$"),
    ],
)
def test_check_branch_refuses_anything_else(branch: object, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        check_branch(branch)


@pytest.mark.parametrize("handler", [ask, aask])
def test_check_branch_refuses_a_flow_that_has_started(
    handler: Callable[[], Any],
) -> None:
    running = opened(handler())
    with pytest.raises(UsageError, match="already started. A flow runs once"):
        check_branch(running)
    running.close()


def test_check_branch_refuses_a_flow_that_has_ended() -> None:
    running = ask()
    running.close()
    with pytest.raises(UsageError, match="already started"):
        check_branch(running)


def test_types_coroutine_can_be_driven() -> None:
    """A generator that `types.coroutine` marked is driven like any other."""

    @types.coroutine
    def awaited() -> Flow[str]:
        return (yield from ask())

    running = start(awaited, (), {}, Context())
    assert not isinstance(running, (Ended, Failed))
    assert send(running, Context(), None) == Yielded(Confirm("Are you Ann?"))
