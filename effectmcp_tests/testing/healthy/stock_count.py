"""Counts what is on a few shelves, and reports how much of it is missing.

The result of the step may be empty, any number, or the same shelf twice; the handler
checks it before it divides by it.
"""

from __future__ import annotations

import random

from attrs import field, frozen
from attrs.validators import ge, le, max_len

from effectmcp import Elicit, Flow, Gather, Log, Progress, Server, form, step

app = Server("stock", version="1.0")

MOST = 6


@form
@frozen
class Count:
    """One counted shelf."""

    pieces: int = field(validator=[ge(0), le(1_000_000)])
    note: str = field(default="", validator=max_len(80))


@frozen
class Shelf:
    """The expected stock."""

    name: str
    expected: int


@frozen
class Report:
    """The outcome of the count."""

    counted: int = field(validator=ge(0))
    share: float = field(default=1.0, validator=[ge(0), le(1)])
    notes: list[str] = field(factory=list)


@step(replayable=True)
def shelves_of(room: str) -> list[Shelf]:
    """Simulates the stock list."""
    return [Shelf(f"{room} {letter}", 10) for letter in "ABC"]


@app.tool
def count_stock(room: str) -> Flow[Report]:
    """Count what is in a room."""
    shelves = yield from shelves_of(room)
    # The same few for all users: a seed, not randomness.
    few = random.Random(7).sample(shelves, min(MOST, len(shelves)))
    if not few:
        return Report(0)
    yield from Progress(0, len(few), "counting")
    counts = yield from Gather.each(
        Elicit(f"How many are on {shelf.name!r}?", Count, otherwise=None)
        for shelf in few
    )
    pieces = sum(count.pieces for count in counts if count is not None)
    expected = sum(max(0, shelf.expected) for shelf in few)
    yield from Log("info", {"counted": pieces, "shelves": len(few)})
    share = min(1.0, pieces / expected) if expected else 1.0
    notes = sorted({count.note for count in counts if count and count.note})
    return Report(pieces, share, notes)
