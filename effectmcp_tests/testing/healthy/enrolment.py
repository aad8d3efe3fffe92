"""Enrols people in a course, and returning people by a shorter way.

A fee that changed under a `Version`, a `Checkpoint` once a place is reserved, and a
`Restart` as another handler.
"""

from __future__ import annotations

from effectmcp import (
    Checkpoint,
    Confirm,
    Elicit,
    Flow,
    IdempotencyKey,
    Restart,
    Server,
    Version,
    step,
)

app = Server("courses", version="1.0")

FEES = {1: 90, 2: 110}


@step
def reserve(course: str, name: str, key: str) -> str:
    """Simulates the office, which reserves one place for each key."""
    return f"place {key[:4]} in {course} for {name}"


@step
def cancel(place: str) -> None:
    """Simulates the office. Cancelling twice is cancelling once."""


def come_again(course: str, name: str) -> Flow[str]:
    """Enrol a person who is known."""
    if not (yield from Confirm(f"{name}, the same as last time?", otherwise=False)):
        return "As you like."
    key = yield from IdempotencyKey("place")
    return (yield from reserve(course, name, key))


@app.tool
def enrol(course: str) -> Flow[str]:
    """Enrol a person in a course."""
    name = yield from Elicit(f"Who would like to learn {course}?", str, otherwise="")
    name = name.strip()
    if not name:
        return "Nobody was enrolled."
    if (yield from Confirm(f"Have you been here before, {name}?", otherwise=False)):
        return (yield from Restart(come_again, course, name))
    fee = FEES[(yield from Version("fee", default=1, latest=2))]
    key = yield from IdempotencyKey("place")
    place = yield from reserve(course, name, key)
    yield from Checkpoint()
    if (yield from Confirm(f"{place}: pay {fee} euros?", otherwise=False)):
        return f"Enrolled: {place}"
    yield from cancel(place)
    return "Nobody was enrolled."
