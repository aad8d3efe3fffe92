"""Serves a counter with numbered tickets, as bakeries do.

Wrong: the number is a global, which every process has for itself and every round moves
on. So the question changes before its answer is in. Numbers should come from a step.
"""

from __future__ import annotations

from typing import Literal

from effectmcp import Confirm, Elicit, Flow, Server, step

app = Server("bakery", version="1.0")

_number = 0


@step
def bake(bread: str, number: int) -> str:
    """Simulates the oven."""
    return f"{bread} for number {number}"


@app.tool
def buy_bread() -> Flow[str]:
    """Buy a loaf of bread."""
    global _number
    _number += 1
    bread = yield from Elicit("Which bread?", Literal["rye", "wheat", "spelt"])
    if not (yield from Confirm(f"Number {_number}: is {bread} right?")):  # here
        return "Nothing was bought."
    return (yield from bake(bread, _number))
