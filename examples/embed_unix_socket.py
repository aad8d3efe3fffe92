"""On a Unix socket, for programs on the same machine: one message a line.

    python examples/embed_unix_socket.py [PATH]

Several requests may be under way on one connection, so they are given up by name:
`{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}`.
Whoever hangs up gives up all of theirs.
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
from effectmcp.transports.keys import ensure_keys
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
    # Other connections are served, too, so the server does not end with this one.
    await serve_lines(app, lines(stream), stream.send_all, peer=peer, is_alone=False)


async def lines(stream: trio.SocketStream) -> AsyncIterator[bytes | TooLong]:
    splitter = Splitter(4 * 1024 * 1024)
    try:
        async for data in stream:
            for line in splitter.feed(bytes(data)):
                yield line
    except trio.BrokenResourceError:
        return  # it hung up in the middle


def user_of(stream: trio.SocketStream) -> str | None:
    """The user who runs the other program: on Linux, the kernel knows."""
    if sys.platform != "linux":
        return None
    raw = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("3i", raw)
    return f"uid {uid}"


async def main(bound: socket.socket) -> None:
    # This is the only process, so a key of its own is enough to seal states with.
    ensure_keys(app, is_alone=True)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(bound))
    async with running(app):
        await trio.serve_listeners(connected, [listener])


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "bookshop.sock"
    os.umask(0o177)  # from its first moment on, the socket is for this user only
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
