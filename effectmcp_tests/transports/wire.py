"""A client that writes bytes and reads responses, over any stream."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen

from effectmcp.server import Server
from effectmcp.transports import http
from effectmcp.transports.http import Limits

from .shop import JSON, headers_of

Stream = trio.abc.Stream


@frozen
class Got:
    """A response, or the part of it that was read."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def json(self) -> JSON:
        assert self.headers["content-type"] == "application/json"
        assert b"\n" not in self.body
        return json.loads(self.body)


@define(eq=False)
class Client:
    """One connection, from its other end."""

    stream: Stream
    http_version: str = "1.1"
    _buffer: bytearray = field(factory=bytearray)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await trio.aclose_forcefully(self.stream)

    def close(self) -> None:
        """Close the socket at once."""
        assert isinstance(self.stream, trio.SocketStream)
        self.stream.socket.close()

    # ---- out ----

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def post(self, message: JSON, **headers: str) -> None:
        await self.send(post(message, http_version=self.http_version, **headers))

    async def ask(self, message: JSON, **headers: str) -> Got:
        await self.post(message, **headers)
        return await self.answer()

    # ---- in ----

    async def more(self) -> bool:
        data = await self.stream.receive_some()
        self._buffer += data
        return bool(data)

    async def until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            assert await self.more(), f"it ended with {bytes(self._buffer)!r}"
        found, _, rest = self._buffer.partition(end)
        self._buffer = rest
        return bytes(found)

    async def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            assert await self.more(), f"it ended with {bytes(self._buffer)!r}"
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def rest(self) -> bytes:
        """Return everything received until the connection is closed."""
        while await self.more():
            pass
        found, self._buffer = bytes(self._buffer), bytearray()
        return found

    async def head(self) -> Got:
        """Read the head of a response, which declares how its body is delimited."""
        first, *lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, line
            headers[name.lower()] = value
        return Got(int(status), headers)

    async def answer(self, *, to: str = "POST") -> Got:
        """A whole answer."""
        got = await self.head()
        if to == "HEAD" or got.status in (100, 204):
            return got
        if "content-length" in got.headers:
            assert "transfer-encoding" not in got.headers
            body = await self.exactly(int(got.headers["content-length"]))
        elif "transfer-encoding" in got.headers:
            body = b"".join([chunk async for chunk in self.chunks()])
        else:
            assert got.headers["connection"] == "close"
            body = await self.rest()
        return Got(got.status, got.headers, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.until(b"\r\n"), 16):
            yield await self.exactly(size)
            assert await self.exactly(2) == b"\r\n"
        assert await self.exactly(2) == b"\r\n"

    async def chunk(self) -> bytes:
        """The next chunk, which holds one event."""
        size = int(await self.until(b"\r\n"), 16)
        return (await self.exactly(size + 2))[:size]

    async def message(self) -> JSON:
        """The next event of a stream."""
        first, second = (await self.chunk()).removesuffix(b"\n\n").split(b"\n")
        assert first == b"event: message"
        return json.loads(second.removeprefix(b"data: "))

    async def is_closed(self) -> bool:
        """Return whether the connection has ended; waits until that is known."""
        return not self._buffer and await self.rest() == b""


def post(message: JSON, *, http_version: str = "1.1", **headers: str) -> bytes:
    """The bytes of a POST; `headers` with `_` for `-`, empty ones left out."""
    if isinstance(message, bytes):
        body, known = message, {"host": "a", "content-type": "application/json"}
    else:
        body, known = json.dumps(message).encode(), headers_of(message)
    fields = {
        **known,
        "content-length": str(len(body)),
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value]
    return f"POST /mcp HTTP/{http_version}\r\n{''.join(lines)}\r\n".encode() + body


class Doors(trio.abc.Listener[Stream]):
    """A listener in memory."""

    def __init__(self) -> None:
        self._knock, self._knocks = trio.open_memory_channel[Stream](math.inf)

    async def accept(self) -> Stream:
        try:
            return await self._knocks.receive()
        except trio.ClosedResourceError:
            raise trio.ClosedResourceError from None

    async def aclose(self) -> None:
        self._knocks.close()
        await trio.lowlevel.checkpoint()

    def connect(self, *, slow: bool = False, **options: Any) -> Client:
        """A new connection; where `slow`, nothing is sent before it is being read."""
        make = (
            trio.testing.lockstep_stream_pair
            if slow
            else trio.testing.memory_stream_pair
        )
        ours, theirs = make()
        self._knock.send_nowait(theirs)
        return Client(ours, **options)


@asynccontextmanager
async def serving(
    app: Server, limits: Limits | None = None, **options: Any
) -> AsyncIterator[Doors]:
    """`app` behind doors in memory, until the block ends: then all must be over."""
    doors = Doors()
    options = {"limits": limits or Limits(), "listeners": [doors], **options}
    with trio.fail_after(600):  # by the test's clock, which jumps
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(http.serve, app, **options))
            yield doors
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def listening(app: Server, **options: Any) -> AsyncIterator[tuple[str, int]]:
    """`app` on a real socket."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                partial(http.serve, app, **{"port": 0, **options})
            )
            listener = listeners[0]
            if isinstance(listener, trio.SSLListener):
                listener = listener.transport_listener
            yield listener.socket.getsockname()[:2]
            nursery.cancel_scope.cancel()
