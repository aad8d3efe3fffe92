"""Books a parking place, under a number of its own.

Wrong: the number is a new one when the client sends its request again, because the reply
was lost. So is the key, and the place is booked twice.
"""

from __future__ import annotations

from effectmcp import Confirm, Flow, IdempotencyKey, Server, Uuid, step

app = Server("parking", version="1.0")


@step
def book(plate: str, number: str, key: str) -> str:
    """Simulates the car park, which books once for each key."""
    return f"place {len(plate)} as {number} ({key[:6]})"


@app.tool
def park(plate: str) -> Flow[str]:
    """Book a parking place."""
    if not (yield from Confirm(f"Book a place for {plate}?")):
        return "Nothing was booked."
    number = str((yield from Uuid()))
    key = yield from IdempotencyKey("booking", plate, number)  # here
    return (yield from book(plate, number, key))
