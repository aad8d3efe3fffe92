"""A wizard of three questions, in four kinds of types: each is inferred.

No line says a type twice, and each wizard has eight lines with types at most.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Annotated, NamedTuple, TypedDict, assert_type

import attrs
import msgspec
import pydantic
from annotated_types import Ge

from effectmcp import Accepted, Elicit, Flow, Gather, Outcome, Server, Step, step

app = Server("hotel")


# ---- pydantic: 6 lines with types -----------------------------------------------------


class Guest(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1)
    age: int = pydantic.Field(ge=18, le=120)


@app.tool
def by_model(hotel: str) -> Flow[str]:
    guest = yield from Elicit("Who?", Guest)
    day = yield from Elicit(f"When does {guest.name} come?", dt.date)
    nights = yield from Elicit("How many nights?", int)
    return f"{guest.name}, {guest.age}: {nights} nights from {day:%d %b} at {hotel}"


# ---- attrs --------------------------------------------------------------------------


@attrs.frozen
class Visitor:
    name: str = attrs.field(validator=attrs.validators.min_len(1))
    age: int = attrs.field(validator=attrs.validators.ge(18))


@app.tool
def by_attrs(hotel: str) -> Flow[str]:
    guest = yield from Elicit("Who?", Visitor)
    day = yield from Elicit(f"When does {guest.name} come?", dt.date)
    nights = yield from Elicit("How many nights?", int)
    return f"{guest.name}, {guest.age}: {nights} nights from {day:%d %b} at {hotel}"


# ---- dataclass ----------------------------------------------------------------------


@dataclasses.dataclass
class Person:
    name: str
    age: Annotated[int, Ge(18)]


@app.tool
def by_dataclass(hotel: str) -> Flow[str]:
    guest = yield from Elicit("Who?", Person)
    day = yield from Elicit(f"When does {guest.name} come?", dt.date)
    nights = yield from Elicit("How many nights?", int)
    return f"{guest.name}, {guest.age}: {nights} nights from {day:%d %b} at {hotel}"


# ---- plain types --------------------------------------------------------------------


@app.tool
def by_plain_types(hotel: str) -> Flow[str]:
    name = yield from Elicit("Who?", str)
    day = yield from Elicit(f"When does {name} come?", dt.date)
    nights = yield from Elicit("How many nights?", int)
    return f"{name}, 33: {nights} nights from {day:%d %b} at {hotel}"


# ---- all places of a class ----------------------------------------------------------


class Entry(TypedDict):
    name: str


class Row(NamedTuple):
    name: str


class Record(msgspec.Struct):
    name: str


@step
def look_up(guest: Guest) -> Guest:
    return guest


@app.tool
def all_places() -> Flow[Guest]:
    assert_type((yield from Elicit("Who?", Guest)), Guest)
    assert_type((yield from Elicit("Who?", Guest, otherwise=None)), Guest | None)
    assert_type((yield from Elicit("Who?", Guest, meta={"a": 1})), Guest)
    match (yield from Outcome(Elicit("Who?", Guest))):
        case Accepted(guest):
            assert_type(guest, Guest)
        case _:
            pass
    both = yield from Gather(Elicit("Who?", Guest), Elicit("Who?", Person))
    assert_type(both, tuple[Guest, Person])
    assert_type((yield from Elicit("Who?", Entry)), Entry)
    assert_type((yield from Elicit("Who?", Row)), Row)
    assert_type((yield from Elicit("Who?", Record)), Record)
    found = yield from look_up(both[0])
    assert_type(found, Guest)
    return (yield from Step(Guest.model_copy, found))
