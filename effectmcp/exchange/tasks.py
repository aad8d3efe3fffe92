"""Tasks on the wire: how a call becomes one, and the methods that follow it.

Each request is checked separately: a client declares the extension in each (Tasks
extension, Capability Negotiation), and only the user who started a task may see it. A
task of another user and a removed task get the same error as an unknown id.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON, dumps
from ..effects.control import Detach
from ..engine.journal import Entry, Journal
from ..engine.stops import Failure
from ..errors import (
    ProtocolError,
    TaskLimitError,
    TaskStoreError,
    ToolError,
    UsageError,
)
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.meta import TASKS
from ..protocol.modern import MISSING_CAPABILITY
from .commands import Command, Invoke
from .results import error_of
from .task_rows import Mail, TaskRow, task_fields

if TYPE_CHECKING:
    from ..effects.local import CallerInfo
    from ..server.features import Tool
    from .context import Context
    from .task_rows import TaskHost

__all__ = [
    "can_follow",
    "cancel_task",
    "create_task",
    "get_task",
    "new_row",
    "no_task",
    "readable_tasks",
    "task_id",
    "update_task",
]

#: Tags of entries that hold what the client said.
_SAID: Final = frozenset({"accepted", "declined", "dismissed", "refused", "invalid"})


def can_follow(context: Context) -> bool:
    """Return whether this server has tasks, and the client can follow them."""
    tasks = context.app.tasks
    return tasks is not None and tasks.is_worked and _is_declared(context)


def no_task(context: Context, name: str) -> Exception:
    """Return the error for a call that has to be a task, where `can_follow` is false."""
    if _is_declared(context):
        problem = f"{name} is always a task, and this server runs no tasks"
        return error_of(UsageError(problem), name)
    if context.dialect.era == "modern":
        return _missing_extension()
    return ToolError(
        f"{name} is always a task, and the connected client cannot follow tasks."
    )


def _missing_extension() -> ProtocolError:
    # A new one each time: an exception keeps the frames that it has passed.
    return ProtocolError(
        MISSING_CAPABILITY,
        f"Missing required client capability: extensions.{TASKS}",
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
        status=400,
    )


def _is_declared(context: Context) -> bool:
    extensions = context.meta.capabilities.get("extensions")
    return (
        context.dialect.era == "modern"
        and isinstance(extensions, dict)
        and isinstance(extensions.get(TASKS), dict)
    )


# ---- becoming a task ----------------------------------------------------------------


def task_id(flow_id: bytes, journal: Journal) -> str:
    """Return the id of the task that a flow becomes.

    The same state with the same answers becomes the same task, if a client sends it
    twice; with other answers, another one. Values that are drawn again when a reply is
    lost are not part of it (docs/internals/replay.md#v3).

    Args:
        flow_id: The flow's id: 128 random bits, so the result cannot be guessed.
        journal: Its journal at that point.
    """
    said = [
        [path, one.key, one.tag, one.payload.hex()]
        for path, one in _entries(journal.entries, "")
        if one.tag in _SAID
    ]
    return blake2b(
        dumps([journal.generation, said]),
        key=flow_id,
        digest_size=20,
        person=b"task",
    ).hexdigest()


def _entries(entries: tuple[Entry, ...], path: str) -> Iterator[tuple[str, Entry]]:
    for one in entries:
        yield path, one
        for index, branch in enumerate(one.branches):
            yield from _entries(branch, f"{path}{one.key}/{index}/")


def new_row(
    context: Context,
    tool: Tool,
    arguments: JSON,
    flow_id: bytes,
    caller: CallerInfo,
    *,
    journal: Journal,
    is_whole: bool,
    detach: Detach,
    version: str | None,
    trace: str | None,
) -> TaskRow:
    """Return the first row of a task.

    Args:
        context: The request that creates it.
        tool: Its tool.
        arguments: The arguments as the client sent them.
        flow_id: The id of its flow.
        caller: The outcome of `Caller()`.
        journal: The journal so far.
        is_whole: Whether the whole flow is a task.
        detach: Its `ttl` and its `poll_interval`.
        version: The handler's declared version when the flow started.
        trace: The trace context of the first request.
    """
    tasks = context.app.tasks
    assert tasks is not None  # `can_follow` has checked it
    now = context.clock()
    poll = detach.poll_interval
    return TaskRow(
        id=task_id(flow_id, journal),
        tool=tool.name,
        arguments=arguments,
        owner=context.peer.principal,
        capabilities=context.meta.capabilities,
        caller=caller,
        flow_id=flow_id,
        is_whole=is_whole,
        created=now,
        updated=now,
        version=version,
        trace=trace,
        journal=journal.dumps(),
        ttl=tasks.ttl if detach.ttl is None else detach.ttl,
        poll_interval=tasks.poll_interval if poll is None else poll,
    )


def create_task(context: Context, row: TaskRow) -> Generator[Command, Any, TaskRow]:
    """Store a new task; return it, or the task that has this id already.

    Raises:
        ToolError: If there are too many.
        ProtocolError: If it could not be stored. The tool has not failed, and the same
            request may be sent again.
    """
    try:
        stored: TaskRow = yield from _ask(_host(context).create, row=row)
    except TaskLimitError as exc:
        raise ToolError(str(exc)) from None
    except TaskStoreError as exc:
        raise error_of(exc, row.tool) from None
    return stored


# ---- the methods --------------------------------------------------------------------


def get_task(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Return the fields of `tasks/get`'s result."""
    return task_fields((yield from _find(context)))


def update_task(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Store the answers of `tasks/update`; return the fields of its result, which has none.

    Answers to questions that are not outstanding are ignored: they were answered before,
    or withdrawn.
    """
    row = yield from _find(context)
    answers = context.request.params.get("inputResponses")
    if not isinstance(answers, dict):
        raise _invalid("inputResponses is required, and is an object")
    mail = [
        Mail(f"answer:{key}", "answer", key, answers[key])
        for key in row.questions
        if key in answers
    ]
    if mail:
        yield from _ask(_host(context).post, id_=row.id, mail=mail)
    return {}


def cancel_task(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Ask a task to end; return the fields of `tasks/cancel`'s result, which has none."""
    row = yield from _find(context)
    if not row.is_ended:
        mail = [Mail("cancel", "cancel")]
        yield from _ask(_host(context).post, id_=row.id, mail=mail)
    return {}


def readable_tasks(
    context: Context, ids: list[str]
) -> Generator[Command, Any, list[str]]:
    """Return the ids of the tasks that this client may follow.

    Raises:
        ProtocolError: If the client did not declare the extension.
    """
    if not _is_declared(context):
        raise _missing_extension()
    tasks, owner = context.app.tasks, context.peer.principal
    if tasks is None:
        return []

    def readable() -> list[str]:
        return [
            id_
            for id_ in dict.fromkeys(ids)
            if (row := tasks.read(id_)) is not None and row.owner == owner
        ]

    found: list[str] = yield from _ask(readable)
    return found


def _find(context: Context) -> Generator[Command, Any, TaskRow]:
    """Return the task that a request names.

    Raises:
        ProtocolError: If the client cannot follow tasks, or has no such task.
    """
    # First, so that a client without the extension learns nothing about the task.
    if not _is_declared(context):
        raise _missing_extension()
    id_ = context.request.params.get("taskId")
    if not isinstance(id_, str):
        raise _invalid("taskId is required, and is a string")
    row: TaskRow | None = yield from _ask(_host(context).read, id_=id_)
    if row is None or row.owner != context.peer.principal:
        raise ProtocolError(INVALID_PARAMS, "Task not found")
    return row


def _host(context: Context) -> TaskHost:
    tasks = context.app.tasks
    assert tasks is not None  # without one, these methods do not exist
    return tasks


def _ask(function: Any, **kwargs: Any) -> Generator[Command, Any, Any]:
    # The store may block, so the driver calls its functions in a worker thread.
    outcome = yield Invoke(function, kwargs)
    if isinstance(outcome, Failure):
        raise outcome.error
    return outcome.value


def _invalid(problem: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {problem}")
