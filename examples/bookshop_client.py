"""The messages that a client of the bookshop sends.

The other examples send them to a server in different ways: a queue, a Unix socket, an
HTTP request. Between two rounds, a client has to keep only its first message.
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
    """Return the request that calls a tool."""
    params = {"name": name, "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def next_round(message: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any] | None:
    """Return the next request, with answers to the questions in `reply`; None at the end."""
    result = reply["result"]
    if result["resultType"] != "input_required":
        return None
    answers = {key: _answer(one) for key, one in result["inputRequests"].items()}
    more = {"requestState": result["requestState"], "inputResponses": answers}
    params = {**message["params"], **more}
    return {**message, "id": message["id"] + 1, "params": params}


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a cooperative user: Ann, some day, yes."""
    fields = question["params"]["requestedSchema"]["properties"]
    content = {
        name: "2026-12-01" if field.get("format") == "date" else "Ann"
        for name, field in fields.items()
    }
    return {"action": "accept", "content": content}


def text_of(reply: dict[str, Any]) -> str:
    """Return the text of the final result."""
    text: str = reply["result"]["content"][0]["text"]
    return text
