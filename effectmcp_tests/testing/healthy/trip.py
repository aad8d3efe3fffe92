"""Books a trip of several people: flows inside of flows, dates, and a dataclass as result.

Dates are only ever added to within the bounds that the form sets.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Literal

from attrs import field, frozen
from attrs.validators import ge, le

from effectmcp import Choices, Confirm, Elicit, Flow, Gather, Refused, Server, form

app = Server("trips", version="1.0")


@form
@frozen
class Stay:
    """When, and how."""

    arrival: dt.date = field(
        validator=[ge(dt.date(2026, 1, 1)), le(dt.date(2030, 12, 31))]
    )
    nights: int = field(default=1, validator=[ge(1), le(14)])
    room: Annotated[Literal["s", "d"], Choices(s="Single", d="Double")] = "d"
    wish: str | None = None


@dataclass(frozen=True)
class Trip:
    """The booking."""

    place: str
    arrival: dt.date | None = None
    departure: dt.date | None = None
    meals: tuple[str, ...] = ()


def meals(place: str) -> Flow[tuple[str, ...]]:
    """Ask which meals are taken."""
    breakfast, dinner = yield from Gather(
        Confirm(f"Breakfast in {place}?", otherwise=True),
        Confirm(f"Dinner in {place}?", otherwise=False),
    )
    taken = {"breakfast": breakfast, "dinner": dinner}
    return tuple(meal for meal, is_taken in taken.items() if is_taken)


def book(place: str) -> Flow[Trip]:
    """Ask for everything that a booking takes."""
    stay = yield from Elicit(f"When do you travel to {place}?", Stay)
    departure = stay.arrival + dt.timedelta(days=stay.nights)
    taken: tuple[str, ...] = ()
    if stay.nights > 1 or stay.wish is not None:
        taken = yield from meals(place)
    if not (yield from Confirm(f"{place}, {stay.arrival} to {departure}?")):
        return Trip(place)
    return Trip(place, stay.arrival, departure, taken)


@app.tool
def travel(place: str) -> Flow[Trip]:
    """Book a trip."""
    try:
        return (yield from book(place.strip() or "nowhere in particular"))
    except Refused:
        return Trip(place)
