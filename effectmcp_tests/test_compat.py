"""Async functions whose only awaits are effects, and the `ctx` of other SDKs."""

from __future__ import annotations

import asyncio
import functools
import re
from importlib import import_module
from typing import Any

import anyio
import pytest
import trio
import trio.lowlevel
from attrs import frozen

from effectmcp import (
    Confirm,
    Elicit,
    Flow,
    Gather,
    ListRoots,
    Log,
    Outcome,
    Progress,
    Root,
    Sample,
    SchemaError,
    Server,
    Step,
)
from effectmcp.compat import (
    AcceptedElicitation,
    CancelledElicitation,
    Context,
    DeclinedElicitation,
    awaits_effects,
)
from effectmcp.drivers.sync import handle
from effectmcp.state import Keys, make_key
from effectmcp.testing import play

JSON = Any

KEYS = Keys(make_key(bytes(range(32))))
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        **{"elicitation": {}, "sampling": {}, "roots": {}},
    },
    "io.modelcontextprotocol/logLevel": "debug",
    "progressToken": "p",
}


def server() -> Server:
    return Server("shop", keys=KEYS)


class Played:
    """A whole conversation about the one tool of a server."""

    def __init__(self, app: Server, *answers: JSON, **arguments: JSON) -> None:
        self.told: list[JSON] = []
        self.asked: list[list[JSON]] = []
        (name,) = app.tools
        params: dict[str, JSON] = {"_meta": META, "name": name, "arguments": arguments}
        remaining = list(answers)
        while True:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            reply = handle(app, {**message, "params": params}, send=self.told.append)
            assert reply.message is not None
            self.result = reply.message["result"]
            if self.result["resultType"] == "complete":
                break
            questions = self.result["inputRequests"]
            self.asked.append(list(questions.values()))
            params["requestState"] = self.result["requestState"]
            params["inputResponses"] = {key: remaining.pop(0) for key in questions}
        assert not remaining

    @property
    def text(self) -> str:
        text: str = self.result["content"][0]["text"]
        return text

    @property
    def seen(self) -> Any:
        """Everything that a client can observe."""
        return self.result, self.asked, self.told


def accept(content: JSON) -> JSON:
    return {"action": "accept", "content": content}


NO = {"action": "decline"}
CLOSED = {"action": "cancel"}

# ---- awaits_effects ----

performed: list[str] = []


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    """Each test begins with nothing done."""
    performed.clear()


def charge(name: str) -> str:
    performed.append(name)
    return f"{name} paid"


def order(title: str, copies: int = 1) -> Flow[str]:
    """Order a book.

    Args:
        title: Which one.
    """
    who = yield from Elicit("Who is it for?", str)
    receipt = yield from Step(charge, who)
    yield from Progress(1, 2)
    sure, size = yield from Gather(
        Outcome(Confirm(f"{receipt}: sure?")), Elicit("Which size?", str)
    )
    return f"{copies} x {title}, {size}: {receipt}, {type(sure).__name__}"


async def order_async(title: str, copies: int = 1) -> str:
    """Order a book.

    Args:
        title: Which one.
    """
    who = await Elicit("Who is it for?", str)
    receipt = await Step(charge, who)
    await Progress(1, 2)
    sure, size = await Gather(
        Outcome(Confirm(f"{receipt}: sure?")), Elicit("Which size?", str)
    )
    return f"{copies} x {title}, {size}: {receipt}, {type(sure).__name__}"


@pytest.mark.parametrize("sure", [accept({}), NO, CLOSED])
def test_it_sends_what_a_generator_sends(sure: JSON) -> None:
    """Each step is performed once, as with a generator."""
    app, flows = server(), server()
    app.tool(name="order")(awaits_effects(order_async))
    flows.tool(name="order")(order)
    answers = accept({"value": "Ann"}), sure, accept({"value": "L"})
    first = Played(app, *answers, title="Dune")
    assert performed == ["Ann"]
    assert first.seen == Played(flows, *answers, title="Dune").seen
    listings = [one.tools["order"].listing for one in (app, flows)]
    assert listings[0] == listings[1]


def test_it_may_be_a_prompt_or_a_resource() -> None:
    app = server()

    @app.prompt
    @awaits_effects
    async def review(ctx: Context, language: str) -> str:
        return f"Review {language}."

    @app.resource("shop://{title}")
    @awaits_effects
    async def book(title: str, ctx: Context) -> str:
        await ctx.debug("reading")
        return title

    def ask(method: str, **params: JSON) -> JSON:
        message = {"jsonrpc": "2.0", "id": 1, "method": method}
        reply = handle(app, {**message, "params": {"_meta": META, **params}})
        assert reply.message is not None
        return reply.message["result"]

    got = ask("prompts/get", name="review", arguments={"language": "C"})
    assert got["messages"][0]["content"]["text"] == "Review C."
    assert ask("resources/read", uri="shop://dune")["contents"][0]["text"] == "dune"


def test_it_may_be_a_method_or_a_partial() -> None:
    class Shop:
        @awaits_effects
        async def greet(self, ctx: Context, name: str) -> str:
            await ctx.info(name)
            return f"hello {name}"

    for function in (Shop().greet, functools.partial(Shop().greet, name="ann")):
        app = server()
        app.tool(name="greet")(function)
        assert Played(app, name="bob").text == "hello bob"


def test_it_may_be_played_here() -> None:
    """A `ctx` of your own may be given, by name."""

    @awaits_effects
    async def greet(greeting: str, ctx: Context) -> str:
        return f"{greeting} {(await ctx.elicit('Who?', str)).data}"

    for ctx in ({}, {"ctx": Context()}):
        dialogue = play(greet, "Hi", **ctx).expect(Elicit("Who?", str))
        assert dialogue.answer("Ann").result == "Hi Ann"


@pytest.mark.parametrize("function", [order, charge, len, Context])
def test_only_async_functions(function: Any) -> None:
    with pytest.raises(SchemaError, match="is not an async function"):
        awaits_effects(function)


def test_unresolvable_annotations_are_reported_at_registration() -> None:
    @awaits_effects
    async def greet(name: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
        return name  # type: ignore[no-any-return]

    with pytest.raises(SchemaError, match="'Missing' in an annotation"):
        server().tool(greet)


# ---- awaiting something else ----


async def over_sleep() -> str:
    await asyncio.sleep(0)
    return "never"


async def over_gather() -> str:
    asks = ask_one(), ask_one()
    try:
        await asyncio.gather(*asks)
    finally:
        for one in asks:
            one.close()
    return "never"


async def ask_one() -> str:
    return await Elicit("Who?", str)


@pytest.mark.parametrize("function", [over_sleep, over_gather])
def test_another_await_is_explained_in_the_log(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = server()
    app.tool(awaits_effects(function))

    async def main() -> Played:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        return Played(app)

    assert asyncio.run(main()).text.startswith("Internal error")
    assert "wrap it in a `Step`" in caplog.text
    assert "`Gather`" in caplog.text
    # The line of the handler, not of the library.
    assert f"Error: {__file__}:" in caplog.text


def test_without_the_mark_an_effect_cannot_be_awaited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An async function is awaited on the driver's loop, which knows no effects."""
    app = server()
    app.tool(ask_one)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    params = {"_meta": META, "name": "ask_one"}
    reply = handle(app, {**message, "params": params}, run_async=asyncio.run)
    assert reply.message is not None
    assert reply.message["result"]["isError"]
    assert "awaits_effects" in caplog.text


# ---- Context ----


@frozen
class Party:
    people: int
    name: str = "nobody"


def context_server(**made: Any) -> Server:
    app = server()

    @app.tool
    @awaits_effects
    async def book(date: str, ctx: Context) -> str:
        answer = await ctx.elicit("For how many?", Party)
        await ctx.report_progress(1, 2, "asked")
        if answer.action != "accept":
            assert answer.data is None
            return answer.action
        assert answer.data is not None
        return f"{date}: {answer.data.people} for {answer.data.name}"

    return app


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (accept({"people": 3, "name": "Ann"}), "today: 3 for Ann"),
        (accept({"people": 3}), "today: 3 for nobody"),
        (NO, "decline"),
        (CLOSED, "cancel"),
    ],
)
def test_context_elicit(answer: JSON, text: str) -> None:
    assert Played(context_server(), answer, date="today").text == text


def test_context_is_not_an_argument() -> None:
    listing = context_server().tools["book"].listing
    assert list(listing["inputSchema"]["properties"]) == ["date"]


def test_context_asks_and_tells_what_effects_do() -> None:
    app, flows = server(), server()

    @app.tool(name="all")
    @awaits_effects
    async def everything(ctx: Context) -> str:
        await ctx.debug("a")
        await ctx.info("b")
        await ctx.warning("c")
        await ctx.error("d")
        await ctx.report_progress(1)
        await ctx.report_progress(2, 3, "two")
        sampled = await ctx.sample(
            "Hi", max_tokens=5, system_prompt="Be kind", temperature=0.5
        )
        roots = await ctx.list_roots()
        return f"{sampled.text} {roots}"

    @flows.tool(name="all")
    def flow() -> Flow[str]:
        yield from Log("debug", "a")
        yield from Log("info", "b")
        yield from Log("warning", "c")
        yield from Log("error", "d")
        yield from Progress(1)
        yield from Progress(2, 3, "two")
        sampled = yield from Sample(
            "Hi", max_tokens=5, system="Be kind", temperature=0.5
        )
        roots = yield from ListRoots()
        return f"{sampled.text} {roots}"

    content = {"type": "text", "text": "Hello"}
    sampled = {"role": "assistant", "content": content, "model": "m"}
    answers = sampled, {"roots": [{"uri": "file:///a"}]}
    first = Played(app, *answers)
    assert first.text == f"Hello {[Root('file:///a')]}"
    assert len(first.told) == 6
    assert first.seen == Played(flows, *answers).seen


def test_elicited_is_a_value() -> None:
    assert AcceptedElicitation(1) == AcceptedElicitation(1)
    assert AcceptedElicitation(1).action == "accept"
    for refused in (DeclinedElicitation(), CancelledElicitation()):
        assert refused.data is None


async def over_anyio() -> str:
    await anyio.sleep(1)
    return "never"


async def over_trio() -> str:
    await trio.lowlevel.checkpoint()
    return "never"


async def over_helper() -> str:
    await _helper()
    return "never"


async def _helper() -> None:
    await asyncio.sleep(1)


@pytest.mark.parametrize("function", [over_anyio, over_trio, over_helper, over_sleep])
def test_foreign_await_is_located_where_its_author_wrote_it(
    function: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = server()
    app.tool(awaits_effects(function))
    assert Played(app).text.startswith("Internal error")
    author = _helper if function is over_helper else function
    line = author.__code__.co_firstlineno + 1
    last = caplog.text.rstrip().splitlines()[-1]
    assert f"Error: {__file__}:{line}: " in last
    assert last.endswith(
        "A handler may await effects only: wrap it in a `Step`, and ask several things at"
        " once with `Gather`"
    )


def test_forgotten_mark_is_named() -> None:
    async def book(date: str, ctx: Context) -> str:
        return date

    words = (
        "book(ctx): a function with a Context needs @awaits_effects (from"
        " effectmcp.compat), below the decorator that registers it"
    )
    with pytest.raises(SchemaError, match=f"^{re.escape(words)}$"):
        server().tool(book)
    with pytest.raises(SchemaError, match="needs @awaits_effects"):
        server().prompt(book)
    server().tool(awaits_effects(book))


@pytest.mark.parametrize("package", ["fastmcp", "mcp.server.mcpserver"])
def test_context_of_another_sdk_is_named(package: str) -> None:
    name = package.partition(".")[0]
    pytest.importorskip(name, reason=f"pip install 'effectmcp[{name}]'")
    theirs = import_module(package).Context

    async def book(date: str, ctx: Any) -> str:
        return date

    book.__annotations__["ctx"] = theirs
    with pytest.raises(
        SchemaError, match=f"the Context of {name}.*effectmcp.bridge.{name}"
    ):
        server().tool(book)
    with pytest.raises(
        SchemaError, match=f"the Context of {name}.*effectmcp.bridge.{name}"
    ):
        server().tool(awaits_effects(book))
