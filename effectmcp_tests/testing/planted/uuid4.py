"""Sends a parcel under a tracking number that the sender is asked to write on it.

Wrong: every round draws another number, so the number on the parcel is never the
booked one. `Uuid()` would be recorded.
"""

from __future__ import annotations

import uuid

from effectmcp import Confirm, Elicit, Flow, Server, step

app = Server("parcels", version="1.0")


@step
def announce(number: str, receiver: str) -> str:
    """Simulates the carrier, who knows a parcel by its number."""
    return f"{number} goes to {receiver}"


@app.tool
def send_parcel(what: str) -> Flow[str]:
    """Send a parcel."""
    receiver = yield from Elicit(f"Who is to get {what}?", str)
    number = uuid.uuid4().hex[:12]  # here
    if not (yield from Confirm(f"Please write {number} on the parcel. Done?")):
        return "Nothing was sent."
    return (yield from announce(number, receiver))
