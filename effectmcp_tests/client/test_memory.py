from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from effectmcp import Elicit, Flow, Keys, Provided, Server
from effectmcp.client import ChannelError, Client, InMemory
from effectmcp.state import make_key

from .ways import on_both

KEYS = Keys(make_key(bytes(range(32))))


@on_both
async def test_the_lifespan_is_opened_once() -> None:
    """The first client opens it; a client of a server that already runs does not."""
    seen: list[str] = []

    @asynccontextmanager
    async def life(app: Server) -> AsyncIterator[dict[str, str]]:
        seen.append("opened")
        yield {"word": "hello"}
        seen.append("closed")

    app = Server("test", lifespan=life, keys=KEYS)

    @app.tool
    def say(word: str = Provided()) -> str:
        return word

    async with Client(InMemory(app)) as one:
        async with Client(InMemory(app)) as other:
            assert (await other.call_tool("say")).text == "hello"
        assert (await one.call_tool("say")).text == "hello"
        assert seen == ["opened"]
    assert seen == ["opened", "closed"]
    assert app.keys is KEYS


@on_both
async def test_a_server_without_keys_gets_some() -> None:
    app = Server("test")

    @app.tool
    def ask() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    async with Client(InMemory(app), elicit=lambda form: {"value": "Ann"}) as client:
        assert (await client.call_tool("ask")).text == "Ann"
    assert app.keys is not None


@on_both
async def test_a_state_belongs_to_its_user() -> None:
    app = Server("test", keys=KEYS)

    @app.tool
    def ask() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    channels = [InMemory(app, principal=name) for name in ("ann", "ann", "bob")]
    clients = [Client(one, elicit=lambda form: {"value": "x"}) for one in channels]
    async with clients[0] as ann, clients[1] as also_ann, clients[2] as bob:
        steps = ann.start("tools/call", {"name": "ask"})
        await steps.round()
        assert steps.pending is not None
        await also_ann.resume(steps.pending).round()
        with pytest.raises(Exception, match="requestState"):
            await bob.resume(steps.pending).round()


@on_both
async def test_a_notification_is_not_a_request() -> None:
    """There is no response to it, and a caller that waits for one gets an error."""

    async def hear(told: object) -> None: ...

    async with InMemory(Server("test", keys=KEYS)) as channel:
        with pytest.raises(ChannelError, match="with nothing"):
            await channel.exchange({"jsonrpc": "2.0", "method": "n"}, {}, hear)
