"""Type checkers must refuse each line marked `# error`, and no other. Never run."""

from __future__ import annotations

import datetime as dt

from effectmcp import (
    Accepted,
    Confirm,
    Elicit,
    Flow,
    Gather,
    Outcome,
    Provided,
    Restart,
    Step,
    Version,
    step,
)
from effectmcp.engine import Journal
from effectmcp.state import Claims


def charge(amount: int) -> str:
    return str(amount)


@step
def charge_step(amount: int) -> str:
    return str(amount)


@step(retries=2)
async def charge_async(amount: int, *, pool: object = Provided()) -> str:
    return str(amount)


def sub(number: int) -> Flow[bytes]:
    yield from Confirm("Sure?")
    return bytes(number)


def wrong_answers() -> Flow[None]:
    name: int = yield from Elicit("Who?", str)  # error
    day: str = yield from Elicit("When?", dt.date)  # error
    sure: str = yield from Confirm("Sure?")  # error
    note: str = yield from Elicit("A note?", str | None)  # error
    some: str = yield from Elicit("Who?", str, otherwise=None)  # error
    both: tuple[str, str] = yield from Gather(Confirm("?"), Elicit("?", str))  # error
    each: list[str] = yield from Gather.each([Confirm("?")])  # error
    fee: str = yield from Version("fee", default=0, latest=1)  # error
    part: str = yield from sub(3)  # error
    print(name, day, sure, note, some, both, each, fee, part)


def wrong_arguments() -> Flow[None]:
    yield from Step(charge, "ten")  # error
    yield from Step(charge)  # error
    yield from charge_step("ten")  # error
    yield from charge_async(10, colour="red")  # error
    yield from sub("three")  # error
    yield from Restart(sub, "three")  # error
    yield from Elicit("Who?")  # error
    yield from Confirm("Sure?", otherwise="no")  # error


def wrong_results() -> Flow[None]:
    receipt: int = yield from Step(charge, 10)  # error
    again: int = yield from charge_step(10)  # error
    later: int = yield from charge_async(10)  # error
    print(receipt, again, later)


def wrong_match() -> Flow[int]:
    match (yield from Outcome(Elicit("Who?", str))):
        case Accepted(name):
            return name  # error
        case _:
            return 0


def wrong_return() -> Flow[str]:
    yield from Confirm("Sure?")
    return 3  # error


def changed_records(journal: Journal, claims: Claims) -> None:
    journal.rounds = 5  # error
    claims.version = "2"  # error
