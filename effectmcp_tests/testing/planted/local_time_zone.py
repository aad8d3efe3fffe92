"""Offers a taxi for the next full hour.

Wrong: the time is shown in the time zone of the machine, which may be another one in the
next round.
"""

from __future__ import annotations

import datetime as dt

from effectmcp import Confirm, Flow, Now, Server

app = Server("taxis", version="1.0")


@app.tool
def call_taxi(street: str) -> Flow[str]:
    """Call a taxi."""
    at = (yield from Now()) + dt.timedelta(hours=1)
    if not (yield from Confirm(f"{street} at {at.astimezone():%H} o'clock?")):  # here
        return "No taxi."
    return f"A taxi comes to {street}."
