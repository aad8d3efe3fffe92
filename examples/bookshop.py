"""The bookshop of the README: a tool that asks three questions and charges once.

effectmcp serve examples/bookshop.py:app
"""

from __future__ import annotations

import datetime as dt

from effectmcp import Confirm, Elicit, Flow, IdempotencyKey, Server, step

app = Server("bookshop", version="1.0")


@step
def charge_card(title: str, name: str, key: str) -> str:
    """Charge the card. A real payment service charges only once per key."""
    return f"receipt {key[:6]} for {title!r}, to {name}"


@app.tool
def order(title: str) -> Flow[str]:
    """Order a book."""
    name = yield from Elicit("Who is it for?", str)
    day = yield from Elicit(f"Deliver to {name} on which day?", dt.date)
    if not (yield from Confirm(f"Order {title!r} for {name} on {day:%d %b}?")):
        return "Nothing ordered."
    key = yield from IdempotencyKey("charge", title, name)
    receipt = yield from charge_card(title, name, key)
    return f"Ordered: {receipt}"
