"""What does a round cost over HTTP, and how much of it is HTTP?

The same request to two servers: a round of a conversation that brings its state and an
answer, and asks again. Its state has three answers. One server is effectmcp's; the other
is the least that could answer on trio and h11: it reads the request, parses the JSON,
computes one HMAC-SHA-256 over the state, and writes JSON of the same size. Both answer
over loopback, keep the connection alive, and count the CPU time of their own process; a
client in another process asks them in turns.

A third one tells where the time goes: effectmcp's transport, with what the second one
does in place of the exchange.

    python -m benchmarks.http
"""

from __future__ import annotations

import hashlib
import hmac
import json
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import h11
import trio

from effectmcp import Elicit, Flow
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.server import Server
from effectmcp.state import Keys, make_key
from effectmcp.transports import connection, http

REQUESTS = 500
TURNS = 20
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
NAMES = ("Ann", "Bob", "Cid", "Dee")


def shop() -> Server:
    app = Server("bookshop", keys=Keys(make_key(bytes(range(32)))))

    @app.tool
    def order(title: str, copies: int) -> Flow[str]:
        """Order books, one guest after the other."""
        names = []
        for number in range(copies):
            names.append((yield from Elicit(f"Who is guest number {number}?", str)))
        return f"{title} for {names}"

    return app


# ---- the two servers ----------------------------------------------------------------


async def serve_ours(listener: trio.SocketListener) -> None:
    await http.serve(shop(), listeners=[listener])


def answer_of(body: bytes, key: bytes) -> dict[str, Any]:
    """What the least of all servers says."""
    asked = json.loads(body)
    state = asked["params"]["requestState"]
    sign = hmac.new(key, state.encode(), hashlib.sha256).hexdigest()
    return {"jsonrpc": "2.0", "id": asked["id"], "result": {"state": sign}}


async def serve_transport(listener: trio.SocketListener, size: int) -> None:
    key = bytes(range(32))

    def begin(app: Server, body: bytes, peer: Peer) -> Reply:
        made = answer_of(body, key)
        made["pad"] = "x" * (size - len(json.dumps(made)) - 10)
        return Reply(made)

    vars(connection)["begin"] = begin
    await http.serve(shop(), listeners=[listener])


async def serve_bare(listener: trio.SocketListener, size: int) -> None:
    key = bytes(range(32))

    async def connected(stream: trio.SocketStream) -> None:
        conn = h11.Connection(h11.SERVER)
        while True:
            parts = []
            while True:
                event = conn.next_event()
                if event is h11.NEED_DATA:
                    conn.receive_data(bytes(await stream.receive_some()))
                elif isinstance(event, h11.Data):
                    parts.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    return
            made = answer_of(b"".join(parts), key)
            body = json.dumps(made).encode().ljust(size)
            headers = [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
            ]
            data = conn.send(h11.Response(status_code=200, headers=headers)) or b""
            data += conn.send(h11.Data(data=body)) or b""
            data += conn.send(h11.EndOfMessage()) or b""
            await stream.send_all(data)
            conn.start_next_cycle()

    await trio.serve_listeners(connected, [listener])


def process(
    serve: Callable[[trio.SocketListener], Any], sock: socket.socket, pipe: Connection
) -> None:
    """Serve, and tell the CPU time so far whenever asked for it."""

    async def tell() -> None:
        while True:
            await trio.lowlevel.wait_readable(pipe.fileno())
            if pipe.recv() is None:
                raise SystemExit
            pipe.send(time.process_time())

    async def main() -> None:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, listener)
            nursery.start_soon(tell)

    try:
        trio.run(main)
    except* SystemExit:
        pass


# ---- the client ---------------------------------------------------------------------


class Asker:
    """A server in its process, and a connection to it."""

    def __init__(self, serve: Callable[[trio.SocketListener], Any]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.pipe, theirs = multiprocessing.Pipe()
            self.process = multiprocessing.get_context("fork").Process(
                target=process, args=(serve, sock, theirs), daemon=True
            )
            self.process.start()
            self.sock = socket.create_connection(sock.getsockname())
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, data: bytes) -> Any:
        self.sock.sendall(data)
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.sock.recv(65536)
        head, _, body = got.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += self.sock.recv(65536)
        assert head.startswith(b"HTTP/1.1 200"), body
        return body

    def cpu(self) -> float:
        self.pipe.send(True)
        seconds: float = self.pipe.recv()
        return seconds

    def microseconds(self, data: bytes) -> float:
        """CPU time a request, over a turn of them."""
        before = self.cpu()
        for _ in range(REQUESTS):
            self.ask(data)
        return (self.cpu() - before) / REQUESTS * 1e6

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()


def post(**params: Any) -> bytes:
    arguments = {"title": "The Left Hand of Darkness", "copies": 9}
    params = {"name": "order", "arguments": arguments, **params, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    body = json.dumps(message).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost:8000\r\nUser-Agent: benchmark/1.0\r\n"
        "Accept: application/json, text/event-stream\r\nAccept-Encoding: gzip\r\n"
        "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: order\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


def round_with_answers(ours: Asker, count: int) -> tuple[bytes, int]:
    """The request whose state has `count` answers, with one more beside it."""
    data = post()
    for name in NAMES[: count + 1]:
        result = json.loads(ours.ask(data))["result"]
        (key,) = result["inputRequests"]
        answer = {"action": "accept", "content": {"value": name}}
        data = post(requestState=result["requestState"], inputResponses={key: answer})
    return data, len(ours.ask(data))


def main() -> None:
    ours = Asker(serve_ours)
    data, size = round_with_answers(ours, 3)
    servers = {
        "effectmcp": ours,
        "its transport": Asker(partial(serve_transport, size=size)),
        "trio, h11, json, hmac": Asker(partial(serve_bare, size=size)),
    }
    for server in servers.values():
        server.microseconds(data)  # warm
    times: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(TURNS):
        for name, server in servers.items():
            times[name].append(server.microseconds(data))
    for server in servers.values():
        server.close()
    best = {name: min(found) for name, found in times.items()}
    bare = best["trio, h11, json, hmac"]
    print(f"a request of {len(data):,} bytes, an answer of {size:,}\n")
    print(f"{'CPU µs a request':24} {'best':>8} {'median':>8} {'ratio':>6}")
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:24} {best[name]:8.1f} {middle:8.1f} {best[name] / bare:6.2f}")
    print(
        json.dumps(
            {
                "benchmark": "http",
                "us": {name: round(one, 1) for name, one in best.items()},
                "ratio": round(best["effectmcp"] / bare, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
