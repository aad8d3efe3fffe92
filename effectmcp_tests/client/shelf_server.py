"""The server that clients of these tests talk to, wherever it is.

It is loaded in a test's own process, or served from this file in another one. Tests of
one module share that process, so what it notes is noted under a mark of the caller's.
"""

from __future__ import annotations

import secrets
from typing import Annotated

import anyio
import anyio.lowlevel
from attrs import frozen

from effectmcp import (
    Checkpoint,
    Confirm,
    Detach,
    Elicit,
    ElicitUrl,
    Flow,
    Gather,
    Header,
    Keys,
    ListRoots,
    Log,
    Progress,
    Sample,
    Server,
    Sleep,
    Status,
    Step,
    ToolError,
)
from effectmcp.server.events import Event, RoundBegan, RoundEnded
from effectmcp.state import make_key

NOTES: list[tuple[str, str]] = []
_FLOWS: dict[str, str] = {}


def observe(event: Event) -> None:
    """Note how the rounds of tools end that have a mark."""
    if isinstance(event, RoundBegan) and isinstance(event.arguments, dict):
        _FLOWS[event.flow_id] = str(event.arguments.get("mark"))
    if isinstance(event, RoundEnded) and event.flow_id in _FLOWS:
        NOTES.append((_FLOWS.pop(event.flow_id), event.outcome))


# Two at once, so that every list has pages.
app = Server(
    "shelf",
    version="1",
    instructions="Ask for a book.",
    observers=[observe],
    page_size=2,
)


@app.tool
def noted(mark: str) -> list[str]:
    """Return the notes under a mark."""
    return [note for of, note in NOTES if of == mark]


@app.tool
def new_keys() -> str:
    """Take no state any more that was given so far."""
    app.keys = Keys(make_key(secrets.token_bytes(32)))
    return "done"


# ---- tasks --------------------------------------------------------------------------


@app.tool
def bind(copies: int) -> Flow[str]:
    """Bind copies, as a task."""
    if not (yield from Confirm(f"Bind {copies} copies?")):
        return "nothing bound"
    is_task = yield from Detach(ttl=600, poll_interval=0.1)
    yield from Status("it sews")
    color = yield from Elicit("Which color?", str)
    yield from Status("it glues")
    if color == "none":
        raise ToolError("no cover")
    if color == "slow":
        yield from Sleep(600)
    return f"{copies} in {color} ({'a task' if is_task else 'no task'})"


# ---- questions ----------------------------------------------------------------------


@frozen
class Reader:
    """The user who reads."""

    name: str
    age: int = 30


@app.tool
def order(title: str) -> Flow[str]:
    """Ask twice, in two rounds, and end in a third."""
    reader = yield from Elicit("Who is it for?", Reader)
    many = yield from Elicit(f"How many for {reader.name}?", int)
    return f"{many} × {title} for {reader.name}, {reader.age}"


@app.tool
def survey() -> Flow[str]:
    """Ask three things in one round."""
    reader, sampled, roots = yield from Gather(
        Elicit("Who are you?", Reader), Sample("Write a greeting."), ListRoots()
    )
    uris = ", ".join(f"{root.uri} ({root.name})" for root in roots)
    return f"{sampled.text} {reader.name} of {uris}"


@app.tool
def pair() -> Flow[str]:
    """Ask two forms in one round."""
    names = yield from Gather(Elicit("One?", str), Elicit("Two?", str))
    return " and ".join(names)


@app.tool
def pay() -> Flow[str]:
    """Send the user to a page."""
    yield from ElicitUrl("Pay there.", "https://bank.example/pay?id=1")
    return "paid"


@app.tool
def sure() -> Flow[bool]:
    """Ask for a yes."""
    return (yield from Confirm("Sure?"))


@app.tool
def echo(number: int) -> Flow[str]:
    """Ask, and return which call got which answer."""
    said = yield from Elicit(f"What is {number}?", str)
    return f"{number} is {said}"


@app.tool
def nag() -> Flow[str]:
    """Ask without an end."""
    while True:
        yield from Elicit("And?", str)


@app.tool
def paces(count: int) -> Flow[int]:
    """Hand the state over `count` times, and ask nothing."""
    for _ in range(count):
        yield from Checkpoint()
    return count


# ---- while it runs ------------------------------------------------------------------


@app.tool
def count(to: int) -> Flow[int]:
    """Say every number."""
    for n in range(1, to + 1):
        yield from Progress(n, to, f"{n} of {to}")
    return to


@app.tool
def talk() -> Flow[str]:
    """Say it in three volumes."""
    yield from Log("debug", "whispered")
    yield from Log("info", {"said": 1}, logger="shelf")
    yield from Log("error", "shouted")
    return "talked"


async def _wait(mark: str) -> None:
    NOTES.append((mark, "began"))
    try:
        await anyio.sleep_forever()
    finally:
        NOTES.append((mark, "cancelled"))


@app.tool
def wait(mark: str, say: bool) -> Flow[str]:
    """Wait for longer than any client will, after a progress message or without one."""
    if say:
        yield from Progress(0)
    yield from Step(_wait, mark)
    return "waited"


@app.tool
def fail() -> str:
    """Fail in words."""
    raise ToolError("it is out of print")


# ---- changes ------------------------------------------------------------------------


def _extra() -> str:
    """Come and go."""
    return "extra"


@app.tool
def toggle(name: str) -> str:
    """Offer one tool more, or less."""
    tool = app.tools.get(name)
    if tool is None:
        app.tool(name=name)(_extra)
    else:
        app.remove(tool)
    return "toggled"


@app.tool
def touch(uri: str) -> str:
    """Say that a resource has changed."""
    app.updated(uri)
    return "touched"


# ---- headers ------------------------------------------------------------------------


@app.tool
def ship(
    region: Annotated[str, Header("Region")],
    parcels: Annotated[int, Header("Parcels")] = 0,
    fast: Annotated[bool, Header("Fast")] = True,
) -> dict[str, str | int | bool]:
    """Take arguments that proxies can read."""
    return {"region": region, "parcels": parcels, "fast": fast}


# ---- prompts and resources ----------------------------------------------------------


@app.prompt
def letter(to: str) -> Flow[str]:
    """Write to a person."""
    about = yield from Elicit(f"What about, to {to}?", str)
    return f"Write to {to} about {about}."


@app.prompt
def card(kind: str, to: str) -> str:
    """Write less."""
    return f"A {kind} card to {to}."


@app.prompt
def note() -> str:
    """Write least."""
    return "A note."


@app.completion("card", "to")
def readers(text: str, context: dict[str, str]) -> list[str]:
    """Suggest who is there."""
    return [f"{text}{end}, {context.get('kind', '?')}" for end in ("nn", "lf")]


_READS = {"still": 0, "lively": 0}


@app.resource("shelf://still", ttl=60)
def still() -> str:
    """Count how often it was read; that may be kept."""
    _READS["still"] += 1
    return f"read {_READS['still']} times"


@app.resource("shelf://lively")
def lively() -> str:
    """Count how often it was read; that may not be kept."""
    _READS["lively"] += 1
    return f"read {_READS['lively']} times"


@app.resource("shelf://private", ttl=60)
def private() -> Flow[str]:
    """Ask before it shows anything."""
    word = yield from Elicit("The password?", str)
    return f"opened with {word}"


@app.resource("shelf://books/{title}")
def book(title: str) -> str:
    """A book."""
    return f"All of {title}"


@app.resource("shelf://authors/{name}")
def author(name: str) -> str:
    """A life."""
    return f"Life of {name}"


@app.resource("shelf://years/{year}")
def year(year: int) -> str:
    """A year."""
    return f"Books of {year}"
