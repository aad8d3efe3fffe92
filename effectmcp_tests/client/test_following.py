"""Tasks of our own server, in memory, over pipes and over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from effectmcp import Dismissed, ProtocolError
from effectmcp.client import Form, Pending, Result, TaskCancelled
from effectmcp.drivers import asyncio as asyncio_loop
from effectmcp.drivers import trio as trio_loop
from effectmcp.transports.stores import ensure_tasks
from effectmcp.transports.working import working

from .ways import At, everywhere

PARAMS = {"name": "bind", "arguments": {"copies": 3}}


@asynccontextmanager
async def worked(at: At) -> AsyncIterator[None]:
    """Run the tasks of a server in memory; the others run theirs."""
    if at.app is None:
        yield
        return
    loop: Any = trio_loop if at.loop == "trio" else asyncio_loop
    ensure_tasks(at.app, is_alone=True)
    async with loop.running(at.app), working(loop, at.app):
        yield


def colored(color: str) -> Any:
    def answer(form: Form) -> dict[str, Any]:
        return {"value": color} if form.fields else {}

    return answer


def shown(pending: Pending) -> Any:
    task = pending.task
    return None if task is None else (task.status, task.message)


@everywhere
async def test_task_is_followed_to_its_result(at: At) -> None:
    seen: list[Any] = []
    async with (
        worked(at),
        at.client(
            elicit=colored("red"), on_round=lambda one: seen.append(shown(one))
        ) as client,
    ):
        result = await client.call_tool("bind", {"copies": 3})
    assert (result.text, result.rounds) == ("3 in red (a task)", 3)
    assert not result.is_error
    # Between two polls, a task may do more than one thing.
    assert (seen[0], seen[-1][0]) == (None, "input_required")
    assert ("input_required", "it sews") in seen
    updates = [one for one in at.sent if one.message["method"] == "tasks/update"]
    assert len(updates) == 1
    if at.kind == "http":
        id_ = updates[0].params["taskId"]
        assert updates[0].headers["Mcp-Name"] == id_


@everywhere
async def test_task_whose_tool_fails(at: At) -> None:
    async with worked(at), at.client(elicit=colored("none")) as client:
        result = await client.call_tool("bind", {"copies": 3})
    assert (result.text, result.is_error) == ("no cover", True)


@everywhere
async def test_task_whose_question_is_closed_is_not_cancelled(at: At) -> None:
    def answer(form: Form) -> Any:
        return Dismissed() if form.fields else {}

    async with worked(at), at.client(elicit=answer) as client:
        result = await client.call_tool("bind", {"copies": 3})
    assert result.is_error
    assert "dismissed" in result.text
    assert "tasks/cancel" not in at.methods()


@everywhere
async def test_caller_that_leaves_cancels_the_task(at: At) -> None:
    async with worked(at), at.client(elicit=colored("slow")) as client:
        pending: list[Pending] = []
        with anyio.CancelScope() as scope:

            def leave(one: Pending) -> None:
                pending.append(one)
                if shown(one) == ("working", "it glues"):
                    scope.cancel()

            client._on_round = leave
            await client.call_tool("bind", {"copies": 3})
        assert at.methods()[-1] == "tasks/cancel"
        with pytest.raises(TaskCancelled):
            await client.resume(pending[-1]).finish()


@everywhere
async def test_function_that_fails_cancels_the_task(at: At) -> None:
    def answer(form: Form) -> Any:
        if form.fields:
            raise LookupError("no color")
        return {}

    async with worked(at), at.client(elicit=answer) as client:
        with pytest.raises(LookupError):
            await client.call_tool("bind", {"copies": 3})
    assert at.methods()[-1] == "tasks/cancel"


@everywhere
async def test_stored_task_is_resumed_by_another_client(at: At) -> None:
    async with worked(at):
        async with at.client(elicit=colored("")) as client:
            steps = client.start("tools/call", PARAMS)
            came = await steps.round()
            while isinstance(came, Pending) and not (came.task and came.questions):
                came = await steps.round()
            assert isinstance(came, Pending)
            stored = json.dumps(came.to_json())
        async with at.client(elicit=colored("blue")) as client:
            resumed = client.resume(Pending.from_json(json.loads(stored)))
            result = await resumed.finish()
    assert isinstance(result, Result)
    assert result.text == "3 in blue (a task)"


@everywhere
async def test_changes_of_a_task_are_received(at: At) -> None:
    async with worked(at), at.client(elicit=colored("green")) as client:
        steps = client.start("tools/call", PARAMS)
        while not (isinstance(came := await steps.round(), Pending) and came.task):
            pass
        async with client.listen(tasks=[came.task.id]) as changes:
            told: Any = await anext(changes)
            assert told["params"]["notifications"] == {"taskIds": [came.task.id]}
            assert (await steps.finish()).text == "3 in green (a task)"
            async for told in changes:
                assert told["method"] == "notifications/tasks"
                if told["params"]["status"] == "completed":
                    break


@everywhere
async def test_unknown_task_cannot_be_followed(at: At) -> None:
    """The task was removed, or another user has it."""
    pending = {"method": "tools/call", "params": PARAMS, "state": None, "rounds": 1}
    task: dict[str, Any] = {
        "id": "gone",
        "status": "working",
        "message": None,
        "pollInterval": 1,
        "answered": [],
    }
    stored = Pending.from_json({**pending, "questions": {}, "task": task})
    async with worked(at), at.client() as client:
        with pytest.raises(ProtocolError, match="Task not found"):
            await client.resume(stored).finish()
