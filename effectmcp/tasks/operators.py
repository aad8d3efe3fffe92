"""Look at the tasks of a store, and send them mail, while servers run on it.

    with open_store("tasks.db") as tasks:
        retry(tasks, find_one(tasks, "3f2a"))

Everything an operator does is mail, so that no running turn is disturbed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from ..canonical import JSON
from ..engine.journal import Journal, JournalError
from ..errors import UsageError
from ..exchange.task_rows import Mail, TaskRow, task_fields, wire_time

if TYPE_CHECKING:
    from .stores import Store, Stored

__all__ = [
    "Due",
    "Waiting",
    "cancel",
    "described",
    "due_times",
    "find_one",
    "journal_of",
    "open_store",
    "retry",
    "unfinished_steps",
    "waiting_for",
]


@contextmanager
def open_store(place: str | os.PathLike[str]) -> Iterator[Store]:
    """Open a file of tasks that exists, or an engine by its URL; close it at the end.

    Raises:
        UsageError: If there is no such file, or it cannot be used.
    """
    from .restate import RestateTasks, is_engine

    tasks: Store
    if is_engine(place):
        tasks = RestateTasks.from_url(place)
    else:
        tasks = _existing(Path(place))
    try:
        yield tasks
    finally:
        tasks.close()


def _existing(file: Path) -> Store:
    from .sqlite import SqliteTasks

    try:
        if not file.exists():
            raise UsageError(f"there is no file {str(file)!r}")
        if not file.is_file():
            raise UsageError(f"{str(file)!r} is not a file")
        if not file.stat().st_size:
            raise UsageError(f"{str(file)!r} is empty: no server has kept tasks in it")
    except OSError as exc:
        raise UsageError(f"{str(file)!r}: {exc.strerror or exc}") from None
    if not os.access(file, os.R_OK | os.W_OK):
        # SQLite locks the file for readers, too.
        raise UsageError(f"{str(file)!r} may not be read and written by this user")
    tasks = SqliteTasks(file)
    tasks.open()
    return tasks


def find_one(tasks: Store, start: str) -> Stored:
    """Return the task with this id, or the only task whose id starts so.

    Raises:
        UsageError: If there is no such task, or there are several.
    """
    found = tasks.look_up([start], limit=2) if start else []
    if not found:
        raise UsageError(f"there is no task {start!r}")
    if len(found) > 1:
        raise UsageError(f"several tasks start with {start!r}: give more of the id")
    return found[0]


def cancel(tasks: Store, task: Stored) -> None:
    """Ask a task to end. It is cancelled in its next turn, after its cleanup.

    Raises:
        UsageError: If it has ended.
        TaskStoreError: If the request could not be stored.
    """
    row = task.row
    if row.is_ended:
        raise UsageError(f"task {row.id} has ended: it is {row.status}")
    tasks.post(row.id, [Mail("cancel", "cancel")])


def retry(tasks: Store, task: Stored) -> None:
    """Have a parked task tried again.

    Raises:
        UsageError: If it is not parked.
        TaskStoreError: If the request could not be stored.
    """
    row = task.row
    if not row.is_parked:
        raise UsageError(
            f"task {row.id} is not parked: it is {row.status}. Only a parked task can be"
            " tried again"
        )
    tasks.post(row.id, [Mail("retry", "retry")])


# ---- what a task does ---------------------------------------------------------------


@frozen
class Waiting:
    """The reason why a task waits.

    Attributes:
        kind: The kind: `retry` and `answers` are up to people, `turn` to a process; a
            task that waits for `step` is at work.
        names: The keys of the questions, steps or timers.
        since: When it was saved like this, in seconds since 1970.
        until: When it continues even if nothing happens; `None` for never.
    """

    kind: str
    names: tuple[str, ...]
    since: float
    until: float | None = None


@frozen
class Due:
    """A time that a task waits for, in seconds since 1970; and the place of its timer."""

    place: str
    at: float


def journal_of(row: TaskRow) -> Journal | None:
    """Return the journal of a task; `None` if this version cannot read it."""
    try:
        return Journal.loads(row.journal)
    except JournalError:
        return None


def due_times(journal: Journal | None) -> list[Due]:
    """Return the times that sleeps and deadlines wait for, the next one first."""
    places = {} if journal is None else journal.places
    found = [
        Due(place, one.due) for place, one in places.items() if one.due is not None
    ]
    return sorted(found, key=lambda one: one.at)


def unfinished_steps(journal: Journal | None) -> dict[str, int]:
    """Return how often each step without an outcome was started, by its place."""
    places = {} if journal is None else journal.places
    return {place: one.begun for place, one in places.items() if one.begun}


def waiting_for(task: Stored, now: float | None = None) -> Waiting | None:
    """Return what a task waits for; `None` if it has ended.

    Args:
        task: The task.
        now: The time, in seconds since 1970; by default, the clock tells.
    """
    row = task.row
    now = time.time() if now is None else now
    if row.is_ended:
        return None
    if row.is_parked and "retry" not in task.mail:
        return Waiting("retry", (), row.updated)
    journal = journal_of(row)
    # A step that waits for its next try is marked as started, too.
    pauses = {key: at for key, (_, at) in row.tries.items() if at > now}
    steps = tuple(key for key in unfinished_steps(journal) if key not in pauses)
    if task.holder is not None:
        return Waiting("step", steps, row.updated)
    is_due = row.wake is not None and row.wake <= now
    if is_due or task.mail:
        return Waiting("turn", (), row.updated)
    times = [one for one in due_times(journal) if one.at > now]
    if row.questions:
        until = times[0].at if times else None
        return Waiting("answers", tuple(row.questions), row.updated, until)
    if pauses and (not times or min(pauses.values()) <= times[0].at):
        return Waiting("try", tuple(pauses), row.updated, min(pauses.values()))
    if times:
        return Waiting("time", (times[0].place,), row.updated, times[0].at)
    return Waiting("turn", (), row.updated, row.wake)


def described(task: Stored, *, now: float | None = None) -> dict[str, JSON]:
    """Return a task as JSON: its fields on the wire, and what only operators may see."""
    row = task.row
    waiting = waiting_for(task, now)
    fields = task_fields(row)
    for name in ("inputRequests", "result", "error"):
        fields.pop(name, None)
    return fields | {
        "isParked": row.is_parked,
        "tool": row.tool,
        "owner": row.owner,
        "holder": task.holder,
        "waitsFor": None
        if waiting is None
        else {
            "kind": waiting.kind,
            "names": list(waiting.names),
            "since": wire_time(waiting.since),
            "until": None if waiting.until is None else wire_time(waiting.until),
        },
    }
