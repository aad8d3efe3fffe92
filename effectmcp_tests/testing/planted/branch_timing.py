"""Prepares a stay: the front desk asks for the guest, the kitchen for breakfast, at once.

Wrong: what the kitchen asks depends on whether the front desk has the name by then, which
takes it one question or two. What branches share may be read once they have joined.
"""

from __future__ import annotations

from typing import Literal

from effectmcp import Confirm, Elicit, Flow, Gather, Server

app = Server("hotel", version="1.0")


def front_desk(shared: dict[str, str]) -> Flow[None]:
    """Find out who comes."""
    if (yield from Confirm("Do you book for yourself?")):
        shared["name"] = yield from Elicit("What is your name?", str)
    else:
        company = yield from Elicit("For which company do you book?", str)
        shared["name"] = yield from Elicit(f"Who of {company} comes?", str)


def kitchen(shared: dict[str, str]) -> Flow[str]:
    """Find out what there is for breakfast."""
    drink = yield from Elicit("Which drink for breakfast?", Literal["coffee", "tea"])
    yield from Confirm(f"Is {drink} in bed all right?")
    who = shared.get("name", "the guest")
    eggs = yield from Elicit(f"How many eggs for {who}?", Literal["one", "two"])  # here
    return f"{drink} and {eggs}"


@app.tool
def prepare_stay() -> Flow[str]:
    """Prepare a stay at the hotel."""
    shared: dict[str, str] = {}
    _, breakfast = yield from Gather(front_desk(shared), kitchen(shared))
    return f"Room ready for {shared['name']}; breakfast: {breakfast}."
