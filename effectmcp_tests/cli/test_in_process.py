"""An app in this process, and the store of its tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from effectmcp import Flow, Server, Status
from effectmcp.cli.in_process import InProcess
from effectmcp.client import Client
from effectmcp.tasks import SqliteTasks


def shop(tasks: SqliteTasks | None) -> Server:
    app = Server("shop", tasks=tasks)

    @app.tool(task="required")
    def order() -> Flow[str]:
        yield from Status("ordering")
        return "ordered"

    return app


@pytest.mark.parametrize("has_store", [False, True])
async def test_tasks_of_the_apps_store_do_not_run_here(
    has_store: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of this process would interrupt them."""
    store = SqliteTasks(tmp_path / "tasks.db", ttl=60, poll_interval=0.1)
    app = shop(store if has_store else None)
    async with Client(InProcess(app)) as client:
        assert (await client.call_tool("order")).text == "ordered"
    assert not (tmp_path / "tasks.db").exists()
    assert "kept in memory" not in caplog.text
    assert isinstance(app.tasks, SqliteTasks)
    assert (app.tasks.path, app.tasks.ttl == 60) == (None, has_store)


async def test_tasks_that_a_worker_runs_can_be_followed(tmp_path: Path) -> None:
    store = SqliteTasks(tmp_path / "tasks.db", is_worked=True)
    app = shop(store)
    async with Client(InProcess(app)) as client:
        steps = client.start("tools/call", {"name": "order"})
        await steps.round()
        assert app.tasks is store
        assert len(store.find()) == 1
    store.close()
