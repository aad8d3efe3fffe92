"""`effectmcp tasks list|show|cancel|retry`: look after the tasks of a server."""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .journals import entry_lines
from .layout import columns
from .output import is_terminal, say_error
from .printable import json_text, printable

if TYPE_CHECKING:
    from ..exchange.task_rows import TaskRow
    from ..tasks.operators import Waiting
    from ..tasks.stores import Store, Stored

__all__ = ["add"]

#: Characters of an id in the table, if they are enough.
_SHORT: Final = 8


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "tasks",
        help="look after the tasks of a server",
        description="Look at the tasks that a server keeps, cancel them, and retry parked"
        " tasks. This works while servers and workers run.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, text, run in _ACTIONS:
        action = actions.add_parser(name, help=text, description=f"{_DETAILS[name]}")
        if name == "list":
            action.add_argument(
                "--limit",
                type=int,
                default=1_000,
                metavar="N",
                help="the most tasks to list, the last changed first (1000)",
            )
        else:
            action.add_argument(
                "id", metavar="ID", help="the id of the task, or enough of its start"
            )
        action.add_argument(
            "--tasks",
            required=True,
            metavar="PATH",
            help="the file, or the URL of an engine, as for serve",
        )
        action.add_argument(
            "--json", action="store_true", help="print one JSON value, for programs"
        )
        action.set_defaults(run=run)


_DETAILS: Final = {
    "list": "List the tasks, the last changed first.",
    "show": "Show all that is kept of a task: its record, its journal, what it waits for,"
    " and why it is parked. That includes its arguments, and answers of its user.",
    "cancel": "Ask a task to end. Its handler cleans up first, and steps that run may"
    " end; its status then changes to cancelled.",
    "retry": "Try a parked task again, after the server was corrected.",
}


def _list(options: argparse.Namespace) -> int:
    from ..errors import UsageError
    from ..tasks.operators import described, open_store

    if options.limit < 1:
        raise UsageError("--limit: give 1 or more")
    with open_store(options.tasks) as tasks:
        found = tasks.look_up(limit=options.limit)
    now = time.time()
    if options.json:
        _print_json([described(one, now=now) for one in found])
        return 0
    if not found:
        say_error("there are no tasks")
        return 0
    for line in _table(found, now, room=_room()):
        print(line)
    return 0


def _show(options: argparse.Namespace) -> int:
    from ..tasks.operators import find_one, open_store

    with open_store(options.tasks) as tasks:
        task = find_one(tasks, options.id)
    if options.json:
        _print_json(_everything(task, time.time()))
        return 0
    for line in _lines(task, time.time()):
        print(printable(line))
    return 0


def _cancel(options: argparse.Namespace) -> int:
    from ..tasks.operators import cancel

    return _send(options, cancel, "task {} is asked to end")


def _retry(options: argparse.Namespace) -> int:
    from ..tasks.operators import retry

    return _send(options, retry, "task {} is tried again")


def _send(
    options: argparse.Namespace,
    post: Callable[[Store, Stored], None],
    said: str,
) -> int:
    from ..tasks.operators import described, find_one, open_store

    with open_store(options.tasks) as tasks:
        task = find_one(tasks, options.id)
        post(tasks, task)
        task = find_one(tasks, task.row.id)
    if options.json:
        _print_json(described(task, now=time.time()))
    else:
        print(said.format(task.row.id))
    return 0


_ACTIONS: Final = (
    ("list", "list the tasks", _list),
    ("show", "show all that is kept of a task", _show),
    ("cancel", "ask a task to end", _cancel),
    ("retry", "try a parked task again", _retry),
)


# ---- for programs -------------------------------------------------------------------


def _print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def _everything(task: Stored, now: float) -> dict[str, Any]:
    from ..exchange.task_rows import wire_time
    from ..tasks.operators import described, due_times, journal_of, unfinished_steps

    row = task.row
    journal = journal_of(row)
    return described(task, now=now) | {
        "arguments": row.arguments,
        "inputRequests": dict(row.questions),
        "result": row.result,
        "error": row.error,
        "report": row.report,
        "version": row.version,
        "mail": list(task.mail),
        "due": [
            {"place": one.place, "at": wire_time(one.at)} for one in due_times(journal)
        ],
        "begun": unfinished_steps(journal),
        "tries": {
            key: {"failed": count, "nextAt": wire_time(at)}
            for key, (count, at) in row.tries.items()
        },
        "journal": None if journal is None else _entries(journal.entries),
    }


def _entries(entries: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"key": one.key, "tag": one.tag, "value": one.value}
        | ({"branches": [_entries(b) for b in one.branches]} if one.branches else {})
        for one in entries
    ]


# ---- for people ---------------------------------------------------------------------


def _room() -> int | None:
    """Return how many columns a line may have; `None` where it is not a terminal."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def _table(found: Sequence[Stored], now: float, *, room: int | None) -> Iterator[str]:
    from ..tasks.operators import waiting_for

    length = _enough([one.row.id for one in found])
    cells = [("ID", "TOOL", "STATUS", "AGE", "WAITS FOR", "MESSAGE")]
    for one in found:
        row = one.row
        cells.append(
            (
                row.id[:length],
                row.tool,
                _status(row),
                _span(now - row.created),
                _waits(waiting_for(one, now), now),
                row.message or "",
            )
        )
    cells = [tuple(map(printable, line)) for line in cells]  # type: ignore[misc]  # of the same lengths
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = [
            text + " " * (width - columns(text))
            for text, width in zip(line, widths, strict=True)
        ]
        yield _cut("  ".join(padded).rstrip(), room)


def _enough(ids: Sequence[str]) -> int:
    """Return how many characters tell the ids apart."""
    ordered = sorted(ids)
    length = _SHORT
    for one, other in zip(ordered, ordered[1:], strict=False):
        while one[:length] == other[:length] and length < len(one):
            length += 1
    return length


def _cut(line: str, room: int | None) -> str:
    if room is None or columns(line) <= room:
        return line
    while columns(line) >= room:
        line = line[:-1]
    return f"{line}…"


def _status(row: TaskRow) -> str:
    return "parked" if row.is_parked else row.status


def _waits(waiting: Waiting | None, now: float) -> str:
    if waiting is None:
        return "-"
    names = ", ".join(waiting.names)
    match waiting.kind:
        case "retry":
            what = "its operator"
        case "answers":
            what = f"answers: {names}"
        case "step":
            what = f"step {names}" if names else "its turn, which runs"
        case "try":
            what = f"the next try of {names}"
        case "time":
            what = f"a time: {names}"
        case _:
            what = "a process to run it"
    due = "" if waiting.until is None else f", due {_distance(waiting.until, now)}"
    return f"{what}, for {_span(now - waiting.since)}{due}"


def _distance(at: float, now: float) -> str:
    return f"in {_span(at - now)}" if at > now else f"{_span(now - at)} ago"


def _span(seconds: float) -> str:
    """Return a length of time, in its two largest units."""
    left = max(0, int(seconds))
    for unit, name, smaller, other in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if left >= unit:
            more = left % unit // smaller
            return (
                f"{left // unit}{name}{more}{other}"
                if more
                else f"{left // unit}{name}"
            )
    return f"{left}s"


def _lines(task: Stored, now: float) -> Iterator[str]:
    from ..tasks.operators import (
        due_times,
        journal_of,
        unfinished_steps,
        waiting_for,
    )

    row = task.row
    yield f"task      {row.id}"
    yield f"tool      {row.tool}{'' if row.version is None else f', version {row.version}'}"
    yield f"status    {_status(row)}"
    if row.message is not None:
        yield f"message   {row.message}"
    yield f"waits for {_waits(waiting_for(task, now), now)}"
    yield f"owner     {'anonymous' if row.owner is None else row.owner}"
    yield f"created   {_time(row.created, now)}"
    yield f"updated   {_time(row.updated, now)}"
    yield f"expires   {'never' if row.expires is None else _time(row.expires, now)}"
    if row.cancelled_at is not None:
        why = ", because it expired" if row.is_expired else ""
        yield f"cancelled {_time(row.cancelled_at, now)}{why}"
    if task.holder is not None:
        pid, dash, _ = task.holder.partition("-")
        yield f"runs in   {f'process {pid}' if dash else task.holder}"
    if task.mail:
        yield f"mail      {', '.join(task.mail)}: not read yet"
    yield f"arguments {json_text(row.arguments)}"
    if row.trace is not None:
        yield f"trace     {row.trace}"
    journal = journal_of(row)
    for key, question in row.questions.items():
        yield f"asked     {key}: {_words(question)}"
    for due in due_times(journal):
        yield f"due       {due.place} {_time(due.at, now)}"
    for place, count in unfinished_steps(journal).items():
        times = "once" if count == 1 else f"{count} times"
        yield f"started   {place}, {times}, and it has no outcome"
    for key, (count, at) in row.tries.items():
        times = "once" if count == 1 else f"{count} times"
        yield f"failed    {key}, {times}; the next try is {_time(at, now)}"
    if journal is None:
        yield "journal   of a format that this version cannot read"
    elif journal.entries:
        if journal.generation:
            yield f"restarts  {journal.generation}"
        yield "recorded"
        yield from entry_lines(journal.entries, "  ")
    if row.result is not None:
        yield f"result    {json_text(row.result)}"
    if row.error is not None:
        yield f"error     {json_text(row.error)}"
    if row.report is not None:
        yield "report"
        for line in row.report.splitlines():
            yield f"  {line}"


def _words(question: Any) -> str:
    params = question.get("params", {}) if isinstance(question, dict) else {}
    message = params.get("message") if isinstance(params, dict) else None
    if isinstance(message, str):
        return json_text(message)
    method = question.get("method", "") if isinstance(question, dict) else ""
    return str(method)


def _time(seconds: float, now: float) -> str:
    try:
        text = dt.datetime.fromtimestamp(int(seconds), dt.UTC).isoformat(" ")
    except (ValueError, OverflowError, OSError):
        return "never"  # further away than dates reach
    ago = (
        f"{_span(now - seconds)} ago"
        if seconds <= now
        else f"in {_span(seconds - now)}"
    )
    return f"{text} ({ago})"
