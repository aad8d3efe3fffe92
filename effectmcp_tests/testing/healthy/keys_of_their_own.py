"""Ships several things, each with a key of its own, and tries again where that fails.

The number of the order is a key, too: as an id it goes into several calls, and the same
charge is tried again with the same key.
"""

from __future__ import annotations

from effectmcp import (
    Confirm,
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Now,
    Server,
    StepFailed,
    step,
)

app = Server("shipping", version="1.0")


@step
def charge(cents: int, key: str) -> str:
    """Simulates a payment service, which charges once for each key."""
    return f"receipt {key[:6]}"


@step
def set_status(order: str, status: str) -> None:
    """Simulates the database. To write it again does no harm."""


@step
def ship(thing: str, key: str) -> str:
    """Simulates the warehouse, which ships once for each key."""
    return f"{thing} ({key[:6]})"


def shipped(thing: str) -> Flow[str]:
    """Ship one thing."""
    key = yield from IdempotencyKey("ship", thing)
    return (yield from ship(thing, key))


@app.tool
def order_things(cents: int) -> Flow[str]:
    """Order things."""
    thing = yield from Elicit("What?", str)
    at = yield from Now()
    if not (yield from Confirm(f"{thing} for {cents} cents, before {at:%H:%M}?")):
        return "Nothing."
    order = yield from IdempotencyKey("order", thing, at.isoformat())
    yield from set_status(order, "begun")
    key = yield from IdempotencyKey("charge", cents)
    try:
        receipt = yield from charge(cents, key)
    except (StepFailed, OSError, RuntimeError):
        receipt = yield from charge(cents, key)
    found = yield from Gather(shipped(thing), shipped("a bag"))
    yield from set_status(order, "shipped")
    return f"{receipt}: {', '.join(found)}"
