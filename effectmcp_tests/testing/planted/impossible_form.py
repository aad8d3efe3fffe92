"""Orders flowers, asking for the bouquet and the address in one form.

Wrong: forms are flat, so no client can show one class inside another. The user is never
asked anything. The address needs a question of its own.
"""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import ge, le

from effectmcp import Confirm, Elicit, Flow, Server, step

app = Server("flowers", version="1.0")


@frozen
class Address:
    """The address of a person."""

    street: str
    town: str


@frozen
class Bouquet:
    """What to send, and where."""

    to: Address
    roses: int = field(default=12, validator=[ge(1), le(99)])
    card: str | None = None


@step
def deliver(bouquet: Bouquet) -> str:
    """Simulates the florist. The same bouquet twice is sent once."""
    return f"{bouquet.roses} roses to {bouquet.to.street}, {bouquet.to.town}"


@app.tool
def send_flowers() -> Flow[str]:
    """Send flowers to a person."""
    if not (yield from Confirm("We only have roses today. Is that fine?")):
        return "Nothing was sent."
    bouquet = yield from Elicit("What shall we send, and where?", Bouquet)  # here
    return (yield from deliver(bouquet))
