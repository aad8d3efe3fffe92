"""Cancels a subscription.

Wrong: the answer is not read, so a no cancels it, too.
"""

from __future__ import annotations

from effectmcp import Confirm, Flow, Server, step

app = Server("subscriptions", version="1.0")


@step
def cancel(number: int) -> None:
    """Simulates the database. To cancel again does no harm."""


@app.tool
def cancel_subscription(number: int) -> Flow[str]:
    """Cancel a subscription."""
    yield from Confirm(f"Cancel subscription {number}?")  # here
    yield from cancel(number)
    return "It is cancelled."
