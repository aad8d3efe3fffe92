"""A flow becomes a task, waits, is answered and ends, over the messages of a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from effectmcp import Confirm, Detach, Elicit, Flow, Server, Sleep, Status, step
from effectmcp.drivers import trio as loop
from effectmcp.state import Keys, make_key
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.working import working

EXTENSION = "io.modelcontextprotocol/tasks"


def meta(*, tasks: bool = True) -> dict[str, Any]:
    extensions: dict[str, Any] = {"extensions": {EXTENSION: {}}} if tasks else {}
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            **extensions,
        },
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }


@step
def provision(size: str) -> str:
    return f"vm-{size}"


def machine(size: str) -> Flow[str]:
    if not (yield from Confirm(f"Provision {size}?")):
        return "no"
    is_task = yield from Detach(ttl=600, poll_interval=0.5)
    vm = yield from provision(size)
    yield from Status(f"{vm} boots")
    yield from Sleep(0.01)
    name = yield from Elicit("Name it", str)
    return f"{vm} is {name} ({is_task})"


async def request(app: Server, method: str, **params: Any) -> dict[str, Any]:
    params.setdefault("_meta", meta())
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply: Any = (await loop.handle(app, message)).message
    return reply  # type: ignore[no-any-return]


async def call(app: Server, **more: Any) -> dict[str, Any]:
    return await request(
        app, "tools/call", name="machine", arguments={"size": "big"}, **more
    )


async def until(app: Server, id_: str, *statuses: str) -> dict[str, Any]:
    while True:
        found = (await request(app, "tasks/get", taskId=id_))["result"]
        if found["status"] in statuses:
            return found  # type: ignore[no-any-return]
        await trio.sleep(0.002)


@pytest.mark.parametrize("is_file", [False, True])
async def test_flow_that_detaches(tmp_path: Path, is_file: bool) -> None:
    tasks = SqliteTasks(tmp_path / "tasks.db" if is_file else None)
    app = Server("shop", keys=Keys(make_key(bytes(32))), tasks=tasks)
    app.tool(machine)
    async with loop.running(app), working(loop, app):
        first = (await call(app))["result"]
        again = {
            "requestState": first["requestState"],
            "inputResponses": {"confirm-1": {"action": "accept", "content": {}}},
        }
        made = (await call(app, **again))["result"]
        assert (made["resultType"], made["ttlMs"]) == ("task", 600_000)
        id_ = made["taskId"]
        assert (await call(app, **again))["result"]["taskId"] == id_
        asked = await until(app, id_, "input_required")
        assert asked["statusMessage"] == "vm-big boots"
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": "Ann"}}, "other": 5}
        acknowledged = await request(
            app, "tasks/update", taskId=id_, inputResponses=answers
        )
        assert acknowledged["result"].keys() == {"resultType", "_meta"}
        ended = await until(app, id_, "completed", "failed")
        assert ended["result"]["content"][0]["text"] == "vm-big is Ann (True)"


async def test_ledger_of_its_own_is_closed_with_the_server(tmp_path: Path) -> None:
    """Otherwise its holder would look alive until the process ends."""
    ledger = SqliteTasks(tmp_path / "once.db")
    app = Server("shop", keys=Keys(make_key(bytes(32))), ledger=ledger)
    async with loop.running(app), working(loop, app):
        ledger.open()
        assert ledger._opened is not None
    assert ledger._opened is None
