"""Asks for a tip.

Wrong: a user may also dismiss the question, and then no case sets `tip`.
"""

from __future__ import annotations

from effectmcp import Accepted, Declined, Elicit, Flow, Outcome, Server

app = Server("tips", version="1.0")


@app.tool
def pay(cents: int) -> Flow[str]:
    """Pay, with a tip."""
    match (yield from Outcome(Elicit("Which tip, in cents?", int))):  # type: ignore[exhaustive-match]  # as it should not
        case Accepted(given):
            tip = given
        case Declined():
            tip = 0
    return f"{cents + tip} cents."  # type: ignore[possibly-undefined]  # here
