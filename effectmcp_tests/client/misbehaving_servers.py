"""Servers that misbehave: bytes over HTTP, and commands that write what they like."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import h11
from anyio.abc import SocketStream
from attrs import frozen

from effectmcp.client import OverPipes

JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream"


@frozen
class Asked:
    """A request.

    Attributes:
        message: Its body; without one it is empty.
        headers: By lower-cased name.
        stream: The connection, to be written to and closed.
        http_method: `POST`, or another.
    """

    message: Mapping[str, Any]
    headers: Mapping[str, str]
    stream: SocketStream
    http_method: str = "POST"

    async def write(
        self, body: bytes, type_: str = JSON_TYPE, status: int = 200, *more: str
    ) -> None:
        """Respond without a declared length: the body ends with the connection."""
        head = [f"HTTP/1.1 {status} -", f"Content-Type: {type_}", "Connection: close"]
        text = "\r\n".join([*head, *more, "", ""])
        await self.stream.send(text.encode() + body)

    def response(self, **fields: Any) -> dict[str, Any]:
        """The message that answers it."""
        return {"jsonrpc": "2.0", "id": self.message["id"], **fields}


Answer = Callable[[Asked], Awaitable[None]]


@asynccontextmanager
async def http_server(answer: Answer) -> AsyncIterator[str]:
    """An HTTP server that does to each request what `answer` does. Gives its URL."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            connection = h11.Connection(h11.SERVER)
            body, headers, method = b"", {}, ""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    try:
                        connection.receive_data(await stream.receive())
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                elif isinstance(event, h11.Request):
                    headers = {k.decode(): v.decode() for k, v in event.headers}
                    method = event.method.decode()
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            # The client may be gone before all is written.
            try:
                message = json.loads(body or b"{}")
                await answer(Asked(message, headers, stream, method))
            except anyio.BrokenResourceError:
                pass

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{port}/mcp"
        group.cancel_scope.cancel()


def event(message: Any) -> bytes:
    """An event of a stream."""
    return b"data: " + json.dumps(message).encode() + b"\n\n"


#: What scripts can use: the requests as they come, and a way to answer.
_PRELUDE = """
import json, os, sys, time
def lines():
    for line in sys.stdin.buffer:
        yield json.loads(line)
def write(data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    os.write(1, data + b"\\n")
def reply(message, **fields):
    write({"jsonrpc": "2.0", "id": message["id"], **fields})
def done(message, **fields):
    reply(message, result={"resultType": "complete", **fields})
"""


def command(script: str) -> OverPipes:
    """A command that runs `script`."""
    channel = OverPipes([sys.executable, "-I", "-S", "-c", _PRELUDE + script])
    channel.probes = False  # what it reads first is what the test sends
    return channel
