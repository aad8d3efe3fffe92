"""A client of the legacy revisions, in memory, initialized and asked live.

    client = LegacyClient(app, "2025-11-25")
    result = client.call("order", {"title": "Dune"}, answer)

What it receives is checked against the revision's schema, if a copy is available.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs

from effectmcp.drivers import sync
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.server import Server

from .wire import EVERYTHING, fits

__all__ = ["NEWEST", "VERSIONS", "Handle", "LegacyClient", "accepts", "hello"]

NEWEST = "2025-11-25"
VERSIONS = (NEWEST, "2025-06-18", "2025-03-26")

Wire = dict[str, Any]
#: Given a request of the server's: `{"result": ...}`, `{"error": ...}`, or nothing.
Answer = Callable[[Wire], Wire | None]


class Handle(Protocol):
    """The driver that answers the messages of a client: `sync.handle`, or a stand-in."""

    def __call__(
        self,
        app: Server,
        message: Mapping[str, Any],
        peer: Peer | None = None,
        *,
        send: Callable[[Mapping[str, Any]], None] = ...,
    ) -> Reply: ...


_RESULTS = {
    "initialize": "InitializeResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "completion/complete": "CompleteResult",
    "tasks/get": "GetTaskResult",
    # What the underlying request would have returned: here, only tools become tasks.
    "tasks/result": "CallToolResult",
    "tasks/list": "ListTasksResult",
    "tasks/cancel": "CancelTaskResult",
}


def _kind_of(method: str, message: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The schema's name for the result of a request."""
    assert method in _RESULTS, f"add {method!r} to _RESULTS of legacy_client.py"
    is_task = "task" in message.get("params", {}) and "task" in result
    if method == "tools/call" and is_task:
        return "CreateTaskResult"
    return _RESULTS[method]


def hello(
    version: str = NEWEST, capabilities: Mapping[str, Any] = EVERYTHING, *, id: Any = 0
) -> Wire:
    """The `initialize` request."""
    params = {
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": {"name": "old", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}


def accepts(*contents: Any) -> Answer:
    """Accepts each question, with these contents in order."""
    left = iter(contents)
    return lambda question: {"result": {"action": "accept", "content": next(left)}}


class LegacyClient:
    """A client with a session.

    Attributes:
        handle: What answers its messages.
        peer: Who it is to the server.
        asked: The requests that the server sent.
        told: The notifications that it sent.
    """

    def __init__(
        self,
        app: Server,
        version: str = NEWEST,
        capabilities: Mapping[str, Any] = EVERYTHING,
        handle: Handle = sync.handle,
    ) -> None:
        self.app = app
        self.handle = handle
        self.version = version
        self.peer = Peer()
        self.asked: list[Wire] = []
        self.told: list[Wire] = []
        self._ids = itertools.count(1)
        reply = handle(app, hello(version, capabilities))
        assert reply.message is not None
        self.welcome: Wire = reply.message["result"]
        assert reply.opened is not None
        self.session = reply.opened
        self.peer = attrs.evolve(self.peer, session=reply.opened)
        if version == NEWEST:
            fits("InitializeResult", self.welcome, NEWEST)

    def send(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        answer: Answer = lambda question: None,
        *,
        id: Any = None,
        **beside: Any,
    ) -> Reply:
        """The server's reply; its questions are answered as they arrive."""
        message: Wire = {
            "jsonrpc": "2.0",
            "id": next(self._ids) if id is None else id,
            "method": method,
            **beside,
        }
        if params is not None:
            message["params"] = dict(params)

        def hear(told: Mapping[str, Any]) -> None:
            self._hear(dict(told), answer)

        reply = self.handle(self.app, message, self.peer, send=hear)
        if self.version == NEWEST and reply.message and "result" in reply.message:
            found = reply.message["result"]
            fits(_kind_of(method, message, found), found, NEWEST)
        return reply

    def _hear(self, told: Wire, answer: Answer) -> None:
        if self.version == NEWEST:
            is_question = "id" in told
            fits("ServerRequest" if is_question else "ServerNotification", told, NEWEST)
        if "id" not in told:
            self.told.append(told)
            return
        self.asked.append(told)
        said = answer(told)
        if said is not None:
            self.reply({"jsonrpc": "2.0", "id": told["id"], **said})

    def reply(self, response: Wire) -> Reply:
        """Send a response."""
        return self.handle(self.app, response, self.peer)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Reply:
        """Send a notification."""
        message = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        return self.handle(self.app, message, self.peer)

    def result(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        answer: Answer = lambda question: None,
    ) -> Wire:
        """The result of a request that has one."""
        reply = self.send(method, params, answer)
        assert reply.message is not None
        assert "result" in reply.message, reply.message
        assert reply.status == 200
        found: Wire = reply.message["result"]
        return found

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        answer: Answer = lambda question: None,
    ) -> Wire:
        """The result of a tool."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return self.result("tools/call", params, answer)
