"""Charges each guest at a table for what they had.

Wrong: one key for all charges. The payment service takes the second charge for the first
one again, and charges nothing.
"""

from __future__ import annotations

from effectmcp import Elicit, Flow, IdempotencyKey, Server, step

app = Server("restaurant", version="1.0")


@step
def charge(card: str, cents: int, key: str) -> str:
    """Simulates a payment service, which charges once for each key."""
    return f"{cents} from {card} ({key[:6]})"


@app.tool
def split_bill(cents: int) -> Flow[str]:
    """Split a bill."""
    first = yield from Elicit("The first card?", str)
    second = yield from Elicit("The second card?", str)
    key = yield from IdempotencyKey("bill")
    receipts = []
    for card in (first, second):
        receipts.append((yield from charge(card, cents // 2, key)))  # here
    return ", ".join(receipts)
