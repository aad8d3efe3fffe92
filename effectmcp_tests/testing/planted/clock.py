"""Books a table for later today, and tells what time it is while it asks.

Wrong: the time is read again in every round. When a minute has passed, the question is
another one than the user said yes to, and it is asked again.
"""

from __future__ import annotations

import datetime as dt

from attrs import field, frozen
from attrs.validators import ge, le

from effectmcp import Confirm, Elicit, Flow, IdempotencyKey, Server, form, step

app = Server("tables", version="1.0")


@form
@frozen
class Party:
    """The guests, and how soon they come."""

    name: str
    people: int = field(default=2, validator=[ge(1), le(12)])
    hours: int = field(default=1, validator=[ge(1), le(6)])


@step
def reserve(name: str, people: int, hours: int, key: str) -> str:
    """Simulates the restaurant's book, which has one line for each key."""
    return f"table {people} for {name} in {hours} h ({key[:6]})"


@app.tool
def book_table(restaurant: str) -> Flow[str]:
    """Book a table for later today."""
    party = yield from Elicit(f"Who would like to eat at {restaurant}?", Party)
    now = dt.datetime.now(dt.UTC)  # here
    if not (yield from Confirm(f"It is {now:%H:%M}. Book for {party.hours} h later?")):
        return "No table was booked."
    key = yield from IdempotencyKey("table")
    return (yield from reserve(party.name, party.people, party.hours, key))
