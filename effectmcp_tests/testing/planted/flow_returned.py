"""Rents a bicycle, in a flow of its own.

Wrong: the flow is returned and not run. The client gets no bicycle.
"""

from __future__ import annotations

from effectmcp import Confirm, Flow, Server

app = Server("bicycles", version="1.0")


def rent(hours: int) -> Flow[str]:
    """Ask, and rent."""
    if not (yield from Confirm(f"For {hours} hours?")):
        return "No bicycle."
    return f"A bicycle for {hours} hours."


@app.tool
def rent_bicycle(hours: int) -> Flow[str]:
    """Rent a bicycle."""
    if not (yield from Confirm("Do you have a helmet?")):
        return "Not without a helmet."
    return rent(hours)  # type: ignore[return-value]  # here
