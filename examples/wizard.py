"""Three kinds of rounds: with one question, with several, and with none.

    effectmcp serve examples/wizard.py:app

The tool `wizard` is a form with three pages. Written by hand, it is a state machine that
checks in every round which page was the last; here the pages simply follow each other.
"""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge

from effectmcp import (
    Checkpoint,
    Confirm,
    Elicit,
    Flow,
    Gather,
    ListRoots,
    Sample,
    Server,
    form,
    step,
)

app = Server("wizard", version="1.0")


@form
@frozen
class Name:
    """The name of a user."""

    name: str


@form
@frozen
class Age:
    """The age of a user."""

    age: int = field(validator=ge(0))


@app.tool
def wizard() -> Flow[str]:
    """Register a user in three steps."""
    who = yield from Elicit("What's your name?", Name, key="name")
    old = yield from Elicit(f"Hi {who.name}! How old are you?", Age, key="age")
    if not (yield from Confirm(f"{who.name}, {old.age}: is that right?", key="right")):
        return "Nobody was registered."
    return f"Welcome, {who.name}! You are {old.age} years old."


@app.tool
def deploy(change: str) -> Flow[str]:
    """Deploy a change, with the user's consent and the model's summary."""
    # One round: the client asks its user, its model and itself side by side.
    agreed, summary, roots = yield from Gather(
        Confirm(f"Do you want to proceed with: {change}?", key="confirm"),
        Sample(f"Summarize in one line: {change}", max_tokens=50, key="summarize"),
        ListRoots(key="roots"),
    )
    if not agreed:
        return "Action cancelled."
    return f"Action confirmed in {len(roots)} places! {summary.text}"


@app.tool
def deferred(job: str) -> Flow[str]:
    """Do a job in two parts; a different server may do the second part."""
    half = yield from part(1, job)
    # No question: the client just comes back with the state, so the first half is safe.
    yield from Checkpoint()
    return f"{half}; {(yield from part(2, job))}"


@step
def part(number: int, job: str) -> str:
    """Do one part of a long job."""
    return f"completed step {number} of {job}"
