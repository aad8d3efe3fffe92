"""A small HTTP client on trio: one connection, whose responses may be read late or never."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import trio
from attrs import frozen

from ..transports.era import headers_for
from ..transports.shop import headers_of

__all__ = ["BROKEN", "Broken", "Line", "Response", "legacy", "modern"]

#: `IP_BIND_ADDRESS_NO_PORT` of Linux: choose the port when connecting, so that each source
#: address has all ports for each destination.
_NO_PORT: Final = 24


class Broken(Exception):
    """Raised when a connection ends before the response is complete.

    Attributes:
        received: The number of bytes of the response that have arrived.
    """

    def __init__(self, received: int) -> None:
        super().__init__(f"the connection ended after {received} bytes of the response")
        self.received = received


#: The errors of a connection that the server refused, closed or reset.
BROKEN: Final = (Broken, OSError, trio.BrokenResourceError)


@frozen
class Response:
    """A whole response.

    Attributes:
        status: Its status.
        headers: Its headers, by lower-cased name.
        body: Its body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def messages(self) -> list[Any]:
        """The messages of the body: one JSON object, or the events of a stream."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return [json.loads(self.body)]
        *blocks, _ = self.body.replace(b"\r\n", b"\n").split(b"\n\n")
        return [one for one in map(_message_of, blocks) if one is not None]


def _message_of(block: bytes) -> Any:
    """Return the message of an event; `None` for a comment."""
    for line in block.split(b"\n"):
        name, _, data = line.partition(b":")
        if name == b"data" and data.strip():
            return json.loads(data)
    return None


def modern(message: Any, port: int, **more: str) -> bytes:
    """Return the bytes of a request of 2026-07-28."""
    return _request(message, headers_of(message, host=f"localhost:{port}", **more))


def legacy(
    message: Any, port: int, session: str | None = None, method: str = "POST"
) -> bytes:
    """Return the bytes of a request of 2025-11-25; without a body if `message` is `None`."""
    version = "2025-11-25" if session else None
    headers = headers_for(session, version, host=f"localhost:{port}")
    return _request(message, headers, method)


def _request(message: Any, headers: Mapping[str, str], method: str = "POST") -> bytes:
    body = b"" if message is None else json.dumps(message).encode()
    fields = {**headers, "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


class Line:
    """A connection to a server on this machine."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        #: Whether the server announced that it closes the connection.
        self.closes = False
        self._buffer = bytearray()
        self._received = 0

    @classmethod
    async def open(
        cls, port: int, source: str = "127.0.0.1", *, buffer: int | None = None
    ) -> Line:
        """Connect.

        Args:
            port: The server's port.
            source: The address to connect from.
            buffer: The size of the receive buffer, to be small if nothing will be read.

        Raises:
            OSError: If the server does not accept the connection.
        """
        raw = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            raw.setsockopt(socket.IPPROTO_IP, _NO_PORT, 1)
            if buffer is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            await raw.bind((source, 0))
            await raw.connect(("127.0.0.1", port))
        except BaseException:
            raw.close()
            raise
        return cls(trio.SocketStream(raw))

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await trio.aclose_forcefully(self.stream)

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        await self.stream.send_all(data)

    async def ask(self, request: bytes) -> Response:
        """Send a request, and read the whole response.

        Raises:
            Broken: If the connection ends first; or another error of `BROKEN`.
        """
        self._received = len(self._buffer)
        await self.send(request)
        return await self.response()

    async def response(self) -> Response:
        """Read a whole response."""
        status, headers = await self.head()
        parts = [part async for part in self._parts(status, headers)]
        return Response(status, headers, b"".join(parts))

    async def messages(self, headers: Mapping[str, str]) -> AsyncIterator[Any]:
        """Yield the messages of a response whose head was read, as they arrive."""
        if not headers.get("content-type", "").startswith("text/event-stream"):
            parts = [part async for part in self._parts(200, headers)]
            yield json.loads(b"".join(parts))
            return
        data = b""
        async with aclosing(self._parts(200, headers)) as parts_of:
            async for part in parts_of:
                data = (data + part).replace(b"\r\n", b"\n")
                *blocks, data = data.split(b"\n\n")
                for block in blocks:
                    message = _message_of(block)
                    if message is not None:
                        yield message

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read the head of a response: its status, and its headers by lower-cased name."""
        while True:
            text = (await self._until(b"\r\n\r\n")).decode("latin-1")
            first, *lines = text.split("\r\n")
            status = int(first.split(" ")[1])
            if status != 100:
                break
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        is_old = first.startswith("HTTP/1.0")
        self.closes = is_old or headers.get("connection", "").lower() == "close"
        return status, headers

    async def _parts(self, status: int, headers: Mapping[str, str]) -> Any:
        if status in (202, 204) and "transfer-encoding" not in headers:
            yield await self._exactly(int(headers.get("content-length", 0)))
        elif "content-length" in headers:
            yield await self._exactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            while size := int(await self._until(b"\r\n"), 16):
                yield (await self._exactly(size + 2))[:size]
            await self._exactly(2)
        else:
            self.closes = True
            yield bytes(self._buffer)
            self._buffer.clear()
            while await self._more():
                yield bytes(self._buffer)
                self._buffer.clear()

    async def _more(self) -> bool:
        data = await self.stream.receive_some(256 * 1024)
        self._received += len(data)
        self._buffer += data
        return bool(data)

    async def _until(self, end: bytes) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            if not await self._more():
                raise Broken(self._received)
        found = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return found

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not await self._more():
                raise Broken(self._received)
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    def peek(self) -> bytes | None:
        """Return the first received bytes without reading them; `None` if there are not any."""
        number = self.stream.socket.fileno()
        with socket.socket(fileno=number) as raw:
            try:
                return raw.recv(100, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError:
                return b""
            finally:
                raw.detach()

    async def readable(self, seconds: float = math.inf) -> bool:
        """Wait until something has arrived, or the connection has ended."""
        with trio.move_on_after(seconds) as scope:
            await trio.lowlevel.wait_readable(self.stream.socket.fileno())
        return not scope.cancelled_caught
