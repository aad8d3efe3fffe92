"""Looks up a train, and prints what it does.

Wrong: the line is printed in each round again; over a pipe, between the messages.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Server

app = Server("trains", version="1.0")


@app.tool
def find_train(start: str) -> Flow[str]:
    """Find a train."""
    to = yield from Elicit(f"From {start} to where?", str)
    print(f"looking for a train to {to}")  # here
    if not (yield from Elicit("On which day?", str)):
        return "There is none."
    return f"{start} to {to} at 8:15."
