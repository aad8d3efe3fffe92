from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import threading
import time
import uuid
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

import pytest

from effectmcp import (
    Accepted,
    Caller,
    CallerInfo,
    Confirm,
    Declined,
    Detach,
    Effect,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    Now,
    Provided,
    Random,
    Sleep,
    Step,
    StepError,
    StepFailed,
    UsageError,
    Uuid,
    Within,
    step,
)
from effectmcp.drivers.local import left
from effectmcp.drivers.sync import advance, perform, run_flow
from effectmcp.engine import (
    TASK,
    Answer,
    Asked,
    Done,
    Failure,
    Question,
    Returned,
    Want,
)
from effectmcp_tests.helpers import finish, run, yes

user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


class Pool:
    """A value that a server's lifespan provides."""


def want(effect: Effect[Any], context: Context | None = None) -> Want:
    return Want("k", effect, context or Context())


def charge(amount: int, *, pool: Pool = Provided()) -> str:
    return f"{amount} by {type(pool).__name__}"


def charge_untyped(amount, pool=Provided()):  # type: ignore[no-untyped-def]
    return f"{amount} by {pool}"


async def acharge(amount: int) -> str:
    return f"{amount} by {user.get()}"


def failure(outcome: Done | Failure) -> Exception:
    assert isinstance(outcome, Failure), outcome
    return outcome.error


# ---- one effect ----


def test_perform_a_step() -> None:
    assert perform(want(Step(max, 1, 2))) == Done(2)


def test_perform_a_step_that_raises() -> None:
    error = failure(perform(want(Step(int, "x"))))
    assert isinstance(error, ValueError)


def test_perform_lets_an_interrupt_pass() -> None:
    """An interrupt is the operator's, not a failure of the step."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(want(Step(interrupted)))


def test_perform_draws_the_time() -> None:
    outcome = perform(want(Now()))
    assert isinstance(outcome, Done)
    assert abs(outcome.value - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_perform_draws_random_values() -> None:
    numbers = {perform(want(Random())) for _ in range(3)}
    uuids = {perform(want(Uuid())) for _ in range(3)}
    assert len(numbers) == len(uuids) == 3
    for one in numbers:
        assert isinstance(one, Done)
        assert 0 <= one.value < 1
    for one in uuids:
        assert isinstance(one, Done)
        assert isinstance(one.value, uuid.UUID)


def test_perform_caller() -> None:
    ann = CallerInfo(principal="ann")
    assert perform(want(Caller()), caller=ann) == Done(ann)
    assert perform(want(Caller())) == Done(CallerInfo())


def test_perform_detach_continues_inline() -> None:
    assert perform(want(Detach())) == Done(False)


def test_perform_sleep_waits() -> None:
    began = time.monotonic()
    assert perform(want(Sleep(0.01))) == Done(None)
    assert time.monotonic() - began >= 0.01


@pytest.mark.parametrize(
    "effect", [Within(1, Sleep(0)), FirstOf(Sleep(0), Sleep(1))], ids=repr
)
def test_perform_refuses_two_things_at_once(effect: Effect[Any]) -> None:
    with pytest.raises(StepError, match=f"{type(effect).__name__}.. needs a driver"):
        perform(want(effect))


# ---- retries ----


def flaky(calls: list[int], failures: int) -> Callable[[], int]:
    """A function that raises so often before it returns the number of its calls."""

    def function() -> int:
        calls.append(1)
        if len(calls) <= failures:
            raise OSError("busy")
        return len(calls)

    return function


def test_perform_retries() -> None:
    assert perform(want(step(retries=2)(flaky([], 2))())) == Done(3)


def test_perform_gives_up_after_its_retries() -> None:
    calls: list[int] = []
    error = failure(perform(want(step(retries=2)(flaky(calls, 9))())))
    assert isinstance(error, OSError)
    assert len(calls) == 3


def test_perform_retries_nothing_by_default() -> None:
    calls: list[int] = []
    failure(perform(want(Step(flaky(calls, 1)))))
    assert len(calls) == 1


class Refused(Exception):
    """An answer of the domain."""


def refusing(calls: list[int]) -> Any:
    def charge() -> None:
        calls.append(1)
        raise Refused("expired")

    return step(raises=(Refused,), retries=2)(charge)


def test_perform_does_not_retry_what_a_step_declares() -> None:
    """S2b: a declared refusal is an answer, and asking again is a second charge."""
    calls: list[int] = []
    error = failure(perform(want(refusing(calls)())))
    assert isinstance(error, Refused)
    assert len(calls) == 1


# ---- provided values ----


@pytest.mark.parametrize("key", ["pool", Pool], ids=str)
def test_perform_provides_by_name_or_annotation(key: Any) -> None:
    assert perform(want(Step(charge, 3)), provided={key: Pool()}) == Done("3 by Pool")


def test_perform_provides_by_name_without_an_annotation() -> None:
    assert perform(want(Step(charge_untyped, 3)), provided={"pool": "x"}) == Done(
        "3 by x"
    )


def test_perform_provides_nothing_that_was_given() -> None:
    """A test hands over its own pool."""
    effect = Step(charge_untyped, 3, pool="mine")
    assert perform(want(effect), provided={"pool": "x"}) == Done("3 by mine")
    assert perform(want(effect)) == Done("3 by mine")


def test_perform_provides_nothing_that_was_given_by_position() -> None:
    effect = Step(charge_untyped, 3, "mine")
    assert perform(want(effect), provided={"pool": "x"}) == Done("3 by mine")


def test_perform_names_what_is_not_provided() -> None:
    with pytest.raises(StepError, match="the parameter 'pool' of .*test_sync:charge"):
        perform(want(Step(charge, 3)), provided={"log": 1})


# ---- async steps ----


def test_perform_refuses_async_steps_without_a_runner() -> None:
    """S6."""
    with pytest.raises(StepError, match="run_async=asyncio.run"):
        perform(want(Step(acharge, 3)))


@pytest.mark.parametrize("runner", [asyncio.run, finish])
def test_perform_runs_async_steps_with_a_runner(runner: Callable[[Any], Any]) -> None:
    assert perform(want(Step(acharge, 3)), run_async=runner) == Done("3 by nobody")


def test_perform_async_step_that_raises() -> None:
    async def failing() -> None:
        raise OSError("busy")

    assert isinstance(failure(perform(want(Step(failing)), run_async=finish)), OSError)


def test_perform_retries_async_steps() -> None:
    function = flaky([], 1)

    async def aflaky() -> int:
        return function()

    effect = step(retries=1)(aflaky)()
    assert perform(want(effect), run_async=finish) == Done(2)


# ---- context ----


def as_ann() -> Context:
    context = copy_context()
    context.run(user.set, "ann")
    return context


@pytest.mark.parametrize("runner", [asyncio.run, finish])
def test_perform_runs_steps_in_the_flows_context(runner: Callable[[Any], Any]) -> None:
    """B4: sync or async."""
    assert perform(want(Step(user.get), as_ann())) == Done("ann")
    outcome = perform(want(Step(acharge, 3), as_ann()), run_async=runner)
    assert outcome == Done("3 by ann")


def test_perform_runs_steps_in_a_copy() -> None:
    """Context variables that a step sets are its own."""

    def rename() -> None:
        user.set("bob")

    context = as_ann()
    perform(want(Step(rename), context))
    assert context[user] == "ann"
    assert user.get() == "nobody"


# ---- a run ----


def order(amount: int) -> Flow[str]:
    name = yield from Elicit("Who?", str)
    yield from Now()
    receipt = yield from Step(charge, amount)
    if not (yield from Confirm("Keep it?")):
        return "cancelled"
    return f"{name}: {receipt}"


def test_advance_performs_until_asked_and_to_the_end() -> None:
    one = run(order, 3)
    asked = advance(one, one.start())
    assert isinstance(asked, Asked)
    asked = advance(
        one,
        one.answered({"elicit-1": Accepted({"value": "Ann"})}),
        provided={Pool: Pool()},
    )
    assert isinstance(asked, Asked)
    stop = advance(one, one.answered({"confirm-1": Accepted(None)}))
    assert stop == Returned("Ann: 3 by Pool")


def test_advance_of_what_needs_nothing() -> None:
    stop = Returned(5)
    assert advance(run(order, 3), stop) is stop


def test_advance_records_nothing_of_what_it_cannot_perform() -> None:
    """A mistake in the configuration must not stick to the flow."""
    one = run(order, 3)
    advance(one, one.start())
    asked = one.answered({"elicit-1": Accepted({"value": "Ann"})})
    with pytest.raises(StepError, match="nothing is provided"):
        advance(one, asked)
    assert all(entry.tag != "failed" for entry in one.journal.entries)


def test_a_time_in_the_distant_future_can_be_waited_for() -> None:
    """`Within(1e12, ...)` is a way to say never, and locks refuse so long a timeout."""
    seconds = left(1e300)
    assert seconds is not None
    assert threading.Lock().acquire(timeout=seconds)
    assert left(time.time() - 5) == 0
    assert left(None) is None


# ---- a whole flow ----


def invite(*, hosts: int) -> Flow[list[str]]:
    return (yield from Gather.each(Elicit(f"Host {n}?", str) for n in range(hosts)))


def test_run_flow_returns_what_the_handler_returns() -> None:
    def answer(question: Question) -> Answer:
        assert isinstance(question.effect, Elicit)
        return Accepted({"value": question.effect.message[:6]})

    assert run_flow(invite, hosts=2, answer=answer) == ["Host 0", "Host 1"]


def test_run_flow_raises_what_the_handler_raises() -> None:
    def answer(question: Question) -> Answer:
        return Declined()

    with pytest.raises(Declined):
        run_flow(invite, hosts=1, answer=answer)


def test_run_flow_of_a_plain_function() -> None:
    assert run_flow(max, 1, 2, answer=yes) == 2


def test_run_flow_asks_again_what_does_not_fit() -> None:
    asked: list[tuple[str, ...]] = []

    def answer(question: Question) -> Answer:
        asked.append(question.problems)
        return Accepted({"value": "Ann"} if question.problems else {})

    assert run_flow(invite, hosts=1, answer=answer) == ["Ann"]
    assert asked == [(), ("value: is required",)]


def test_run_flow_takes_rules() -> None:
    def handler() -> Flow[None]:
        yield from Sleep(0)

    assert run_flow(handler, answer=yes, rules=TASK) is None
    with pytest.raises(UsageError, match="belongs after Detach"):
        run_flow(handler, answer=yes)


def test_run_flow_draws_a_flow_id_each_time() -> None:
    """Two calls are two flows: their idempotency keys differ."""
    from effectmcp import IdempotencyKey

    def handler() -> Flow[str]:
        return (yield from IdempotencyKey("charge"))

    assert run_flow(handler, answer=yes) != run_flow(handler, answer=yes)


def test_run_flow_of_a_failing_step() -> None:
    class CardError(Exception):
        pass

    def pay() -> None:
        raise CardError("expired")

    def handler() -> Flow[Any]:
        try:
            yield from Step(pay)
        except StepFailed as exc:
            return (exc.type, exc.message)
        return None

    assert run_flow(handler, answer=yes) == ("CardError", "expired")
