"""Questions one after the other, all at once, and none: three shapes of a round.

    effectmcp serve examples/wizard.py:app

The story of `wizard`: a form with three pages. Written by hand, it is a state machine that
asks in every round which page was the last; here the pages stand below each other.
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
    """Who somebody is."""

    name: str


@form
@frozen
class Age:
    """How old somebody is."""

    age: int = field(validator=ge(0))


@app.tool
def wizard() -> Flow[str]:
    """Register somebody, in three steps."""
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
    """Do a job in two parts, of which another server may do the second."""
    half = yield from part(1, job)
    # Nothing is asked: the client just comes back with the state, and no half is lost.
    yield from Checkpoint()
    return f"{half}; {(yield from part(2, job))}"


@step
def part(number: int, job: str) -> str:
    """Stands for what takes long."""
    return f"completed step {number} of {job}"
