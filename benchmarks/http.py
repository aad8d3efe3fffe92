"""Measure the cost of a round over HTTP, and how much of it is HTTP.

Two servers have the same conversation. One round of it is repeated: a request with a
state of three answers and one more answer, which gets another question. One server is
effectmcp's. The other is written by hand for this one tool, on trio and h11, and does the
same JSON and HMAC work: it reads the request, verifies its state and the call that the
state belongs to, reads the earlier answers, adds an answer, seals the state, and writes
the same question. Both answer over loopback, keep the connection alive, and count the CPU
time of their own process; a client in another process asks them in turns.

More servers show where the time goes: effectmcp with states that are signed but not
encrypted, like the states of the handwritten server; effectmcp's transport, with the
handwritten code in place of the exchange; and a server on trio and h11 that reads and
computes nothing, which shows what the handwritten server pays for HTTP. And both on
asyncio, where uvicorn does HTTP: effectmcp, and a server that computes nothing.

    python -m benchmarks.http
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import multiprocessing
import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from multiprocessing.connection import Connection
from operator import truediv
from typing import Any

import h11
import trio
import uvicorn

from effectmcp import Elicit, Flow
from effectmcp.drivers import trio as on_trio
from effectmcp.exchange.commands import Peer, Reply
from effectmcp.server import Server
from effectmcp.state import Keys, make_key
from effectmcp.transports import http, on_uvicorn
from effectmcp.transports.sockets import bind

KEY = bytes(range(32))
REQUESTS = 100
TURNS = 100
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
NAMES = ("Ann", "Bob", "Cid", "Dee")


def shop(*, readable: bool = False) -> Server:
    app = Server("bookshop", keys=Keys(make_key(KEY), readable=readable))

    @app.tool
    def order(title: str, copies: int) -> Flow[str]:
        """Order books, one guest after the other."""
        names = []
        for number in range(copies):
            names.append((yield from Elicit(f"Who is guest number {number}?", str)))
        return f"{title} for {names}"

    return app


# ---- the two servers ----------------------------------------------------------------


async def serve_ours(listener: trio.SocketListener, *, readable: bool = False) -> None:
    await http.serve(shop(readable=readable), listeners=[listener])


def by_hand(body: bytes) -> dict[str, Any]:
    """A round of `order`, handwritten for a server that has no other tool.

    It checks only that this server signed the state, and that it is for this call.
    """
    asked = json.loads(body)
    params = asked["params"]
    arguments = params["arguments"]
    call = json.dumps([params["name"], arguments], sort_keys=True).encode()
    bound = hmac.digest(KEY, call, "sha256").hex()
    state: dict[str, Any] = {"call": bound, "answers": []}
    if "requestState" in params:
        text, _, given = params["requestState"].encode().partition(b".")
        mac = hmac.digest(KEY, text, "sha256")
        if not hmac.compare_digest(mac, base64.urlsafe_b64decode(given)):
            raise ValueError("forged")
        state = json.loads(base64.urlsafe_b64decode(text))
        if state["call"] != bound or state["expires"] < time.time():
            raise ValueError("of another call, or expired")
        (answer,) = params["inputResponses"].values()
        state["answers"].append(answer["content"]["value"])
    state["expires"] = int(time.time()) + 3600
    text = base64.urlsafe_b64encode(json.dumps(state).encode())
    mac = base64.urlsafe_b64encode(hmac.digest(KEY, text, "sha256"))
    number = len(state["answers"])
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    question = {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": f"Who is guest number {number}?",
            "requestedSchema": {**schema, "required": ["value"]},
        },
    }
    result = {
        "resultType": "input_required",
        "inputRequests": {f"elicit-{number + 1}": question},
        "requestState": (text + b"." + mac).decode(),
        "_meta": {
            "io.modelcontextprotocol/serverInfo": {"name": "bookshop", "version": "0"}
        },
    }
    return {"jsonrpc": "2.0", "id": asked["id"], "result": result}


async def serve_transport(listener: trio.SocketListener) -> None:
    def begin(app: Server, body: bytes, peer: Peer) -> Reply:
        return Reply(by_hand(body))

    vars(on_trio)["begin"] = begin
    await http.serve(shop(), listeners=[listener])


async def serve_bare(
    listener: trio.SocketListener, answer: Callable[[bytes], bytes]
) -> None:
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
            body = answer(b"".join(parts))
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


async def serve_on_asyncio(sock: socket.socket) -> None:
    await on_uvicorn.serve(shop(), [sock], shutdown=asyncio.Event())


async def nothing_on_asyncio(sock: socket.socket) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        body = write_nothing(b"")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(answer, http="h11", lifespan="off", log_level="error")
    await uvicorn.Server(config).serve([sock])


def process(
    serve: Callable[[Any], Coroutine[Any, Any, None]],
    sock: socket.socket,
    pipe: Connection,
) -> None:
    """Serve, and report the CPU time so far on request."""

    def tell() -> None:
        while pipe.recv() is not None:
            pipe.send(time.process_time())
        os._exit(0)

    async def on_trio() -> None:
        await serve(trio.SocketListener(trio.socket.from_stdlib_socket(sock)))

    threading.Thread(target=tell, daemon=True).start()
    if serve in (serve_on_asyncio, nothing_on_asyncio):
        asyncio.run(serve(sock))
    else:
        trio.run(on_trio)


# ---- the client ---------------------------------------------------------------------


class Asker:
    """A server in another process, and a connection to it."""

    def __init__(self, serve: Callable[[Any], Any]) -> None:
        # Not `socket.create_server`: asyncio would not know that its connections are TCP,
        # and leave Nagle's algorithm on.
        (sock,) = bind("127.0.0.1", 0, shared=False)
        with sock:
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
        """Return the CPU time per request, over one turn."""
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


def round_with_answers(server: Asker, count: int) -> bytes:
    """Return a request whose state has `count` answers, with one more answer beside it."""
    data = post()
    for name in NAMES[: count + 1]:
        result = json.loads(server.ask(data))["result"]
        (key,) = result["inputRequests"]
        answer = {"action": "accept", "content": {"value": name}}
        data = post(requestState=result["requestState"], inputResponses={key: answer})
    return data


def write_by_hand(body: bytes) -> bytes:
    return json.dumps(by_hand(body)).encode()


def write_nothing(body: bytes) -> bytes:
    return b"x" * 792


def in_turns(
    servers: dict[str, Asker], requests: dict[str, bytes]
) -> dict[str, list[float]]:
    """Return the CPU times per request of each server, turn by turn; close the servers."""
    for name, server in servers.items():
        server.microseconds(requests[name])  # warm
    times: dict[str, list[float]] = {name: [] for name in servers}
    # In random order, as each server finds the caches as the previous one left them.
    chance = random.Random(0)
    order = list(servers.items())
    for _ in range(TURNS):
        chance.shuffle(order)
        for name, server in order:
            times[name].append(server.microseconds(requests[name]))
    for server in servers.values():
        server.close()
    return times


def main() -> None:
    ours = "effectmcp"
    bare = "by hand, on trio and h11"
    servers = {
        ours: Asker(serve_ours),
        "effectmcp, readable states": Asker(partial(serve_ours, readable=True)),
        "effectmcp, on asyncio": Asker(serve_on_asyncio),
        "by hand, our transport": Asker(serve_transport),
        bare: Asker(partial(serve_bare, answer=write_by_hand)),
    }
    requests = {name: round_with_answers(one, 3) for name, one in servers.items()}
    nothing = "nothing, on trio and h11"
    servers[nothing] = Asker(partial(serve_bare, answer=write_nothing))
    nothing_either = "nothing, on uvicorn"
    servers[nothing_either] = Asker(nothing_on_asyncio)
    requests[nothing] = requests[nothing_either] = requests[ours]
    sizes = {name: len(one.ask(requests[name])) for name, one in servers.items()}
    times = in_turns(servers, requests)
    # Other load on the machine slows down the server that is running, so compare only
    # times of the same turn.
    ratios = {
        name: statistics.median(map(truediv, found, times[bare]))
        for name, found in times.items()
    }
    print(
        f"{'':26} {'request':>8} {'answer':>7} {'best µs':>8} {'median':>7} {'ratio':>6}"
    )
    for name, found in times.items():
        print(
            f"{name:26} {len(requests[name]):8,} {sizes[name]:7,} {min(found):8.1f}"
            f" {statistics.median(found):7.1f} {ratios[name]:6.2f}"
        )
    print(
        json.dumps(
            {
                "benchmark": "http",
                "us": {name: round(min(one), 1) for name, one in times.items()},
                "ratio": round(ratios[ours], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
