"""HTTP on asyncio: idle connections, sessions, and the end of the server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from effectmcp import Elicit, Flow, Server, UsageError
from effectmcp.client import Client, OverHttp
from effectmcp.drivers import asyncio as asyncio_driver
from effectmcp.drivers.loops import run
from effectmcp.server.loop_name import LOOPS
from effectmcp.transports import on_uvicorn
from effectmcp.transports.connection import Limits
from effectmcp.transports.program import serve_http
from effectmcp.transports.sockets import bind

from .shop import KEYS, request


def shop(ended: list[str] | None = None) -> Server:
    app = Server("shop", keys=KEYS, loop="asyncio")

    @app.tool
    def order(title: str) -> Flow[str]:
        try:
            return f"{title} for {yield from Elicit('Who?', str)}"
        finally:
            if ended is not None:
                ended.append(title)

    return app


@asynccontextmanager
async def serving(
    app: Server, **limits: Any
) -> AsyncIterator[tuple[str, asyncio.Event]]:
    sockets = bind("127.0.0.1", 0, shared=False)
    port = sockets[0].getsockname()[1]
    shutdown = asyncio.Event()
    task = asyncio.create_task(
        on_uvicorn.serve(app, sockets, shutdown=shutdown, limits=Limits(**limits))
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp", shutdown
    finally:
        shutdown.set()
        await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: x\r\n"])
def test_connection_without_a_request_is_closed(sent: bytes) -> None:
    async def main() -> None:
        async with serving(shop(), head_time=0.1) as (url, _):
            port = int(url.split(":")[2].split("/")[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()

    run("asyncio", main)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_conversation(version: str) -> None:
    async def main() -> None:
        async with serving(shop()) as (url, _):
            channel = OverHttp(url)
            async with Client(
                channel, elicit=lambda form: {"value": "Ann"}, version=version
            ) as client:
                result = await client.call_tool("order", {"title": "Dune"})
                assert result.text == "Dune for Ann"

    run("asyncio", main)


def test_open_streams_end_with_the_server() -> None:
    """A user who thinks, and a subscription, do not keep the server from ending."""
    ended: list[str] = []
    app = shop(ended)
    asked = asyncio.Event()

    async def think(form: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async def call(url: str) -> None:
        async with Client(OverHttp(url), elicit=think, version="2025-11-25") as client:
            await client.call_tool("order", {"title": "Dune"})

    async def listen(url: str) -> str:
        message = request(
            "subscriptions/listen", notifications={"toolsListChanged": True}
        )
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "subscriptions/listen",
        }
        async with httpx2.AsyncClient(timeout=60) as http:
            return (await http.post(url, json=message, headers=headers)).text

    async def main() -> None:
        async with serving(app, grace=5) as (url, shutdown):
            calling = asyncio.create_task(call(url))
            listening = asyncio.create_task(listen(url))
            await asyncio.wait_for(asked.wait(), 60)
            await asyncio.sleep(0.1)
            shutdown.set()
            text = await asyncio.wait_for(listening, 60)
            data = [one for one in text.splitlines() if one.startswith("data:")]
            assert "result" in json.loads(data[-1][5:])
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert ended == ["Dune"]

    run("asyncio", main)


def test_drain_serves_clients_and_sends_a_balancer_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async def sleep(seconds: float) -> None:
            await (is_over.wait() if seconds == 3_600 else asyncio.sleep(seconds))

        is_over = asyncio.Event()
        monkeypatch.setattr(asyncio_driver, "sleep", sleep)
        async with (
            serving(shop(), drain=3_600) as (url, shutdown),
            httpx2.AsyncClient(timeout=60) as http,
        ):
            ready = url.replace("/mcp", "/readyz")
            assert (await http.get(ready)).text == "ok\n"
            assert (await http.head(ready)).headers["content-length"] == "3"
            shutdown.set()
            while (got := await http.get(ready)).status_code == 200:
                pass
            assert (got.status_code, got.text) == (503, "draining\n")
            assert got.headers["connection"] == "close"
            assert (await http.get(url.replace("/mcp", "/healthz"))).text == "ok\n"
            async with Client(OverHttp(url)) as client:
                assert [one["name"] for one in await client.list_tools()] == ["order"]
            is_over.set()

    run("asyncio", main)


def test_address_that_is_taken() -> None:
    sockets = bind("127.0.0.1", 0, shared=False)
    port = sockets[0].getsockname()[1]
    with sockets[0], pytest.raises(UsageError, match=f"cannot listen .* port {port}"):
        serve_http(shop(), "127.0.0.1", port)


def test_missing_uvicorn_is_named() -> None:
    script = """
import sys
sys.modules["uvicorn"] = None
try:
    import effectmcp.transports.on_uvicorn
except Exception as exc:
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "pip install 'effectmcp[asyncio]'" in done.stdout


# ---- slow clients -------------------------------------------------------------------

BODY = json.dumps(
    request("tools/call", name="order", arguments={"title": "x"})
).encode()
HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    b"Mcp-Method: tools/call\r\nMcp-Name: order\r\nContent-Length: %d\r\n\r\n"
    % len(BODY)
)


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(url.split(":")[2][:-4]))


async def answered(reader: asyncio.StreamReader) -> bytes:
    """Read one response."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return head + await reader.readexactly(int(length or 0))


async def closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("rest", [HEAD[:20], HEAD + BODY[:1]])
def test_second_request_that_never_ends(rest: bytes) -> None:
    async def main() -> None:
        limits = {"head_time": 0.2, "body_time": 0.2}
        async with serving(shop(), **limits) as (url, _):
            reader, writer = await connected(url)
            writer.write(HEAD + BODY)
            assert b"200 OK" in await answered(reader)
            await asyncio.sleep(0.3)  # an idle connection has its own, longer limit
            writer.write(rest)
            assert await closed(reader) == b""
            writer.close()

    run("asyncio", main)


def test_client_that_does_not_read() -> None:
    app = shop()

    @app.tool(name="large")
    def large() -> str:
        return "x" * 30_000_000

    body = BODY.replace(b'"order"', b'"large"').replace(b'{"title": "x"}', b"{}")
    head = HEAD.replace(b": order", b": large").replace(
        b"Length: %d" % len(BODY), b"Length: %d" % len(body)
    )

    async def main() -> None:
        async with serving(app, write=0.2) as (url, _):
            reader, writer = await connected(url)
            writer.write(head + body)
            await asyncio.sleep(1)
            assert len(await closed(reader)) < 30_000_000
            writer.close()

    run("asyncio", main)


def test_connections_that_wait_give_way() -> None:
    async def main() -> None:
        async with serving(shop(), connections=5) as (url, _):
            others = [await connected(url) for _ in range(12)]
            for _, writer in others[6:]:
                writer.write(HEAD[:30])
            reader, writer = await connected(url)
            writer.write(HEAD + BODY)
            assert b"200 OK" in await answered(reader)
            assert await closed(others[0][0]) == b""
            for _, one in (*others, (reader, writer)):
                one.close()

    run("asyncio", main)


def test_limits_without_end() -> None:
    async def main() -> None:
        limits = dict.fromkeys(("idle", "grace", "write", "head_time"), float("inf"))
        async with serving(shop(), **limits) as (url, _):
            reader, writer = await connected(url)
            writer.write(HEAD + BODY)
            assert b"200 OK" in await answered(reader)
            writer.close()

    run("asyncio", main)


# ---- app.run() ----------------------------------------------------------------------


def test_run_in_another_thread() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="main thread"):
        pool.submit(shop().run).result()


@pytest.mark.parametrize("loop", LOOPS)
def test_run_inside_of_a_loop(loop: Any) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=f"and {loop} runs here already"):
            shop().run()

    run(loop, main)
