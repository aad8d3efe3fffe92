"""A client in memory: requests as it writes them, and whole calls as it carries them on.

`fits` is the referee: the protocol's own JSON schema, if a copy is available.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from effectmcp import Accepted, Declined, Dismissed
from effectmcp.drivers import sync
from effectmcp.engine import Answer
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.server import Server
from effectmcp.state import Keys, make_key

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
EVERYTHING: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
KEYS = Keys(make_key(bytes(range(32))))

Wire = dict[str, Any]


def meta(
    capabilities: Any = EVERYTHING, *, version: Any = VERSION, **more: Any
) -> Wire:
    """A request's `_meta`; `log_level=` and the like under the protocol's names."""
    names = {"log_level": f"{PREFIX}logLevel", "client": f"{PREFIX}clientInfo"}
    return {
        f"{PREFIX}protocolVersion": version,
        f"{PREFIX}clientCapabilities": capabilities,
        **{names.get(key, key): value for key, value in more.items()},
    }


def request(
    method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1, **more: Any
) -> Wire:
    """A request, with everything that each must have. For `more` see `meta`."""
    params = {"_meta": meta(**more), **(params or {})}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def headers_of(message: Wire, **more: str | None) -> dict[str, str]:
    """The headers that go with `message`; `mcp_name=None` leaves one out."""
    params = message.get("params", {})
    said = params.get("_meta")
    said = said if isinstance(said, dict) else {}
    name = params.get("uri", params.get("name"))
    headers = {
        "mcp-protocol-version": said.get(f"{PREFIX}protocolVersion", VERSION),
        "mcp-method": message.get("method"),
        "mcp-name": name,
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return {key: value for key, value in headers.items() if value is not None}


def send(
    app: Server,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    peer: Peer | None = None,
    notify: Callable[[Mapping[str, Any]], None] = lambda message: None,
    **more: Any,
) -> Reply:
    """The reply of `app`, over the driver that needs no loop."""
    return sync.handle(app, request(method, params, **more), peer, send=notify)


def result(reply: Reply) -> Wire:
    """The result of a reply that has one."""
    assert reply.message is not None
    assert "result" in reply.message, reply.message
    assert reply.status == 200
    found: Wire = reply.message["result"]
    return found


def error(reply: Reply) -> Wire:
    """The error of a reply that has one."""
    assert reply.message is not None
    assert "error" in reply.message, reply.message
    found: Wire = reply.message["error"]
    return found


def refused(reply: Reply) -> tuple[int, int]:
    """HTTP status and code of a refusal."""
    return reply.status, error(reply)["code"]


def call(app: Server, name: str, /, *, state: Any = None, **more: Any) -> Reply:
    """Call a tool with `arguments=`, `answers=` and a `state`."""
    return send(
        app, "tools/call", call_params(name, state=state, **_split(more)), **more
    )


def _split(more: dict[str, Any]) -> dict[str, Any]:
    names = {"arguments", "answers"} & more.keys()
    return {name: more.pop(name) for name in names}


def call_params(
    name: str, arguments: Any = None, answers: Any = None, state: Any = None
) -> Wire:
    """The params of `tools/call`, less `_meta`."""
    params = {
        "name": name,
        "arguments": arguments,
        "inputResponses": answers,
        "requestState": state,
    }
    return {key: value for key, value in params.items() if value is not None}


def text_of(found: Wire) -> str:
    """The text of a tool's result that is one."""
    (block,) = found["content"]
    text: str = block["text"]
    return text


def said(asked: Wire, *contents: Any) -> Wire:
    """The answers to an interim result: accepted, with these contents in order."""
    assert asked["resultType"] == "input_required"
    keys = asked["inputRequests"]
    return {
        key: {"action": "accept", "content": content}
        for key, content in zip(keys, contents, strict=True)
    }


def on_wire(question: Wire, answer: Answer) -> Wire:
    """An answer as a client writes it."""
    if question["method"] != "elicitation/create":
        assert isinstance(answer, Accepted)
        content: Wire = answer.value
        return content
    match answer:
        case Accepted(content):
            return {"action": "accept", "content": content}
        case Declined():
            return {"action": "decline"}
        case _:
            assert isinstance(answer, Dismissed)
            return {"action": "cancel"}


# ---- the referee --------------------------------------------------------------------

ROOT = Path(__file__).parents[1]
SPEC = ROOT.parent / "shared" / "spec"
SCHEMA = SPEC / VERSION / "schema.json"

#: What a request's result must be; the schema itself takes any result for any request.
RESULTS = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "completion/complete": "CompleteResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}
ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}


@cache
def _definitions(version: str) -> Wire | None:
    schema = SPEC / version / "schema.json"
    if not schema.exists():
        return None
    found: Wire = json.loads(schema.read_text())["$defs"]
    return found


@cache
def _referee(name: str, version: str) -> Any:
    definitions = _definitions(version)
    if definitions is None:
        return None  # `test_wire.py` reports it; the tests continue without it
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/$defs/{name}", "$defs": definitions}
    )


def fits(name: str, value: Any, version: str = VERSION) -> None:
    """Check `value` against a definition of the protocol's schema, if available."""
    referee = _referee(name, version)
    problems = (
        [] if referee is None else [str(one) for one in referee.iter_errors(value)]
    )
    assert not problems, (name, value, problems)


def fits_reply(method: Any, reply: Reply) -> None:
    """Hold a reply against what the protocol has for `method`."""
    message = reply.message
    if message is None:
        assert reply.status == 202
        return
    if "error" in message:
        fits("JSONRPCErrorResponse", message)
        code = message["error"]["code"]
        if code in ERRORS:
            fits(ERRORS[code], message)
        return
    fits("JSONRPCResultResponse", message)
    interim = message["result"]["resultType"] == "input_required"
    assert interim or method in RESULTS, f"add {method!r} to RESULTS of wire.py"
    fits("InputRequiredResult" if interim else RESULTS[method], message["result"])
