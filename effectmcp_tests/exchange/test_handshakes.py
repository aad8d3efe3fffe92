"""The legacy era, a message at a time: handshake, session, questions that go out live."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any, Literal

import attrs
import pytest

from effectmcp import (
    Accepted,
    Caller,
    Cancelled,
    ClientFailed,
    ClientSupports,
    Confirm,
    Declined,
    Detach,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    Gather,
    Header,
    Icon,
    ListRoots,
    Log,
    Now,
    Outcome,
    Progress,
    Provided,
    ResourceLink,
    Sample,
    Server,
    Sleep,
    Step,
    Text,
    Title,
    Unsupported,
    Within,
)
from effectmcp.drivers import sync
from effectmcp.effects.base import Effect
from effectmcp.engine import Done
from effectmcp.exchange.commands import (
    Ask,
    Notify,
    Overdue,
    Peer,
    PerformAll,
    Reply,
)
from effectmcp.exchange.handle import handle
from effectmcp.protocol.legacy import missing
from effectmcp.protocol.revisions import HANDSHAKES

from ..legacy_client import NEWEST, VERSIONS, LegacyClient, accepts, hello
from ..wire import EVERYTHING, KEYS, PREFIX, error, fits, meta, refused, text_of

FORM: dict[str, Any] = {"elicitation": {}}


def serving(*tools: Any, **options: Any) -> Server:
    app = Server("shop", version="2", **options)
    for tool in tools:
        app.tool(tool)
    return app


def who() -> Flow[str]:
    """Asks."""
    name = yield from Elicit("Who?", str)
    return f"Hello, {name}"


# ---- the handshake ------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_initialize(version: str) -> None:
    app = serving(who, title="The shop", website="https://x", instructions="Ask.")
    client = LegacyClient(app, version)
    assert client.welcome["protocolVersion"] == version
    assert client.welcome["instructions"] == "Ask."
    assert client.welcome["capabilities"] == {
        "logging": {},
        "tools": {"listChanged": True},
    }
    info = client.welcome["serverInfo"]
    assert (info["name"], info["version"]) == ("shop", "2")
    assert ("title" in info) == (version != "2025-03-26")
    assert ("websiteUrl" in info) == (version == NEWEST)


def test_initialize_with_an_unknown_revision() -> None:
    client = LegacyClient(serving(who), "1999-01-01")
    assert client.welcome["protocolVersion"] == NEWEST


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({}, "protocolVersion"),
        ({"protocolVersion": 5}, "protocolVersion"),
        ({"protocolVersion": NEWEST, "capabilities": []}, "capabilities"),
    ],
)
def test_initialize_that_says_too_little(params: Any, problem: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    reply = sync.handle(serving(who), message)
    assert refused(reply) == (200, -32602)
    assert problem in error(reply)["message"]


def test_a_client_without_a_name_is_served() -> None:
    params = {"protocolVersion": NEWEST, "capabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    reply = sync.handle(serving(who), message)
    assert reply.opened is not None
    assert reply.opened.hello.client is None


def test_a_server_without_legacy_refuses_initialize() -> None:
    reply = sync.handle(serving(who, legacy=False), hello())
    assert refused(reply) == (400, -32602)
    assert reply.opened is None


def test_capabilities_that_are_too_large_to_keep() -> None:
    reply = sync.handle(serving(who), hello(capabilities={"x": {"y": "z" * 20_000}}))
    assert refused(reply) == (200, -32602)
    assert "at most 16,384 bytes" in error(reply)["message"]


def test_both_eras_at_once() -> None:
    app = serving(who, keys=KEYS)
    client = LegacyClient(app)
    params = {"name": "who", "_meta": meta(FORM)}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    modern = sync.handle(app, message, client.peer)
    assert modern.message is not None
    assert modern.message["result"]["resultType"] == "input_required"
    assert text_of(client.call("who", answer=accepts({"value": "Ann"}))) == "Hello, Ann"
    assert [one["method"] for one in client.asked] == ["elicitation/create"]


# ---- where a message goes -----------------------------------------------------------


def called(headers: dict[str, str], params: Any = None, **options: Any) -> Reply:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": params or {},
    }
    return sync.handle(serving(who, **options), message, Peer(headers=headers))


MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


@pytest.mark.parametrize("version", [*VERSIONS, None])
def test_a_header_or_none_is_of_the_legacy_era(version: str | None) -> None:
    headers = {} if version is None else {"mcp-protocol-version": version}
    reply = called(headers)
    assert reply.message is not None
    assert "resultType" not in reply.message["result"]
    assert reply.message["result"].keys() == {"tools"}


def test_a_modern_header_or_meta_is_of_the_modern_era() -> None:
    assert refused(called(MODERN)) == (400, -32602)
    assert refused(called({}, {"_meta": meta()})) == (400, -32020)
    legacy = {**MODERN, "mcp-protocol-version": NEWEST}
    assert refused(called(legacy, {"_meta": meta()})) == (400, -32020)
    reply = called(MODERN, {"_meta": meta()})
    assert reply.message is not None
    assert reply.message["result"]["resultType"] == "complete"


def test_headers_of_this_revision_without_its_version() -> None:
    """A proxy that routes by headers must see the same as the server."""
    assert refused(called({"mcp-method": "tools/list"})) == (400, -32602)


@pytest.mark.parametrize("headers", [None, {}, {"mcp-method": "initialize"}])
def test_initialize_is_a_handshake_with_any_headers(headers: Any) -> None:
    """`mcp-remote` sends `Mcp-Method` with it, and speaks 2025-11-25."""
    params = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    reply = sync.handle(serving(who), message, Peer(headers=headers))
    assert reply.message is not None
    assert reply.message["result"]["protocolVersion"] == NEWEST


def test_initialize_that_names_this_revision_is_not_found() -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"_meta": meta()},
    }
    assert refused(sync.handle(serving(who), message, Peer())) == (404, -32601)
    headers = {**MODERN, "mcp-method": "initialize"}
    reply = sync.handle(serving(who), message, Peer(headers=headers))
    assert refused(reply) == (404, -32601)


def test_a_request_that_names_the_revision_of_its_session() -> None:
    client = LegacyClient(serving(who))
    name = f"{PREFIX}protocolVersion"
    assert client.result("tools/list", {"_meta": {name: NEWEST}}).keys() == {"tools"}
    other = client.send("tools/list", {"_meta": {name: "2025-06-18"}})
    assert refused(other) == (400, -32602)


def test_arguments_in_headers_need_2026_07_28() -> None:
    def find(region: Annotated[str, Header("Region")]) -> str:
        return region

    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "find", "arguments": {"region": "eu"}},
    }
    peer = Peer(headers={"mcp-protocol-version": NEWEST})
    reply = sync.handle(serving(find), message, peer)
    assert reply.message is not None
    assert text_of(reply.message["result"]) == "eu"


def test_a_header_with_an_unknown_revision() -> None:
    assert refused(called({"mcp-protocol-version": "1999-01-01"})) == (400, -32602)
    assert refused(called({"mcp-protocol-version": "2026-06-XX"})) == (400, -32602)


@pytest.mark.parametrize("version", [*VERSIONS, None])
def test_a_server_without_that_era_refuses_its_headers(version: str | None) -> None:
    headers = {} if version is None else {"mcp-protocol-version": version}
    assert refused(called(headers, legacy=False)) == (400, -32602)


def test_over_a_pipe_no_client_is_taken_for_an_old_one() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert refused(sync.handle(serving(who), message)) == (400, -32602)


# ---- methods ------------------------------------------------------------------------


def test_ping() -> None:
    assert LegacyClient(serving(who)).result("ping") == {}


@pytest.mark.parametrize(
    "method",
    ["server/discover", "subscriptions/listen", "prompts/list", "tasks/get", "x"],
)
def test_methods_that_are_not_there(method: str) -> None:
    assert refused(LegacyClient(serving(who)).send(method)) == (200, -32601)


def test_log_level() -> None:
    def tool() -> Flow[None]:
        yield from Log("debug", "details")
        yield from Log("warning", "careful")

    client = LegacyClient(serving(tool))
    client.call("tool")
    assert [one["params"]["data"] for one in client.told] == ["careful"]
    assert client.result("logging/setLevel", {"level": "debug"}) == {}
    client.call("tool")
    assert [one["params"]["data"] for one in client.told[1:]] == ["details", "careful"]
    assert refused(client.send("logging/setLevel", {"level": "loud"})) == (200, -32602)


def test_progress() -> None:
    def tool() -> Flow[None]:
        yield from Progress(1, 2)

    client = LegacyClient(serving(tool))
    client.call("tool")
    assert client.told == []
    client.result("tools/call", {"name": "tool", "_meta": {"progressToken": "p"}})
    (told,) = client.told
    assert told["params"] == {"progressToken": "p", "progress": 1, "total": 2}
    reply = client.send("tools/call", {"name": "tool", "_meta": {"progressToken": []}})
    assert refused(reply) == (200, -32602)


def with_resource() -> Server:
    app = serving(who)

    @app.resource("shop://book")
    def book() -> str:
        return "Dune"

    return app


def test_subscriptions() -> None:
    app = with_resource()
    client = LegacyClient(app)
    changes: list[Any] = []
    news = client.session.news

    def hear(change: Any) -> None:
        if news.wants(change):
            changes.append(news.message(change))

    app.changes.listen(hear)
    app.updated("shop://book")
    assert client.result("resources/subscribe", {"uri": "shop://book"}) == {}
    app.updated("shop://book")
    assert client.result("resources/unsubscribe", {"uri": "shop://book"}) == {}
    app.updated("shop://book")
    app.remove(app.tools["who"])
    assert [one["method"] for one in changes] == [
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    ]
    assert changes[0]["params"] == {"uri": "shop://book"}
    for one in changes:
        fits("ServerNotification", one, NEWEST)


def test_subscriptions_that_cannot_be() -> None:
    client = LegacyClient(with_resource())
    assert refused(client.send("resources/subscribe", {})) == (200, -32602)
    long = client.send("resources/subscribe", {"uri": "shop://" + "x" * 5_000})
    assert "at most 4,096 characters" in error(long)["message"]
    for number in range(1_000):
        client.session.news.subscribe(f"shop://{number}")
    more = client.send("resources/subscribe", {"uri": "shop://more"})
    assert "at most 1,000" in error(more)["message"]


def test_subscriptions_are_limited_by_their_bytes() -> None:
    """A client can open sessions, and subscribe to long URIs in each of them."""
    client = LegacyClient(with_resource())
    uris = ["shop://" + chr(0x1F600 + number) * 4_000 for number in range(9)]
    for _ in range(2):
        got = [client.send("resources/subscribe", {"uri": uri}) for uri in uris]
        assert ["error" in (one.message or {}) for one in got] == [*[False] * 8, True]
        assert "at most 131,072 bytes" in error(got[-1])["message"]
        for uri in [*uris, "shop://never"]:
            client.send("resources/unsubscribe", {"uri": uri})
    assert not client.session.news.uris
    none = LegacyClient(serving(who)).send("resources/subscribe", {"uri": "shop://x"})
    assert refused(none) == (200, -32601)
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "resources/subscribe",
        "params": {"uri": "shop://book"},
    }
    peer = Peer(headers={"mcp-protocol-version": NEWEST})
    reply = sync.handle(with_resource(), message, peer)
    assert "without a session" in error(reply)["message"]


def test_set_level_without_a_session_is_accepted_without_effect() -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "logging/setLevel",
        "params": {"level": "info"},
    }
    peer = Peer(headers={"mcp-protocol-version": NEWEST})
    reply = sync.handle(serving(who), message, peer)
    assert reply.message == {"jsonrpc": "2.0", "id": 1, "result": {}}


# ---- fields that a revision has, or not ---------------------------------------------


def full() -> Server:
    icon = Icon("https://x/i.png")
    app = Server("shop", title="Shop", icons=[icon])

    @app.tool(title="Find", icons=[icon], meta={"x/y": 1})
    def find(title: str) -> dict[str, int]:
        """Find a book."""
        return {"found": 1}

    @app.tool
    def link() -> Any:
        """Return a link, and text."""
        return [ResourceLink("shop://book", name="book"), Text("hi")]

    @app.prompt(title="Review", icons=[icon])
    def review(title: Annotated[str, Title("Book")] = "x") -> Any:
        """Review a book."""
        return [ResourceLink("shop://book", name="book"), "write"]

    @app.resource("shop://book", title="Book", icons=[icon], ttl=5)
    def book() -> str:
        return "Dune"

    @app.resource("shop://books/{title}", title="Books", icons=[icon])
    def books(title: str) -> str:
        return title

    return app


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_have_what_their_revision_has(version: str) -> None:
    client = LegacyClient(full(), version)
    found: list[Any] = client.result("tools/list")["tools"]
    for kind in ("prompts", "resources"):
        found += client.result(f"{kind}/list")[kind]
    listed = client.result("resources/templates/list")
    assert listed.keys() == {"resourceTemplates"}
    found += listed["resourceTemplates"]
    assert len(found) == 5
    has_titles = version != "2025-03-26"
    for one in found:
        if one["name"] == "link":
            continue
        assert ("title" in one) == has_titles
        assert ("icons" in one) == (version == NEWEST)
    assert ("_meta" in found[0]) == ("outputSchema" in found[0]) == has_titles


def test_an_output_that_is_not_an_object_needs_2026_07_28() -> None:
    def titles() -> list[str]:
        return ["Dune"]

    client = LegacyClient(serving(titles))
    (tool,) = client.result("tools/list")["tools"]
    assert "outputSchema" not in tool
    assert client.call("titles") == {"content": [{"type": "text", "text": '["Dune"]'}]}


@pytest.mark.parametrize("version", VERSIONS)
def test_results_have_what_their_revision_has(version: str) -> None:
    client = LegacyClient(full(), version)
    has_titles = version != "2025-03-26"
    result = client.call("find", {"title": "Dune"})
    assert result["content"] == [{"type": "text", "text": '{"found": 1}'}]
    assert ("structuredContent" in result) == has_titles
    first, second = client.call("link")["content"]
    assert first["type"] == ("resource_link" if has_titles else "text")
    assert has_titles or first["text"] == "book: shop://book"
    assert second == {"type": "text", "text": "hi"}
    messages = client.result("prompts/get", {"name": "review"})["messages"]
    kinds = [one["content"]["type"] for one in messages]
    assert kinds == ["resource_link" if has_titles else "text", "text"]
    read = client.result("resources/read", {"uri": "shop://book"})
    assert read.keys() == {"contents"}


# ---- asking, live -------------------------------------------------------------------


def test_a_question_goes_out_and_its_reply_resumes_the_generator() -> None:
    began = 0

    def tool() -> Flow[str]:
        nonlocal began
        began += 1
        name = yield from Elicit("Who?", str)
        sure = yield from Confirm(f"{name}?")
        return f"{name} {sure}"

    client = LegacyClient(serving(tool))
    answers = accepts({"value": "Ann"}, {})
    assert text_of(client.call("tool", answer=answers)) == "Ann True"
    assert began == 1  # nothing is replayed
    assert [one["params"]["message"] for one in client.asked] == ["Who?", "Ann?"]
    assert len({one["id"] for one in client.asked}) == 2


def test_no_key_is_needed_to_ask_live() -> None:
    app = serving(who)
    assert app.keys is None
    assert "Ann" in text_of(
        LegacyClient(app).call("who", answer=accepts({"value": "Ann"}))
    )


def test_caller_has_the_era() -> None:
    def tool() -> Flow[str]:
        caller = yield from Caller()
        return f"{caller.era} {caller.protocol_version} {caller.client}"

    assert text_of(LegacyClient(serving(tool)).call("tool")) == f"legacy {NEWEST} old 1"


def test_all_questions_of_a_gather_go_out_together() -> None:
    def tool() -> Flow[str]:
        one, two, three = yield from Gather(
            Elicit("One?", str), Elicit("Two?", str), ListRoots()
        )
        return f"{one} {two} {len(three)}"

    client = LegacyClient(serving(tool))
    waiting: list[Any] = []

    def answer(question: Any) -> None:
        waiting.append(question)
        if len(waiting) < 3:
            return
        # Each waited for the other two. Answered in another order than asked.
        for asked in reversed(waiting):
            value = asked.get("params", {}).get("message")
            said: Any = {"action": "accept", "content": {"value": value}}
            if asked["method"] == "roots/list":
                said = {"roots": [{"uri": "file:///x"}]}
            client.reply({"jsonrpc": "2.0", "id": asked["id"], "result": said})

    assert text_of(client.call("tool", answer=answer)) == "One? Two? 1"


def test_an_error_of_the_client_is_an_outcome() -> None:
    def tool() -> Flow[str]:
        return str((yield from Outcome(Elicit("Who?", str))))

    client = LegacyClient(serving(tool))

    def said(**reply: Any) -> str:
        return text_of(client.call("tool", answer=lambda question: reply))

    assert said(error={"code": -1, "message": "no"}) == str(Declined())
    failed = ClientFailed(-32603, "broken", [1])
    assert said(error={"code": -32603, "message": "broken", "data": [1]}) == str(failed)
    for nonsense in (5, {}, {"code": "x", "message": 3}):
        assert "no reason given" in said(error=nonsense)
    assert said(result={"action": "decline"}) == str(Declined())
    accepted = {"action": "accept", "content": {"value": "Ann"}}
    assert said(result=accepted) == str(Accepted("Ann"))


def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    client = LegacyClient(serving(who))
    answers = accepts({"value": 5}, {"value": "Ann"})
    assert text_of(client.call("who", answer=answers)) == "Hello, Ann"
    _, again = client.asked
    assert "did not fit" in again["params"]["message"]


def test_replies_without_an_outstanding_question() -> None:
    client = LegacyClient(serving(who))
    stray = {"jsonrpc": "2.0", "id": 99, "result": {}}
    assert client.reply(stray) == Reply(None, 202) or client.reply(stray).status == 202

    def twice(question: Any) -> Any:
        said = {"result": {"action": "accept", "content": {"value": "Ann"}}}
        client.reply({"jsonrpc": "2.0", "id": str(question["id"]), **said})  # not it
        client.reply({"jsonrpc": "2.0", "id": question["id"], **said})
        return {"result": {"action": "decline"}}  # too late

    assert text_of(client.call("who", answer=twice)) == "Hello, Ann"


def test_prompts_and_resources_ask_too() -> None:
    app = Server("shop")

    @app.prompt
    def review() -> Flow[str]:
        return "Review " + (yield from Elicit("What?", str))

    @app.resource("shop://mine")
    def mine() -> Flow[str]:
        return "For " + (yield from Elicit("Who?", str))

    client = LegacyClient(app)
    found = client.result("prompts/get", {"name": "review"}, accepts({"value": "Dune"}))
    assert found["messages"][0]["content"]["text"] == "Review Dune"
    read = client.result(
        "resources/read", {"uri": "shop://mine"}, accepts({"value": "A"})
    )
    assert read["contents"][0]["text"] == "For A"


# ---- what a revision can ask --------------------------------------------------------


def test_forms_of_2025_06_18() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "colour": {
                "type": "string",
                "oneOf": [
                    {"const": "r", "title": "Red"},
                    {"const": "b", "title": "Blue"},
                ],
                "default": "r",
            },
            "gift": {"type": "boolean", "default": True},
            "note": {"type": "string", "default": "none", "maxLength": 9},
        },
        "required": ["colour"],
    }

    def tool() -> Flow[str]:
        return str((yield from Elicit("Which?", schema))["colour"])

    answers = {"colour": "b", "gift": False, "note": ""}
    newest = LegacyClient(serving(tool))
    assert text_of(newest.call("tool", answer=accepts(answers))) == "b"
    (asked,) = newest.asked
    assert asked["params"]["mode"] == "form"
    assert asked["params"]["requestedSchema"] == schema

    older = LegacyClient(serving(tool), "2025-06-18")
    assert text_of(older.call("tool", answer=accepts(answers))) == "b"
    (asked,) = older.asked
    assert asked["params"] == {
        "message": "Which?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "colour": {
                    "type": "string",
                    "enum": ["r", "b"],
                    "enumNames": ["Red", "Blue"],
                },
                "gift": {"type": "boolean", "default": True},
                "note": {"type": "string", "maxLength": 9},
            },
            "required": ["colour"],
        },
    }


def several() -> Flow[str]:
    found = yield from Elicit("Which?", list[Literal["a", "b"]])
    return ",".join(found)


def page() -> Flow[str]:
    yield from ElicitUrl("Sign in", "https://x/in")
    return "in"


def with_tools() -> Flow[str]:
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    tools = [{"name": "x", "inputSchema": {"type": "object"}}]
    yield from Sample([message], max_tokens=5, tools=tools)
    return "sampled"


def several_contents() -> Flow[str]:
    text = {"type": "text", "text": "hi"}
    yield from Sample([{"role": "user", "content": [text, text]}], max_tokens=5)
    return "sampled"


@pytest.mark.parametrize(
    ("tool", "version", "words"),
    [
        (several, "2025-06-18", "2025-06-18, has no fields of several choices"),
        (page, "2025-06-18", "2025-06-18, has no pages to open"),
        (with_tools, "2025-06-18", "2025-06-18, has no tools for sampling"),
        (several_contents, "2025-06-18", "has no messages with several contents"),
        (who, "2025-03-26", "2025-03-26, has no elicitation"),
        (page, "2025-03-26", "2025-03-26, has no elicitation"),
    ],
)
def test_what_a_revision_cannot_ask_is_reported_to_the_model(
    tool: Any, version: str, words: str
) -> None:
    client = LegacyClient(serving(tool), version)
    result = client.call(tool.__name__)
    assert result["isError"]
    assert words in text_of(result)
    assert client.asked == []


def test_what_a_client_cannot_be_asked_is_reported_to_the_model() -> None:
    def tool(kind: str) -> Flow[None]:
        message = {"role": "user", "content": {"type": "text", "text": "hi"}}
        effects = {
            "form": Elicit("Who?", str),
            "url": ElicitUrl("In", "https://x"),
            "model": Sample([message], max_tokens=5),
            "roots": ListRoots(),
        }
        yield from effects[kind]

    client = LegacyClient(serving(tool), NEWEST, {})
    for kind, asks, capability in (
        ("form", "the user", "elicitation"),
        ("url", "the user", "elicitation"),
        ("model", "a model of the client's", "sampling"),
        ("roots", "the client for the user's folders", "roots"),
    ):
        result = client.call("tool", {"kind": kind})
        assert result["isError"]
        assert text_of(result) == (
            f"This needs to ask {asks}, and the connected client cannot be asked: it"
            f" does not declare the capability {capability}."
        )
    with_forms = LegacyClient(serving(tool), NEWEST, FORM)
    result = with_forms.call("tool", {"kind": "url"})
    assert "does not declare the capability elicitation.url" in text_of(result)


def test_otherwise_and_client_supports() -> None:
    def tool() -> Flow[str]:
        name = yield from Elicit("Who?", str, otherwise="nobody")
        can = yield from ClientSupports(Sample)
        return f"{name} {can}"

    assert (
        text_of(LegacyClient(serving(tool), NEWEST, {}).call("tool")) == "nobody False"
    )


def test_unsupported_that_a_handler_raises_itself() -> None:
    def tool() -> Flow[str]:
        yield from ()
        raise Unsupported("Telepathy")

    result = LegacyClient(serving(tool)).call("tool")
    assert "it cannot show this" in text_of(result)


def test_requires() -> None:
    app = Server("shop")

    @app.tool(requires=[Sample])
    def tool() -> str:
        raise AssertionError

    @app.prompt(requires=[Sample])
    def prompt() -> str:
        raise AssertionError

    client = LegacyClient(app, NEWEST, {})
    result = client.call("tool")
    assert result["isError"]
    assert "does not declare the capability sampling" in text_of(result)
    assert refused(client.send("prompts/get", {"name": "prompt"})) == (200, -32603)


def test_capabilities_in_a_request_override_the_session() -> None:
    client = LegacyClient(serving(who), NEWEST, {})
    params = {"name": "who", "_meta": {f"{PREFIX}clientCapabilities": FORM}}
    result = client.result("tools/call", params, accepts({"value": "Ann"}))
    assert text_of(result) == "Hello, Ann"
    client = LegacyClient(serving(who))
    params = {"name": "who", "_meta": {f"{PREFIX}clientCapabilities": {}}}
    assert client.result("tools/call", params)["isError"]


def test_without_a_session_no_client_can_be_asked() -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "who",
            "_meta": {f"{PREFIX}clientCapabilities": dict(EVERYTHING)},
        },
    }
    peer = Peer(headers={"mcp-protocol-version": NEWEST})
    reply = sync.handle(serving(who), message, peer)
    assert reply.message is not None
    assert "it has no session" in text_of(reply.message["result"])


def test_a_server_that_asks_as_many_as_it_can() -> None:
    client = LegacyClient(serving(who))
    client.peer = attrs.evolve(client.peer, is_busy=True)
    assert "are being asked already" in text_of(client.call("who"))


def test_each_request_to_open_a_page_has_its_own_id() -> None:
    client = LegacyClient(serving(page))
    for _ in range(2):
        assert text_of(client.call("page", answer=accepts(None))) == "in"
    ids = [one["params"].pop("elicitationId") for one in client.asked]
    assert len(set(ids)) == 2
    assert client.asked[0]["params"] == {
        "mode": "url",
        "message": "Sign in",
        "url": "https://x/in",
    }


# ---- cancelling ---------------------------------------------------------------------


class Driven:
    """One call of a tool, whose commands are obeyed by hand."""

    def __init__(self, app: Server, name: str, meta: Any = None) -> None:
        self.client = LegacyClient(app)
        message = {
            "jsonrpc": "2.0",
            "id": "call",
            "method": "tools/call",
            "params": {"name": name, "_meta": meta or {}},
        }
        self.now = 0.0
        self.exchange = handle(
            app, message, self.client.peer, clock=lambda: self.now, entropy=bytes
        )

    def next(self, outcome: Any = None) -> Any:
        """The next command, or the reply."""
        try:
            return self.exchange.send(outcome)
        except StopIteration as end:
            return end.value


def cleaning(seen: list[str]) -> Server:
    def release() -> None:
        raise AssertionError  # performed by hand

    def tool() -> Flow[str]:
        try:
            yield from Elicit("Who?", str)
        except Cancelled:
            seen.append("cancelled")
            raise
        finally:
            yield from Step(release)
            seen.append("released")
        return "not reached"

    return serving(tool)


def end_by_session(one: Driven) -> None:
    one.client.session.close()


def end_by_client(one: Driven) -> None:
    one.client.notify("notifications/cancelled", {"requestId": "call"})


@pytest.mark.parametrize("end", [end_by_session, end_by_client])
def test_cancelled_at_a_question(end: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp")
    seen: list[str] = []
    one = Driven(cleaning(seen), "tool")
    asking = one.next().asking
    assert not asking.is_over
    one.now = 100.0
    end(one)
    assert asking.is_over
    told = one.next()
    assert isinstance(told, Notify)
    (id_,) = asking.messages
    assert told.message["method"] == "notifications/cancelled"
    assert told.message["params"] == {"requestId": id_}
    wanted = one.next()
    assert isinstance(wanted, PerformAll)
    assert seen == ["cancelled"]
    assert wanted.deadline == 130.0  # cleanup has that long
    reply = one.next({wanted.wants[0].key: Done(None)})
    assert seen == ["cancelled", "released"]
    assert (reply.message, reply.status) == (None, 202)
    assert not one.client.session.is_busy
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


@pytest.mark.parametrize("is_answered", [False, True])
def test_question_that_times_out_is_withdrawn(is_answered: bool) -> None:
    """V3: an answer in time counts, though its round ends by the deadline.

    What is still wanted is asked again.
    """

    def tool() -> Flow[str]:
        yield from Detach()
        first, name = yield from Gather(
            Within(60, Confirm("Sure?")), Elicit("Who?", str)
        )
        return f"{name}: {first}"

    one = Driven(serving(tool), "tool")
    (want,) = one.next().wants
    asking = one.next({want.key: Done(False)}).asking
    assert asking.until == 60.0
    sure, who = asking.messages
    if is_answered:
        one.client.reply({"jsonrpc": "2.0", "id": sure, "result": {"action": "accept"}})
    one.now = 60.0
    taken_back = [one.next() for _ in asking.messages.keys() - asking.replies.keys()]
    assert {told.message["params"]["requestId"] for told in taken_back} == (
        {who} if is_answered else {sure, who}
    )
    # Withdrawn, and ignored.
    result = {"action": "accept", "content": {"value": "Ann"}}
    one.client.reply({"jsonrpc": "2.0", "id": who, "result": result})
    asking = one.next().asking
    assert (asking.until, asking.is_over) == (None, False)
    (who,) = asking.messages
    one.client.reply({"jsonrpc": "2.0", "id": who, "result": result})
    assert asking.is_over
    first = "True" if is_answered else "TimedOut()"
    assert text_of(one.next().message["result"]) == f"Ann: {first}"


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("is_alone", [False, True])
def test_first_answer_to_a_race_is_enough(winner: int, is_alone: bool) -> None:
    """V3: a client need not answer both questions of one race."""

    def tool() -> Flow[Any]:
        yield from Detach()
        race = FirstOf(Confirm("Sure?"), Confirm("Never?"))
        if is_alone:
            return (yield from race)
        found, _ = yield from Gather(race, Confirm("Quick?"))
        return found

    one = Driven(serving(tool), "tool")
    (want,) = one.next().wants
    asking = one.next({want.key: Done(False)}).asking
    ids = list(asking.messages)
    for id_ in ids[2:]:
        one.client.reply({"jsonrpc": "2.0", "id": id_, "result": {"action": "accept"}})
    assert not asking.is_over
    accepts = {"jsonrpc": "2.0", "id": ids[winner], "result": {"action": "accept"}}
    one.client.reply(accepts)
    assert asking.is_over
    taken_back = one.next().message
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"] == {"requestId": ids[1 - winner]}
    assert json.loads(text_of(one.next().message["result"])) == [winner, True]


def test_two_deadlines_are_not_confused() -> None:
    """An answer in time does not keep another deadline from passing."""

    def tool() -> Flow[Any]:
        yield from Detach()
        found = yield from Gather(
            Within(60, Confirm("Sure?")), Within(60, Confirm("Really?"))
        )
        return repr(found)

    one = Driven(serving(tool), "tool")
    (want,) = one.next().wants
    asking = one.next({want.key: Done(False)}).asking
    sure, really = asking.messages
    one.client.reply({"jsonrpc": "2.0", "id": sure, "result": {"action": "accept"}})
    one.now = 60.0
    assert one.next().message["params"] == {"requestId": really}
    assert text_of(one.next().message["result"]) == "(True, TimedOut())"


@pytest.mark.parametrize("error", [OSError, TimeoutError])
def test_cleanup_that_fails_is_logged(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def tool() -> Flow[None]:
        try:
            yield from Confirm("Sure?")
        finally:
            raise error("the refund")

    one = Driven(serving(tool), "tool")
    one.next()
    end_by_client(one)
    assert isinstance(one.next(), Notify)
    assert one.next().message is None
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "tool failed as it was ended" in record.getMessage()
    assert "the refund" in caplog.text


def test_cancelled_at_a_step_which_ends_first() -> None:
    seen: list[str] = []

    def pay() -> str:
        raise AssertionError  # performed by hand

    def tool() -> Flow[str]:
        receipt = yield from Step(pay)
        seen.append(receipt)
        try:
            yield from Elicit("Who?", str)
        except Cancelled:
            seen.append("cancelled")
            raise
        return "not reached"

    one = Driven(serving(tool), "tool")
    wanted = one.next()
    end_by_client(one)
    reply = one.next({wanted.wants[0].key: Done("paid")})
    assert isinstance(reply, Reply)
    assert reply.message is None
    assert seen in (["paid", "cancelled"], [])  # docs/internals/replay.md#l4


def test_a_call_that_times_out_is_cancelled() -> None:
    """No client can resume it, as with a retry: so it cleans up."""
    seen: list[str] = []

    def pay() -> None:
        raise AssertionError  # performed by hand

    def tool() -> Flow[str]:
        try:
            yield from Step(pay)
        finally:
            yield from Step(pay)
            seen.append("released")
        return "not reached"

    app = Server("shop")
    app.tool(timeout=5)(tool)
    one = Driven(app, "tool")
    assert one.next().deadline == 5.0
    one.now = 6.0
    wanted = one.exchange.throw(Overdue())
    assert isinstance(wanted, PerformAll)
    assert wanted.deadline == 36.0
    reply = one.next({wanted.wants[0].key: Done(None)})
    assert seen == ["released"]
    assert text_of(reply.message["result"]) == "tool took too long, and was ended."

    one = Driven(app, "tool")
    one.next()
    one.exchange.throw(Overdue())
    with pytest.raises(StopIteration) as end:  # and so does that
        one.exchange.throw(Overdue())
    assert "took too long" in text_of(end.value.value.message["result"])


@pytest.mark.parametrize("effect", [Sleep(60), Gather(Now(), Sleep(60))], ids=repr)
def test_sleep_that_takes_too_long_ends_with_its_flow(effect: Effect[Any]) -> None:
    """A notification cannot fail as a step does."""
    seen: list[str] = []

    def pay() -> None:
        raise AssertionError  # performed by hand

    def tool() -> Flow[str]:
        yield from Detach()
        try:
            yield from effect
        except Cancelled:
            seen.append("cancelled")
            raise
        finally:
            yield from Step(pay)
            seen.append("released")
        return "not reached"

    app = Server("shop")
    app.tool(timeout=5)(tool)
    one = Driven(app, "tool")
    (want,) = one.next().wants
    one.next({want.key: Done(False)})
    wanted = one.exchange.throw(Overdue())
    assert isinstance(wanted, PerformAll)
    assert [want.effect for want in wanted.wants] == [Step(pay)]
    reply = one.next({wanted.wants[0].key: Done(None)})
    assert seen == ["cancelled", "released"]
    assert text_of(reply.message["result"]) == "tool took too long, and was ended."


def test_cancelled_on_the_way_to_what_is_known_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def tool() -> Flow[str]:
        yield from Progress(1)
        yield from Caller()
        return "not reached"

    one = Driven(serving(tool), "tool", {"progressToken": "t"})
    assert isinstance(one.next(), Notify)
    end_by_client(one)
    reply = one.next()
    assert isinstance(reply, Reply)
    assert reply.message is None
    assert caplog.records == []


def test_what_took_too_long_asks_no_more() -> None:
    def pay() -> None:
        raise AssertionError  # performed by hand

    def tool() -> Flow[str]:
        try:
            yield from Step(pay)
        except TimeoutError:
            yield from Step(pay)
            yield from Confirm("Go on?")
        return "not reached"

    app = Server("shop")
    app.tool(timeout=5)(tool)
    one = Driven(app, "tool")
    one.next()
    wanted = one.exchange.throw(Overdue())
    assert isinstance(wanted, PerformAll)
    reply = one.next({wanted.wants[0].key: Done(None)})
    assert "took too long" in text_of(reply.message["result"])


def test_cancelled_twice_and_unknown() -> None:
    one = Driven(cleaning([]), "tool")
    one.next()
    one.client.notify("notifications/cancelled", {"requestId": "other"})
    one.client.notify("notifications/cancelled", {"requestId": []})
    one.client.notify("notifications/cancelled")
    end_by_client(one)
    end_by_client(one)
    assert isinstance(one.next(), Notify)
    one.exchange.close()
    assert not one.client.session.is_busy


def test_a_question_after_the_end_of_a_session_is_not_sent() -> None:
    def pay() -> None:
        raise AssertionError  # performed by hand

    def tool() -> Flow[str]:
        try:
            yield from Step(pay)
        except Cancelled:
            pass  # as one should not
        return (yield from Elicit("Who?", str))

    one = Driven(serving(tool), "tool")
    wanted = one.next()
    end_by_session(one)
    reply = one.next({wanted.wants[0].key: Done(None)})
    assert isinstance(reply, Reply)
    assert reply.message is None


def test_a_cancelled_function_is_not_answered() -> None:
    def tool() -> str:
        raise AssertionError  # called by hand

    one = Driven(serving(tool), "tool")
    one.next()
    stopped: list[str] = []
    one.client.session.stop_with("call", lambda: stopped.append("stopped"))
    end_by_client(one)
    assert stopped == ["stopped"]  # its caller may not be able to end it
    one.client.session.stop_with("call", None)
    assert one.next(Done("too late")).message is None


def test_nothing_begins_in_a_session_that_ended() -> None:
    client = LegacyClient(serving(who))
    client.session.close()
    reply = client.send("tools/call", {"name": "who"})
    assert "session ended" in error(reply)["message"]


def test_two_requests_with_one_id() -> None:
    one = Driven(serving(who), "who")
    assert isinstance(one.next(), Ask)
    reply = one.client.send("tools/call", {"name": "who"}, id="call")
    assert "id is running" in error(reply)["message"]


def test_requests_that_run_at_once_are_bounded() -> None:
    one = Driven(serving(who), "who")
    one.client.session.most = 1
    assert isinstance(one.next(), Ask)
    reply = one.client.send("tools/call", {"name": "who"})
    assert "too many requests" in error(reply)["message"]
    one.exchange.close()
    assert one.client.result("ping") == {}
    assert "Ann" in text_of(one.client.call("who", answer=accepts({"value": "Ann"})))


def test_lifespan_is_provided() -> None:
    def tool(db: str = Provided()) -> str:
        return db

    app = serving(tool)
    app.provided = {"db": "the database"}
    assert text_of(LegacyClient(app).call("tool")) == "the database"


def test_cancelled_on_the_way_to_a_question() -> None:
    """The client is not asked any more, and its flow ends."""

    def tool() -> Flow[str]:
        yield from Progress(1)
        return (yield from Elicit("Who?", str))

    one = Driven(serving(tool), "tool", {"progressToken": "t"})
    assert isinstance(one.next(), Notify)
    end_by_client(one)
    asked = one.next()
    assert isinstance(asked, Ask)
    assert asked.asking.is_over
    assert isinstance(one.next(), Notify)
    reply = one.next()
    assert isinstance(reply, Reply)
    assert reply.message is None


def test_initialize_within_a_session_over_http() -> None:
    client = LegacyClient(serving(who))
    headers = {"mcp-protocol-version": NEWEST}
    peer = Peer(session=client.session, headers=headers)
    reply = sync.handle(client.app, hello(), peer)
    assert reply.opened is None
    assert "the session has started" in error(reply)["message"]


def test_what_is_missing_of_an_outcome_is_missing_of_its_effect() -> None:
    oldest = HANDSHAKES["2025-03-26"]
    assert missing(Outcome(Elicit("Who?", str)), EVERYTHING, oldest)
    older = HANDSHAKES["2025-06-18"]
    assert missing(Outcome(Elicit("Who?", str)), EVERYTHING, older) is None
    assert missing(Sample("Say hello", max_tokens=5), EVERYTHING, older) is None


def test_requires_several() -> None:
    def tool() -> str:
        return "x"

    app = Server("shop")
    app.tool(requires=[Elicit, Sample])(tool)
    found = LegacyClient(app, capabilities=FORM).call("tool")
    assert "sampling" in text_of(found)
    found = LegacyClient(app, capabilities=EVERYTHING).call("tool")
    assert text_of(found) == "x"


def test_a_draft_without_a_session() -> None:
    headers = {"mcp-protocol-version": "2026-06-XX"}
    reply = called(headers, drafts=True)
    assert reply.message is not None
    assert "result" in reply.message
