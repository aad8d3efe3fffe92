"""Confirms a booking of a room.

Wrong: Room has no __repr__, so the question has an address of memory in it.
"""

from __future__ import annotations

from effectmcp import Confirm, Flow, Server

app = Server("rooms", version="1.0")


class Room:
    """A room with some beds."""

    def __init__(self, beds: int) -> None:
        self.beds = beds


@app.tool
def book_room(beds: int) -> Flow[str]:
    """Book a room."""
    if not (yield from Confirm(f"Shall we book {Room(beds)}?")):  # here
        return "Nothing was booked."
    return f"A room with {beds} beds is booked."
