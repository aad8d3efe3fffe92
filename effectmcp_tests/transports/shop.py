"""A server to reach over HTTP, and what a client of it writes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from effectmcp import Caller, Elicit, Flow, Progress, Provided, Step
from effectmcp.server import Server
from effectmcp.state import Keys, make_key

JSON = Any

KEYS = Keys(make_key(bytes(range(32))))


class Bank:
    """The value that the lifespan provides."""

    is_open = True

    def charge(self, name: str) -> str:
        assert self.is_open
        return f"receipt for {name}"


@asynccontextmanager
async def bank(app: Server) -> AsyncIterator[Mapping[Any, Any]]:
    opened = Bank()
    yield {"bank": opened}
    opened.is_open = False


@contextmanager
def sync_bank(app: Server) -> Iterator[Mapping[Any, Any]]:
    opened = Bank()
    yield {"bank": opened}
    opened.is_open = False


def charge(name: str, *, bank: Bank = Provided()) -> str:
    return bank.charge(name)


async def nap(seconds: float) -> None:
    """Sleep on the running loop, trio or asyncio."""
    if trio.lowlevel.in_trio_task():
        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


def shop(**options: Any) -> Server:
    """A server with a tool for each thing that a transport has to carry."""
    app = Server("shop", **{"keys": KEYS, **options})

    @app.tool
    def order(title: str) -> Flow[str]:
        """Ask twice, in two rounds, and end in a third."""
        name = yield from Elicit("Who is it for?", str)
        many = yield from Elicit(f"How many for {name}?", int)
        return f"{many} × {title} for {name}: {(yield from Step(charge, name))}"

    @app.tool
    def count(to: int) -> Flow[int]:
        """Say every number."""
        for n in range(1, to + 1):
            yield from Progress(n, to)
        return to

    @app.tool
    def endless(say: bool = True) -> Flow[str]:
        """Wait for longer than any client will."""
        try:
            if say:
                yield from Progress(1)
            yield from Step(nap, 3600)
        finally:
            suspended.append("endless")
        return "never"

    @app.tool
    def pause(seconds: float) -> Flow[str]:
        """Wait without a word."""
        yield from Step(nap, seconds)
        return "awake"

    @app.tool
    def whoami() -> Flow[str | None]:
        """Return the principal of the caller."""
        return (yield from Caller()).principal

    @app.tool
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    return app


#: The handlers that were ended in the middle.
suspended: list[str] = []


class Later:
    """An awaitable that is not a coroutine."""

    def __await__(self) -> Generator[Any, Any, str]:
        yield from ()
        return "ann"


# ---- a client -----------------------------------------------------------------------


def meta(**more: JSON) -> dict[str, JSON]:
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        **more,
    }


def request(
    method: str, *, id: int = 1, progress: str | None = None, **params: JSON
) -> dict[str, JSON]:
    more = {} if progress is None else {"progressToken": progress}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {**params, "_meta": meta(**more)},
    }


def call(name: str, *, id: int = 1, **options: JSON) -> dict[str, JSON]:
    """A `tools/call`; what `options` does not name is an argument."""
    own = {"progress", "requestState", "inputResponses"}
    arguments = {key: value for key, value in options.items() if key not in own}
    rest = {key: value for key, value in options.items() if key in own}
    return request("tools/call", id=id, name=name, arguments=arguments, **rest)


def headers_of(message: Mapping[str, JSON], **more: str) -> dict[str, str]:
    """Return a client's headers for `message`; `more` with `_` for `-`."""
    headers = {
        "host": "shop.example",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": message["method"],
    }
    if "name" in message.get("params", {}):
        name = message["params"]["name"]
        encoded = base64.b64encode(name.encode()).decode()
        headers["mcp-name"] = name if name.isascii() else f"=?base64?{encoded}?="
    return {**headers, **{key.replace("_", "-"): v for key, v in more.items()}}


def answer(result: Mapping[str, JSON], value: JSON) -> dict[str, JSON]:
    """The params of the next round: the state, and `value` as the only answer."""
    ((key, _),) = result["inputRequests"].items()
    return {
        "requestState": result["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {"value": value}}},
    }


def events(body: bytes) -> list[JSON]:
    """The messages of a stream; comments are left out."""
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if any(lines):
            assert lines[0] == "event: message"
            found.append(json.loads(lines[1].removeprefix("data: ")))
    return found


def text_of(message: Mapping[str, JSON]) -> str:
    """Return the text of a tool's result."""
    result = message["result"]
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])
