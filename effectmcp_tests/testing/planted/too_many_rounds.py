"""Lays the table for a jury of twelve, asking for one name after the other.

Wrong: every question is a round of its own, and clients give up at the tenth. Nothing
that is asked depends on an earlier answer, so `Gather.each` could ask all at once.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server, step

app = Server("jury", version="1.0")

SEATS = range(1, 13)


@step
def print_cards(names: list[str]) -> int:
    """Simulates the printer; printing the same cards twice does no harm."""
    return len(names)


@app.tool
def lay_table(room: str) -> Flow[str]:
    """Lay the table for the jury."""
    names = []
    for seat in SEATS:
        name = yield from Elicit(f"Who sits on chair {seat} in {room}?", str)  # here
        names.append(name.strip() or "(free)")
    cards = yield from print_cards(names)
    return f"{cards} cards printed for {room}."
