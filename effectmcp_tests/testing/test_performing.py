"""Steps that a check performs, by fakes or by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest

from effectmcp import (
    Confirm,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Now,
    Provided,
    Server,
    Step,
    UsageError,
    step,
)
from effectmcp.effects.base import Effect
from effectmcp.engine import Done, Failure, Want
from effectmcp.testing import Checked, Finding, check
from effectmcp.testing.effect_traces import trace_effects
from effectmcp.testing.performing import Changed, Fakes, Performer, relied_on
from effectmcp.testing.replay_workers import ReplayWorkers
from effectmcp.testing.subjects import subject_of

from .test_conversations import Obliging, had


@step
def add(cart: list[str], thing: str) -> int:
    """Simulates a shop, and changes its arguments."""
    cart.append(thing)
    return len(cart)


@step
def tidy(cart: list[str]) -> list[str]:
    cart.sort()
    return cart


@step
def read_manual(name: str) -> str:
    return "".join(map(str, range(60_000)))


@step
async def price_of(thing: str) -> int:
    return len(thing)


@step
def stored(thing: str, *, shop: str = Provided()) -> str:
    return f"{thing} in {shop}"


@step
def charge(cents: int, key: str) -> str:
    raise OSError("no test should get here")


def fills_a_cart() -> Flow[str]:
    cart: list[str] = []
    thing = yield from Elicit("What?", str)
    yield from add(cart, thing)
    return f"{len(cart)} things."


def fills_a_cart_with_results(things: list[str]) -> Flow[str]:
    cart = list(things)
    yield from Elicit("Anything else?", str)
    cart = yield from tidy(cart)
    return f"{cart}"


def counts_what_it_gives(things: list[str]) -> Flow[str]:
    """The step sorts its copy, and the handler goes by how many there are."""
    yield from Elicit("Anything else?", str)
    first = (yield from tidy(things))[:1]
    return f"{first} of {len(things)}"


def reads_a_manual() -> Flow[str]:
    name = yield from Elicit("Which manual?", str)
    text = yield from read_manual(name)
    page = yield from Elicit("Which page?", int)
    return text[page % 7 : page % 7 + 3]


def asks_for_a_price() -> Flow[str]:
    thing = yield from Elicit("What?", str)
    price = yield from price_of(thing)
    if not (yield from Confirm(f"{price} cents?")):
        return "no"
    return "abc"[price - len(thing)]


def looks_in_a_shop() -> Flow[str]:
    thing = yield from Elicit("What?", str)
    return (yield from stored(thing))


def pays(cents: int) -> Flow[str]:
    if not (yield from Confirm(f"{cents} cents?")):
        return "no"
    key = yield from IdempotencyKey("charge", cents)
    return (yield from charge(cents, key))


def writes_through_a_method() -> Flow[str]:
    """A function that reaches a variable of the handler where no reader can see it."""
    seen: list[str] = []

    def keep(text: str, to: Any = None) -> None:
        put = seen.append
        put(text)

    name = yield from Elicit("Who?", str)
    yield from Step(keep, name)
    if not (yield from Confirm(f"{len(seen)} names?")):
        return "no"
    return f"{len(seen)} names."


@pytest.fixture(scope="module")
def one() -> Iterator[ReplayWorkers]:
    with ReplayWorkers(1) as running:
        yield running


def looked_at(workers: ReplayWorkers, handler: Any, perform: Fakes) -> Checked:
    return check(
        handler, perform=perform, conversations=40, workers=workers, raises=False
    )


def found(workers: ReplayWorkers, handler: Any, perform: Fakes) -> Finding:
    (finding,) = looked_at(workers, handler, perform).findings
    return finding


def line(function: Callable[..., Any], offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


def test_a_step_that_changes_its_argument(one: ReplayWorkers) -> None:
    finding = found(one, fills_a_cart, True)
    assert (finding.kind, finding.where) == ("mutates", line(fills_a_cart, 3))
    assert finding.problem.startswith("the step add() changes its argument cart, and")
    assert finding.transcript is not None
    assert finding.transcript.lines[-1] == (
        'returned {"content": [{"type": "text", "text": "0 things."}]}'
    )


@pytest.mark.parametrize("handler", [fills_a_cart_with_results, counts_what_it_gives])
def test_a_change_that_nothing_uses(one: ReplayWorkers, handler: Any) -> None:
    checked = looked_at(one, handler, True)
    assert (checked.findings, checked.notices) == ((), ())


def test_a_step_that_changes_a_variable(one: ReplayWorkers) -> None:
    finding = found(one, writes_through_a_method, True)
    assert finding.kind == "mutates"
    assert finding.where == line(writes_through_a_method, 9)
    assert "keep() changes the handler's variable seen" in finding.problem


def test_a_result_that_no_state_can_hold(one: ReplayWorkers) -> None:
    finding = found(one, reads_a_manual, {read_manual: True})
    assert (finding.kind, finding.where) == ("size", line(reads_a_manual, 2))
    assert looked_at(one, reads_a_manual, False).findings == ()


def test_an_async_step(one: ReplayWorkers) -> None:
    """The price is the length; drawn, it may be anything, and there is no such letter."""
    assert looked_at(one, asks_for_a_price, {price_of: True}).findings == ()
    checked = check(asks_for_a_price, workers=one, raises=False)
    assert [each.kind for each in checked.findings] == ["crash"]


def test_a_fake_instead_of_a_step(one: ReplayWorkers) -> None:
    charged: list[int] = []

    def fake(cents: int, key: str) -> str:
        charged.append(cents)
        return f"{cents} by {key}"

    checked = looked_at(one, pays, {charge: fake})
    assert (checked.findings, checked.notices) == ((), ())
    assert charged, "it was performed"
    assert len(charged) % 2 == 0, "twice each time"


def test_a_fake_that_gives_something_else_the_second_time(one: ReplayWorkers) -> None:
    def bank() -> dict[Any, Any]:
        """Afresh for each conversation: what one of them paid is not paid in another."""
        receipts: list[str] = []

        def fake(cents: int, key: str) -> str:
            receipts.append(key)
            return f"receipt {len(receipts)}"

        return {charge: fake}

    checked = looked_at(one, pays, bank)
    assert checked.findings == ()
    (notice,) = checked.notices
    assert notice == (
        "charge gives something else when it is performed again with the same arguments,"
        " as it is when a reply is lost. Give what it does an IdempotencyKey"
    )


def test_a_step_that_is_provided_with_something(one: ReplayWorkers) -> None:
    checked = looked_at(one, looks_in_a_shop, True)
    assert checked.findings == ()
    (notice,) = checked.notices
    assert notice == (
        "stored is not performed: it is provided with shop. Give perform= a function for"
        " it"
    )
    fake = {stored: lambda thing: f"{thing} here"}
    assert looked_at(one, looks_in_a_shop, fake).notices == ()


def test_a_whole_server(one: ReplayWorkers) -> None:
    app = Server("shop", version="1.0")
    app.tool(fills_a_cart)
    app.tool(asks_for_a_price)
    checked = looked_at(one, app, {add: True, price_of: price_of})
    (finding,) = checked.findings
    assert finding.subject == "fills_a_cart"


def test_a_performer_that_performs_nothing() -> None:
    assert not Performer(False).performs
    assert not Performer({}).performs
    assert Performer({add: False}).function_of(add([], "a")) is None
    with pytest.raises(UsageError, match="names 3 for add, which is not a function"):
        Performer({add: 3})  # type: ignore[dict-item]  # as it should not


# ---- one step -----------------------------------------------------------------------


def performed(effect: Effect[Any], fakes: Fakes) -> tuple[Any, Performer]:
    performer = Performer(fakes)
    return performer.outcome(
        Want("step-1", effect, copy_context()), asyncio.run
    ), performer


def error_of(outcome: Any) -> Exception:
    assert isinstance(outcome, Failure)
    assert isinstance(outcome.error, Exception)
    return outcome.error


class Till:
    """A function that no dict can hold, and whose signature cannot be read."""

    __signature__ = "hidden"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, cart: list[str], thing: str = "") -> int:
        cart.append(thing)
        return len(cart)


class Shy:
    """An object that cannot be copied, and whose `repr()` fails."""

    def __deepcopy__(self, memo: Any) -> Shy:
        raise TypeError("no copy")

    def __repr__(self) -> str:
        raise ValueError("nothing")


def test_what_is_performed() -> None:
    assert performed(add(["a"], "b"), True)[0] == Done(2)
    assert performed(add(["a"], "b"), {add: True})[0] == Done(2)
    assert performed(add(["a"], "b"), {add: len_of_both})[0] == Done(2)
    assert performed(add(["a"], "b"), lambda: {add: len_of_both})[0] == Done(2)
    assert performed(price_of("soup"), True)[0] == Done(4)


def len_of_both(cart: list[str], thing: str) -> int:
    return len(cart) + len(thing)


def test_what_is_drawn() -> None:
    assert performed(Now(), True)[0] is None
    assert performed(add([], "a"), {tidy: True})[0] is None
    assert performed(add([], "a"), {add: False})[0] is None
    outcome, performer = performed(stored("a"), True)
    assert outcome is None
    (notice,) = performer.notices
    assert notice.startswith("stored is not performed: it is provided with shop.")


def test_a_function_without_a_hash() -> None:
    till = Till()
    outcome, performer = performed(Step(till, ["a"]), True)
    assert outcome == Done(2)
    (one, _) = performer.changed
    assert (one.step, one.variable, one.is_argument) == (till, "an argument", True)
    assert performed(Step(till, ["a"]), {add: True})[0] is None


def test_what_cannot_be_copied_is_given_as_it_is() -> None:
    shy = Shy()
    given = []

    def keep(one: Any) -> None:
        given.append(one)

    outcome, performer = performed(Step(keep, shy), True)
    assert outcome == Done(None)
    assert [one is shy for one in given] == [True, True]
    assert {one.variable for one in performer.changed} == {"given"}


def test_a_step_that_raises() -> None:
    outcome, performer = performed(charge(3, "key"), True)
    assert str(error_of(outcome)) == "no test should get here"
    assert performer.notices == {}, "the same the second time"


def test_a_step_that_raises_the_second_time() -> None:
    def charge_once(cents: int, key: str, paid: list[int] = []) -> int:  # noqa: B006
        paid.append(cents)
        if len(paid) > 1:
            raise ValueError(key)
        return cents

    outcome, performer = performed(charge(3, "key"), {charge: charge_once})
    assert outcome == Done(3)
    (notice,) = performer.notices
    assert notice.startswith("charge gives something else when it is performed again")


def test_the_variables_around_a_step() -> None:
    seen: list[str] = []
    names = ["a"]

    def keep(name: str) -> int:
        if name not in names:
            later()
        seen.append(name)
        return len(names)

    _, performer = performed(Step(keep, "a"), True)
    assert performer.changed == [Changed(keep, "keep", "seen", False)] * 2

    def later() -> None:
        raise AssertionError("of a variable that had no value")


def test_the_variables_of_another_conversation_are_forgotten() -> None:
    _, performer = performed(add([], "a"), {add: True})
    assert [one.variable for one in performer.changed] == ["cart", "cart"]
    performer.begin()
    assert performer.changed == []


# ---- what a handler goes by ---------------------------------------------------------


@step
async def put_in(cart: list[str], thing: str) -> int:
    cart.append(thing)
    return len(cart)


@step
def put_in_and_fail(cart: list[str]) -> str:
    cart.append("a")
    raise OSError("it is full")


def goes_by_a_copy() -> Flow[str]:
    cart: list[str] = []
    yield from put_in(cart, "a")
    yield from price_of("soup")
    yield from Now()
    return f"{len(cart)} things."


def goes_by_nothing() -> Flow[str]:
    cart: list[str] = []
    try:
        return (yield from put_in_and_fail(cart))
    except OSError:
        return "full"


def goes_by_the_result() -> Flow[str]:
    cart = yield from tidy(["soup", "bread"])
    return f"{cart}"


def goes_on_in_branches() -> Flow[str]:
    one, other = yield from Gather(goes_by_the_result(), goes_by_the_result())
    return one + other


def goes_by_a_variable() -> Flow[str]:
    seen: list[str] = []

    def keep(name: str) -> str:
        seen.append(name)
        return name

    return (yield from Step(keep, "a"))


def gone_by(handler: Callable[..., Any]) -> tuple[Changed, str | None] | None:
    performer = Performer(True)

    class Shop(Obliging):
        def perform(self, key: str, want: Want) -> Done | Failure:
            return performer.outcome(want, asyncio.run) or super().perform(key, want)

    subject = subject_of(handler)
    trace = trace_effects(subject, had(handler, partner=Shop()))
    assert performer.changed
    return relied_on(subject, trace, performer)


def test_the_change_that_a_handler_uses() -> None:
    found = gone_by(goes_by_a_copy)
    assert found is not None
    changed, where = found
    assert (changed.name, changed.variable) == ("put_in", "cart")
    assert where == line(goes_by_a_copy, 2)


@pytest.mark.parametrize(
    "handler",
    [goes_by_nothing, goes_by_the_result, goes_on_in_branches, goes_by_a_variable],
)
def test_the_change_that_no_handler_uses(handler: Callable[..., Any]) -> None:
    assert gone_by(handler) is None
