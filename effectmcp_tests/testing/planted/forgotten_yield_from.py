"""Sells a ticket for the museum and sends it by mail.

Wrong: without `yield from`, the step is built and never performed. The visitor pays,
reads that the ticket is under way, and gets no mail.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from attrs import frozen

from effectmcp import Elicit, Flow, Format, IdempotencyKey, Server, form, step

app = Server("museum", version="1.0")


@form
@frozen
class Visit:
    """The visitors, and the day."""

    mail: Annotated[str, Format("email"), "Where the ticket goes"]
    day: dt.date


@step
def charge(mail: str, key: str) -> str:
    """Simulates a payment service, which charges once for each key."""
    return f"receipt {key[:6]} for {mail}"


@step
def send_ticket(mail: str, day: dt.date, receipt: str) -> None:
    """Simulates the mail server."""


@app.tool
def buy_ticket(exhibition: str) -> Flow[str]:
    """Buy a ticket for an exhibition."""
    visit = yield from Elicit(f"Who wants to see {exhibition!r}?", Visit)
    key = yield from IdempotencyKey("ticket")
    receipt = yield from charge(visit.mail, key)
    send_ticket(visit.mail, visit.day, receipt)  # here
    return f"Your ticket is on its way to {visit.mail}."
