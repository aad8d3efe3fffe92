"""The tasks of each wire: a column for each wire, and a row for each difference.

                      extension              2025-11-25              drafts
    who creates       the server             the client, by `task` in the params of a call
    the handle        flat                   nested, in `task`
    get               with questions or      the status only
                      result
    result            in `tasks/get`         blocks until the end;   blocks; returns questions
                                             asks meanwhile          or the end
    answers           `tasks/update`         replies to questions    `tasks/input_response`
    list              -                      the tasks of the same user
    cancel            a request to end       `cancelled` before the reply; -32602 after the
                                             end
    a call that has   -32021                 -32601
    to be a task
    isError           `completed`            `failed`
    times             `ttlMs`                `ttl`
    status            by subscription        to the session that created the task

The host of the tasks knows nothing of this: the dialect of a request names its column.
The table for users is in docs/compatibility.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ..canonical import JSON
from ..errors import ProtocolError
from ..protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from ..protocol.meta import RELATED_TASK, TASKS
from ..protocol.modern import MISSING_CAPABILITY
from .task_rows import ENDED, TaskRow, TaskStatus, task_fields, wire_time

if TYPE_CHECKING:
    from ..server.features import Tool

__all__ = [
    "EXTENSION",
    "REQUESTED",
    "TaskWire",
    "old_fields",
    "old_status",
    "outcome_of",
    "related",
    "requested_ttl",
    "support_of",
]


@frozen(kw_only=True)
class TaskWire:
    """One column of the table.

    Attributes:
        is_requested: Whether a client asks for a task, with each call; otherwise it
            declares that it can follow tasks, and the server decides.
        handle: Returns the fields of the result that announces a new task.
        fields: Returns the fields of `tasks/get`'s result.
        not_asked: Returns the error for a call of a tool that is always a task, by a
            client that asks for none.
    """

    is_requested: bool
    handle: Callable[[TaskRow], dict[str, JSON]]
    fields: Callable[[TaskRow], dict[str, JSON]]
    not_asked: Callable[[str], ProtocolError]


def _missing_extension(name: str) -> ProtocolError:
    # A new one each time: an exception keeps the frames that it has passed.
    called = f"Tool {name} is always a task" if name else "This request is about tasks"
    return ProtocolError(
        MISSING_CAPABILITY,
        f"{called} (extensions.{TASKS}), which this client did not say it can follow."
        " Use a client that can.",
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        status=400,
    )


def _task_required(name: str) -> ProtocolError:
    return ProtocolError(
        METHOD_NOT_FOUND,
        f"Tool {name} is always a task: call it with `task` in the params",
    )


#: The extension `io.modelcontextprotocol/tasks` of 2026-07-28.
EXTENSION: Final = TaskWire(
    is_requested=False,
    handle=lambda row: {"resultType": "task", **task_fields(row, is_new=True)},
    fields=task_fields,
    not_asked=_missing_extension,
)


# ---- 2025-11-25 and the drafts ------------------------------------------------------


def old_status(row: TaskRow) -> TaskStatus:
    """Return the status of a task as 2025-11-25 defines it.

    "Once a task is cancelled, it MUST remain in `cancelled` status even if execution
    continues to completion or fails" (Tasks, Task Cancellation), and a result with
    `isError` is a failure (Tasks, Task Execution Errors).
    """
    at, expires = row.cancelled_at, row.expires
    # A task that expires is ended by a cancel, too, which has the time of its expiry.
    if at is not None and (
        not row.is_expired or (expires is not None and at < expires)
    ):
        return "cancelled"
    if row.status == "completed" and (row.result or {}).get("isError") is True:
        return "failed"
    return row.status


def old_fields(row: TaskRow) -> dict[str, JSON]:
    """Return the fields of a task as 2025-11-25 defines them."""
    status = old_status(row)
    fields: dict[str, JSON] = {
        "taskId": row.id,
        "status": status,
        "createdAt": wire_time(row.created),
        "lastUpdatedAt": wire_time(row.updated),
        "ttl": None if row.ttl is None else max(1, round(row.ttl * 1000)),
        "pollInterval": max(1, round(row.poll_interval * 1000)),
    }
    message = _why(row) if status == "failed" else row.message
    if message is not None:
        fields["statusMessage"] = message
    return fields


#: Characters of a failure in `statusMessage`. Some clients show nothing else of it.
_LONGEST: Final = 1_000


def _why(row: TaskRow) -> str | None:
    if row.error is not None:
        said = row.error.get("message")
        return said if isinstance(said, str) else row.message
    for block in (row.result or {}).get("content", ()):
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            text: str = block["text"]
            return text[:_LONGEST]
    return row.message


def _new(row: TaskRow) -> dict[str, JSON]:
    # "Tasks MUST begin in the `working` status" (Tasks, Task Status Lifecycle), also if
    # the same call has created it before.
    return {"task": {**old_fields(row), "status": "working"}}


#: 2025-11-25 and the drafts, which only differ in how questions are asked.
REQUESTED: Final = TaskWire(
    is_requested=True,
    handle=_new,
    fields=old_fields,
    not_asked=_task_required,
)


def support_of(tool: Tool | None) -> str:
    """Return the `execution.taskSupport` of a tool; `None` if it was removed.

    A tool that only becomes a task by `Detach()` is "optional" if it has
    `task="deferred"`: 2025-11-25 has no word for a call that may end without a task.
    """
    if tool is None or tool.task is None:
        return "forbidden"
    return "required" if tool.task == "required" else "optional"


def requested_ttl(params: Mapping[str, JSON]) -> float | None:
    """Return the seconds that a request asks its task to be kept; `None` for any.

    Raises:
        ProtocolError: If `task` is malformed.
    """
    task = params.get("task")
    if not isinstance(task, dict):
        raise ProtocolError(INVALID_PARAMS, "Invalid params: task is an object")
    ttl: Any = task.get("ttl")
    if ttl is None:
        return None
    if type(ttl) not in (int, float) or not 0 < ttl < 1e15:
        words = "Invalid params: task.ttl is a number of milliseconds"
        raise ProtocolError(INVALID_PARAMS, words)
    return float(ttl) / 1000


def related(id_: str) -> dict[str, JSON]:
    """Return the `_meta` of a message that belongs to a task."""
    return {RELATED_TASK: {"taskId": id_}}


def outcome_of(row: TaskRow) -> Mapping[str, JSON] | None:
    """Return the result of a task that has ended; `None` if it has not.

    Raises:
        ProtocolError: If it ended with an error, or was cancelled.
    """
    status = old_status(row)
    if status not in ENDED:
        return None
    if status == "cancelled":
        raise ProtocolError(INTERNAL_ERROR, "The task was cancelled")
    if row.result is not None:
        return row.result
    error: Mapping[str, Any] = row.error or {}
    raise ProtocolError(
        error.get("code", INTERNAL_ERROR), error.get("message", ""), error.get("data")
    )
