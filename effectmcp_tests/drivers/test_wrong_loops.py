"""A library that finds another loop than it needs: the line, the loop, and the option."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import trio
import trio.lowlevel

from effectmcp import Elicit, Flow, LoopError, Server, Step, UsageError
from effectmcp.drivers.local import running
from effectmcp.drivers.loops import run, running_loop
from effectmcp.drivers.wrong_loops import running_name
from effectmcp.server.loop_name import LOOPS
from effectmcp.state import Keys, make_key

from ..wire import call_params, meta, request, result

KEYS = Keys(make_key(bytes(32)))


async def sleeps_on_asyncio() -> str:
    await asyncio.sleep(0.01)
    return "never"


async def waits_for_a_future() -> str:
    loop = asyncio.new_event_loop()
    try:
        await loop.create_future()
    finally:
        loop.close()
    return "never"


async def uses_a_timeout() -> str:
    async with asyncio.timeout(1):
        await trio.lowlevel.checkpoint()
    return "never"


async def in_a_group() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(sleeps_on_asyncio)
    return "never"


async def sleeps_on_trio() -> str:
    await trio.sleep(0.01)
    return "never"


async def traps() -> str:
    await trio.lowlevel.cancel_shielded_checkpoint()
    return "never"


WRONG = [
    ("trio", sleeps_on_asyncio, "no running event loop"),
    ("trio", waits_for_a_future, "trio.run received unrecognized yield message"),
    ("trio", uses_a_timeout, "no running event loop"),
    ("trio", in_a_group, "no running event loop"),
    ("asyncio", sleeps_on_trio, "must be called from async context"),
    ("asyncio", traps, "Task got bad yield"),
]


def line_of(function: Callable[..., Any], code: str) -> str:
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(n for n, one in enumerate(lines) if code in one)}"


async def call(app: Server, name: str) -> Any:
    loop = running_loop()
    async with loop.running(app):
        params = call_params(name)
        params["_meta"] = meta()
        return result(await loop.handle(app, request("tools/call", params)))


@pytest.mark.parametrize("kind", ["step", "plain"])
@pytest.mark.parametrize(("loop", "function", "said"), WRONG)
def test_wrong_loop(
    loop: Any,
    function: Any,
    said: str,
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Server("shop", keys=KEYS)
    handled: list[str] = []

    @app.tool
    def flow() -> Flow[str]:
        try:
            found: str = yield from Step(function)
        except Exception:
            handled.append("recorded")
            raise
        return found

    app.tool(name="plain")(function)
    found = run(loop, lambda: call(app, "flow" if kind == "step" else "plain"))
    assert found["isError"]
    needs = "asyncio" if loop == "trio" else "trio"
    name = f"{__name__}:{function.__name__}"
    last = caplog.text.rstrip().splitlines()[-1]
    code = "async with" if function is uses_a_timeout else "await "
    author = sleeps_on_asyncio if function is in_a_group else function
    assert f"LoopError: {line_of(author, code)}: {name} needs {needs}, and" in last
    assert f"{loop} runs here (" in last
    assert said in last
    assert last.endswith(
        f"Give Server(loop='{needs}') or --loop {needs}, or serve from a host that runs"
        f" {needs}"
    )
    # It is not the outcome of the step: on the right loop, the flow can be resumed.
    assert handled == []


@pytest.mark.parametrize("loop", LOOPS)
def test_effect_that_is_awaited_outside_of_a_flow_names_the_mark(
    loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = Server("shop", keys=KEYS)

    @app.tool
    async def asks() -> str:
        return await Elicit("Who?", str)

    run(loop, lambda: call(app, "asks"))
    assert "write @awaits_effects" in caplog.text
    assert "LoopError" not in caplog.text


@pytest.mark.parametrize("loop", LOOPS)
def test_other_errors_are_outcomes(loop: Any) -> None:
    words = "no running event loop: room 4 is closed"  # not what asyncio says

    async def fails() -> str:
        raise RuntimeError(words)

    app = Server("shop", keys=KEYS)

    @app.tool
    def flow() -> Flow[str]:
        try:
            return (yield from Step(fails))
        except RuntimeError as exc:
            return f"handled {exc}"

    found = run(loop, lambda: call(app, "flow"))
    assert found["content"][0]["text"] == f"handled {words}"


@pytest.mark.parametrize("loop", LOOPS)
def test_lifespan_on_the_wrong_loop(loop: Any) -> None:
    @asynccontextmanager
    async def life(app: Server) -> AsyncIterator[None]:
        await (sleeps_on_asyncio if loop == "trio" else sleeps_on_trio)()
        yield

    app = Server("shop", lifespan=life)

    async def main() -> None:
        async with running(app):
            raise AssertionError("it is open")

    with pytest.raises(LoopError) as caught:
        run(loop, main)
    assert caught.value.name == f"the lifespan of {app!r}"
    assert (caught.value.runs, caught.value.needs != loop) == (loop, True)
    assert caught.value.where is not None


def test_error_inside_of_the_lifespan_is_left_alone() -> None:
    @asynccontextmanager
    async def life(app: Server) -> AsyncIterator[None]:
        yield

    async def main() -> None:
        async with running(Server("shop", lifespan=life)):
            raise RuntimeError("no running event loop")

    with pytest.raises(RuntimeError) as caught:
        run("trio", main)
    assert not isinstance(caught.value, LoopError)


@pytest.mark.parametrize("loop", LOOPS)
def test_server_that_names_another_loop(loop: Any) -> None:
    other: Any = "asyncio" if loop == "trio" else "trio"

    async def main() -> None:
        async with running(Server("shop", loop=loop)):
            assert running_name() == loop
        async with running(Server("shop", loop=other)):
            raise AssertionError("it is open")

    with pytest.raises(LoopError, match=f"needs {other}, and {loop} runs here"):
        run(loop, main)


def test_unknown_loop() -> None:
    loop: Any = "twisted"
    with pytest.raises(UsageError, match="give one of trio, asyncio"):
        Server("shop", loop=loop)
    with pytest.raises(UsageError, match="there is no loop 'twisted'"):
        run(loop, lambda: call(Server("shop"), "flow"))


def test_no_loop() -> None:
    assert running_name() is None
    with pytest.raises(RuntimeError, match="no event loop runs here"):
        running_loop()
