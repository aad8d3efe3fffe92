"""A server whose six tools use libraries of asyncio. A program, in each of three hosts.

python depot.py own|fastmcp|sdk
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from effectmcp import Confirm, Elicit, Flow, Gather, Provided, Server, Step, step
from effectmcp.drivers.local import running


class Pool:
    """Two connections, which belong to the loop that opened them."""

    def __init__(self) -> None:
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for number in (1, 2):
            self._free.put_nowait(number)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[int]:
        number = await self._free.get()
        try:
            yield number
        finally:
            self._free.put_nowait(number)


@asynccontextmanager
async def life(app: Server) -> AsyncIterator[Mapping[Any, Any]]:
    async with httpx2.AsyncClient() as http:
        yield {Pool: Pool(), "http": http}


app = Server("depot", version="1", loop="asyncio", lifespan=life)


@step
async def fetch(url: str, http: httpx2.AsyncClient = Provided()) -> str:
    return (await http.get(url)).text


@app.tool
def price(url: str) -> Flow[str]:
    """Over HTTP, before and after a question."""
    found = yield from fetch(url)
    currency = yield from Elicit(f"{found}: in which currency?", str)
    return f"{yield from fetch(url)} {currency}"


@step
async def query(sql: str, pool: Pool = Provided()) -> str:
    async with pool.one() as number, asyncio.timeout(60):
        await asyncio.sleep(0)
        return f"{sql} on {'one of two' if number in (1, 2) else number}"


@app.tool
def stock(title: str) -> Flow[str]:
    """From a pool of the lifespan; five queries at once wait for each other."""
    found = yield from Gather(*(Step(query, f"{title} {one}") for one in range(5)))
    sure = yield from Confirm(f"{len(found)} results. Show the last?")
    return found[-1] if sure else "none"


@step
async def save(path: str, text: str) -> int:
    return await asyncio.to_thread(Path(path).write_text, text)


@app.tool
def note(path: str) -> Flow[int]:
    """Write a file in a thread."""
    first, second = yield from Gather(Elicit("First?", str), Elicit("Second?", str))
    return (yield from save(path, first + second))


@step
async def run(code: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return f"{out.decode().strip()} ({process.returncode})"


@app.tool
def count(number: int) -> Flow[str]:
    """Ask, then start a program."""
    more = yield from Elicit("How many more?", int)
    return (yield from run(f"print({number} + {more})"))


@app.tool(timeout=0.5)
async def slow(seconds: float) -> str:
    """Take longer than allowed."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(seconds))
    return "done"


def mark(path: str, text: str) -> None:
    Path(path).write_text(text)


@app.tool
async def wait(path: str) -> str:
    """Wait until cancelled, and write that down."""
    mark(path, "waits")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        mark(path, "cancelled")
        raise
    return "never"


def main(host: str) -> None:
    """Serve on standard input and output, in a host."""
    if host == "own":
        app.run()
        return
    from mcp.server.request_state import RequestStateSecurity

    shared = RequestStateSecurity(keys=[os.environ["THEIR_KEY"].encode()])

    @asynccontextmanager
    async def theirs(mcp: Any) -> AsyncIterator[dict[str, Any]]:
        async with running(app):
            yield {}

    if host == "fastmcp":
        from fastmcp import FastMCP

        from effectmcp.bridge import fastmcp as on_fastmcp

        fast: Any = FastMCP("depot", lifespan=theirs, request_state_security=shared)
        on_fastmcp.include(fast, app)
        fast.run(show_banner=False)
    else:
        from mcp.server.mcpserver import MCPServer

        from effectmcp.bridge import mcp as on_sdk

        server: Any = MCPServer("depot", lifespan=theirs, request_state_security=shared)
        on_sdk.include(server, app)
        server.run()


if __name__ == "__main__":
    main(sys.argv[1])
