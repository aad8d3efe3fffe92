from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given

from effectmcp import TaskStoreError
from effectmcp.engine.journal import Journal
from effectmcp.exchange.task_rows import task_fields
from effectmcp.tasks import TaskRow

from ..tasks.rows import new_row, task_rows


@given(task_rows)
def test_row_that_was_written_is_read_the_same(row: TaskRow) -> None:
    assert TaskRow.loads(row.dumps(), row.journal) == row


@given(task_rows)
def test_row_has_one_encoding(row: TaskRow) -> None:
    assert TaskRow.loads(row.dumps(), b"").dumps() == row.dumps()


def written(**changes: Any) -> bytes:
    fields = json.loads(new_row().dumps())
    return json.dumps({**fields, **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        written(format=2),
        written(unknown=True),
        written(caller={"unknown": 1}),
        written(caller=None),
        written(flow_id="xyz"),
        written(tries={"a": [1]}),
        written(tries=[]),
        b"{}",
        b"[]",
        b"1",
        b'{"format": 1}',
        b"not JSON",
        b"\xff",
        b"[" * 200 + b"]" * 200,
    ],
)
def test_row_of_another_version_is_refused(data: bytes) -> None:
    with pytest.raises(TaskStoreError, match="cannot read"):
        TaskRow.loads(data, b"")


def test_row_without_answered_questions() -> None:
    row = new_row(status="input_required", questions={"a": {}, "b": {}})
    assert row.without([]) is row
    assert row.without(["c"]) is row
    left = row.without(["a"])
    assert (left.status, dict(left.questions)) == ("input_required", {"b": {}})
    none = row.without(["b", "a"])
    assert (none.status, dict(none.questions)) == ("working", {})


def test_row_of_a_new_task_is_due_and_has_an_empty_journal() -> None:
    row = new_row()
    assert (row.wake, row.is_ended, row.expires) == (0.0, False, None)
    assert Journal.loads(row.journal) == Journal()
    assert attrs.evolve(row, ttl=5.0).expires == 1_005.0


BASE = {
    "taskId": "task-1",
    "createdAt": "1970-01-01T00:16:40.000Z",
    "lastUpdatedAt": "1970-01-01T00:16:40.000Z",
    "ttlMs": None,
    "pollIntervalMs": 1000,
}


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, {"status": "working"}),
        ({"message": "half"}, {"status": "working", "statusMessage": "half"}),
        ({"ttl": 0.0001}, {"status": "working", "ttlMs": 1}),
        ({"ttl": 1.5}, {"status": "working", "ttlMs": 1500}),
        ({"poll_interval": 0.0}, {"status": "working", "pollIntervalMs": 1}),
        (
            {"status": "input_required", "questions": {"a": {"method": "x"}}},
            {"status": "input_required", "inputRequests": {"a": {"method": "x"}}},
        ),
        (
            {"status": "completed", "result": {"content": []}},
            {"status": "completed", "result": {"content": []}},
        ),
        (
            {"status": "failed", "error": {"code": 1, "message": "no"}},
            {"status": "failed", "error": {"code": 1, "message": "no"}},
        ),
        ({"status": "cancelled"}, {"status": "cancelled"}),
    ],
)
def test_task_fields_by_status(changes: dict[str, Any], fields: dict[str, Any]) -> None:
    assert task_fields(new_row(**changes)) == {**BASE, **fields}


def test_task_fields_of_a_new_task_have_nothing_else() -> None:
    """Tasks extension: a `CreateTaskResult` has no result and no questions."""
    row = new_row(status="completed", result={"content": []}, message="done")
    told = {**BASE, "status": "working", "statusMessage": "done"}
    assert task_fields(row, is_new=True) == told
