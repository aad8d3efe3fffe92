"""For the tests of the legacy era over HTTP: a server that asks, an old client."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field, frozen

from effectmcp import (
    Caller,
    Cancelled,
    Elicit,
    Flow,
    Gather,
    Log,
    Progress,
    Provided,
    Server,
    Step,
)

from ..legacy_client import NEWEST, hello
from .shop import KEYS, Bank, nap

Wire = dict[str, Any]


@define(eq=False)
class Desk:
    """A server whose tools ask, and the record of how they ended."""

    app: Server
    seen: list[str] = field(factory=list)
    #: Called when something was seen.
    hear: Callable[[], None] = lambda: None

    def note(self, what: str) -> None:
        self.seen.append(what)
        self.hear()


def desk(**options: Any) -> Desk:
    made = Desk(Server("desk", **{"keys": KEYS, "version": "1", **options}))
    app = made.app

    # Not in threads: a clock that jumps does not wait for those.
    async def refund(what: str) -> None:
        made.note(f"refunded {what}")

    async def slow_refund(seconds: float) -> None:
        made.note("refunding")
        await nap(seconds)
        made.note("refunded late")

    async def pay_back(*, bank: Bank = Provided()) -> str:
        return bank.charge("back")

    @app.tool
    def order(title: str) -> Flow[str]:
        """Ask twice; release what was taken if no client answers."""
        try:
            name = yield from Elicit("Who is it for?", str)
            many = yield from Elicit(f"How many for {name}?", int)
        except Cancelled:
            made.note("cancelled")
            yield from Step(refund, title)
            raise
        return f"{many} x {title} for {name}"

    @app.tool
    def slow(seconds: float) -> Flow[str]:
        """Ask, and take long to clean up."""
        try:
            return (yield from Elicit("Who?", str))
        finally:
            yield from Step(slow_refund, seconds)

    @app.tool
    def banks() -> Flow[str]:
        """Ask, and clean up with what the lifespan provides."""
        try:
            return (yield from Elicit("Who?", str))
        finally:
            made.note((yield from Step(pay_back)))

    @app.tool
    def three() -> Flow[str]:
        """Ask three things side by side."""
        found = yield from Gather.each(Elicit(f"What is {n}?", str) for n in "abc")
        return ", ".join(found)

    @app.tool
    def count(to: int, pause: float = 0) -> Flow[int]:
        """Say every number."""
        for n in range(1, to + 1):
            yield from Progress(n, to)
            if pause:
                yield from Step(nap, pause)
        return to

    @app.tool
    def says() -> Flow[str]:
        """Log at several levels."""
        yield from Log("debug", "small")
        yield from Log("info", "middling")
        yield from Log("error", "large")
        return "said"

    @app.tool
    async def naps(seconds: float) -> str:
        """Wait, and ask nothing."""
        try:
            await nap(seconds)
        finally:
            made.note("napped")
        return "awake"

    @app.tool
    def whoami() -> Flow[str]:
        """Return the user and the era of the caller."""
        caller = yield from Caller()
        return f"{caller.principal} {caller.era} {caller.protocol_version}"

    @app.tool
    def surrogate() -> Flow[str]:
        """Return what no encoding can carry, after a word."""
        yield from Progress(1)
        return "\ud800"

    @app.resource("desk://{name}")
    def thing(name: str) -> str:
        return name

    return made


# ---- an old client ------------------------------------------------------------------


def initialize(version: str = NEWEST, *, id: Any = 0) -> Wire:
    return hello(version, {"elicitation": {}}, id=id)


def tool(name: str, *, id: Any = 1, token: Any = None, **arguments: Any) -> Wire:
    params: Wire = {"name": name, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return message("tools/call", id=id, **params)


def message(method: str, *, id: Any = None, **params: Any) -> Wire:
    """A request, or a notification where there is no `id`."""
    made: Wire = {"jsonrpc": "2.0", "method": method, "params": params}
    return made if id is None else {**made, "id": id}


def cancelled(id_: Any) -> Wire:
    return message("notifications/cancelled", requestId=id_, reason="no more")


def answered(question: Mapping[str, Any], value: Any) -> Wire:
    result = {"action": "accept", "content": {"value": value}}
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}


def headers_for(
    session: str | None, version: str | None = NEWEST, **more: str | None
) -> dict[str, str]:
    """An old client's headers; `more` with `_` for `-`, `None` to leave one out."""
    known: dict[str, str | None] = {
        "host": "shop.example",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-session-id": session,
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return {key: value for key, value in known.items() if value is not None}


@frozen
class Event:
    """One event of a stream, or a comment."""

    id: str | None
    data: str | None
    retry: int | None

    @property
    def message(self) -> Wire:
        assert self.data
        found: Wire = json.loads(self.data)
        return found

    @property
    def is_comment(self) -> bool:
        return self == Event(None, None, None)


def event_of(block: bytes) -> Event:
    """Parse a block of lines, without its end, into an event."""
    fields: dict[str, str] = {}
    for line in block.decode().split("\n"):
        name, _, value = line.partition(":")
        assert name not in fields
        if name:
            fields[name] = value.removeprefix(" ")
    retry = fields.get("retry")
    return Event(
        fields.get("id"), fields.get("data"), None if retry is None else int(retry)
    )


def events_of(body: bytes) -> list[Event]:
    """The events of a whole stream; comments are left out."""
    *blocks, rest = body.split(b"\n\n")
    assert rest == b""
    return [one for one in map(event_of, blocks) if not one.is_comment]


def messages_of(body: bytes) -> list[Wire]:
    """The messages of a whole stream."""
    return [one.message for one in events_of(body) if one.data]


def value_of(reply: Wire) -> str:
    """Return the text of a tool's result."""
    result = reply["result"]
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])
