"""Takes an order for a pizza, asking about every topping.

A set that is sorted, constants and a cache of a pure function at module level, an import
inside the handler, and plain logging: none of it differs from round to round.
"""

from __future__ import annotations

import enum
import logging
from functools import lru_cache
from typing import Literal

from attrs import Factory, frozen

from effectmcp import Confirm, Elicit, Flow, Server, form

app = Server("pizza", version="1.0")


class Size(enum.Enum):
    """The size of a pizza."""

    SMALL = "small"
    LARGE = "large"


CENTS = {Size.SMALL: 750, Size.LARGE: 1100}


@form
@frozen
class Pizza:
    """The order of a guest."""

    size: Size
    toppings: list[Literal["basil", "capers", "ham", "olives"]] = Factory(list)
    remark: str | None = None


@lru_cache(maxsize=32)
def price(size: Size, toppings: int) -> int:
    """Return the price of a pizza, in cents."""
    return CENTS[size] + 90 * toppings


@app.tool
def order_pizza() -> Flow[str]:
    """Order a pizza."""
    import textwrap

    pizza = yield from Elicit("Which pizza?", Pizza, otherwise=None)
    if pizza is None:
        return "No pizza was ordered."
    logging.getLogger(__name__).info("%d toppings", len(pizza.toppings))
    extra = 0
    for topping in sorted(set(pizza.toppings)):
        if (yield from Confirm(f"A double helping of {topping}?", otherwise=False)):
            extra += 1
    cents = price(pizza.size, len(set(pizza.toppings)) + extra)
    remark = textwrap.shorten(pizza.remark or "none", 40)
    sum_up = f"A {pizza.size.value} pizza for {cents / 100:.2f} euros, remark: {remark}"
    if not (yield from Confirm(f"{sum_up}. All right?", otherwise=False)):
        return "No pizza was ordered."
    return sum_up
