"""Collects an order of drinks and dishes.

Wrong: two branches append to one list, in the order that they happen to be answered.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Gather, Server

app = Server("bar", version="1.0")


@app.tool
def order(table: int) -> Flow[str]:
    """Order drinks and dishes."""
    lines: list[str] = []

    def drinks() -> Flow[None]:
        lines.append("drink: " + (yield from Elicit("Which drink?", str)))

    def dishes() -> Flow[None]:
        lines.append("dish: " + (yield from Elicit("Which dish?", str)))

    yield from Gather(drinks(), dishes())
    return f"Table {table}: {'; '.join(lines)}"  # here
