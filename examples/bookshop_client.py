"""What a client of the bookshop sends, message by message.

The other examples bring these to a server in their own ways: a queue, a Unix socket, an
HTTP request. A client has nothing to remember between two rounds but its first message.
"""

from __future__ import annotations

from typing import Any

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bookshop-client", "version": "1.0"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "order",
}


def call(name: str, arguments: dict[str, Any], id: int = 1) -> dict[str, Any]:
    """A call of a tool."""
    params = {"name": name, "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def next_round(message: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any] | None:
    """The same call with the answers to what `reply` asks; None when it is over."""
    result = reply["result"]
    if result["resultType"] != "input_required":
        return None
    answers = {key: _answer(one) for key, one in result["inputRequests"].items()}
    more = {"requestState": result["requestState"], "inputResponses": answers}
    params = {**message["params"], **more}
    return {**message, "id": message["id"] + 1, "params": params}


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    """What an obliging user says: Ann, some day, yes."""
    fields = question["params"]["requestedSchema"]["properties"]
    content = {
        name: "2026-12-01" if field.get("format") == "date" else "Ann"
        for name, field in fields.items()
    }
    return {"action": "accept", "content": content}


def text_of(reply: dict[str, Any]) -> str:
    """What the tool returned in the end."""
    text: str = reply["result"]["content"][0]["text"]
    return text
