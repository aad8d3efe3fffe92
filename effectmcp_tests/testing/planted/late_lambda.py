"""Asks the price of several parts at once.

Wrong: each lambda reads `part` when it is performed, after the loop: all of them ask for
the last part.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Gather, Server, Step

app = Server("garage", version="1.0")

PRICES = {"brake": 80, "lamp": 12, "tyre": 60}


def price_of(part: str, garage: str) -> int:
    """Simulates a price list of each garage."""
    return PRICES[part] + len(garage)


@app.tool
def estimate() -> Flow[str]:
    """Estimate a repair."""
    garage = yield from Elicit("Which garage?", str)
    found = []
    for part in PRICES:
        found.append(Step(lambda: price_of(part, garage)))  # noqa: B023  # here
    prices = yield from Gather.each(found)
    return f"{sum(prices)} euros."
