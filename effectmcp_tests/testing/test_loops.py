"""Async code of a server under test runs on the loop that the server needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
import trio

from effectmcp import Elicit, Flow, Provided, Server, step
from effectmcp.drivers.wrong_loops import running_name
from effectmcp.server.loop_name import LOOPS
from effectmcp.testing import MemoryClient, check
from effectmcp.testing.loops import opened, runner_of


async def where() -> str | None:
    return running_name()


@pytest.mark.parametrize("loop", LOOPS)
def test_runner(loop: Any) -> None:
    assert runner_of(loop)(where()) == loop


def test_runner_without_a_name_uses_trio() -> None:
    assert runner_of(None)(where()) == "trio"


@pytest.mark.parametrize("loop", LOOPS)
def test_runner_inside_of_a_loop(loop: Any) -> None:
    """One thread can run only one loop: the other one runs in a thread of its own."""
    variable: ContextVar[str] = ContextVar("variable")

    async def look() -> tuple[str | None, str]:
        return running_name(), variable.get()

    async def main() -> Any:
        variable.set("here")
        return runner_of(loop)(look())

    assert asyncio.run(main()) == (loop, "here")
    assert trio.run(main) == (loop, "here")


@asynccontextmanager
async def life(app: Server) -> AsyncIterator[Mapping[Any, Any]]:
    """Provide the loop that opened it, as pools belong to a loop."""
    yield {"opened": running_name(), "token": _token()}


def _token() -> object:
    if running_name() == "trio":
        return trio.lowlevel.current_trio_token()
    return asyncio.get_running_loop()


@step
async def use(opened: str = Provided(), token: Any = Provided()) -> str:
    assert token is _token()
    return f"{opened} {running_name()}"


def shop(**options: Any) -> Server:
    app = Server("shop", **options)

    @app.tool
    def tool() -> Flow[str]:
        name = yield from Elicit("Who?", str)
        return f"{yield from use()} {name}"

    return app


@pytest.mark.parametrize("loop", LOOPS)
def test_async_lifespan_is_open_beside_a_client(loop: Any) -> None:
    app = shop(loop=loop, lifespan=life)
    with opened(app) as run_async:
        client = MemoryClient(app, {"Who": "Ann"}, run_async=run_async)
        assert client.call_tool("tool").text == f"{loop} {loop} Ann"
    assert not app.is_running


def test_plain_lifespan(effectmcp_client: Any) -> None:
    @contextmanager
    def plain(app: Server) -> Iterator[Mapping[Any, Any]]:
        yield {"opened": "plain", "token": None}

    @step
    async def see(opened: str = Provided()) -> str:
        return f"{opened} {running_name()}"

    app = Server("shop", loop="asyncio", lifespan=plain)

    @app.tool
    def tool() -> Flow[str]:
        return (yield from see())

    assert effectmcp_client(app).call_tool("tool").text == "plain asyncio"


@pytest.mark.parametrize("loop", LOOPS)
def test_fixture_opens_the_lifespan(loop: Any, effectmcp_client: Any) -> None:
    app = shop(loop=loop, lifespan=life)
    for _ in range(2):
        client = effectmcp_client(app, {"Who": "Ann"})
        assert client.call_tool("tool").text == f"{loop} {loop} Ann"


@pytest.mark.parametrize("loop", LOOPS)
def test_check_performs_steps_on_the_loop(loop: Any) -> None:
    names: set[Any] = set()

    @step
    async def note() -> str:
        names.add(running_name())
        return "noted"

    app = Server("shop", loop=loop)

    @app.tool
    def tool() -> Flow[str]:
        yield from Elicit("Who?", str)
        return (yield from note())

    check(app, perform={note: True}, conversations=5, raises=False)
    assert names == {loop}
