"""Plans a dinner to which every guest brings something, asking all of them at once.

The branches of the `Gather` write into one dict and one list, which are read once all of
them have ended, and in an order of their own.
"""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen
from attrs.validators import ge, le

from effectmcp import Confirm, Elicit, Flow, Gather, Refused, Server, ToolError, form

app = Server("dinner", version="1.0")

SEATS = 6


@form
@frozen
class Dish:
    """The dish of a guest."""

    name: str
    course: Literal["starter", "main", "dessert"] = "main"
    serves: int = field(default=4, validator=[ge(1), le(20)])


def bring(
    seat: int, guest: str, dishes: dict[int, Dish], notes: list[str]
) -> Flow[None]:
    """Ask one guest."""
    try:
        dish = yield from Elicit(f"What will {guest} bring?", Dish)
        if dish.course == "dessert" and (
            yield from Confirm(f"{guest}: does {dish.name} have to be cooled?")
        ):
            notes.append(f"Cool {dish.name}.")
    except Refused:
        notes.append(f"{guest} brings nothing.")
    else:
        dishes[seat] = dish


@app.tool
def plan_dinner(guests: list[str]) -> Flow[str]:
    """Plan a dinner."""
    if len(guests) > SEATS:
        raise ToolError(f"There are only {SEATS} chairs.")
    dishes: dict[int, Dish] = {}
    notes: list[str] = []
    yield from Gather.each(
        bring(seat, guest, dishes, notes) for seat, guest in enumerate(guests)
    )
    lines = [f"{dishes[n].name}, for {dishes[n].serves}" for n in sorted(dishes)]
    return "\n".join([*lines, *sorted(notes)]) or "Nobody comes."
