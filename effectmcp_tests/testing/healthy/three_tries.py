"""Asks for a number until it fits, three times, and accepts a no.

A loop that asks again has an end, with any user.
"""

from __future__ import annotations

from effectmcp import Confirm, Elicit, Flow, Server, ToolError

app = Server("seats", version="1.0")

SEATS = 12


@app.tool
def choose_seat(name: str) -> Flow[str]:
    """Choose a seat."""
    why = ""
    for _ in range(3):
        seat = yield from Elicit(f"{why}Which seat, {name}?", int)
        if not 0 < seat <= SEATS:
            why = f"There is no seat {seat}. "
            continue
        if (yield from Confirm(f"Seat {seat}?", otherwise=False)):
            return f"{name} sits on {seat}."
        why = "Another one, then. "
    raise ToolError("No seat was chosen.")
