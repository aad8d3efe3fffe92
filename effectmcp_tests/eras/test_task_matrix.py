"""The table "Tasks" of docs/compatibility.md: each cell is what a server does.

A cell is the outcome of requests in that revision. The page has words for it, and this
test has the same words for each outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from effectmcp import Detach, Elicit, Flow, ToolError
from effectmcp.exchange.commands import Reply
from effectmcp.server.changes import Change

from ..exchange.test_task_wires import MODERN, Older, World, world
from ..wire import request, text_of
from .test_matrix import ERAS, table_of

TABLE: Final = table_of("## Tasks")

ASKED = ", if the call has `task`"
DECLARED = ", if the client declares the extension"


def other() -> Flow[str]:
    """Become a task, if possible."""
    return f"a task: {(yield from Detach())}"


def failing() -> Flow[str]:
    """Fail as a tool does."""
    yield from Detach()
    raise ToolError("no")


def code(reply: Reply) -> str:
    """The number of an error, or the kind of a result."""
    assert reply.message is not None
    if "error" in reply.message:
        return str(reply.message["error"]["code"])
    result = reply.message["result"]
    if result.get("isError") and "cannot follow tasks" in text_of(result):
        return "told"
    if result.get("resultType") == "task" or "task" in result:
        return "a task"
    return "inline"


def plainly(one: World, era: str, name: str) -> str:
    """The outcome of a call that neither declares nor asks for tasks."""
    params = {"name": name, "arguments": {}}
    if era == MODERN:
        return code(one.handle(one.app, request("tools/call", params)))
    return code(one.user(era).send("tools/call", params))


def as_task(one: World, era: str, name: str) -> str:
    """The outcome of a call that declares or asks for tasks."""
    return code(one.user(era).call(name))


def told(both: str, alone: str, words: str) -> str:
    """The words for the outcome of a call with and without a wish for a task."""
    if (both, alone) == ("a task", "inline"):
        return f"a task{words}"
    assert both == alone
    return both


def optional(one: World, era: str) -> str:
    found = as_task(one, era, "optional"), plainly(one, era, "optional")
    return told(*found, DECLARED if era == MODERN else ASKED)


def required(one: World, era: str) -> str:
    return plainly(one, era, "required")


def deferred(one: World, era: str) -> str:
    found = as_task(one, era, "deferred"), plainly(one, era, "deferred")
    if found[0] == "inline":
        return "inline"
    return told(*found, "").replace("a task", "a task at its `Detach`") + (
        "" if era == MODERN else ASKED
    )


def another(one: World, era: str) -> str:
    if era == MODERN:
        return as_task(one, era, "other")
    return plainly(one, era, "other")


def not_allowed(one: World, era: str) -> str:
    if era == MODERN:
        params = {"name": "plain", "arguments": {}, "task": {}}
        return code(one.handle(one.app, request("tools/call", params)))
    return as_task(one, era, "plain")


def new_task(one: World, era: str) -> str:
    reply = one.user(era).call("optional")
    assert reply.message is not None
    result = reply.message.get("result", {})
    if result.get("resultType") == "task":
        return '`resultType: "task"`, flat'
    return "in `task`" if "task" in result else "-"


def got(one: World, era: str) -> str:
    user = one.user(era)
    if not has_tasks(era):
        return code(user.send("tasks/get", {"taskId": "x"}))
    found = user.get(user.start("optional"))
    one.play()
    found = user.get(found["taskId"])
    return "status, questions, result" if "result" in found else "status"


def result(one: World, era: str) -> str:
    user = one.user(era)
    if not has_tasks(era) or era == MODERN:
        return code(user.send("tasks/result", {"taskId": "x"}))
    id_ = user.start("asking")
    seen = user.send("tasks/result", {"taskId": id_}, lambda question: YES)
    assert seen.message is not None
    if "inputRequests" in seen.message["result"]:
        return "waits for the end, or for questions"
    assert isinstance(user, Older)
    assert len(user.client.asked) == 1
    return "waits for the end; asks on its stream, if there is a session"


def answered(one: World, era: str) -> str:
    names = ("tasks/update", "tasks/input_response")
    offered = [
        name
        for name in names
        if code(one.user(era).send(name, {"taskId": "x"})) != "-32601"
    ]
    if offered:
        return f"`{offered[0]}`"
    return "replies to questions" if has_tasks(era) else "-"


def listed(one: World, era: str) -> str:
    user, stranger = one.user(era, "ann"), one.user(era, "bob")
    found = code(user.send("tasks/list"))
    if found == "-32601":
        return found
    mine, _ = user.start("optional"), stranger.start("optional")
    shown = [task["taskId"] for task in user.result("tasks/list")["tasks"]]
    assert shown == [mine]
    return "own tasks"


def cancelled(one: World, era: str) -> str:
    user = one.user(era)
    if not has_tasks(era):
        return code(user.send("tasks/cancel", {"taskId": "x"}))
    id_ = user.start("asking")
    one.play()
    result = user.result("tasks/cancel", {"taskId": id_})
    again = code(user.send("tasks/cancel", {"taskId": id_}))
    if "status" not in result:
        assert again == "inline"
        return "acknowledged"
    return f"`{result['status']}`, at once; {again} after the end"


def failed(one: World, era: str) -> str:
    if not has_tasks(era):
        return "-"
    user = one.user(era)
    id_ = user.start("failing")
    one.play()
    return f"`{user.get(id_)['status']}`"


def notified(one: World, era: str) -> str:
    if not has_tasks(era):
        return "-"
    user = one.user(era)
    id_ = user.start("optional")
    if isinstance(user, Older):
        message = user.news.message(Change("task", id_))
        assert message is not None
        return f"`{message['method']}`, to the session that created it"
    # The subscription is tested in exchange/test_tasks.py.
    return "`notifications/tasks`, by subscription"


def has_tasks(era: str) -> bool:
    """Whether a revision has tasks: the page has no cell of another kind for it."""
    return era not in ("2025-06-18", "2025-03-26")


YES: dict[str, Any] = {"result": {"action": "accept", "content": {"value": "Ann"}}}

ROWS: Final[dict[str, Callable[[World, str], str]]] = {
    'a tool with `task="optional"`': optional,
    'a tool with `task="required"`, not asked for': required,
    'a tool with `task="deferred"`': deferred,
    "`Detach` in another tool": another,
    "a call with `task` of any other tool": not_allowed,
    "the new task": new_task,
    "`tasks/get`": got,
    "`tasks/result`": result,
    "answers": answered,
    "`tasks/list`": listed,
    "`tasks/cancel`": cancelled,
    "a result with `isError`": failed,
    "notifications": notified,
}


def asking() -> Flow[str]:
    """Ask once, in a task."""
    return (yield from Elicit("Who?", str))


def test_the_page_has_these_rows_and_columns() -> None:
    assert [row.strip("`") for row in ROWS] == list(TABLE)
    for cells in TABLE.values():
        assert tuple(cells) == ERAS


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("row", ROWS)
def test_cell_is_what_a_server_does(row: str, era: str) -> None:
    one = world(asking, failing)
    one.app.tool(other)
    cell = TABLE[row.strip("`")][era].strip("`")
    assert ROWS[row](one, era).strip("`") == cell
