"""Bridged flows list, receive, ask and refuse the same in both servers and both eras."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import frozen
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from mcp.server.mcpserver import Context as SDKContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from effectmcp import (
    Call,
    Caller,
    Confirm,
    Declined,
    Elicit,
    Flow,
    Gather,
    Icon,
    Image,
    Intercepting,
    Keys,
    Log,
    Message,
    Progress,
    ProtocolError,
    Provided,
    Sample,
    SchemaError,
    Server,
    Step,
    ToolError,
    UsageError,
    Viewer,
    step,
)
from effectmcp.bridge import fastmcp as on_fastmcp
from effectmcp.bridge import mcp as on_sdk
from effectmcp.bridge.answering import ForeignRequest, NoClient, answer
from effectmcp.drivers.local import running
from effectmcp.state import make_key

from .hosts import HOSTS, Host, Wire, modern
from .hosts import Caller as Client

KEYS = Keys(make_key(bytes(32)))
BRIDGED = [one for one in HOSTS if one.name != "own" and one.loop == "asyncio"]

pytestmark = pytest.mark.parametrize("host", BRIDGED, ids=str)


def says(value: Any) -> Callable[[Wire], Wire]:
    return lambda question: {"action": "accept", "content": {"value": value}}


_ANN = says("Ann")


def play(
    host: Host,
    app: Server,
    name: str = "tool",
    writes: Callable[[Wire], Wire] = _ANN,
    arguments: Wire | None = None,
    **options: Any,
) -> Wire:
    """Call a tool of `app` in the host."""
    app.keys = app.keys or KEYS

    async def main(client: Client) -> Wire:
        return await client.call(name, {} if arguments is None else arguments)

    found: Wire = host.play(app, main, writes, **options)
    return found


def text_of(result: Wire) -> str:
    text: str = result["content"][0]["text"]
    return text


# ---- lists -----------------------------------------------------------------


@frozen
class Book:
    title: str
    pages: int = 1


def test_lists_show_our_schemas(host: Host) -> None:
    app = Server("shop")
    icon = Icon("https://shop.example/i.png", mime_type="image/png", sizes=["48x48"])

    @app.tool(title="Order!", icons=[icon], destructive=True, meta={"a.b/c": [None]})
    def order(book: Book, many: int = 1) -> Flow[Book]:
        """Order a book."""
        yield from Confirm("Sure?")
        return book

    async def main(client: Client) -> list[Wire]:
        return await client.tools()

    [listed] = host.play(app, main, says(1))
    expected = dict(app.tools["order"].listing)
    assert listed["inputSchema"] == expected.pop("inputSchema")
    assert listed["outputSchema"] == expected.pop("outputSchema")
    meta = {key: one for key, one in listed["_meta"].items() if key != "fastmcp"}
    assert meta == {"a.b/c": [None]}
    for key in ("name", "title", "description", "annotations", "icons"):
        assert listed[key] == expected[key], key


def test_schema_of_results_that_older_revisions_refuse_is_left_out(host: Host) -> None:
    app = Server("shop")

    @app.tool
    def tool() -> Flow[list[int]]:
        yield from Confirm("Sure?")
        return [1]

    async def main(client: Client) -> Any:
        return await client.tools(), await client.call("tool", {})

    app.keys = KEYS
    [listed], result = host.play(app, main, lambda question: {"action": "accept"})
    assert "outputSchema" not in listed
    assert text_of(result) == "[1]"
    assert result.get("structuredContent") == ([1] if modern(host) else None)


# ---- the request -----------------------------------------------------------


def test_caller(host: Host) -> None:
    app = Server("shop")

    @app.tool
    def tool() -> Flow[str]:
        caller = yield from Caller()
        return f"{caller.principal} {caller.protocol_version} {caller.era}"

    era = "modern" if modern(host) else "legacy"
    assert text_of(play(host, app)) == f"None {host.version} {era}"


def test_step_takes_their_context(host: Host) -> None:
    app = Server("shop")
    context: Any = FastContext if host.name == "fastmcp" else SDKContext

    async def by_type(other: Any = Provided()) -> str:
        return type(other).__module__

    by_type.__annotations__["other"] = context

    def by_name(ctx: Any = Provided()) -> str:
        return type(ctx).__name__

    @app.tool
    def tool() -> Flow[str]:
        first = yield from Step(by_type)
        name = yield from Elicit("Who?", str)
        second = yield from Step(by_name)
        return f"{first} {second} {name}"

    @app.tool
    def plain(ctx: Any = Provided()) -> str:
        return type(ctx).__name__

    package = "fastmcp" if host.name == "fastmcp" else "mcp"
    assert text_of(play(host, app)).startswith(f"{package}.")
    assert text_of(play(host, app)).endswith(" Context Ann")
    assert text_of(play(host, app, "plain")) == "Context"


def test_progress_and_logs_go_their_way(host: Host) -> None:
    app = Server("shop")

    @app.tool
    def tool() -> Flow[None]:
        yield from Progress(0.25, 1.0, "begun")
        yield from Log("info", {"any": [None]})
        yield from Elicit("Who?", str)
        yield from Progress(1.0)

    told: list[Any] = []
    progress: list[Any] = []
    play(host, app, told=told, progress=progress)
    assert told == [{"any": [None]}]
    assert progress == [0.25, 1.0]


# ---- answers and refusals -----------------------------------------------------------


def test_questions_side_by_side_and_sampling(host: Host) -> None:
    app = Server("shop")

    @app.tool
    def tool() -> Flow[str]:
        name, many = yield from Gather(Elicit("Who?", str), Elicit("Many?", int))
        sampled = yield from Sample(f"Praise {name}", max_tokens=10)
        return f"{name} {many} {sampled.text}"

    def writes(question: Wire) -> Wire:
        if question["method"] == "sampling/createMessage":
            content = {"type": "text", "text": "Well done"}
            return {"role": "assistant", "content": content, "model": "m"}
        value = "Ann" if "Who" in question["params"]["message"] else 3
        return {"action": "accept", "content": {"value": value}}

    assert text_of(play(host, app, writes=writes)) == "Ann 3 Well done"


def test_declined(host: Host) -> None:
    app = Server("shop")

    @app.tool
    def tool() -> Flow[str]:
        try:
            yield from Elicit("Who?", str)
        except Declined:
            yield from Elicit("And now?", str)
        return "not reached"

    result = play(host, app, writes=lambda question: {"action": "decline"})
    assert result["isError"]
    assert "declined" in text_of(result)


def test_failures(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    app = Server("shop")

    @app.tool
    def told() -> Flow[str]:
        yield from Confirm("Sure?")
        raise ToolError("sold out")

    @app.tool
    def bug() -> Flow[str]:
        yield from Confirm("Sure?")
        raise ZeroDivisionError("secret")

    def accept(question: Wire) -> Wire:
        return {"action": "accept"}

    assert play(host, app, "told", accept)["isError"]
    assert text_of(play(host, app, "told", accept)) == "sold out"
    assert "secret" not in str(play(host, app, "bug", accept))
    assert "secret" in caplog.text


def test_arguments_are_checked_by_us(host: Host) -> None:
    app = Server("shop")

    @app.tool
    def tool(book: Book) -> Flow[str]:
        yield from Confirm("Sure?")
        return book.title

    result = play(host, app, arguments={"book": {"titel": "Dune", "pages": "1"}})
    assert result["isError"]
    assert "book.title: is required" in text_of(result)
    assert "book.pages: must be a whole number" in text_of(result)


def test_images_arrive_and_the_other_server_names_itself(host: Host) -> None:
    app = Server("shop", version="ours")

    @app.tool
    def tool() -> Flow[list[str | Image]]:
        yield from Confirm("Sure?")
        return ["cover", Image(b"\x89PNG", "image/png")]

    result = play(host, app, writes=lambda question: {"action": "accept"})
    assert [one["type"] for one in result["content"]] == ["text", "image"]
    assert result["content"][1]["data"] == "iVBORw=="
    assert "ours" not in str(result.get("_meta"))


# ---- errors of the protocol ---------------------------------------------------------


def test_error_of_the_protocol_arrives_exactly(host: Host) -> None:
    app = Server("shop", keys=KEYS)

    @app.tool(requires=(Sample,))
    def tool() -> Flow[str]:
        return (yield from Sample("Praise", max_tokens=1)).text

    async def main(client: Client) -> Any:
        try:
            return await client.call("tool", {})
        except MCPError as exc:
            return exc

    found = host.play(app, main, says(1), samples=False)
    if modern(host):
        assert found.code == -32021
        assert found.data == {"requiredCapabilities": {"sampling": {}}}
    else:
        assert found["isError"]


def test_program_that_calls_its_own_tool_has_no_client(host: Host) -> None:
    if host.name != "fastmcp":
        return  # the SDK has no such call
    app = order()
    mcp: Any = FastMCP("shop")
    on_fastmcp.include(mcp, app)
    found = asyncio.run(mcp.call_tool("tool", {"title": "Dune"}))
    assert found.is_error
    assert "did not say it can do" in found.content[0].text


def test_internal_errors_are_opaque(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def life(app: Server) -> AsyncIterator[dict[str, Any]]:
        yield {"secret": 1}

    app = Server("shop", keys=KEYS, lifespan=life)

    @app.tool
    def tool() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    async def main(client: Client) -> Any:
        with pytest.raises(MCPError) as caught:
            await client.call("tool", {})
        return caught.value

    error = host.play(app, main, says("Ann"))
    assert str(error) == "Internal error. The server's log has the reason."
    assert "is not open" in caplog.text


def test_lifespan_that_is_open(host: Host) -> None:
    @asynccontextmanager
    async def life(app: Server) -> AsyncIterator[dict[str, Any]]:
        yield {"bank": "the bank"}

    app = Server("shop", keys=KEYS, lifespan=life)

    @step
    def charge(name: str, bank: str = Provided()) -> str:
        return f"{name} paid {bank}"

    @app.tool
    def tool() -> Flow[str]:
        return (yield from charge((yield from Elicit("Who?", str))))

    async def main() -> Any:
        async with running(app), host.serving(app, says("Ann")) as client:
            return await client.call("tool", {})

    assert text_of(asyncio.run(main())) == "Ann paid the bank"


# ---- states -------------------------------------------------------------------------


def order(**options: Any) -> Server:
    app = Server("shop", **{"keys": KEYS, **options})

    @app.tool
    def tool(title: str) -> Flow[str]:
        return f"{title} for {yield from Elicit('Who?', str)}"

    return app


def test_state_is_for_one_user_one_call_and_one_server(host: Host) -> None:
    """Our seal refuses them without the help of the other server's."""
    if not modern(host):
        return  # there are no states
    app = order()
    call = {"name": "tool", "arguments": {"title": "Dune"}}
    capable: Any = {"capabilities": {"elicitation": {"form": {}}}, "client": NoClient()}

    async def main() -> None:
        first = await answer(
            app, ForeignRequest(principal="ann", **capable), "tools/call", call
        )
        [key] = first["inputRequests"]
        retry = {
            "responses": {key: {"action": "accept", "content": {"value": "Ann"}}},
            "state": first["requestState"],
            **capable,
        }
        ann = ForeignRequest(principal="ann", **retry)
        for other, asked, params in (
            (app, ForeignRequest(principal="bob", **retry), call),
            (app, ForeignRequest(**retry), call),
            (app, ann, {"name": "tool", "arguments": {"title": "Emma"}}),
            (order(keys=Keys(make_key(b"1" * 32))), ann, call),
        ):
            with pytest.raises(ProtocolError) as caught:
                await answer(other, asked, "tools/call", params)
            assert caught.value.message == "Invalid or expired requestState"
        done = await answer(app, ann, "tools/call", call)
        assert text_of(dict(done)) == "Dune for Ann"

    asyncio.run(main())


# ---- prompts and resources ----------------------------------------------------------


def test_prompts_and_templates_ask(host: Host) -> None:
    app = Server("shop", keys=KEYS)

    @app.prompt(title="Advice!")
    def advice(topic: str, many: int = 1) -> Flow[list[Message]]:
        """Ask for advice."""
        name = yield from Elicit("Who?", str)
        return [Message(f"{topic} {many} for {name}"), Message("Well", "assistant")]

    @app.resource("shop://books/{title}", mime_type="text/x-book")
    def book(title: str) -> Flow[str]:
        return f"{title} of {yield from Elicit('Who?', str)}"

    @app.resource("shop://news")
    def news() -> str:
        return "none"

    async def main(client: Client) -> Any:
        return (
            await client.get("advice", {"topic": "Love", "many": "2"}),
            await client.read("shop://books/Dune"),
            await client.read("shop://news"),
        )

    got, read, plain = host.play(app, main, says("Ann"))
    assert [one["content"]["text"] for one in got["messages"]] == [
        "Love 2 for Ann",
        "Well",
    ]
    assert [one["role"] for one in got["messages"]] == ["user", "assistant"]
    [content] = read["contents"]
    assert content["text"] == "Dune of Ann"
    assert content["mimeType"] == "text/x-book"
    assert content["uri"] == "shop://books/Dune"
    assert plain["contents"][0]["text"] == "none"


def test_other_resources_that_ask(host: Host) -> None:
    app = Server("shop", keys=KEYS)

    @app.resource("shop://mine")
    def mine() -> Flow[bytes]:
        name = yield from Elicit("Who?", str)
        return name.encode()

    if host.name == "sdk":
        with pytest.raises(SchemaError, match="cannot ask, unless it is a template"):
            on_sdk.include(MCPServer("shop"), app)
        return

    async def main(client: Client) -> Any:
        return await client.read("shop://mine")

    [content] = host.play(app, main, says("Ann"))["contents"]
    assert content["blob"] == "QW5u"


def test_unknown_arguments_of_prompts(host: Host) -> None:
    app = Server("shop", keys=KEYS)

    @app.prompt
    def advice(many: int) -> Flow[str]:
        return f"{many} {yield from Elicit('Who?', str)}"

    async def main(client: Client) -> Any:
        with pytest.raises(MCPError) as caught:
            await client.get("advice", {"many": "two"})
        return caught.value

    error = host.play(app, main, says("Ann"))
    assert error.code == -32602
    assert "many: must be a whole number" in str(error)


# ---- registration -------------------------------------------------------------------


def test_decorators(host: Host) -> None:
    def tool(title: str) -> Flow[str]:
        return f"{title} for {yield from Elicit('Who?', str)}"

    bridge: Any = on_fastmcp if host.name == "fastmcp" else on_sdk
    server: Any = FastMCP("shop") if host.name == "fastmcp" else MCPServer("shop")
    assert bridge.flow_tool(server, title="Tool!")(tool) is tool
    assert bridge.flow_prompt(server)(tool) is tool
    assert bridge.flow_resource(server, "shop://{title}")(tool) is tool
    app = bridge.server_in(server)
    assert (*app.tools, *app.prompts, *app.templates) == (
        "tool",
        "tool",
        "shop://{title}",
    )
    assert app.tools["tool"].listing["title"] == "Tool!"
    with pytest.raises(SchemaError, match="tool 'tool'"):
        bridge.flow_tool(server)(tool)
    with pytest.raises(UsageError, match="has flows already"):
        bridge.include(server, Server("shop"))


def test_state_keys_are_made_once(
    host: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EFFECTMCP_STATE_KEYS", raising=False)
    app = order(keys=None)

    async def main(client: Client) -> Any:
        first = await client.call("tool", {"title": "Dune"})
        second = await client.call("tool", {"title": "Emma"})
        return text_of(first), text_of(second)

    with caplog.at_level(logging.WARNING):
        assert host.play(app, main, says("Ann")) == ("Dune for Ann", "Emma for Ann")
    assert caplog.text.count("EFFECTMCP_STATE_KEYS is not set") == 1


def test_interceptors_are_around_calls(host: Host) -> None:
    """Interceptors run around each round."""
    seen: list[tuple[int, str]] = []

    def look(call: Call) -> Intercepting:
        result = yield from call
        seen.append((call.round, type(result).__name__))
        return result

    app = Server("shop")

    @app.tool(interceptors=[look])
    def tool() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    assert play(host, app)["content"][0]["text"] == "Ann"
    by_retry = [(1, "InputNeeded"), (2, "Finished")]
    assert seen == (by_retry if host.version == "2026-07-28" else [(1, "Finished")])


def test_server_with_authentication_is_refused(host: Host) -> None:
    """The other server would let every client in, and the author would not notice."""
    for bridge, mcp in ((on_sdk, MCPServer("x")), (on_fastmcp, FastMCP("x"))):
        offer: Any = bridge
        app = Server("shop", auth=lambda headers: None)
        with pytest.raises(UsageError, match="auth=, and the server of another"):
            offer.include(mcp, app)
        app.auth = None
        offer.include(mcp, app)


def test_features_that_are_hidden_are_refused(host: Host) -> None:
    """The other server lists all features to all users."""

    def tool() -> Flow[str]:
        return (yield from Elicit("Who?", str))

    def visible(viewer: Viewer) -> bool:
        return False

    for bridge, mcp in ((on_sdk, MCPServer("x")), (on_fastmcp, FastMCP("x"))):
        offer: Any = bridge
        for decorator in (
            offer.flow_tool(mcp, visible=visible),
            offer.flow_prompt(mcp, visible=visible),
            offer.flow_resource(mcp, "shop://{x}", visible=visible),
        ):
            with pytest.raises((UsageError, SchemaError)):
                decorator(tool)
        app = Server("shop")
        app.tool(visible=visible)(tool)
        with pytest.raises(UsageError, match="visible=, and the server of another"):
            offer.include(mcp, app)
