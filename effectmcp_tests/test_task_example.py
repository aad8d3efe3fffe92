"""The example of a task, `examples/provisioning.py`, step by step and on a server."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest
import trio

from effectmcp import Confirm, Elicit, Server, Status
from effectmcp.drivers import trio as loop
from effectmcp.state import Keys, make_key
from effectmcp.tasks import SqliteTasks
from effectmcp.testing import play
from effectmcp.transports.working import working

from .helpers import example

EXTENSION = "io.modelcontextprotocol/tasks"

provisioning = example("provisioning")
provision = provisioning.provision


# ---- the handler, by hand -----------------------------------------------------------


def test_user_who_declines_gets_no_machine() -> None:
    with play(provision, "web") as dialogue:
        question = Confirm("Provision 'web' (small) for $10 a month?")
        dialogue.expect(question).answer(False)
        assert dialogue.result == "Nothing was provisioned."


@pytest.mark.parametrize(
    ("chosen", "network"),
    [
        (provisioning.Network.PUBLIC, "public"),
        (provisioning.Network.PRIVATE, "private"),
        (None, "private"),
    ],
)
def test_machine_is_connected_to_the_chosen_network(chosen: Any, network: str) -> None:
    with play(provision, "web", "large") as dialogue:
        dialogue.expect(Confirm).answer(True)
        dialogue.expect(provisioning.create_machine("web", "large", ANY)).returns("m-1")
        dialogue.expect(provisioning.is_running).returns(False)
        dialogue.expect(provisioning.is_running).returns(True)
        question = dialogue.expect(Elicit)
        if chosen is None:
            question.lapse()
        else:
            question.answer(chosen)
        connected = provisioning.Network(network)
        dialogue.expect(provisioning.connect(ANY, connected)).returns(None)
        assert dialogue.result == f"m-1 runs in the {network} network."
    assert [one.message for one in dialogue.told if isinstance(one, Status)] == [
        "Creating web",
        "m-1 is booting",
        "m-1 runs. Which network?",
    ]


def test_machine_that_does_not_boot_is_deleted() -> None:
    with play(provision, "web") as dialogue:
        dialogue.expect(Confirm).answer(True)
        dialogue.expect(provisioning.create_machine).returns("m-1")
        for _ in range(provisioning.CHECKS):
            dialogue.expect(provisioning.is_running).returns(False)
        dialogue.expect(provisioning.delete_machine).returns(None)
        with pytest.raises(provisioning.ToolError, match="m-1 did not boot"):
            _ = dialogue.result


# ---- the task, on a server ----------------------------------------------------------


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(provisioning, "PAUSE", 0.001)
    app: Server = provisioning.app
    monkeypatch.setattr(app, "keys", Keys(make_key(bytes(32))))
    monkeypatch.setattr(app, "tasks", SqliteTasks())
    return app


async def request(app: Server, method: str, **params: Any) -> dict[str, Any]:
    params["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            "extensions": {EXTENSION: {}},
        },
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply: Any = (await loop.handle(app, message)).message
    result: dict[str, Any] = reply["result"]
    return result


async def start(app: Server) -> str:
    """Agree to the price; return the id of the task."""
    call = {"name": "provision", "arguments": {"name": "web"}}
    asked = await request(app, "tools/call", **call)
    (key,) = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {}}}
    call |= {"inputResponses": answers, "requestState": asked["requestState"]}
    task = await request(app, "tools/call", **call)
    assert (task["resultType"], task["status"]) == ("task", "working")
    assert (task["ttlMs"], task["pollIntervalMs"]) == (24 * 3600 * 1000, 2000)
    return str(task["taskId"])


async def until(app: Server, id_: str, status: str) -> dict[str, Any]:
    with trio.fail_after(60):
        while (found := await request(app, "tasks/get", taskId=id_))[
            "status"
        ] != status:
            assert found["status"] in ("working", "input_required"), found
            await trio.sleep(0.001)
    return found


async def test_task_asks_for_the_network(app: Server) -> None:
    async with loop.running(app), working(loop, app):
        id_ = await start(app)
        asked = await until(app, id_, "input_required")
        assert asked["statusMessage"].endswith("runs. Which network?")
        (key,) = asked["inputRequests"]
        answer = {key: {"action": "accept", "content": {"value": "public"}}}
        await request(app, "tasks/update", taskId=id_, inputResponses=answer)
        done = await until(app, id_, "completed")
        text = done["result"]["content"][0]["text"]
        assert text.endswith("runs in the public network.")
        networks = app.provided["cloud"].networks
        assert list(networks.values()) == [provisioning.Network.PUBLIC]


async def test_question_without_an_answer_has_a_default(
    app: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "DEADLINE", 0.01)
    async with loop.running(app), working(loop, app):
        done = await until(app, await start(app), "completed")
    text = done["result"]["content"][0]["text"]
    assert text.endswith("runs in the private network.")


async def test_task_that_is_cancelled_deletes_its_machine(app: Server) -> None:
    async with loop.running(app), working(loop, app):
        id_ = await start(app)
        await until(app, id_, "input_required")
        cloud = app.provided["cloud"]
        assert len(cloud.machines) == 1
        await request(app, "tasks/cancel", taskId=id_)
        await until(app, id_, "cancelled")
        assert not cloud.machines
