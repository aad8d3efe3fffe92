"""Collects the names of guests and of dishes, in branches that share a dict.

Each branch writes a place of its own, which is read when all have ended, in an order that
does not hang on who was first.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, Gather, Server

app = Server("guests", version="1.0")


@app.tool
def invite(day: str) -> Flow[str]:
    """Invite guests."""
    found: dict[str, str] = {}

    def ask(what: str) -> Flow[None]:
        first = yield from Elicit(f"Which {what} on {day}?", str)
        if first:
            first += yield from Elicit(f"And which other {what}?", str)
        found[what] = first

    yield from Gather(ask("guest"), ask("dish"))
    return "; ".join(f"{what}: {found[what]}" for what in sorted(found))
