"""Serve programs on the same machine over a Unix socket, with one message per line.

    python examples/embed_unix_socket.py [PATH]

Several requests may be under way on one connection, so a client cancels them by id:
`{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}`.
When a client disconnects, all of its requests are cancelled.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import AsyncIterator

import trio
from bookshop import app

from effectmcp import Flow, Progress, Step
from effectmcp.drivers.trio import running
from effectmcp.exchange.commands import Peer
from effectmcp.transports.default_keys import ensure_keys
from effectmcp.transports.lines import Splitter, TooLong, serve_lines


@app.tool
def restock(title: str) -> Flow[str]:
    """Wait for a book to arrive."""
    for day in range(30):
        yield from Progress(day, 30, f"no {title} yet")
        yield from Step(trio.sleep, 1)
    return "It is here."


async def connected(stream: trio.SocketStream) -> None:
    """Serve one connection."""
    peer = Peer(principal=user_of(stream))
    # The server keeps running for its other connections.
    await serve_lines(app, lines(stream), stream.send_all, peer=peer, is_alone=False)


async def lines(stream: trio.SocketStream) -> AsyncIterator[bytes | TooLong]:
    splitter = Splitter(4 * 1024 * 1024)
    try:
        async for data in stream:
            for line in splitter.feed(bytes(data)):
                yield line
    except trio.BrokenResourceError:
        return  # the client disconnected early


def user_of(stream: trio.SocketStream) -> str | None:
    """Return the user who runs the client program, which Linux reports."""
    if sys.platform != "linux":
        return None
    raw = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("3i", raw)
    return f"uid {uid}"


async def main(bound: socket.socket) -> None:
    # This is the only process, so a random key is enough to seal states.
    ensure_keys(app, is_alone=True)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    async with running(app):
        await trio.serve_listeners(connected, [listener])


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "bookshop.sock"
    os.umask(0o177)  # so that only this user can ever open the socket
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path)
        try:
            bound.listen()
            print(f"listening on {path}", flush=True)
            trio.run(main, bound)
        except* KeyboardInterrupt:
            pass
        finally:
            os.unlink(path)
