"""Background tasks: cancelled once, waited for, and their errors raised."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from effectmcp import Flow, Server, Step
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers.loops import run, running_loop
from effectmcp.server.loop_name import LOOPS

from ..wire import call_params, meta, request


async def crash() -> None:
    await anyio.lowlevel.checkpoint()
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("loop", LOOPS)
def test_crash_of_a_task_ends_the_block(loop: Any) -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("other")

    async def main() -> None:
        async with running_loop().crew() as spawn:
            spawn(other)
            spawn(crash)
            await anyio.sleep_forever()

    with pytest.raises((ZeroDivisionError, ExceptionGroup)) as caught:
        run(loop, main)
    error: BaseException = caught.value
    while isinstance(error, ExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert ended == ["other"]


def test_task_that_was_cancelled_from_outside_stays_cancelled() -> None:
    async def main() -> None:
        async def block() -> None:
            async with on_asyncio.crew() as spawn:
                spawn(anyio.sleep_forever)
                await asyncio.sleep(60)

        task = asyncio.create_task(block())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["step", "plain"])
def test_shielded_cleanup_of_a_step_is_not_cut_off(kind: str) -> None:
    """A scope of anyio cancels its task until that ends."""
    done: list[str] = []
    app = Server("shop")

    async def work() -> str:
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0.05)
                done.append("rolled back")
        return "never"

    @app.tool
    def flow() -> Flow[str]:
        return (yield from Step(work))

    app.tool(name="plain")(work)

    async def main() -> None:
        params = call_params("flow" if kind == "step" else "plain")
        params["_meta"] = meta()
        async with on_asyncio.running(app), anyio.create_task_group() as group:
            group.start_soon(on_asyncio.handle, app, request("tools/call", params))
            await started.wait()
            group.cancel_scope.cancel()

    started = anyio.Event()
    asyncio.run(main())
    assert done == ["rolled back"]
