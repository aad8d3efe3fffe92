"""Tasks of clients: a question that the client of 2025-11-25 answers as a task.

A client that declares `tasks.requests.elicitation.create` may reply to a question at once,
and let its user answer later: the reply names a task of the client, which the server polls
until it ends. So no request of the client stays open for as long as its user thinks.

    server ──→ elicitation/create, with `task` ──→ { task: { taskId, … } }
    server ──→ tasks/get …                     ──→ working … completed
    server ──→ tasks/result                    ──→ the answer

All that a client sends is checked: it chooses how long it is polled, and how often.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from ..canonical import JSON
from ..protocol.jsonrpc import Id
from .commands import Ask, Command, Notify
from .sessions import TaskInquiry

if TYPE_CHECKING:
    from .context import Context
    from .sessions import Running, Session

__all__ = ["follow", "with_task"]

#: Seconds between two polls: by default, and the limits of what a client sets.
_INTERVAL: Final = 1.0
_SHORTEST: Final = 0.1
_LONGEST: Final = 60.0

#: Where a client declares that it answers a method as a task.
_DECLARED: Final[Mapping[str, tuple[str, str]]] = {
    "elicitation/create": ("elicitation", "create"),
    "sampling/createMessage": ("sampling", "createMessage"),
}


def with_task(
    message: Mapping[str, Any], capabilities: Mapping[str, JSON]
) -> Mapping[str, JSON]:
    """Return a question with `task`, if the client may answer it as a task."""
    declared = _DECLARED.get(message["method"])
    if declared is None or not _has(capabilities, "tasks", "requests", *declared):
        return message
    return {**message, "params": {**message["params"], "task": {}}}


def _has(capabilities: Mapping[str, JSON], *names: str) -> bool:
    found: Any = capabilities
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return isinstance(found, dict)


@frozen
class _Task:
    """A task of the client.

    Attributes:
        reply: The id of the question whose reply has named it.
        id: Its id.
        pause: Seconds between two polls.
        is_ended: Whether only its result is missing.
    """

    reply: Id
    id: str
    pause: float = _INTERVAL
    is_ended: bool = False


def follow(
    context: Context,
    session: Session,
    running: Running,
    messages: Mapping[Id, Mapping[str, Any]],
    replies: Mapping[Id, Mapping[str, JSON]],
    until: float | None,
) -> Generator[Command, Any, dict[Id, Mapping[str, JSON]]]:
    """Return the replies to questions; of a task, the reply is its result.

    Args:
        context: The request that has asked.
        session: Its session.
        running: The same request, in the session.
        messages: Its questions, by id.
        replies: The replies to them.
        until: When to stop waiting, in seconds since 1970; `None` for no limit. The
            tasks that run then are cancelled, and have no reply.
    """
    tasks = [
        _Task(id_, task_id, _pause_of(one["result"]["task"]))
        for id_, one in replies.items()
        # Only a question that was asked with `task` may be answered by one.
        if "task" in messages[id_].get("params", {})
        and (task_id := _named(one)) is not None
    ]
    followed = {one.reply for one in tasks}
    found = {id_: one for id_, one in replies.items() if id_ not in followed}
    while tasks and not _is_over(context, running, until):
        if not any(one.is_ended for one in tasks):
            pause = context.clock() + min(one.pause for one in tasks)
            yield from _wait(running, pause if until is None else min(pause, until))
            if _is_over(context, running, until):
                break
        said = yield from _ask_all(session, running, tasks, until)
        left = []
        for task in tasks:
            reply = said.get(task.reply)
            if reply is None:  # the time is up, or the request was cancelled
                left.append(task)
            elif task.is_ended or "error" in reply:
                found[task.reply] = reply
            else:
                left.append(_polled(task, reply))
        tasks = left
    may_cancel = _has(context.meta.capabilities, "tasks", "cancel")
    for task in tasks if may_cancel else ():
        yield Notify(_request(session.new_id(), "tasks/cancel", task.id))
    return found


def _is_over(context: Context, running: Running, until: float | None) -> bool:
    return running.is_cancelled or (until is not None and context.clock() >= until)


def _wait(running: Running, until: float) -> Generator[Command, Any, None]:
    asking = TaskInquiry()
    asking.until = until
    running.wait_for(asking)
    try:
        yield Ask(asking)
    finally:
        running.asking = None


def _ask_all(
    session: Session, running: Running, tasks: list[_Task], until: float | None
) -> Generator[Command, Any, dict[Id, Mapping[str, JSON]]]:
    """Poll each task, or get its result; return the replies by question."""
    requests = [
        (
            partial(
                _request,
                method="tasks/result" if one.is_ended else "tasks/get",
                task_id=one.id,
            ),
            None,
        )
        for one in tasks
    ]
    asking = session.ask(running, requests, until)
    try:
        yield Ask(asking)
    finally:
        session.asked(running)
    pairs = zip(tasks, asking.messages, strict=True)
    return {
        task.reply: asking.replies[id_] for task, id_ in pairs if id_ in asking.replies
    }


def _request(id_: Id, method: str, task_id: str) -> dict[str, JSON]:
    params = {"taskId": task_id}
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def _named(reply: Mapping[str, Any]) -> str | None:
    """Return the id of the task that a reply announces; `None` if it announces none."""
    result = reply.get("result")
    task = result.get("task") if isinstance(result, dict) else None
    id_ = task.get("taskId") if isinstance(task, dict) else None
    return id_ if isinstance(id_, str) else None


def _polled(task: _Task, reply: Mapping[str, Any]) -> _Task:
    result = reply.get("result")
    result = result if isinstance(result, dict) else {}
    # A description without a known status ends the polling: the result is an error then.
    is_open = result.get("status") in ("working", "input_required")
    return evolve(task, pause=_pause_of(result), is_ended=not is_open)


def _pause_of(task: Mapping[str, Any]) -> float:
    milliseconds: Any = task.get("pollInterval")
    # Compared before it is divided: an overlong integer cannot become a float. NaN is
    # not above the limit.
    if type(milliseconds) not in (int, float) or not milliseconds > 0:
        return _INTERVAL
    return max(_SHORTEST, float(min(_LONGEST * 1000, milliseconds)) / 1000)
