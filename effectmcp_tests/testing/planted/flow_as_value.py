"""Orders a meal for each of two guests.

Wrong: `dish` is a flow that was never run. The kitchen gets to read
`<generator object meal at 0x...>`.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, step

app = Server("kitchen", version="1.0")


@step
def cook(order: str) -> int:
    """Simulates the kitchen."""
    return len(order)


def meal(guest: str) -> Flow[str]:
    """Ask what a guest eats."""
    return (yield from Elicit(f"What does {guest} eat?", str))


@app.tool
def order_meals(table: int) -> Flow[str]:
    """Order meals."""
    starter = yield from meal("Ann")
    dish = meal("Ben")  # here
    minutes = yield from cook(f"Table {table}: {starter}, {dish}")
    return f"Ready in {minutes} minutes."
