"""A request of another server becomes messages: errors, cancellation, notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from attrs import define, field
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from effectmcp import (
    ClientFailed,
    Elicit,
    Flow,
    Keys,
    Log,
    ProtocolError,
    Server,
    UsageError,
)
from effectmcp.bridge import fastmcp as on_fastmcp
from effectmcp.bridge import mcp as on_sdk
from effectmcp.bridge.answering import ForeignRequest, NoClient, answer
from effectmcp.bridge.sdk import SessionClient
from effectmcp.drivers.loops import run
from effectmcp.server.loop_name import LOOPS
from effectmcp.state import make_key

Wire = Mapping[str, Any]
CALL: Wire = {"name": "tool", "arguments": {}}
LEGACY = "2025-11-25"


@define
class Client:
    """The client of the other server: what it is asked and told."""

    reply: Callable[[], Awaitable[Wire]] | None = None
    asked: list[str] = field(factory=list)
    told: list[Any] = field(factory=list)

    async def ask(self, method: str, params: Wire | None) -> Wire:
        self.asked.append(method)
        if self.reply is not None:
            return await self.reply()
        return {"action": "accept", "content": {"value": "Ann"}}

    async def tell(self, method: str, params: Wire) -> None:
        self.told.append((method, params))


def shop(**options: Any) -> Server:
    app = Server("shop", keys=Keys(make_key(bytes(32))), **options)

    @app.tool
    def tool() -> Flow[str]:
        yield from Log("warning", "begun")
        try:
            return (yield from Elicit("Who?", str))
        except ClientFailed as exc:
            return f"failed: {exc.code}"

    return app


def asked(client: Client, version: str = LEGACY, **more: Any) -> ForeignRequest:
    capabilities: Wire = {"elicitation": {"form": {}}, "experimental": {"x": {}}}
    return ForeignRequest(
        client=client, version=version, capabilities=capabilities, **more
    )


def text_of(result: Wire) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", LEGACY])
def test_live(loop: Any, version: str) -> None:
    client = Client()

    async def main() -> Wire:
        return await answer(shop(), asked(client, version), "tools/call", CALL)

    # Before 2025-06-18, users could not be asked.
    result = run(loop, main)
    if version < "2025-06-18":
        assert result["isError"]
        assert client.asked == []
        return
    assert text_of(result) == "Ann"
    assert client.asked == ["elicitation/create"]
    [(method, params)] = client.told
    assert (method, params["data"]) == ("notifications/message", "begun")


@pytest.mark.parametrize("loop", LOOPS)
def test_client_that_fails(loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def refuses() -> Wire:
        raise ProtocolError(-32001, "no time")

    async def breaks() -> Wire:
        raise ZeroDivisionError("secret")

    for reply, text in ((refuses, "failed: -32001"), (breaks, "failed: -32603")):
        client = Client(reply)

        async def main(client: Client = client) -> Wire:
            return await answer(shop(), asked(client), "tools/call", CALL)

        assert text_of(run(loop, main)) == text
    assert "asking elicitation/create failed" in caplog.text


@pytest.mark.parametrize("loop", LOOPS)
def test_client_that_has_left(loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Gone(Client):
        async def tell(self, method: str, params: Wire) -> None:
            raise OSError("gone")

    async def main() -> None:
        for version in (LEGACY, "2026-07-28"):
            meta = {"io.modelcontextprotocol/logLevel": "info"}
            request = asked(Gone(), version, meta=meta)
            with pytest.raises(ProtocolError, match="Internal error"):
                await answer(shop(), request, "tools/call", CALL)

    run(loop, main)
    assert "gone" in caplog.text


def test_cancelled_while_the_user_thinks() -> None:
    cleaned: list[str] = []
    app = Server("shop", keys=Keys(make_key(bytes(32))))

    @app.tool
    def tool() -> Flow[str]:
        try:
            return (yield from Elicit("Who?", str))
        finally:
            cleaned.append("cleaned")

    async def thinks() -> Wire:
        thinking.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    async def main() -> None:
        task = asyncio.create_task(
            answer(app, asked(Client(thinks)), "tools/call", CALL)
        )
        await thinking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    thinking = asyncio.Event()
    asyncio.run(main())
    assert cleaned == ["cleaned"]


def test_server_without_older_revisions() -> None:
    async def main() -> None:
        request = asked(Client())
        with pytest.raises(ProtocolError) as caught:
            await answer(shop(legacy=False), request, "tools/call", CALL)
        assert "Internal" not in caught.value.message

    asyncio.run(main())


def test_no_client() -> None:
    async def main() -> None:
        nobody = NoClient()
        await nobody.tell("notifications/message", {})
        with pytest.raises(ProtocolError, match="there is no client"):
            await nobody.ask("elicitation/create", {})

    asyncio.run(main())


# ---- sessions of the SDK ------------------------------------------------------------


class _Model(BaseModel):
    value: int


class _Session:
    """A session whose client responds with an error, or with nonsense."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def send_request(self, *args: Any, **options: Any) -> Any:
        raise self.error


def _invalid() -> Exception:
    try:
        _Model.model_validate({"value": "x"})
    except ValidationError as exc:
        return exc
    raise AssertionError("it is valid")


@pytest.mark.parametrize(
    ("error", "code"), [(MCPError(-1, "declined"), -1), (_invalid(), -32603)]
)
def test_errors_of_a_client_of_the_sdk(error: Exception, code: int) -> None:
    session: Any = _Session(error)
    client = SessionClient(session, 7)

    async def main() -> None:
        await client.tell("notifications/cancelled", {"requestId": 1})
        with pytest.raises(ProtocolError) as caught:
            await client.ask("roots/list", None)
        assert caught.value.code == code

    asyncio.run(main())


# ---- resources that fail ------------------------------------------------------------


def failing() -> Server:
    app = Server("shop", keys=Keys(make_key(bytes(32))))

    @app.resource("shop://news")
    def news() -> str:
        raise ZeroDivisionError("secret")

    @app.resource("shop://many")
    def many() -> list[str]:
        return ["one", "two"]

    return app


def test_resource_of_fastmcp_that_fails() -> None:
    mcp: Any = FastMCP("shop")
    on_fastmcp.include(mcp, failing())

    async def main() -> None:
        with pytest.raises(MCPError) as caught:
            await mcp.read_resource("shop://news")
        assert "secret" not in str(caught.value)
        found = await mcp.read_resource("shop://many")
        assert [one.content for one in found.contents] == ["one", "two"]

    logging.disable(logging.CRITICAL)
    try:
        asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)


def test_resource_of_the_sdk_that_fails() -> None:
    mcp: Any = MCPServer("shop")
    on_sdk.include(mcp, failing())

    async def main() -> None:
        with pytest.raises(MCPError) as caught:
            await mcp.read_resource("shop://news")
        assert "secret" not in str(caught.value)
        with pytest.raises(Exception, match="Error reading resource") as error:
            await mcp.read_resource("shop://many")
        assert isinstance(error.value.__cause__, UsageError)
        assert "one content, and this one has 2" in str(error.value.__cause__)

    asyncio.run(main())


def test_tool_that_the_sdk_has_already() -> None:
    mcp: Any = MCPServer("shop")

    mcp.add_tool(lambda: "theirs", name="tool")
    with pytest.raises(UsageError, match="has a tool 'tool' already"):
        on_sdk.include(mcp, shop())
