"""Our client and the tasks of the reference server, which the TypeScript SDK runs."""

from __future__ import annotations

import anyio
import pytest

from effectmcp.client import (
    Client,
    Form,
    OverPipes,
    Pending,
    Result,
    TaskCancelled,
)

from .peers import PATIENCE, Sdks

pytestmark = pytest.mark.conformance

TOOL = "simulate-research-query"


def everything(sdks: Sdks) -> OverPipes:
    package = sdks.modules / "@modelcontextprotocol" / "server-everything"
    return OverPipes([sdks.node, str(package / "dist" / "index.js")])


async def test_plain_tool(sdks: Sdks) -> None:
    with anyio.fail_after(PATIENCE):
        async with Client(everything(sdks)) as client:
            result = await client.call_tool("echo", {"message": "hello"})
            assert result.text == "Echo: hello"


async def test_task_runs_to_its_end(sdks: Sdks) -> None:
    seen: list[Pending] = []
    with anyio.fail_after(PATIENCE):
        async with Client(everything(sdks), on_round=seen.append) as client:
            result = await client.call_tool(TOOL, {"topic": "cups"})
    assert "# Research Report: cups" in result.text
    assert {one.task and one.task.status for one in seen} == {"working"}


async def test_task_asks(sdks: Sdks) -> None:
    forms: list[Form] = []

    def answer(form: Form) -> dict[str, str]:
        forms.append(form)
        choices = form.fields["interpretation"]["oneOf"]
        return {"interpretation": choices[1]["const"]}

    with anyio.fail_after(PATIENCE):
        async with Client(everything(sdks), elicit=answer) as client:
            arguments = {"topic": "python", "ambiguous": True}
            result = await client.call_tool(TOOL, arguments)
    assert "# Research Report: python (snake)" in result.text
    assert len(forms) == 1


async def test_task_is_cancelled(sdks: Sdks) -> None:
    with anyio.fail_after(PATIENCE):
        async with Client(everything(sdks)) as client:
            params = {"name": TOOL, "arguments": {"topic": "cups"}}
            call = client.start("tools/call", params)
            pending = await call.round()
            assert not isinstance(pending, Result)
            assert pending.task is not None
            await call.cancel()
            with pytest.raises(TaskCancelled):
                await call.round()
