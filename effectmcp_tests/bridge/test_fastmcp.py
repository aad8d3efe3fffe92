"""Flows are tools to FastMCP: middleware, copies, templates, dependencies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.server.middleware import Middleware
from mcp import Client as SDKClient
from mcp.server.mcpserver import MCPServer

from effectmcp import Elicit, Flow, Keys, Log, Provided, Server, UsageError, step
from effectmcp.bridge import fastmcp as on_fastmcp
from effectmcp.bridge import mcp as on_sdk
from effectmcp.bridge.fastmcp import (
    flow_prompt,
    flow_resource,
    flow_tool,
    include,
    injected,
    server_in,
)
from effectmcp.drivers.local import running
from effectmcp.state import make_key

ERAS: Any = ["2026-07-28", "legacy"]


def shop() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("shop")
    server_in(mcp).keys = Keys(make_key(bytes(32)))
    return mcp


async def ann(message: str, type_: Any, params: Any, context: Any) -> Any:
    return {"value": "Ann"}


async def call(mcp: Any, name: str, mode: Any = "auto", **arguments: Any) -> Any:
    async with Client(mcp, elicitation_handler=ann, mode=mode) as client:
        return await client.call_tool(name, arguments, raise_on_error=False)


class Redact(Middleware):
    """Middleware that changes results."""

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        result = await call_next(context)
        if result.content:
            result.content = [types.TextContent(text="[redacted]")]
            result.structured_content = result.structured_content and {"number": "none"}
        return result


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("name", ["secret", "secrets"])
def test_middleware_changes_results(mode: Any, name: str) -> None:
    mcp = shop()
    mcp.add_middleware(Redact())

    @flow_tool(mcp)
    def secret() -> Flow[dict[str, str]]:
        return {"number": f"123 {yield from Elicit('Who?', str)}"}

    @flow_tool(mcp)
    def secrets() -> Flow[list[str]]:
        return [f"123 {yield from Elicit('Who?', str)}"]

    result = asyncio.run(call(mcp, name, mode))
    assert [one.text for one in result.content] == ["[redacted]"]
    assert "123" not in repr(result)


@pytest.mark.parametrize("bridge", [on_fastmcp, on_sdk])
def test_keys_that_were_set_before_an_include(bridge: Any) -> None:
    mcp: Any = FastMCP("shop") if bridge is on_fastmcp else MCPServer("shop")
    keys = Keys(make_key(bytes(32)))
    bridge.server_in(mcp).keys = keys
    app = Server("shop")
    bridge.include(mcp, app)
    assert bridge.server_in(mcp) is app
    assert app.keys is keys


def test_copy_with_another_name() -> None:
    mcp = shop()

    @flow_tool(mcp)
    def order(title: str) -> Flow[str]:
        return f"{title} for {yield from Elicit('Who?', str)}"

    other: FastMCP[Any] = FastMCP("other")

    async def main() -> Any:
        tool = await mcp.get_tool("order")
        assert tool is not None
        other.add_tool(tool.model_copy(update={"name": "buy"}))
        return await call(other, "buy", title="Dune")

    assert asyncio.run(main()).content[0].text == "Dune for Ann"


@pytest.mark.parametrize("is_mounted", [False, True])
def test_variables_with_slashes(is_mounted: bool) -> None:
    mcp = shop()

    @flow_resource(mcp, "files://{+path}")
    def file(path: str) -> Flow[str]:
        return f"{path} for {yield from Elicit('Who?', str)}"

    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(mcp, namespace="ns")

    async def main() -> Any:
        server, begin = (outer, "files://ns/") if is_mounted else (mcp, "files://")
        async with Client(server, elicitation_handler=ann) as client:
            return await client.read_resource(f"{begin}a/b.txt")

    assert asyncio.run(main())[0].text == "a/b.txt for Ann"


def test_question_is_withdrawn_when_the_call_is_cancelled() -> None:
    mcp = shop()

    @flow_tool(mcp)
    def order() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    async def think(context: Any, params: Any) -> Any:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()

    async def main() -> None:
        async with SDKClient(
            mcp._mcp_server, elicitation_callback=think, mode="legacy"
        ) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "order", {})
                await asked.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(60):
                await withdrawn.wait()

    asked, withdrawn = anyio.Event(), anyio.Event()
    asyncio.run(main())


def test_bridge_names_the_parts_that_stay_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Server("shop", instructions="Look before you order.")

    @app.prompt
    def advice(topic: str) -> str:
        return topic

    @app.completion("advice", "topic")
    def topics(text: str) -> list[str]:
        return ["love"]

    with caplog.at_level(logging.WARNING):
        include(FastMCP("shop"), app)
        on_sdk.include(MCPServer("shop"), app)
    words = (
        "a bridge does not pass on the completions and instructions of <Server 'shop'>"
    )
    assert caplog.text.count(words) == 2


def test_values_of_the_lifespan_keep_their_names() -> None:
    @asynccontextmanager
    async def life(app: Server) -> AsyncIterator[Mapping[Any, Any]]:
        yield {"ctx": "the author's"}

    app = Server("shop", keys=Keys(make_key(bytes(32))), lifespan=life)

    @step
    def look(ctx: str = Provided(), other: Context = Provided()) -> str:
        return f"{ctx} {type(other).__name__}"

    @app.tool
    def tool() -> Flow[str]:
        return (yield from look())

    mcp: FastMCP[Any] = FastMCP("shop")
    include(mcp, app)

    async def main() -> Any:
        async with running(app):
            return await call(mcp, "tool")

    assert asyncio.run(main()).content[0].text == "the author's Context"


@pytest.mark.parametrize("mode", ERAS)
def test_log_of_nothing(mode: Any) -> None:
    mcp = shop()
    told: list[Any] = []

    @flow_tool(mcp)
    def tool() -> Flow[None]:
        yield from Log("warning", None)

    async def hear(params: types.LoggingMessageNotificationParams) -> None:
        told.append(params.data)

    async def main() -> None:
        async with SDKClient(
            mcp._mcp_server, logging_callback=hear, log_level="debug", mode=mode
        ) as client:
            await client.call_tool("tool", {})

    asyncio.run(main())
    assert told == ["null"]


# ---- misuse -------------------------------------------------------------------------


def test_decorators_without_a_server() -> None:
    wrong: Any

    def order() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    for wrong in (order, MCPServer("shop")):
        for decorator in (flow_tool, flow_prompt):
            with pytest.raises(UsageError, match=r"is not a FastMCP: write @flow_tool"):
                decorator(wrong)
    wrong = FastMCP("shop")
    with pytest.raises(UsageError, match=r"is not a MCPServer: write @flow_tool"):
        on_sdk.flow_tool(wrong)


def test_injected_where_it_cannot_be() -> None:
    @step
    def charge(name: str) -> str:
        return name

    def many(*names: str, bank: str = Depends(ann)) -> None: ...

    def only(name: str, /, bank: str = Depends(ann)) -> None: ...

    with pytest.raises(UsageError, match="write @injected below @step"):
        injected(charge)
    for function in (many, only):
        with pytest.raises(UsageError, match="by keyword"):
            injected(function)
