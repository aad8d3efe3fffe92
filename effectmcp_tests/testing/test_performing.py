"""Steps that a check performs, by fakes or by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from effectmcp import (
    Confirm,
    Elicit,
    Flow,
    IdempotencyKey,
    Provided,
    Server,
    Step,
    UsageError,
    step,
)
from effectmcp.testing import Checked, Finding, check
from effectmcp.testing.performing import Fakes, Performer
from effectmcp.testing.workers import Workers


@step
def add(cart: list[str], thing: str) -> int:
    """Stands for a shop, and changes what it is given."""
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
def one() -> Iterator[Workers]:
    with Workers(1) as running:
        yield running


def looked_at(workers: Workers, handler: Any, perform: Fakes) -> Checked:
    return check(
        handler, perform=perform, conversations=40, workers=workers, raises=False
    )


def found(workers: Workers, handler: Any, perform: Fakes) -> Finding:
    (finding,) = looked_at(workers, handler, perform).findings
    return finding


def line(function: Callable[..., Any], offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset}"


def test_a_step_that_changes_its_argument(one: Workers) -> None:
    finding = found(one, fills_a_cart, True)
    assert (finding.kind, finding.where) == ("mutates", line(fills_a_cart, 3))
    assert finding.problem.startswith("the step add() changes its argument cart, and")
    assert finding.transcript is not None
    assert finding.transcript.lines[-1] == (
        'returned {"content": [{"type": "text", "text": "0 things."}]}'
    )


@pytest.mark.parametrize("handler", [fills_a_cart_with_results, counts_what_it_gives])
def test_a_change_that_nothing_goes_by(one: Workers, handler: Any) -> None:
    checked = looked_at(one, handler, True)
    assert (checked.findings, checked.notices) == ((), ())


def test_a_step_that_changes_a_variable(one: Workers) -> None:
    finding = found(one, writes_through_a_method, True)
    assert finding.kind == "mutates"
    assert finding.where == line(writes_through_a_method, 9)
    assert "keep() changes the handler's variable seen" in finding.problem


def test_a_result_that_no_state_can_hold(one: Workers) -> None:
    finding = found(one, reads_a_manual, {read_manual: True})
    assert (finding.kind, finding.where) == ("size", line(reads_a_manual, 2))
    assert looked_at(one, reads_a_manual, False).findings == ()


def test_an_async_step(one: Workers) -> None:
    """The price is the length; drawn, it may be anything, and there is no such letter."""
    assert looked_at(one, asks_for_a_price, {price_of: True}).findings == ()
    checked = check(asks_for_a_price, workers=one, raises=False)
    assert [each.kind for each in checked.findings] == ["crash"]


def test_a_fake_instead_of_a_step(one: Workers) -> None:
    charged: list[int] = []

    def fake(cents: int, key: str) -> str:
        charged.append(cents)
        return f"{cents} by {key}"

    checked = looked_at(one, pays, {charge: fake})
    assert (checked.findings, checked.notices) == ((), ())
    assert charged, "it was performed"
    assert len(charged) % 2 == 0, "twice each time"


def test_a_fake_that_gives_something_else_the_second_time(one: Workers) -> None:
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


def test_a_step_that_is_provided_with_something(one: Workers) -> None:
    checked = looked_at(one, looks_in_a_shop, True)
    assert checked.findings == ()
    (notice,) = checked.notices
    assert notice == (
        "stored is not performed: it is provided with shop. Give perform= a function for"
        " it"
    )
    fake = {stored: lambda thing: f"{thing} here"}
    assert looked_at(one, looks_in_a_shop, fake).notices == ()


def test_a_whole_server(one: Workers) -> None:
    app = Server("shop", version="1.0")
    app.tool(fills_a_cart)
    app.tool(asks_for_a_price)
    checked = looked_at(one, app, {add: True, price_of: price_of})
    (finding,) = checked.findings
    assert finding.subject == "fills_a_cart"


def test_what_performs_nothing() -> None:
    assert not Performer(False).performs
    assert not Performer({}).performs
    assert Performer({add: False}).function_of(add([], "a")) is None
    with pytest.raises(UsageError, match="names 3 for add, which is not a function"):
        Performer({add: 3})  # type: ignore[dict-item]  # as it should not
