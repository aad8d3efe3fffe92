"""Rows of tasks, for tests of what keeps them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from effectmcp import Flow, Server, Sleep
from effectmcp.canonical import JSON
from effectmcp.drivers import sync
from effectmcp.effects.local import CallerInfo
from effectmcp.exchange.commands import Peer
from effectmcp.tasks import SqliteTasks, TaskRow
from effectmcp.tasks.sqlite import Lease

__all__ = ["claim", "json_values", "listed", "new_row", "task_rows"]


def claim(tasks: SqliteTasks, n: int) -> list[Lease]:
    """Take up to `n` tasks that are due."""
    return tasks.claim(n).result(60)


def listed(tasks: Any, owner: str, size: int) -> list[str]:
    """Return the ids that `tasks/list` of 2025-11-25 shows a user, in pages of a size."""
    app = Server("shop", tasks=tasks, page_size=size)
    app.tool(name="order", task="optional")(_order)
    tasks.is_worked = True
    found: list[str] = []
    params: dict[str, Any] = {}
    while True:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": params}
        headers = {"mcp-protocol-version": "2025-11-25"}
        reply: Any = sync.handle(app, message, Peer(principal=owner, headers=headers))
        page = reply.message["result"]
        found += [one["taskId"] for one in page["tasks"]]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


def _order(title: str) -> Flow[None]:
    yield from Sleep(0)


def new_row(id_: str = "task-1", **changes: Any) -> TaskRow:
    values: dict[str, Any] = {
        "tool": "order",
        "arguments": {"title": "Dune"},
        "owner": None,
        "capabilities": {},
        "caller": CallerInfo(),
        "flow_id": bytes(16),
        "is_whole": True,
        "created": 1_000.0,
        "updated": 1_000.0,
    }
    return TaskRow(id=id_, **{**values, **changes})


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_time = st.floats(0, 1e12)
_scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | _text

json_values: st.SearchStrategy[JSON] = st.recursive(
    _scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3)
    ),
    max_leaves=8,
)
_objects = st.dictionaries(_text, json_values, max_size=3)

task_rows: st.SearchStrategy[TaskRow] = st.builds(
    TaskRow,
    id=_text,
    tool=_text,
    arguments=json_values,
    owner=st.none() | _text,
    capabilities=_objects,
    caller=st.builds(
        CallerInfo,
        principal=st.none() | _text,
        progress_token=_text | st.integers(0, 9),
    ),
    flow_id=st.binary(max_size=16),
    is_whole=st.booleans(),
    created=_time,
    updated=_time,
    version=st.none() | _text,
    trace=st.none() | _text,
    journal=st.binary(max_size=32),
    ttl=st.none() | _time,
    poll_interval=_time,
    status=st.sampled_from(
        ["working", "input_required", "completed", "failed", "cancelled"]
    ),
    message=st.none() | _text,
    questions=_objects,
    result=st.none() | _objects,
    error=st.none() | _objects,
    tries=st.dictionaries(_text, st.tuples(st.integers(0, 100), _time), max_size=3),
    cancelled_at=st.none() | _time,
    is_expired=st.booleans(),
    report=st.none() | _text,
    wake=st.none() | _time,
)
