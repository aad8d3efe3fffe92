"""FastMCP's authentication and middleware in front of a bridged flow, over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from fastmcp import Client, Context, FastMCP
from fastmcp.dependencies import CurrentContext, Depends
from fastmcp.server.auth import StaticTokenVerifier
from fastmcp.server.middleware import Middleware, MiddlewareContext

from effectmcp import Caller, Elicit, Flow, Keys, step
from effectmcp.bridge.fastmcp import flow_tool, injected, server_in
from effectmcp.state import make_key

from ..transports.shop import request

TOKENS = {
    "token-ann": {"client_id": "app", "sub": "ann", "scopes": ["orders"]},
    "token-bob": {"client_id": "app", "sub": "bob", "scopes": ["orders"]},
    "token-eve": {"client_id": "app", "sub": "eve", "scopes": []},
}


def needs_orders(context: Any) -> bool:
    """Admit tokens with a scope, as FastMCP calls it."""
    return context.token is not None and "orders" in context.token.scopes


class Seeing(Middleware):
    """Middleware of FastMCP that notes the calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_call_tool(
        self, context: MiddlewareContext[Any], call_next: Any
    ) -> Any:
        self.seen.append(context.message.name)
        return await call_next(context)


def shop(**options: Any) -> tuple[FastMCP[Any], Seeing]:
    seeing = Seeing()
    mcp: FastMCP[Any] = FastMCP("shop", middleware=[seeing], **options)
    server_in(mcp).keys = Keys(make_key(bytes(32)))

    @flow_tool(mcp, tags={"orders"}, auth=needs_orders if "auth" in options else None)
    def order(title: str) -> Flow[str]:
        name = yield from Elicit("Who is it for?", str)
        caller = yield from Caller()
        return f"{title} for {name}, by {caller.principal}"

    return mcp, seeing


@asynccontextmanager
async def serving(mcp: FastMCP[Any]) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # Without its own logging, which would stay for the tests that follow.
        config = uvicorn.Config(
            mcp.http_app(), log_config=None, ws="none", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve([listening]))
        while not server.started:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server.should_exit = True
        await task


async def post(url: str, token: str | None, **params: Any) -> httpx2.Response:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "order",
    }
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    message = request("tools/call", name="order", **params)
    async with httpx2.AsyncClient(timeout=60) as http:
        return await http.post(url, json=message, headers=headers)


def message_in(response: httpx2.Response) -> Any:
    """Return the response, of a stream or not."""
    lines = response.text.splitlines()
    data = [one[5:] for one in lines if one.startswith("data:")]
    return json.loads(data[-1] if data else response.text)


def test_state_is_for_their_principal() -> None:
    mcp, seeing = shop(auth=StaticTokenVerifier(TOKENS))

    async def main() -> None:
        async with serving(mcp) as url:
            arguments = {"title": "Dune"}
            assert (await post(url, None, arguments=arguments)).status_code == 401
            first = message_in(await post(url, "token-ann", arguments=arguments))
            asked = first["result"]
            assert asked["resultType"] == "input_required"
            [key] = asked["inputRequests"]
            retry = {
                "arguments": arguments,
                "inputResponses": {
                    key: {"action": "accept", "content": {"value": "Zed"}}
                },
                "requestState": asked["requestState"],
            }
            other = message_in(await post(url, "token-bob", **retry))
            assert other["error"]["code"] == -32602
            assert other["error"]["message"] == "Invalid or expired requestState"
            done = message_in(await post(url, "token-ann", **retry))["result"]
            text = 'Dune for Zed, by ["app",null,"ann"]'
            assert done["content"][0]["text"] == text
            # FastMCP's own check of this tool.
            refused = message_in(await post(url, "token-eve", arguments=arguments))
            assert "error" in refused or refused["result"]["isError"]

    asyncio.run(main())
    assert seeing.seen
    assert set(seeing.seen) == {"order"}


_CONTEXT: Context = CurrentContext()


async def _ann(message: str, type_: Any, params: Any, context: Any) -> Any:
    return {"value": "Ann"}


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
def test_mounted_and_with_their_own_client(mode: Any) -> None:
    mcp, seeing = shop()
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(mcp, namespace="books")

    async def main() -> Any:
        async with Client(outer, elicitation_handler=_ann, mode=mode) as client:
            return await client.call_tool("books_order", {"title": "Dune"})

    assert asyncio.run(main()).content[0].text == "Dune for Ann, by None"
    assert seeing.seen


def test_step_with_dependencies_of_fastmcp() -> None:
    mcp: FastMCP[Any] = FastMCP("shop")

    def bank(context: Context = _CONTEXT) -> str:
        return f"the bank of {context.fastmcp.name}"

    @step
    @injected
    def charge(name: str, context: Context = _CONTEXT, of: str = Depends(bank)) -> str:
        assert context.request_id
        return f"{name} paid {of}"

    @step
    @injected
    async def ship(name: str, of: str = Depends(bank)) -> str:
        return f"shipped by {of}"

    @flow_tool(mcp)
    def order() -> Flow[str]:
        name = yield from Elicit("Who is it for?", str)
        paid = yield from charge(name)
        return f"{paid}, {yield from ship(name)}"

    async def main() -> Any:
        async with Client(mcp, elicitation_handler=_ann) as client:
            return await client.call_tool("order", {"of": "mine"}, raise_on_error=False)

    refused = asyncio.run(main())
    assert "of: is not known here" in refused.content[0].text

    async def again() -> Any:
        async with Client(mcp, elicitation_handler=_ann) as client:
            return await client.call_tool("order", {})

    text = "Ann paid the bank of shop, shipped by the bank of shop"
    assert asyncio.run(again()).content[0].text == text
