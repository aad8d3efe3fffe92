"""Asks for a shoe size, and remembers it.

Wrong: a replay finds the size that the first run has put into the dict, and asks nothing,
where the journal has an answer.
"""

from __future__ import annotations

from effectmcp import Confirm, Elicit, Flow, Server

app = Server("shoes", version="1.0")

SIZES: dict[str, int] = {}


@app.tool
def order_shoes(customer: str) -> Flow[str]:
    """Order shoes."""
    if customer not in SIZES:
        SIZES[customer] = yield from Elicit("Which size?", int)  # here
    if not (yield from Confirm(f"Size {SIZES[customer]}?")):
        return "Nothing was ordered."
    return f"Shoes of size {SIZES[customer]} for {customer}."
