"""By retry, a server sends no requests: every message that leaves is looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from effectmcp.drivers import sync
from effectmcp.server import Server
from effectmcp.server.target import load_app

from ..wire import KEYS, meta
from .raw_clients import answer as answer_simply

EXAMPLES = Path(__file__).parents[2] / "examples"
#: The examples that are servers.
SERVERS = ("bookshop", "everything", "search", "weather", "wizard")


def filled(schema: Mapping[str, Any]) -> Any:
    """Something that fits a simple schema."""
    if "default" in schema:
        return schema["default"]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for choices in ("oneOf", "anyOf"):
        if choices in schema:
            return filled(schema[choices][0])
    match schema.get("type"):
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [filled(schema["items"])]
        case "object":
            wanted = schema.get("properties", {})
            return {name: filled(one) for name, one in wanted.items()}
        case _:
            pass
    formats = {"email": "ann@x.example", "date": "2027-01-02", "uri": "https://x"}
    return formats.get(schema.get("format", ""), "abc")


def answer(question: dict[str, Any]) -> dict[str, Any]:
    schema = question.get("params", {}).get("requestedSchema")
    if schema is None:
        return answer_simply(question)
    return {"action": "accept", "content": filled(schema)}


def tools_of(name: str) -> list[tuple[str, str]]:
    app = load_app(str(EXAMPLES / f"{name}.py"))
    return [(name, tool) for tool in app.tools]


@pytest.mark.parametrize(
    ("name", "tool"), [pair for name in SERVERS for pair in tools_of(name)]
)
def test_nothing_but_notifications_leaves(
    name: str, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app: Server = load_app(str(EXAMPLES / f"{name}.py"))
    monkeypatch.setattr(app, "keys", KEYS)
    arguments = filled(app.tools[tool].listing["inputSchema"])
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    sent: list[Any] = []
    with sync.running(app):
        for number in range(12):
            message = {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {**params, "_meta": meta(log_level="debug", progressToken=1)},
            }
            reply = sync.handle(app, json.dumps(message), send=sent.append)
            assert reply.message is not None
            result = reply.message.get("result", {})
            if result.get("resultType") != "input_required":
                break
            params["requestState"] = result["requestState"]
            params["inputResponses"] = {
                key: answer(one) for key, one in result["inputRequests"].items()
            }
    assert all("id" not in one for one in sent)
    assert all(one["method"].startswith("notifications/") for one in sent)
