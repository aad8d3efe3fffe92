"""Hard cases that the engine must survive: the life of one generator."""

import contextvars
import decimal
import gc
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from effectmcp import (
    Accepted,
    BudgetError,
    Confirm,
    Declined,
    Detach,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Log,
    NotAnEffectError,
    Now,
    Progress,
    Restart,
    Sleep,
    Step,
    StepFailed,
    Suspended,
    Unsupported,
    UsageError,
    Version,
)
from effectmcp.engine import (
    LIVE,
    Asked,
    Done,
    Failure,
    Journal,
    Perform,
    Raised,
    Returned,
    Run,
    Want,
)
from effectmcp.engine.generators import GRAVEYARD, PATIENCE, Graveyard

from ..helpers import (
    UNCAPPED,
    WAYS,
    advance,
    answers_to,
    flow_of,
    keys,
    live,
    messages,
    perform,
    returns,
    run,
    shown,
    yes,
)

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def line(handler: Callable[..., Any], offset: int) -> str:
    """`file:line` of the line `offset` below the `def` of `handler`."""
    code = inspect.unwrap(handler).__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


def asked_once(handler: Callable[..., Any], *args: Any, **options: Any) -> Run:
    """A run that has just asked."""
    one = run(handler, *args, **options)
    assert isinstance(advance(one, one.start()), Asked)
    return one


# ---- finally ------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("depth", [1, 5])
def test_effects_in_finally_at_every_depth(way: Any, depth: int) -> None:
    """Effects in `finally` at every depth are performed once, at the real end."""
    released = []

    def release(level: int) -> None:
        released.append(level)

    def nested(level: int) -> Flow[str]:
        try:
            if level:
                return (yield from nested(level - 1))
            return (yield from Elicit("Who?", str))
        finally:
            yield from Step(release, level)

    assert returns(way(nested, depth)) == "text"
    assert released == list(range(depth + 1))


def test_plain_code_in_finally_at_every_depth() -> None:
    """Plain code in `finally` runs at each suspension and at the end, innermost first."""
    log = []

    def nested(level: int) -> Flow[str]:
        try:
            if level:
                return (yield from nested(level - 1))
            return (yield from Elicit("Who?", str))
        finally:
            log.append(level)

    first = run(nested, 2)
    stop = first.start()
    assert isinstance(stop, Asked)
    assert log == []
    journal = first.suspend()
    assert log == [0, 1, 2]
    stop = run(nested, 2, journal=journal).start(answers_to(stop, yes))
    assert stop == Returned("text")
    assert log == [0, 1, 2] * 2


def test_plain_code_in_finally_runs_once_where_nothing_is_suspended() -> None:
    """Live, plain code in `finally` runs at the real end only."""
    log = []

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            log.append("closed")

    assert returns(live(handler)) == "text"
    assert log == ["closed"]


def test_with_block_at_a_suspension() -> None:
    """`with` around a yield is left at each suspension, before the reply is sent."""
    log = []

    @contextmanager
    def resource() -> Iterator[None]:
        log.append("open")
        try:
            yield
        finally:
            log.append("close")

    def handler() -> Flow[str]:
        with resource():
            return (yield from Elicit("Who?", str))

    one = asked_once(handler)
    one.suspend()
    assert log == ["open", "close"]


def test_finally_of_branches_and_parent_at_a_suspension() -> None:
    """Suspending unwinds the branches of a Gather, then their parent, performing nothing."""
    log = []

    def branch(name: str) -> Flow[str]:
        try:
            return (yield from Elicit(name, str))
        finally:
            log.append(name)
            yield from Step(log.append, "performed!")

    def handler() -> Flow[Any]:
        try:
            return (yield from Gather(branch("a"), branch("b")))
        finally:
            log.append("parent")
            yield from Step(log.append, "performed!")

    asked_once(handler).suspend()
    assert log == ["a", "b", "parent"]


def test_effects_while_unwinding_are_not_performed_nor_emitted() -> None:
    """Effects yielded while a round is suspended go nowhere, logs and progress included."""
    heard: list[object] = []
    signals: list[type[BaseException]] = []

    def attempt(effect: Any) -> Flow[None]:
        try:
            yield from effect
        except BaseException as exc:
            signals.append(type(exc))

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            yield from attempt(Log("info", "unwinding"))
            yield from attempt(Progress(1))
            yield from attempt(Elicit("And now?", str))
            yield from attempt(Version("v", default=0, latest=1))
            yield from attempt(Step(heard.append, "performed!"))

    one = asked_once(handler, emit=heard.append)
    before = one.journal
    assert one.suspend() == before
    assert heard == []
    assert signals == [Suspended] * 5


# ---- Suspended, caught --------------------------------------------------------------


def swallowed() -> Flow[Any]:
    try:
        yield from Elicit("Who?", str)
    except BaseException:
        pass
    return (yield from Step(sys.exit, "performed!"))


def swallowed_bare() -> Flow[Any]:
    try:
        yield from Elicit("Who?", str)
    except:  # noqa: E722
        pass
    return (yield from Step(sys.exit, "performed!"))


def returned_instead() -> Flow[Any]:
    try:
        return (yield from Elicit("Who?", str))
    except BaseException:
        return "something else"


def raised_instead() -> Flow[Any]:
    try:
        return (yield from Elicit("Who?", str))
    except BaseException as exc:
        raise RuntimeError("something else") from exc


def diverted() -> Flow[Any]:
    try:
        return (yield from Elicit("Who?", str))
    except BaseException:
        return (yield from Step(sys.exit, "performed!"))


@pytest.mark.parametrize(
    "handler",
    [swallowed, swallowed_bare, returned_instead, raised_instead, diverted],
)
def test_suspended_caught(
    handler: Callable[[], Flow[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """`Suspended` caught, by `except BaseException`, bare `except`, or re-raised as another.

    The round's journal is the same as if it had not been.
    """
    buried = GRAVEYARD.buried
    one = asked_once(handler)
    before = one.journal
    assert one.suspend() == before
    assert one.journal == before
    assert buried == GRAVEYARD.buried
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert bool(said) == (handler is raised_instead)


def test_suspended_caught_and_raised_as_something_else_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exception raised while unwinding is logged with its traceback."""
    asked_once(raised_instead).suspend()
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


def test_suspended_caught_does_not_end_the_flow() -> None:
    """A handler that swallows `Suspended` still gets the answer in the next round."""

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        except BaseException:
            return "swallowed"

    for way in WAYS.values():
        assert returns(way(handler)) == "text"


def test_suspended_caught_in_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    """`Suspended` caught in a loop: 16 times, then buried, with one log line a handler."""
    seen = []

    def stubborn() -> Flow[str]:
        while True:
            try:
                return (yield from Elicit("Who?", str))
            except BaseException as exc:
                seen.append(type(exc))
                if len(seen) % 20 == 19:
                    raise  # so that the collector finds nothing to complain about

    buried = GRAVEYARD.buried
    one = asked_once(stubborn)
    one.suspend()
    assert seen == [Suspended] * (1 + PATIENCE)
    assert GRAVEYARD.buried == buried + 1
    (record,) = caplog.records
    assert "stubborn" in record.getMessage()
    assert line(stubborn, 3) in record.getMessage()
    seen.clear()
    asked_once(stubborn).suspend()
    assert GRAVEYARD.buried == buried + 2
    assert len(caplog.records) == 1


def test_suspended_caught_repeatedly_within_patience() -> None:
    """Sixteen effects while unwinding are borne; the seventeenth means the graveyard."""

    def handler(effects: int) -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            for _ in range(effects):
                try:
                    yield from Now()
                except Suspended:
                    pass

    buried = GRAVEYARD.buried
    asked_once(handler, PATIENCE).suspend()
    assert buried == GRAVEYARD.buried
    asked_once(handler, PATIENCE + 1).suspend()
    assert GRAVEYARD.buried == buried + 1


def test_graveyard_is_bounded() -> None:
    """The graveyard holds so many, and counts them all."""
    closed = []

    def corpse(name: int) -> Flow[None]:
        try:
            yield from Now()
        finally:
            closed.append(name)

    graveyard = Graveyard(2)
    for name in range(3):
        one = corpse(name)
        next(one)
        graveyard.bury(one)
    assert graveyard.buried == 3
    assert closed == [0]


# ---- exceptions in finally ----------------------------------------------------------


def test_exceptions_in_finally_at_a_suspension(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Exceptions in `finally` while unwinding change nothing and are logged."""
    is_fine = False

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            if not is_fine:
                raise ValueError("in finally")

    first = run(handler)
    stop = first.start()
    assert isinstance(stop, Asked)
    before = first.journal
    assert first.suspend() == before
    assert "suspended" in caplog.text
    is_fine = True
    again = run(handler, journal=before)
    assert again.start(answers_to(stop, yes)) == Returned("text")


@every_way
def test_exceptions_in_finally_at_the_end(way: Any) -> None:
    """Exceptions in `finally` at the real end are the handler's own."""

    def handler() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            raise ValueError("in finally")

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert repr(stop.error) == "ValueError('in finally')"


@every_way
def test_exceptions_in_finally_of_an_effect(way: Any) -> None:
    """An effect that fails in `finally` raises there, with what it interrupted as context."""

    def release() -> None:
        raise OSError("no release")

    def handler() -> Flow[str]:
        try:
            yield from Elicit("Who?", str)
            raise ValueError("in the body")
        finally:
            yield from Step(release)

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, OSError)
    assert isinstance(stop.error.__context__, ValueError)


@every_way
def test_return_in_finally_after_a_thrown_failure(way: Any) -> None:
    """`return` in `finally` after a thrown failure: the failure is gone, as in Python."""

    def charge() -> str:
        raise ValueError("no money")

    def handler() -> Flow[str]:
        try:
            yield from Elicit("Who?", str)
            yield from Step(charge)
        finally:
            return "never mind"  # noqa: B012

    assert returns(way(handler)) == "never mind"


# ---- trio ---------------------------------------------------------------------------


async def test_trio_cancel_scope_across_a_yield() -> None:
    """A trio cancel scope across a yield is fine, live and at a suspension."""

    def handler() -> Flow[str]:
        with trio.CancelScope() as scope:  # noqa: ASYNC100
            name: str = yield from Elicit("Who?", str)
        return name if not scope.cancelled_caught else "cancelled"

    for way in WAYS.values():
        assert returns(way(handler)) == "text"
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("nth", [0, 1])
def test_trio_cancel_scope_across_a_yield_in_a_gather(nth: int) -> None:
    """A trio cancel scope across a yield, in a Gather: translated from trio's error."""
    stops = []

    def scoped(questions: int) -> Flow[None]:
        with trio.CancelScope():  # noqa: ASYNC100
            for n in range(questions):
                yield from Elicit(f"{n}?", str)

    def handler() -> Flow[Any]:
        branches = [scoped(2), scoped(2)]
        branches[nth] = scoped(1)
        return (yield from Gather(*branches))

    async def main() -> None:
        stops.append(live(handler))

    # trio itself may fail with scopes that overlap; this test is about our error.
    try:
        trio.run(main)
    except BaseException:
        pass
    (stop,) = stops
    if nth == 1:
        # Closed in reverse order of opening, as trio requires.
        assert isinstance(stop, Returned)
        return
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert "cancel scope" in str(stop.error)
    assert "Gather" in str(stop.error)
    assert "Step" in str(stop.error)
    assert isinstance(stop.error.__cause__, RuntimeError)


# ---- context ------------------------------------------------------------------------

tenant = contextvars.ContextVar("tenant", default="nobody")


@every_way
def test_context_variables(way: Any) -> None:
    """Context variables hold over yields and reach neither the caller nor other flows."""

    def handler() -> Flow[tuple[str, str]]:
        before = tenant.get()
        tenant.set("ann")
        yield from Elicit("Who?", str)
        return before, tenant.get()

    token = tenant.set("host")
    try:
        assert returns(way(handler)) == ("host", "ann")
        assert tenant.get() == "host"
    finally:
        tenant.reset(token)


def seen_after_a_restart() -> Flow[str]:
    found = tenant.get()
    yield from ()
    return found


def test_context_variables_after_a_restart() -> None:
    """L1: what starts again runs in the context in which the run was made."""

    def handler() -> Flow[str]:
        tenant.set("ann")
        yield from Now()
        return (yield from Restart(seen_after_a_restart))

    token = tenant.set("host")
    one = run(handler)
    stop = one.start()
    tenant.reset(token)
    assert returns(advance(one, stop)) == "host"


def test_context_variables_of_two_flows_at_once() -> None:
    """Two flows that take turns in one thread keep their own context variables."""

    def handler(name: str) -> Flow[str]:
        token = tenant.set(name)
        yield from Elicit("Who?", str)
        tenant.reset(token)  # the same context, or this raises
        tenant.set(f"{name} again")
        yield from Elicit("Who?", str)
        return tenant.get()

    runs = {name: run(handler, name, rules=LIVE) for name in ("ann", "bob")}
    stops = {name: one.start() for name, one in runs.items()}
    for _ in range(2):
        for name, one in runs.items():
            stop = stops[name]
            assert isinstance(stop, Asked)
            stops[name] = one.answered(answers_to(stop, yes))
    assert stops == {name: Returned(f"{name} again") for name in runs}
    assert tenant.get() == "nobody"


@every_way
def test_context_variables_in_branches(way: Any) -> None:
    """Branches run in copies of the flow's context: they see it, and change only theirs."""

    def branch(name: str) -> Flow[list[str]]:
        seen = [tenant.get()]
        tenant.set(name)
        yield from Elicit(name, str)
        seen.append(tenant.get())
        return seen

    def handler() -> Flow[Any]:
        tenant.set("flow")
        found = yield from Gather(branch("a"), branch("b"))
        return [*found, tenant.get()]

    assert returns(way(handler)) == [["flow", "a"], ["flow", "b"], "flow"]


def test_context_variables_in_steps() -> None:
    """Steps run in copies of the flow's context."""

    def who() -> str:
        seen = tenant.get()
        tenant.set("step")
        return seen

    def handler() -> Flow[tuple[str, str]]:
        tenant.set("flow")
        return (yield from Step(who)), tenant.get()

    one = run(handler)
    stop = one.start()
    assert isinstance(stop, Perform)
    (want,) = stop.wants
    value = want.context.copy().run(who)
    assert one.performed({want.key: Done(value)}) == Returned(("flow", "flow"))


@every_way
def test_decimal_contexts(way: Any) -> None:
    """A `decimal` context over a yield is the flow's own, and leaks nowhere."""

    def handler() -> Flow[str]:
        with decimal.localcontext() as context:
            context.prec = 3
            yield from Elicit("Who?", str)
            return str(decimal.Decimal(1) / 3)

    before = decimal.getcontext().prec
    assert returns(way(handler)) == "0.333"
    assert decimal.getcontext().prec == before


@every_way
def test_decimal_contexts_changed_in_place(way: Any) -> None:
    """`getcontext().prec = 5` in one flow holds over its yields, and reaches no other."""

    def handler() -> Flow[str]:
        decimal.getcontext().prec = 5
        yield from Elicit("Who?", str)
        return str(decimal.Decimal(1) / 3)

    with decimal.localcontext() as host:
        host.prec = 8
        assert returns(way(handler)) == "0.33333"
        assert str(decimal.Decimal(1) / 3) == "0.33333333"


# ---- depth --------------------------------------------------------------------------


def in_thread(function: Callable[[], Any]) -> Any:
    """Call `function` on a stack of its own, so that pytest's does not count."""
    box: list[Any] = []

    def call() -> None:
        try:
            box.append(function())
        except BaseException as exc:
            box.append(exc)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]


def deep(level: int, log: list[int]) -> Flow[str]:
    try:
        if level > 1:
            return (yield from deep(level - 1, log))
        first = yield from Elicit("Who?", str)
        return first + (yield from Elicit("And who?", str))
    finally:
        log.append(level)


@every_way
@pytest.mark.parametrize("depth", [5, 900])
def test_nested_yield_from(way: Any, depth: int) -> None:
    """Nested `yield from` 5 and 900 deep: no way of driving it adds to the depth."""
    if depth > 500 and sys.gettrace() is not None:
        pytest.skip("under a tracer, as of coverage, each level counts twice")
    log: list[int] = []
    assert returns(in_thread(lambda: way(deep, depth, log))) == "texttext"
    assert log[-depth:] == list(range(1, depth + 1))


@pytest.mark.parametrize("depth", [5, 900])
def test_nested_yield_from_is_located_and_suspended(depth: int) -> None:
    """The line named is the innermost frame's, and a suspension reaches every frame."""
    log: list[int] = []

    def play() -> str | None:
        one = asked_once(deep, depth, log)
        where = one.where
        one.suspend()
        return where

    assert in_thread(play) == line(deep, 4)
    assert log == list(range(1, depth + 1))


def test_nested_yield_from_2000_deep() -> None:
    """Nested `yield from` 2,000 deep: Python's own RecursionError comes out, as Raised."""
    log: list[int] = []

    def play() -> tuple[Any, Any]:
        one = run(deep, 2_000, log)
        return one.start(), one.journal

    stop, journal = in_thread(play)
    if isinstance(stop, Asked):
        return  # a Python without that limit
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, RecursionError)
    assert journal == Journal(waves=0)
    # The process still works afterwards.
    assert returns(in_thread(lambda: live(deep, 5, log))) == "texttext"


def test_nested_yield_from_that_recurses_too_deep_later() -> None:
    """A RecursionError after an answer is the handler's, with any journal."""

    def handler() -> Flow[str]:
        yield from Elicit("Who?", str)
        return (yield from deep(2_000, []))

    for way in WAYS.values():
        stop = in_thread(lambda way=way: way(handler))  # type: ignore[misc]
        assert isinstance(stop, Raised | Returned)
        if isinstance(stop, Raised):
            assert isinstance(stop.error, RecursionError)


# ---- exceptions of Python's own -----------------------------------------------------


@every_way
def test_leaked_stop_iteration(way: Any) -> None:
    """A leaked StopIteration is an error of the handler's, never a quiet return."""

    def handler() -> Flow[str]:
        yield from Elicit("Who?", str)
        return next(iter(()))

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, RuntimeError)
    assert isinstance(stop.error.__cause__, StopIteration)


def test_leaked_stop_iteration_of_a_plain_function() -> None:
    """A leaked StopIteration of a plain function is raised too."""

    def handler() -> str:
        return next(iter(()))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, StopIteration)


@every_way
def test_leaked_stop_iteration_of_a_step(way: Any) -> None:
    """A leaked StopIteration of a step is StepFailed: thrown, it would end the generator."""

    def broken() -> str:
        return next(iter(()))

    def handler() -> Flow[str]:
        yield from Elicit("Who?", str)
        try:
            return (yield from Step(broken))
        except StepFailed as exc:
            return f"failed: {exc.type}"

    assert returns(way(handler)) == "failed: StopIteration"


@every_way
def test_leaked_stop_iteration_in_a_branch(way: Any) -> None:
    """A leaked StopIteration in a branch fails the Gather."""

    def branch() -> Flow[str]:
        yield from Elicit("Who?", str)
        return next(iter(()))

    def handler() -> Flow[Any]:
        try:
            return (yield from Gather(branch(), Elicit("And?", str)))
        except RuntimeError as exc:
            return type(exc.__cause__).__name__

    assert returns(way(handler)) == "StopIteration"


# ---- re-entry -----------------------------------------------------------------------


def test_handler_re_entering_its_run() -> None:
    """A handler re-entering its own run gets an error that says it, with every verb."""
    said: list[str] = []
    box: list[Run] = []

    def handler() -> Flow[str]:
        yield from Elicit("Who?", str)
        (mine,) = box
        for verb in (
            mine.start,
            lambda: mine.answered({}),
            lambda: mine.performed({}),
            mine.suspend,
            mine.cancel,
        ):
            with pytest.raises(UsageError, match="from inside its own handler") as info:
                verb()
            said.append(info.value.problem)
        return "done"

    one = asked_once(handler, rules=LIVE)
    box.append(one)
    assert one.answered({"elicit-1": Accepted({"value": "Ann"})}) == Returned("done")
    assert len(said) == 5


def test_handler_re_entering_itself() -> None:
    """A handler re-entering its own generator gets Python's ValueError, and it is its own."""
    generators: list[Flow[str]] = []

    def body() -> Flow[str]:
        yield from Elicit("Who?", str)
        next(generators[0])
        return "not reached"

    def handler() -> Flow[str]:
        generators[:] = [body()]
        return generators[0]

    stop = live(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, ValueError)
    assert "already executing" in str(stop.error)


def test_handler_re_entering_itself_as_a_branch() -> None:
    """A handler that gives its own running generator to Gather gets an error, at the line."""
    generators: list[Flow[Any]] = []

    def body() -> Flow[Any]:
        return (yield from Gather(generators[0]))

    def handler() -> Flow[Any]:
        generators[:] = [body()]
        return generators[0]

    stop = live(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert "already started" in stop.error.problem
    assert "call the function again" in stop.error.problem
    assert stop.error.where == line(body, 1)


def test_run_is_not_entered_from_another_thread() -> None:
    """A run belongs to one thread: calls from a second are refused without effect."""
    inside, done = threading.Event(), threading.Event()

    def handler() -> Flow[str]:
        inside.set()
        done.wait(10)
        return (yield from Elicit("Who?", str))

    one = run(handler, rules=LIVE)
    stops: list[Any] = []
    thread = threading.Thread(target=lambda: stops.append(one.start()))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(UsageError, match="another thread"):
        one.suspend()
    done.set()
    thread.join()
    assert messages(stops[0]) == ["Who?"]


# ---- failures, over and over --------------------------------------------------------


def traceback_length(exc: BaseException) -> int:
    length, traceback = 0, exc.__traceback__
    while traceback is not None:
        length, traceback = length + 1, traceback.tb_next
    return length


def test_one_failure_delivered_a_thousand_times() -> None:
    """One failure delivered a thousand times is fresh each time: no traceback grows."""
    same = ValueError("no money")
    lengths: list[int] = []
    contexts: list[BaseException | None] = []

    def charge(n: int) -> str:
        raise AssertionError("performed by the test")

    def handler() -> Flow[int]:
        caught = []
        for n in range(1_000):
            try:
                yield from Step(charge, n)
            except ValueError as exc:
                caught.append(exc)
                lengths.append(traceback_length(exc))
                contexts.append(exc.__context__)
        assert len(set(map(id, caught))) == 1_000
        assert all(exc is not same for exc in caught)
        yield from Elicit("Enough?", str)
        return len(caught)

    one = run(handler)
    stop = advance(one, one.start(), lambda want: Failure(same))
    journal = one.suspend()
    assert len(set(lengths)) == 1
    assert contexts == [None] * 1_000
    assert traceback_length(same) == 0
    lengths.clear()
    again = run(handler, journal=journal)
    assert again.start(answers_to(stop, yes)) == Returned(1_000)  # type: ignore[arg-type]
    assert len(set(lengths)) == 1


def test_one_refusal_delivered_a_thousand_times() -> None:
    """One Declined delivered a thousand times does not grow either."""
    same = Declined()
    lengths: list[int] = []
    caught: list[Declined] = []

    def handler() -> Flow[int]:
        for _ in range(1_000):
            try:
                yield from Elicit("Who?", str)
            except Declined as exc:
                lengths.append(traceback_length(exc))
                caught.append(exc)
        return len(lengths)

    assert returns(live_limited(handler, lambda question: same)) == 1_000
    assert len(set(lengths)) == 1
    assert len({*map(id, caught), id(same)}) == 1_001
    assert traceback_length(same) == 0


def live_limited(handler: Callable[..., Any], answer: Any) -> Any:
    """Like `live`, but with no limit on the number of questions."""
    one = run(handler, rules=LIVE)
    stop = advance(one, one.start())
    while isinstance(stop, Asked):
        stop = advance(one, one.answered(answers_to(stop, answer)))
    return stop


# ---- loops --------------------------------------------------------------------------


def loop_of_now() -> Flow[None]:
    while True:
        yield from Now()


def loop_of_steps() -> Flow[None]:
    while True:
        yield from Step(int)


def loop_of_keys() -> Flow[None]:
    while True:
        yield from IdempotencyKey("charge")


def loop_of_versions() -> Flow[None]:
    while True:
        yield from Version("v", default=0, latest=1)


def loop_of_progress() -> Flow[None]:
    while True:
        yield from Progress(1)


def loop_of_gathered_effects() -> Flow[None]:
    while True:
        yield from Gather(Now(), Now())


def loop_of_mistakes() -> Flow[None]:
    while True:
        try:
            yield None  # type: ignore[misc]
        except NotAnEffectError:
            pass


def loop_of_unsupported() -> Flow[None]:
    while True:
        try:
            yield from Elicit("Who?", str)
        except Unsupported:
            pass


LOOPS = [
    loop_of_now,
    loop_of_steps,
    loop_of_keys,
    loop_of_versions,
    loop_of_progress,
    loop_of_gathered_effects,
    loop_of_mistakes,
    loop_of_unsupported,
]


def patient() -> Callable[[Want], Done | Failure]:
    """Performs, but not for ever: a test of what should end must end."""
    performed = []

    def one(want: Want) -> Done | Failure:
        performed.append(want.key)
        assert len(performed) < 5_000, "nothing ended this loop"
        return perform(want)

    return one


@pytest.mark.parametrize("handler", LOOPS)
@pytest.mark.parametrize("rules", [UNCAPPED, LIVE], ids=["retry", "live"])
def test_loop_of_local_effects(handler: Callable[[], Flow[None]], rules: Any) -> None:
    """A loop of local effects, or of caught Unsupported errors, is ended."""
    one = run(
        handler,
        rules=attrs.evolve(rules, yields=500),
        supports=lambda what: False,
    )
    stop = advance(one, one.start(), patient())
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)
    assert "500" in stop.error.problem
    assert handler.__name__ in stop.error.problem
    assert stop.error.where is not None
    file, _, number = stop.error.where.rpartition(":")
    first = handler.__code__.co_firstlineno
    assert file == __file__
    assert first < int(number) <= first + 6


def test_loop_of_empty_gathers() -> None:
    """A loop of Gathers of nothing is ended too: no entry feeds those yields."""

    def handler() -> Flow[None]:
        for _ in range(5_000):
            yield from Gather()
        raise AssertionError("nothing ended this loop")

    one = run(handler, rules=attrs.evolve(LIVE, yields=500))
    stop = advance(one, one.start())
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)


def stubborn(refused: Any) -> Flow[str]:
    """Swallow the engine's error about `refused`, and yield it again."""
    for _ in range(5_000):
        try:
            yield refused
        except UsageError:
            pass
    return "nothing ended this loop"


def stubborn_in_a_branch(refused: Any) -> Flow[Any]:
    return (yield from Gather(stubborn(refused)))


def stubborn_in_cleanup(refused: Any) -> Flow[Any]:
    try:
        return (yield from Restart(yield_none))
    finally:
        yield from stubborn(refused)


@pytest.mark.parametrize(
    ("handler", "refused"),
    [
        (stubborn, None),
        (stubborn, Sleep(1)),
        (stubborn, Gather(Detach())),
        (stubborn_in_a_branch, None),
        (stubborn_in_cleanup, None),
    ],
    ids=shown,
)
def test_loop_that_swallows_refusals(
    handler: Callable[[Any], Flow[Any]], refused: Any
) -> None:
    """A refusal is a yield that no entry feeds: without a budget it hangs a server."""
    stop = run(handler, refused, rules=attrs.evolve(LIVE, yields=500)).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)


def test_loop_that_swallows_refusals_leaves_no_generator() -> None:
    """The handler's plain cleanup does not wait until the run is garbage."""
    ended = []

    def handler() -> Flow[str]:
        try:
            return (yield from stubborn(None))
        finally:
            ended.append("ended")

    one = run(handler, rules=attrs.evolve(LIVE, yields=50))
    assert isinstance(one.start(), Raised)
    assert ended == ["ended"]


def test_loop_that_swallows_refusals_within_the_budget() -> None:
    """Each of them counts once."""

    def handler(count: int) -> Flow[str]:
        for _ in range(count):
            with suppress(NotAnEffectError):
                yield None  # type: ignore[misc]
        return "done"

    rules = attrs.evolve(LIVE, yields=50)
    assert run(handler, 50, rules=rules).start() == Returned("done")
    assert isinstance(run(handler, 51, rules=rules).start(), Raised)


def test_loop_of_local_effects_cannot_be_caught() -> None:
    """A budget that is spent ends the run: the handler is not asked for its opinion."""

    def handler() -> Flow[str]:
        while True:
            try:
                yield from Now()
            except Exception:
                return "caught"

    one = run(handler, rules=attrs.evolve(LIVE, yields=50))
    stop = advance(one, one.start(), patient())
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)


def test_loop_of_local_effects_as_long_as_the_budget() -> None:
    """Ten thousand yields a round are fine, and ten thousand and one are not."""

    def handler(count: int) -> Flow[str]:
        for _ in range(count):
            yield from IdempotencyKey("charge")
        return "done"

    assert run(handler, 10_000).start() == Returned("done")
    stop = run(handler, 10_001).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, BudgetError)
    assert "10,000" in stop.error.problem


def test_loop_of_local_effects_is_counted_per_round() -> None:
    """Effects that the journal answers are not counted, and a new round starts at zero."""

    def handler() -> Flow[int]:
        for _ in range(5):
            for _ in range(90):
                yield from Now()
            yield from Elicit("More?", str)
        return 5

    for rules, way in ((UNCAPPED, WAYS["retry"]), (LIVE, WAYS["live"])):
        assert returns(way(handler, rules=attrs.evolve(rules, yields=100))) == 5


# ---- yields of values other than effects --------------------------------------------


def yield_none() -> Flow[Any]:
    return (yield None)  # type: ignore[misc]


def yield_five() -> Flow[Any]:
    return (yield 5)  # type: ignore[misc]


def yield_list() -> Flow[Any]:
    return (yield [Now(), Now()])  # type: ignore[misc]


def yield_text() -> Flow[Any]:
    return (yield "abc")  # type: ignore[misc]


def yield_from_text() -> Flow[Any]:
    return (yield from "abc")  # type: ignore[misc]


def yield_class() -> Flow[Any]:
    return (yield Now)  # type: ignore[misc]


def yield_flow() -> Flow[Any]:
    return (yield flow_of(Now())())


def yield_function() -> Flow[Any]:
    return (yield len)  # type: ignore[misc]


MISTAKES = {
    yield_none: ("None", "A bare `yield` does nothing here"),
    yield_five: ("5", "A handler yields effects only"),
    yield_list: ("[Now(), Now()]", "Gather(...)"),
    yield_text: ("'abc'", "Write Elicit(...) to ask"),
    yield_from_text: ("'a'", "yields its characters"),
    yield_class: ("Now'>", "Write Now(...)"),
    yield_flow: ("generator", "Write `yield from`, not `yield`"),
    yield_function: ("len", "Step(function, ...)"),
}


@pytest.mark.parametrize(("handler", "words"), MISTAKES.items())
def test_yields_of_values_that_are_not_effects(
    handler: Any, words: tuple[str, str]
) -> None:
    """Yields of `None`, `5`, a list, a string, an effect class: refused by name and line."""
    what, instead = words
    for way in WAYS.values():
        stop = way(handler)
        assert isinstance(stop, Raised)
        assert isinstance(stop.error, NotAnEffectError)
        assert what in stop.error.problem
        assert instead in stop.error.problem
        assert stop.error.where == line(handler, 1)
        assert stop.error.where in str(stop.error)


@every_way
def test_yields_of_values_that_are_not_effects_can_be_survived(way: Any) -> None:
    """Such a yield raises at its line and takes no entry; the flow can continue."""

    def handler() -> Flow[Any]:
        seen = [(yield from Elicit("Who?", str))]
        try:
            yield 5  # type: ignore[misc]
        except NotAnEffectError:
            seen.append("five")
        return [*seen, (yield from Elicit("And who?", str))]

    assert returns(way(handler)) == ["text", "five", "text"]


def test_yields_of_values_that_are_not_effects_in_a_branch() -> None:
    """In a branch such a yield fails the branch, at its own line, and nothing is asked."""

    def branch() -> Flow[Any]:
        return (yield 5)  # type: ignore[misc]

    def handler() -> Flow[Any]:
        return (yield from Gather(Elicit("Who?", str), branch()))

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NotAnEffectError)
    assert stop.error.where == line(branch, 1)


def test_foreign_await_in_a_coroutine() -> None:
    """A coroutine that awaits anything but effects gets an error about Step, at the line."""

    async def handler() -> str:
        await Elicit("Who?", str)
        await trio.lowlevel.checkpoint()
        return "not reached"

    async def main() -> Any:
        one = run(handler, rules=LIVE)
        stop = one.start()
        assert isinstance(stop, Asked)
        return one.answered(answers_to(stop, yes))

    # Outside of trio the await raises by itself; inside it yields trio's own traps.
    stop = trio.run(main)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NotAnEffectError)
    assert "`Step`" in stop.error.problem
    assert "`Gather`" in stop.error.problem


def not_a_message() -> Flow[Any]:
    return (yield from Elicit(None, str))  # type: ignore[call-overload]


def bytes_as_a_message() -> Flow[Any]:
    return (yield from Confirm(b"Sure?"))  # type: ignore[call-overload]


def list_as_a_version() -> Flow[Any]:
    return (yield from Version(["fee"], default=0, latest=1))  # type: ignore[arg-type]


def unwritable_arguments() -> Flow[Any]:
    return (yield from Step(len, {(1, 2): 3}))


def unwritable_restart() -> Flow[Any]:
    return (yield from Restart(sequel, {(1, 2): 3}))


def sequel(anything: Any) -> Flow[Any]:
    return (yield from Elicit(f"{anything}?", str))


@pytest.mark.parametrize(
    "handler",
    [
        not_a_message,
        bytes_as_a_message,
        list_as_a_version,
        unwritable_arguments,
        unwritable_restart,
    ],
)
def test_yields_of_effects_with_wrong_parts(handler: Any) -> None:
    """An effect with a part of the wrong type is refused at its line, not out of the run."""
    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, UsageError)
    assert stop.error.where == line(handler, 1)


# ---- effects in odd places ----------------------------------------------------------


@every_way
def test_one_effect_object_twice(way: Any) -> None:
    """One effect object twice is two effects: two entries, two questions."""
    who = Elicit("Who?", str)
    asked = []

    def answer(question: Any) -> Any:
        asked.append(question.key)
        return yes(question)

    assert returns(way(flow_of(who, who), answer=answer)) == ["text", "text"]
    assert asked == ["elicit-1", "elicit-2"]


def test_one_effect_object_twice_with_a_key() -> None:
    """One effect object with a key, twice: the second use gets `#2`."""
    who = Elicit("Who?", str, key="who")
    one = run(flow_of(who, who), rules=LIVE)
    stop = one.start()
    assert keys(stop) == ["who"]
    assert isinstance(stop, Asked)
    assert keys(one.answered(answers_to(stop, yes))) == ["who#2"]


def test_effect_is_not_spoiled_by_being_performed() -> None:
    """An effect holds no trace of the run that performed it."""
    who, sure = Elicit("Who?", str), Confirm("Sure?")
    before = repr((who, sure))
    for way in WAYS.values():
        assert returns(way(flow_of(who, sure))) == ["text", True]
    assert repr((who, sure)) == before


def effect_as_result() -> Flow[Any]:
    yield from Now()
    return Elicit("Who?", str)


def flow_as_result() -> Flow[Any]:
    yield from Now()
    return effect_as_result()


def effect_of_a_plain_function() -> Any:
    return Elicit("Who?", str)


@every_way
@pytest.mark.parametrize(
    ("handler", "what"),
    [
        (effect_as_result, "Elicit"),
        (flow_as_result, "effect_as_result"),
        (effect_of_a_plain_function, "Elicit"),
    ],
)
def test_effect_as_result(way: Any, handler: Any, what: str) -> None:
    """An effect as result is an error that names the forgotten `yield from`."""
    stop = way(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NotAnEffectError)
    assert what in stop.error.problem
    assert "forgotten `yield from`" in stop.error.problem
    assert handler.__name__ in stop.error.problem


@every_way
def test_effect_as_result_of_a_branch(way: Any) -> None:
    """An effect as a branch's result is the same error, at the Gather's line."""

    def handler() -> Flow[Any]:
        return (yield from Gather(effect_as_result(), Now()))

    stop = way(handler)
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NotAnEffectError)
    assert "forgotten `yield from`" in stop.error.problem
    assert stop.error.where == line(handler, 1)


def test_async_generator_is_refused_by_name() -> None:
    """An async generator is refused by name, with what to write instead."""

    async def handler() -> Any:
        yield Now()

    stop = run(handler).start()
    assert isinstance(stop, Raised)
    assert isinstance(stop.error, NotAnEffectError)
    assert "handler" in stop.error.problem
    assert "plain generator" in stop.error.problem


def test_flow_that_ran_already() -> None:
    """A handler that gives one flow for all rounds is an error, not a quiet `None`."""

    def body() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    flow = body()

    def handler() -> Flow[str]:
        return flow

    one = run(handler)
    stop = one.start()
    assert isinstance(stop, Asked)
    again = run(handler, journal=one.suspend())
    end = again.start(answers_to(stop, yes))
    assert isinstance(end, Raised)
    assert isinstance(end.error, UsageError)


# ---- nothing is left behind ---------------------------------------------------------


def test_nothing_is_kept_alive_after_a_round() -> None:
    """A suspended run keeps no generator and no frame: what the handler held is freed."""

    class Heavy:
        alive = 0

        def __init__(self) -> None:
            Heavy.alive += 1

        def __del__(self) -> None:
            Heavy.alive -= 1

    def branch(name: str) -> Flow[str]:
        heavy = Heavy()
        answer = yield from Elicit(name, str)
        del heavy
        return answer

    def handler() -> Flow[Any]:
        heavy = Heavy()
        answers = yield from Gather(branch("a"), branch("b"))
        del heavy
        return answers

    one = asked_once(handler)
    assert Heavy.alive == 3
    one.suspend()
    gc.collect()
    assert Heavy.alive == 0
