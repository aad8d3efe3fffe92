"""A client on the Python SDK that logs in, and does what each line of its input says.

python python_client.py SETUP URL
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from mcp.types import ElicitResult
from pydantic import AnyUrl


class Callback(BaseHTTPRequestHandler):
    """The page that a login returns to."""

    returned: ClassVar[SimpleQueue[dict[str, str]]] = SimpleQueue()

    def do_GET(self) -> None:
        """Keep the answer; a browser also asks for an icon."""
        parts = urlsplit(self.path)
        if parts.path == "/callback":
            query = parse_qs(parts.query)
            self.returned.put({name: values[0] for name, values in query.items()})
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the URL has the code."""


class Kept:
    """Keeps tokens as long as the process."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:
        """Return the tokens."""
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        """Keep tokens."""
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        """Return the registered client."""
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        """Keep a registered client."""
        self._client = client_info


def say(**message: Any) -> None:
    """Print a message for the test."""
    print(json.dumps(message), flush=True)


async def main(setup: Any, url: str) -> None:
    """Make the requests, one after the other."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Callback)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    async def show(page: str) -> None:
        say(visit=page)

    async def wait() -> AuthorizationCodeResult:
        found = await anyio.to_thread.run_sync(Callback.returned.get)
        return AuthorizationCodeResult.model_validate(found)

    async def elicit(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": "red"})

    metadata = OAuthClientMetadata(
        client_name="Python SDK",
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{server.server_port}/callback")],
        token_endpoint_auth_method="none",
    )
    login = OAuthClientProvider(url, metadata, Kept(), show, wait)
    async with (
        create_mcp_http_client(auth=login) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode="legacy" if setup["legacy"] else "auto",
            elicitation_callback=elicit,
        ) as client,
    ):
        async for line in anyio.wrap_file(sys.stdin):
            wanted = json.loads(line)
            try:
                if wanted["do"] == "tools":
                    found = [one.name for one in (await client.list_tools()).tools]
                    say(value=found)
                else:
                    result = await client.call_tool(wanted["tool"], wanted["arguments"])
                    (block,) = result.content
                    say(value=block.text if block.type == "text" else None)
            except MCPError as exc:
                say(error=str(exc))


if __name__ == "__main__":
    anyio.run(main, json.loads(sys.argv[1]), sys.argv[2])
