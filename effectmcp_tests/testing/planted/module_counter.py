"""Takes a number in a queue.

Wrong: the counter continues in each run of the handler, so that each round has another
number.
"""

from __future__ import annotations

import itertools

from effectmcp import Confirm, Flow, Server

app = Server("queue", version="1.0")

NUMBERS = itertools.count(1)


@app.tool
def take_number(name: str) -> Flow[str]:
    """Take a number."""
    number = next(NUMBERS)
    if not (yield from Confirm(f"Number {number} for {name}. Will you wait?")):  # here
        return "See you another time."
    return f"{name} is number {number}."
