"""Asks for an address, once for each person.

Wrong: what is cached is the flow, and a flow runs once.
"""

from __future__ import annotations

from functools import cache

from effectmcp import Elicit, Flow, Server

app = Server("addresses", version="1.0")


@cache
def address(name: str) -> Flow[str]:
    """Ask for the address of a person."""
    return (yield from Elicit(f"Where does {name} live?", str))


@app.tool
def send_invitation() -> Flow[str]:
    """Send an invitation."""
    street = yield from address("Ann")  # here
    return f"An invitation goes to {street.strip()}."
