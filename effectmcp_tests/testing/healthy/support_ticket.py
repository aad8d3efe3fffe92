"""Opens a ticket at the help desk, for the caller.

It distinguishes declined from dismissed questions, asks the client what it can do, and
takes a `ToolError` of a step for an answer.
"""

from __future__ import annotations

import enum
from typing import Annotated
from urllib.parse import quote

from attrs import frozen

from effectmcp import (
    Caller,
    ClientSupports,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    Flow,
    IdempotencyKey,
    Refused,
    Server,
    Title,
    ToolError,
    form,
    step,
)

app = Server("help desk", version="1.0")


class Urgency(enum.IntEnum):
    """The urgency of the repair."""

    LOW = 1
    HIGH = 2


@form
@frozen
class Details:
    """The description of the fault."""

    what: str
    urgency: Annotated[Urgency, Title("How urgent is it?")] = Urgency.LOW
    again: bool = False


@step
def file(subject: str, details: Details, reporter: str, key: str) -> str:
    """Simulates the help desk, which files once for each key."""
    if not subject.strip():
        raise ToolError("A ticket needs a subject.")
    return f"T-{key[:4]}-{int(details.urgency)}-{len(reporter)}"


@app.tool
def open_ticket(subject: str) -> Flow[str]:
    """Open a ticket at the help desk."""
    reporter = (yield from Caller()).principal or "a guest"
    try:
        details = yield from Elicit(f"{subject}: what happened, {reporter}?", Details)
    except Declined:
        return "No ticket was opened."
    except Dismissed:
        return "The desk is open until six."
    key = yield from IdempotencyKey("ticket")
    try:
        ticket = yield from file(subject, details, reporter, key)
    except ToolError as error:
        return f"The desk refused: {error}"
    if details.urgency is Urgency.HIGH and (yield from ClientSupports(ElicitUrl)):
        page = f"https://desk.example/{quote(ticket, safe='')}/files"
        try:
            yield from ElicitUrl("Would you upload a picture?", page)
        except Refused:
            return f"{ticket} was opened, without a picture."
    return f"{ticket} was opened."
