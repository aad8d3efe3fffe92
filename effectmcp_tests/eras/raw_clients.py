"""Clients that know nothing of effectmcp: bytes out, bytes in, for each era.

    with connect(way, era, capabilities) as client:
        result = client.call("form")

They do what the specification of their era says, and no more.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Protocol
from urllib.parse import urlsplit

__all__ = ["EVERYTHING", "Raw", "RawError", "over_http", "over_pipes"]

Wire = dict[str, Any]

MODERN = "2026-07-28"
DRAFT = "2026-06-XX"
EVERYTHING: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}


class RawError(Exception):
    """A JSON-RPC error."""


class Carrier(Protocol):
    """Sends a message, and yields the messages for it up to its response."""

    def ask(self, message: Wire) -> Iterator[Wire]: ...

    def tell(self, message: Wire) -> None: ...


def answer(question: Wire) -> Wire:
    """The answer of an obliging user."""
    if question["method"] == "sampling/createMessage":
        content = {"type": "text", "text": "you"}
        return {"role": "assistant", "model": "m", "content": content}
    if question["method"] == "roots/list":
        return {"roots": [{"uri": "file:///home"}]}
    if question["params"].get("mode") == "url":
        return {"action": "accept"}
    schema = question["params"]["requestedSchema"]
    ((name, field),) = schema["properties"].items()
    value = ["s", "l"] if field["type"] == "array" else "Ann"
    return {"action": "accept", "content": {name: value}}


class Raw:
    """A client of one era.

    Attributes:
        asked: What it was asked, by requests of the server or in results.
        requested: The requests that the server sent.
        told: The notifications that came.
    """

    def __init__(
        self, carrier: Carrier, era: str, capabilities: Mapping[str, Any] = EVERYTHING
    ) -> None:
        self.era = era
        self.asked: list[Wire] = []
        self.requested: list[Wire] = []
        self.told: list[Wire] = []
        self._carrier = carrier
        self._capabilities = dict(capabilities)
        self._ids = itertools.count(1)
        if era != MODERN:
            self._shake()

    def _shake(self) -> None:
        params = {
            "protocolVersion": self.era,
            "capabilities": self._capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        welcome = self._send("initialize", params)
        assert welcome["protocolVersion"] == self.era
        self._carrier.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str) -> Wire:
        """The result of a tool, after all questions are answered."""
        params: Wire = {"name": tool, "arguments": {}}
        while True:
            result = self._send("tools/call", params)
            name = "result_type" if self.era == DRAFT else "resultType"
            if result.get(name) not in ("incomplete", "input_required"):
                return result
            questions = result.get("inputRequests", {})
            self.asked += questions.values()
            params = {
                "name": tool,
                "arguments": {},
                "inputResponses": {key: answer(one) for key, one in questions.items()},
                "requestState": result["requestState"],
            }

    def _send(self, method: str, params: Wire) -> Wire:
        meta: Wire = {"progressToken": "p"}
        if self.era == MODERN:
            meta["io.modelcontextprotocol/protocolVersion"] = MODERN
            meta["io.modelcontextprotocol/clientCapabilities"] = self._capabilities
        id_ = next(self._ids)
        message = {
            "jsonrpc": "2.0",
            "id": id_,
            "method": method,
            "params": {**params, "_meta": meta},
        }
        for came in self._carrier.ask(message):
            if "method" not in came:
                assert came["id"] == id_
                if "error" in came:
                    raise RawError(came["error"]["code"], came["error"]["message"])
                result: Wire = came["result"]
                return result
            if "id" not in came:
                self.told.append(came)
                continue
            self.requested.append(came)
            self.asked.append(came)
            reply = {"jsonrpc": "2.0", "id": came["id"], "result": answer(came)}
            self._carrier.tell(reply)
        raise AssertionError("it ended without a response")


# ---- carriers -----------------------------------------------------------------------


class _Http:
    def __init__(self, url: str, era: str) -> None:
        parts = urlsplit(url)
        self._address = parts.netloc
        self._path = parts.path
        self._era = era
        self._session: str | None = None

    def ask(self, message: Wire) -> Iterator[Wire]:
        connection, response = self._post(message)
        try:
            assert response.status in (200, 400), response.status
            self._session = response.getheader("Mcp-Session-Id", self._session)
            if response.getheader("Content-Type") == "application/json":
                yield json.loads(response.read())
                return
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "data" and value:
                    yield json.loads(value)
        finally:
            connection.close()

    def tell(self, message: Wire) -> None:
        connection, response = self._post(message)
        assert response.status == 202, response.status
        connection.close()

    def end(self) -> None:
        if self._session is not None:
            connection = HTTPConnection(self._address, timeout=30)
            connection.request("DELETE", self._path, headers=self._headers())
            assert connection.getresponse().status == 204
            connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {}
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
            if self._era != "2025-03-26":  # which had no such header
                headers["MCP-Protocol-Version"] = self._era
        return headers

    def _post(self, message: Wire) -> tuple[HTTPConnection, HTTPResponse]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self._headers(),
        }
        if self._era == MODERN:
            headers["MCP-Protocol-Version"] = MODERN
            headers["Mcp-Method"] = message["method"]
            headers["Mcp-Name"] = message["params"]["name"]
        connection = HTTPConnection(self._address, timeout=30)
        connection.request("POST", self._path, json.dumps(message), headers)
        return connection, connection.getresponse()


@contextmanager
def over_http(url: str, era: str, capabilities: Mapping[str, Any]) -> Iterator[Raw]:
    """A client of a URL."""
    carrier = _Http(url, era)
    yield Raw(carrier, era, capabilities)
    carrier.end()


class _Pipes:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, message: Wire) -> Iterator[Wire]:
        self.tell(message)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def tell(self, message: Wire) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()


@contextmanager
def over_pipes(
    command: list[str],
    env: Mapping[str, str],
    era: str,
    capabilities: Mapping[str, Any],
) -> Iterator[Raw]:
    """A client of a command."""
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        # So that what hangs is a failure.
        killer = threading.Timer(30, process.kill)
        killer.start()
        try:
            yield Raw(_Pipes(process), era, capabilities)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait() == 0
        finally:
            killer.cancel()
            process.kill()
