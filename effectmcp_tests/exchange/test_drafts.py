"""The drafts: a handshake as before, rounds as in the release, other words."""

from __future__ import annotations

from typing import Any

import pytest

from effectmcp import Checkpoint, Elicit, Flow, Server
from effectmcp.drivers import sync
from effectmcp.exchange.commands import Peer
from effectmcp.protocol.drafts import is_incomplete

from ..legacy_client import NEWEST, LegacyClient
from ..wire import KEYS, refused, text_of

DRAFT = "2026-06-XX"


def order() -> Flow[str]:
    """Asks twice."""
    title = yield from Elicit("What?", str, key="what")
    count = yield from Elicit("How many?", int, key="count")
    return f"{count} x {title}"


def serving(*tools: Any, **options: Any) -> Server:
    app = Server("shop", keys=KEYS, **{"drafts": True, **options})
    for tool in tools:
        app.tool(tool)
    return app


def said(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def test_it_is_off_unless_wanted() -> None:
    assert LegacyClient(serving(order, drafts=False), DRAFT).welcome[
        "protocolVersion"
    ] == (NEWEST)
    assert LegacyClient(serving(order), NEWEST).welcome["protocolVersion"] == NEWEST


@pytest.mark.parametrize("beside", [False, True])
def test_rounds(beside: bool) -> None:
    """A retry may carry its fields in the parameters or beside them."""
    client = LegacyClient(serving(order), DRAFT)
    assert client.welcome["protocolVersion"] == DRAFT
    result = client.call("order")
    for key, value in (("what", "Dune"), ("count", 2)):
        assert result["result_type"] == "incomplete"
        assert "resultType" not in result
        assert is_incomplete(result)
        assert [*result["inputRequests"]] == [key]
        assert result["inputRequests"][key]["method"] == "elicitation/create"
        more = {
            "inputResponses": {key: said(value)},
            "requestState": result["requestState"],
        }
        params = {"name": "order", "arguments": {}}
        if beside:
            reply = client.send("tools/call", params, **more)
        else:
            reply = client.send("tools/call", {**params, **more})
        assert reply.message is not None
        result = reply.message["result"]
    assert not is_incomplete(result)
    assert result == {"content": [{"type": "text", "text": "2 x Dune"}]}
    assert client.asked == []


def test_a_result_that_only_carries_its_state() -> None:
    def tool() -> Flow[str]:
        yield from Checkpoint()
        return "done"

    client = LegacyClient(serving(tool), DRAFT)
    result = client.call("tool")
    assert result.keys() == {"result_type", "requestState"}
    params = {"name": "tool", "requestState": result["requestState"]}
    assert text_of(client.result("tools/call", params)) == "done"


def test_a_draft_without_a_session_uses_the_capabilities_of_the_request() -> None:
    name = "io.modelcontextprotocol/clientCapabilities"
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "order", "_meta": {name: {"elicitation": {}}}},
    }
    peer = Peer(headers={"mcp-protocol-version": DRAFT})
    reply = sync.handle(serving(order), message, peer)
    assert reply.message is not None
    assert is_incomplete(reply.message["result"])


def test_a_forged_state_of_a_draft_is_refused() -> None:
    client = LegacyClient(serving(order), DRAFT)
    params = {"name": "order", "requestState": "forged"}
    assert refused(client.send("tools/call", params)) == (200, -32602)


def test_a_client_that_cannot_be_asked() -> None:
    client = LegacyClient(serving(order), DRAFT, {})
    result = client.call("order")
    assert result["isError"]
    assert "does not declare the capability elicitation" in text_of(result)


@pytest.mark.parametrize(
    ("result", "is_interim"),
    [
        ({"result_type": "incomplete", "inputRequests": {}}, True),
        ({"result_type": "complete", "requestState": "x"}, False),
        ({"inputRequests": {"a": {}}}, True),
        ({"requestState": "x"}, True),
        ({"content": []}, False),
    ],
)
def test_is_incomplete(result: Any, is_interim: bool) -> None:
    assert is_incomplete(result) is is_interim
