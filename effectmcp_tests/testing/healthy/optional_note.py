"""Sends a parcel, with a note if the sender asks for it.

To decline is an answer here, as `except Refused: pass` shows; what is performed then is
performed without the note.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, IdempotencyKey, Refused, Server, step

app = Server("parcels", version="1.0")


@step
def send(weight: int, note: str | None, key: str) -> str:
    """Simulates the post office, which sends once for each key."""
    return f"parcel {key[:6]}, {'with' if note else 'without'} a note"


@app.tool
def send_parcel(weight: int) -> Flow[str]:
    """Send a parcel."""
    note = None
    try:
        note = yield from Elicit("Which note goes with it?", str)
    except Refused:
        pass
    key = yield from IdempotencyKey("parcel", weight, note)
    return (yield from send(weight, note, key))
