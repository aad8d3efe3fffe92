"""Collects addresses for parcels, up to six in one round, and labels them in another.

`Gather.each` over questions, then over steps; and an end before the first question.
"""

from __future__ import annotations

from typing import Annotated

from attrs import field, frozen
from attrs.validators import max_len, min_len

from effectmcp import Elicit, Flow, Format, Gather, Server, ToolError, form, step

app = Server("labels", version="1.0")


@form
@frozen
class Address:
    """The address of a person."""

    street: str = field(validator=[min_len(1), max_len(60)])
    town: str = field(validator=min_len(1))
    mail: Annotated[str, Format("email"), "To tell when it arrives"] | None = None


@frozen
class Label:
    """The printed label of one person."""

    name: str
    number: str
    told: bool = False


@step
def print_label(name: str, address: Address) -> Label:
    """Simulates the printer. The same label again does no harm."""
    number = f"{len(name)}-{len(address.street)}-{address.town[:3]}"
    return Label(name, number, told=address.mail is not None)


@app.tool
def label_parcels(names: list[str]) -> Flow[list[Label]]:
    """Print labels for parcels."""
    wanted = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not wanted:
        return []
    if len(wanted) > 6:
        raise ToolError("Six parcels at a time, please.")
    found = yield from Gather.each(
        Elicit(f"Where does {name} live?", Address, otherwise=None) for name in wanted
    )
    labels = yield from Gather.each(
        print_label(name, address)
        for name, address in zip(wanted, found, strict=True)
        if address is not None
    )
    return sorted(labels, key=lambda label: (label.number, label.name))
