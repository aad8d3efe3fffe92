"""The ways in which the answers of a call to a tool arrive, up to the result.

    by_retry     the client sends them with the `requestState`, in a request of their own
    live         the client is asked while its request is answered
    by_drafts    by retry, in the drafts of that protocol
    task_of      by store: the call becomes a task, and a host runs its turns
    in_process   a script or a test answers

The tool is the only one of its server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from effectmcp.drivers import sync
from effectmcp.exchange.results import tool_failure
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.protocol.meta import TASKS
from effectmcp.server import Server
from effectmcp.tasks import SqliteTasks

from ..legacy_client import NEWEST, Answer, Handle, LegacyClient
from ..wire import EVERYTHING, Wire, call_params, fits_reply, meta, request, result

__all__ = ["DRAFT", "by_drafts", "by_retry", "in_process", "live", "task_of"]

DRAFT = "2026-06-XX"

#: Answers some of the questions of a round, by key.
Answers = Callable[[Mapping[str, Wire]], Mapping[str, Wire]]


def _name(app: Server) -> str:
    (name,) = app.tools
    return name


def by_retry(
    app: Server, answers: Answers, told: list[Any], handle: Handle = sync.handle
) -> Wire:
    """Return the result, and append the log messages of the last round to `told`."""
    heard: list[Any] = []
    said: Any = None
    state: Any = None
    for number in range(500):
        params = call_params(_name(app), answers=said, state=state)
        params["_meta"] = meta(log_level="debug")
        message = request("tools/call", params, id=number)
        reply = handle(app, message, send=heard.append)
        fits_reply("tools/call", reply)
        found = result(reply)
        if found["resultType"] == "complete":
            told += data_of(heard)
            return found
        said = answers(found.get("inputRequests", {}))
        state = found["requestState"]
    raise AssertionError("five hundred rounds, and no end")


def live(
    app: Server, answer: Answer, told: list[Any], handle: Handle = sync.handle
) -> Wire:
    """Return the result, and append the log messages to `told`."""
    client = LegacyClient(app, NEWEST, handle=handle)
    found = client.call(_name(app), answer=answer)
    told += data_of(client.told)
    return found


def by_drafts(
    app: Server, answers: Answers, told: list[Any], handle: Handle = sync.handle
) -> Wire:
    """Return the result, and append the log messages to `told`."""
    client = LegacyClient(app, DRAFT, handle=handle)
    params: Wire = {"name": _name(app)}
    while "result_type" in (found := client.result("tools/call", params)):
        assert client.asked == []
        params = {
            "name": _name(app),
            "inputResponses": answers(found.get("inputRequests", {})),
            "requestState": found["requestState"],
        }
    told += data_of(client.told)
    return found


def task_of(app: Server, handle: Handle = sync.handle) -> TaskRow:
    """Return the row of the task that a call has become: no turn of it has run."""
    app.tasks = tasks = SqliteTasks(is_worked=True)
    params = call_params(_name(app))
    params["_meta"] = meta({**EVERYTHING, "extensions": {TASKS: {}}})
    made = result(handle(app, request("tools/call", params)))
    row = tasks.read(made["taskId"])
    tasks.close()
    assert row is not None
    return row


def in_process(app: Server, play: Callable[[Callable[..., Any]], Any]) -> Wire:
    """Return the result of what `play` returns or raises, given the handler."""
    name = _name(app)
    try:
        value = play(app.tools[name].handler.function)
    except Exception as exc:
        return dict(tool_failure(exc, name))
    written = json.loads(json.dumps(value))
    text = json.dumps(written, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": written}


def data_of(messages: list[Wire]) -> list[Any]:
    """Return the data of the log messages."""
    return [
        one["params"]["data"]
        for one in messages
        if one["method"] == "notifications/message"
    ]
