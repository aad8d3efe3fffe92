"""Correct code of authors, which both type checkers must accept. Never run."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from typing import Any, Literal, assert_type

from attrs import frozen

from effectmcp import (
    Accepted,
    Caller,
    CallerInfo,
    Checkpoint,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    Dismissed,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    ListRoots,
    Now,
    Outcome,
    Provided,
    Random,
    Restart,
    Root,
    Sample,
    Sampled,
    Sleep,
    Step,
    TimedOut,
    Uuid,
    Version,
    Within,
    form,
    step,
)
from effectmcp.compat import (
    AcceptedElicitation,
    CancelledElicitation,
    Context,
    DeclinedElicitation,
)
from effectmcp.testing import Dialogue, play, play_script


@form
@frozen
class Person:
    name: str
    age: int


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


def charge(amount: int, currency: str = "EUR") -> str:
    return f"{amount} {currency}"


async def charge_later(amount: int) -> str:
    return str(amount)


@step
def charge_step(amount: int) -> bytes:
    return bytes(amount)


@step(replayable=True, retries=2)
async def look_up(name: str, *, pool: object = Provided()) -> list[int]:
    return [len(name)]


def sub(number: int) -> Flow[Person]:
    yield from Now()
    return Person("Ann", number)


def questions() -> Flow[None]:
    assert_type((yield from Elicit("Who?", Person)), Person)
    assert_type((yield from Elicit("A text?", str)), str)
    assert_type((yield from Elicit("How many?", int)), int)
    assert_type((yield from Elicit("How much?", float)), float)
    assert_type((yield from Elicit("Gift?", bool, title="A gift")), bool)
    assert_type((yield from Elicit("When?", dt.date)), dt.date)
    assert_type((yield from Elicit("When exactly?", dt.datetime)), dt.datetime)
    assert_type((yield from Elicit("Size?", Size)), Size)
    assert_type((yield from Elicit("Size?", Literal["s", "l"])), Literal["s", "l"])
    assert_type(
        (yield from Elicit("Sizes?", list[Literal["s", "l"]])),
        list[Literal["s", "l"]],
    )
    assert_type((yield from Elicit("Sizes?", list[Size])), list[Size])
    assert_type((yield from Elicit("A note?", str | None)), str | None)
    assert_type((yield from Elicit("Raw?", {"type": "object"})), dict[str, Any])
    assert_type((yield from Confirm("Sure?")), bool)
    assert_type((yield from ElicitUrl("Log in", "https://example.com")), None)
    assert_type((yield from Sample("Write a poem")), Sampled)
    assert_type((yield from ListRoots()), list[Root])


def widened() -> Flow[None]:
    assert_type((yield from Elicit("Who?", Person, otherwise=None)), Person | None)
    assert_type((yield from Elicit("Raw?", {}, otherwise=3)), dict[str, Any] | int)
    assert_type((yield from Confirm("Sure?", otherwise=False)), bool)
    assert_type(
        (yield from ElicitUrl("Log in", "https://e.com", otherwise=1)), int | None
    )
    assert_type((yield from Sample("Write a poem", otherwise="")), Sampled | str)
    assert_type((yield from ListRoots(otherwise=None)), list[Root] | None)


def matched() -> Flow[str]:
    match (yield from Outcome(Elicit("Who?", Person))):
        case Accepted(person):
            assert_type(person, Person)
            return person.name
        case Declined():
            return "declined"
        case Dismissed():
            return "dismissed"


def gathered() -> Flow[None]:
    assert_type(
        (yield from Gather(Elicit("A text?", str), sub(1), Now())),
        tuple[str, Person, dt.datetime],
    )
    assert_type((yield from Gather(charge_step(1))), tuple[bytes])
    assert_type((yield from Gather()), tuple[()])
    assert_type(
        (yield from Gather.each(Elicit(f"Guest {n}?", str) for n in range(3))),
        list[str],
    )
    assert_type((yield from Gather.each([sub(1), sub(2)])), list[Person])


def steps() -> Flow[None]:
    assert_type((yield from Step(charge, 10)), str)
    assert_type((yield from Step(charge, 10, currency="USD")), str)
    assert_type((yield from Step(charge_later, 10)), str)
    assert_type((yield from Step(charge_step, 10)), bytes)
    assert_type((yield from charge_step(10)), bytes)
    assert_type((yield from look_up("Ann")), list[int])
    assert_type((yield from sub(3)), Person)


def the_rest() -> Flow[None]:
    assert_type((yield from Now()), dt.datetime)
    assert_type((yield from Uuid()), uuid.UUID)
    assert_type((yield from Random()), float)
    assert_type((yield from IdempotencyKey("charge")), str)
    assert_type((yield from ClientSupports(Sample)), bool)
    assert_type((yield from Caller()), CallerInfo)
    assert_type((yield from Checkpoint()), None)
    assert_type((yield from Version("fee", default=0, latest=1)), int)
    assert_type((yield from Detach(ttl=60)), bool)
    assert_type((yield from Sleep(3)), None)
    assert_type((yield from Within(3, charge_step(1))), bytes | TimedOut)
    match (yield from FirstOf(Step(charge, 1), Sleep(3), charge_step(1))):
        case (0, receipt):
            assert_type(receipt, str)
        case (1, nothing):
            assert_type(nothing, None)
        case (2, number):
            assert_type(number, bytes)


def again(title: str) -> Flow[int]:
    if title:
        return (yield from Restart(again, ""))
    return 1


async def awaited() -> str:
    assert_type(await Elicit("How many?", int), int)
    return await Step(charge_later, 3)


async def migrated(ctx: Context) -> str:
    answer = await ctx.elicit("How many?", int)
    if answer.action == "accept":
        assert_type(answer.data, int)
    else:
        assert_type(answer.data, None)
    match answer:
        case AcceptedElicitation(data):
            assert_type(data, int)
        case DeclinedElicitation() | CancelledElicitation():
            assert_type(answer.action, Literal["decline", "cancel"])
    return ""


def wizard() -> Flow[str]:
    """Three questions, typed, in six lines."""
    name = yield from Elicit("Who is it for?", str)
    day = yield from Elicit(f"Deliver to {name} on which day?", dt.date)
    if not (yield from Confirm(f"Order for {name} on {day:%d %b}?")):
        return "Nothing ordered."
    return (yield from Step(charge, 10))


def tested() -> None:
    with play(again, title="Dune") as dialogue:
        assert_type(dialogue, Dialogue[int])
        assert_type(dialogue.expect(Step).returns(3).result, int)
    assert_type(play(awaited).result, str)
    assert_type(play(charge, 3).result, str)
    assert_type(play_script(wizard, [(Elicit, "Ann"), (Confirm, False)]), str)
    assert_type(play_script(awaited, []), str)
