"""Assigns a visitor to one of three guides.

Wrong: the hash of a string differs from process to process, and so does the guide.
"""

from __future__ import annotations

from effectmcp import Confirm, Flow, Server

app = Server("guides", version="1.0")

GUIDES = ("Ann", "Ben", "Cleo")


@app.tool
def assign(visitor: str) -> Flow[str]:
    """Assign a guide."""
    guide = GUIDES[hash(visitor) % len(GUIDES)]
    if not (yield from Confirm(f"Is {guide} fine for {visitor}?")):  # here
        return "Nobody was assigned."
    return f"{guide} guides {visitor}."
