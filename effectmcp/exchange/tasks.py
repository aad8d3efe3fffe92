"""Tasks on the wire: how a call becomes one, and the methods that follow it.

Each request is checked separately: a client declares the extension in each (Tasks
extension, Capability Negotiation), and only the user who started a task may see it. A
task of another user and a removed task get the same error as an unknown id.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextvars import copy_context
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from ..canonical import JSON, dumps
from ..effects.control import Detach
from ..effects.local import Sleep
from ..engine.journal import Entry, Journal
from ..engine.stops import Failure, Want
from ..errors import (
    ProtocolError,
    TaskLimitError,
    TaskStoreError,
    ToolError,
    UsageError,
)
from ..protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from ..protocol.meta import RELATED_TASK, TASKS
from ..server.events import QuestionsAnswered, TaskCreated
from ..server.viewers import lacks
from .commands import Command, Invoke, PerformAll
from .results import error_of
from .scopes import check_scopes
from .task_rows import ENDED, Mail, TaskRow
from .task_wires import (
    EXTENSION,
    REQUESTED,
    old_fields,
    old_status,
    related,
    requested_ttl,
)
from .telling import tell

if TYPE_CHECKING:
    from ..effects.local import CallerInfo
    from ..server.app import Server
    from ..server.features import Tool
    from .context import Context
    from .task_rows import TaskHost

__all__ = [
    "can_follow",
    "can_run",
    "cancel_task",
    "create_task",
    "find_task",
    "get_task",
    "is_asked_for",
    "is_task",
    "list_tasks",
    "new_row",
    "post_mail",
    "read_answers_of_task",
    "readable_tasks",
    "task_capability",
    "task_id",
    "update_task",
]

#: Tags of entries that hold what the client said.
_SAID: Final = frozenset({"accepted", "declined", "dismissed", "refused", "invalid"})


def can_run(app: Server) -> bool:
    """Return whether a server runs tasks, so that clients may ask for them."""
    return app.tasks is not None and app.tasks.is_worked


def task_capability(app: Server, principal: str | None) -> JSON:
    """Return what a server declares of tasks to a client of 2025-11-25; `None` for none.

    "Receivers that cannot identify requestors SHOULD NOT declare the `tasks.list`
    capability" (2025-11-25, Task Isolation and Access Control).
    """
    if not can_run(app) or "tasks" not in app.capabilities:
        return None
    listed: dict[str, JSON] = {} if principal is None else {"list": {}}
    return {**listed, "cancel": {}, "requests": {"tools": {"call": {}}}}


def can_follow(context: Context) -> bool:
    """Return whether this call may become a task, for its client and for this server."""
    return can_run(context.app) and _is_wanted(context)


def _is_wanted(context: Context) -> bool:
    wire = context.dialect.tasks
    if wire is None:
        return False
    if wire.is_requested:
        return "task" in context.request.params
    return _is_declared(context)


def is_asked_for(context: Context) -> bool:
    """Return whether the client asks, in this request, that its call becomes a task."""
    wire = context.dialect.tasks
    return wire is not None and wire.is_requested and can_follow(context)


def is_task(context: Context, tool: Tool, *, is_begun: bool) -> bool:
    """Return whether a call is a task from its start.

    Args:
        context: The request.
        tool: Its tool.
        is_begun: Whether the call began with rounds before this request.

    Raises:
        Exception: If the call has to be a task, and cannot be one; or if the client asks
            for a task, and the tool does not allow it.
    """
    if is_asked_for(context):
        requested_ttl(context.request.params)
        if tool.task is None:
            raise ProtocolError(
                METHOD_NOT_FOUND, f"Tool {tool.name} cannot be called as a task"
            )
    if is_begun or not tool.is_whole_task:
        return False
    if can_follow(context):
        return True
    if tool.task == "required":
        raise _no_task(context, tool.name)
    return False


def _no_task(context: Context, name: str) -> Exception:
    """Return the error for a call that has to be a task, where `can_follow` is false."""
    wire = context.dialect.tasks
    if wire is None:
        return ToolError(
            f"{name} is always a task, and the connected client cannot follow tasks."
        )
    if not _is_wanted(context):
        return wire.not_asked(name)
    problem = f"{name} is always a task, and this server runs no tasks"
    return error_of(UsageError(problem), name)


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
    ttl = tasks.ttl if detach.ttl is None else detach.ttl
    if "task" in context.request.params and context.dialect.tasks is REQUESTED:
        wanted = requested_ttl(context.request.params)
        ttl = ttl if wanted is None else min(ttl, wanted)
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
        ttl=ttl,
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
    if context.watched is not None:
        tell(
            context.app,
            TaskCreated(
                number=context.watched.number,
                task=stored.id,
                tool=stored.tool,
                flow_id=stored.flow_id.hex(),
                principal=stored.owner,
                is_new=stored.created == row.created,
            ),
        )
    session = context.peer.session
    if session is not None and context.dialect.tasks is REQUESTED:
        session.news.follow(stored.id, partial(_read_fields, context.app, stored.id))
    return stored


def _read_fields(app: Server, id_: str) -> dict[str, JSON] | None:
    row = None if app.tasks is None else app.tasks.read(id_)
    return None if row is None else old_fields(row)


# ---- the methods --------------------------------------------------------------------


def get_task(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Return the fields of `tasks/get`'s result."""
    wire = context.dialect.tasks
    assert wire is not None  # otherwise the revision has no such method
    return wire.fields((yield from find_task(context)))


def update_task(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Store the answers of `tasks/update`; return the fields of its result, which has none.

    Answers to questions that are not outstanding are ignored: they were answered before,
    or withdrawn.
    """
    row = yield from find_task(context)
    yield from _post_answers(context, row, context.request.params)
    return {}


def _post_answers(
    context: Context, row: TaskRow, params: Mapping[str, JSON]
) -> Generator[Command, Any, None]:
    answers = params.get("inputResponses")
    if not isinstance(answers, dict):
        raise _invalid("inputResponses is required, and is an object")
    mail = [
        Mail(f"answer:{key}", "answer", key, answers[key])
        for key in row.questions
        if key in answers
    ]
    yield from post_mail(context, row, mail)


def post_mail(
    context: Context, row: TaskRow, mail: list[Mail]
) -> Generator[Command, Any, None]:
    """Store answers for a task, if there are some."""
    if not mail:
        return
    yield from _ask(_host(context).post, id_=row.id, mail=mail)
    if context.watched is not None:
        tell(
            context.app,
            QuestionsAnswered(
                flow_id=row.flow_id.hex(),
                method="tools/call",
                target=row.tool,
                principal=context.peer.principal,
                task=row.id,
                answers={one.key: one.value for one in mail},
            ),
        )


def cancel_task(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Ask a task to end; return the fields of `tasks/cancel`'s result."""
    row = yield from find_task(context)
    if context.dialect.tasks is REQUESTED:
        return (yield from _cancel_now(context, row))
    if not row.is_ended:
        mail = [Mail("cancel", "cancel")]
        yield from _ask(_host(context).post, id_=row.id, mail=mail)
    return {}


def _cancel_now(
    context: Context, row: TaskRow
) -> Generator[Command, Any, dict[str, JSON]]:
    """Cancel a task of 2025-11-25; return its fields.

    "Receivers MUST reject cancellation requests for tasks already in a terminal status",
    and others "MUST transition the task to `cancelled` status before sending the
    response" (Tasks, Task Cancellation): so wait until its turn has the message.
    """
    if old_status(row) in ENDED:
        raise _terminal(row)
    host, pause = _host(context), _PAUSE
    yield from _ask(host.post, id_=row.id, mail=[Mail("cancel", "cancel")])
    until = context.clock() + _PATIENCE
    while context.clock() < until:
        found: TaskRow | None = yield from _ask(host.read, id_=row.id)
        if found is None or (found.is_ended and found.cancelled_at is None):
            raise _terminal(found or row)
        if found.cancelled_at is not None:
            return old_fields(found)
        yield PerformAll((Want("task", Sleep(pause), copy_context()),))
        pause = min(2 * pause, _LONGEST)
    raise ProtocolError(
        INTERNAL_ERROR, "The task will be cancelled, and has not noticed yet"
    )


#: Seconds between two looks whether a task was cancelled: the first pause, the longest,
#: and all of them together.
_PAUSE: Final = 0.01
_LONGEST: Final = 0.32
_PATIENCE: Final = 30.0


def _terminal(row: TaskRow) -> ProtocolError:
    return _invalid(f"the task is already in the terminal status {old_status(row)}")


def list_tasks(context: Context) -> Generator[Command, Any, dict[str, JSON]]:
    """Return the fields of `tasks/list`'s result: the tasks of this user.

    Raises:
        ProtocolError: If the client is anonymous: it would see the tasks of strangers
            (2025-11-25, Task Isolation and Access Control).
    """
    owner = context.peer.principal
    if owner is None:
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found")
    after = _cursor_of(context.request.params.get("cursor"))
    size = context.app.page_size
    rows: list[TaskRow] = yield from _ask(
        _host(context).owned, owner=owner, after=after, limit=size + 1
    )
    shown = [row for row in rows[:size] if _may_follow(context, row)]
    page: dict[str, JSON] = {"tasks": [old_fields(row) for row in shown]}
    if len(rows) > size:
        page["nextCursor"] = f"{_CURSOR}{rows[size - 1].id}"
    return page


def _may_follow(context: Context, row: TaskRow) -> bool:
    tool = context.app.tools.get(row.tool)
    return tool is None or not lacks(tool, context.peer.scopes)


_CURSOR: Final = "after-"


def _cursor_of(cursor: JSON) -> str:
    """Return the id behind which a page begins."""
    if cursor is None:
        return ""
    id_ = cursor.removeprefix(_CURSOR) if isinstance(cursor, str) else ""
    if cursor != f"{_CURSOR}{id_}" or not id_.isalnum() or not id_.isascii():
        raise _invalid("no such cursor")
    return id_


def read_answers_of_task(
    context: Context,
) -> Generator[Command, Any, dict[str, JSON]]:
    """Store the answers of the drafts' `tasks/input_response`; return its fields."""
    params = context.request.params
    meta = params.get("_meta")
    named = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
    id_ = named.get("taskId") if isinstance(named, dict) else params.get("taskId")
    row = yield from find_task(context, id_)
    yield from _post_answers(context, row, params)
    return {"_meta": related(row.id)}


def readable_tasks(
    context: Context, ids: list[str]
) -> Generator[Command, Any, list[str]]:
    """Return the ids of the tasks that this client may follow.

    Raises:
        ProtocolError: If the client did not declare the extension.
    """
    if not _is_declared(context):
        raise EXTENSION.not_asked("")
    tasks, owner = context.app.tasks, context.peer.principal
    if tasks is None:
        return []

    def readable() -> list[str]:
        return [
            id_
            for id_ in dict.fromkeys(ids)
            if (row := tasks.read(id_)) is not None
            and row.owner == owner
            and _may_follow(context, row)
        ]

    found: list[str] = yield from _ask(readable)
    return found


def find_task(context: Context, id_: JSON = None) -> Generator[Command, Any, TaskRow]:
    """Return the task that a request names.

    Args:
        context: The request.
        id_: The id; by default the parameter `taskId`.

    Raises:
        ProtocolError: If the client cannot follow tasks, or has no such task.
    """
    # First, so that a client without the extension learns nothing about the task.
    if context.dialect.tasks is EXTENSION and not _is_declared(context):
        raise EXTENSION.not_asked("")
    id_ = context.request.params.get("taskId") if id_ is None else id_
    if not isinstance(id_, str):
        raise _invalid("taskId is required, and is a string")
    row: TaskRow | None = yield from _ask(_host(context).read, id_=id_)
    if row is None or row.owner != context.peer.principal:
        raise ProtocolError(INVALID_PARAMS, "Task not found")
    tool = context.app.tools.get(row.tool)
    if tool is not None and tool.scopes:
        check_scopes(context, tool)
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
