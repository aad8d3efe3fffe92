"""Accepts the terms of use, before anything else.

Wrong: a user who says no is asked again, until the client gives up.
"""

from __future__ import annotations

from effectmcp import Confirm, Elicit, Flow, Server

app = Server("terms", version="1.0")


@app.tool
def sign_up() -> Flow[str]:
    """Sign up."""
    name = yield from Elicit("Your name?", str)
    while not (yield from Confirm("Do you accept the terms of use?")):  # here
        pass
    return f"Welcome, {name}."
