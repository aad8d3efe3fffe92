"""A login that is asked for once, and a bug tracker with a follow-up question.

    effectmcp serve examples/weather.py:app

In `update_work_item`, resolving a bug needs a resolution, and a duplicate also needs a
link to the original bug. The server forgets everything between the two questions; the
resolution comes back in the client's `requestState`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from attrs import frozen

from effectmcp import Elicit, Flow, Gather, Sample, Server, form, step

app = Server("weather", version="1.0")


@form
@frozen
class Login:
    """A GitHub user name."""

    name: str


@app.tool
def get_weather(location: str) -> Flow[str]:
    """Get the current weather, for people with a GitHub account."""
    login = yield from Elicit(
        "Please provide your GitHub username", Login, key="github_login"
    )
    return (yield from current_weather(location, login.name))


@step
def current_weather(location: str, user: str) -> str:
    """Return the weather. A real service would check the user."""
    return (
        f"Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy"
    )


@app.tool
def introduce() -> Flow[str]:
    """Ask the user and the model at the same time."""
    login, capital = yield from Gather(
        Elicit("Please provide your GitHub username", Login, key="github_login"),
        Sample(
            "What is the capital of France?",
            system="You are a helpful assistant.",
            max_tokens=100,
            key="capital_of_france",
        ),
    )
    return f"{login.name} asks. {capital.text}"


@form
@frozen
class Resolution:
    """The resolution of a bug."""

    resolution: Annotated[
        Literal["Fixed", "Won't Fix", "Duplicate", "By Design"],
        "Resolution type for this bug",
    ]


@form
@frozen
class Original:
    """The original bug."""

    duplicateOfId: Annotated[int, "Work item ID of the original bug"]


# The tracker defines the names of arguments and fields.
@app.tool
def update_work_item(workItemId: int, fields: dict[str, str]) -> Flow[str]:
    """Update fields of a work item."""
    bug, state = f"Bug #{workItemId}", fields.get("System.State")
    if state != "Resolved":
        yield from save(workItemId, fields)
        return f"{bug} updated."

    how = yield from Elicit(
        f"Resolving {bug} requires a resolution. How was this bug resolved?",
        Resolution,
        key="resolution",
    )
    fields = {**fields, "Resolution": how.resolution}
    if how.resolution != "Duplicate":
        yield from save(workItemId, fields)
        return f"{bug} resolved as {how.resolution}. State set to {state}."

    original = yield from Elicit(
        "Since this is a duplicate, which work item is the original?",
        Original,
        key="duplicate_of",
    )
    yield from save(workItemId, fields, duplicate_of=original.duplicateOfId)
    return (
        f"{bug} resolved as Duplicate of Bug #{original.duplicateOfId}."
        f" State set to {state} and duplicate link created."
    )


@step
def save(
    work_item: int, fields: dict[str, str], duplicate_of: int | None = None
) -> None:
    """Save a work item. Saving it twice is harmless, so this needs no idempotency key."""
