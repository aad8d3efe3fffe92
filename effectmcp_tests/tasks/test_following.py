"""A client follows a task by notifications alone, while a loop runs its turns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from effectmcp import Elicit, Flow, Server, Status, step
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import trio as on_trio
from effectmcp.protocol.meta import TASKS
from effectmcp.server.changes import Change
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.working import working

from ..wire import EVERYTHING, KEYS, Wire, request, result

FOLLOWS = {**EVERYTHING, "extensions": {TASKS: {}}}


@step
def boot(size: str) -> str:
    return f"vm-{size}"


def machine(size: str) -> Flow[str]:
    """Boot, ask, and name."""
    yield from Status("booting")
    vm = yield from boot(size)
    name = yield from Elicit("Name it", str)
    yield from Status("naming")
    yield from boot(name)
    return f"{vm} is {name}"


def collapsed(statuses: list[Any]) -> list[Any]:
    """Drop each `working`: a quick task may have left it before it was read."""
    return [one for one in statuses if one[0] != "working"]


@pytest.mark.parametrize("is_file", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("name", ["trio", "asyncio"])
def test_task_is_followed_without_polls(
    name: str, is_file: bool, tmp_path: Path
) -> None:
    """The question and the end arrive, and nothing arrives twice."""
    driver: Any = {"trio": on_trio, "asyncio": on_asyncio}[name]
    app = Server(
        "shop",
        keys=KEYS,
        tasks=SqliteTasks(tmp_path / "tasks.db" if is_file else None),
    )
    app.tool(task="required")(machine)
    heard: list[Wire] = []

    async def send(method: str, **params: Any) -> Wire:
        message = request(method, params, capabilities=FOLLOWS)
        return result(await driver.handle(app, message))

    async def hear(message: Mapping[str, Any]) -> None:
        if message["method"] != "notifications/tasks":
            return
        told = dict(message["params"])
        heard.append(told)
        if told["status"] == "input_required":
            (key,) = told["inputRequests"]
            answers = {key: {"action": "accept", "content": {"value": "Ann"}}}
            await send("tasks/update", taskId=told["taskId"], inputResponses=answers)
        if told["status"] in ("completed", "failed"):
            app.changes.publish(Change("end"))

    async def main() -> None:
        async with driver.running(app), working(driver, app):
            made = await send("tools/call", name="machine", arguments={"size": "big"})
            params = {"notifications": {"taskIds": [made["taskId"]]}}
            message = request("subscriptions/listen", params, capabilities=FOLLOWS)
            await driver.handle(app, message, send=hear)

    if name == "trio":
        trio.run(main)
    else:
        asyncio.run(main())
    statuses = [(one["status"], one.get("statusMessage")) for one in heard]
    assert collapsed(statuses) == [
        ("input_required", "booting"),
        ("completed", "naming"),
    ]
    assert all(
        left != right for left, right in zip(statuses, statuses[1:], strict=False)
    )
    (block,) = heard[-1]["result"]["content"]
    assert block["text"] == "vm-big is Ann"
