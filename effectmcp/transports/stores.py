"""The store of a server's tasks: of its own, of an option, or in memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import LedgerError, UsageError
from ..logs import logger_for
from ..tasks.restate import RestateTasks, is_engine
from ..tasks.sqlite import SqliteTasks

if TYPE_CHECKING:
    from ..exchange.task_rows import TaskHost
    from ..server.app import Server

__all__ = ["check_shared", "ensure_tasks", "keep_tasks"]

logger = logger_for("effectmcp.server")


def keep_tasks(app: Server, place: str | os.PathLike[str] | None) -> None:
    """Keep the tasks of `app` there, as the option `--tasks` asks; open the file.

    Args:
        app: The server. If it has a store for this place, it keeps that.
        place: A file, or the URL of an engine; `None` for the store that the server has
            itself, if any.

    Raises:
        UsageError: If the server keeps its tasks elsewhere, or the file cannot be used.
    """
    if place is not None:
        store = RestateTasks.from_url(place) if is_engine(place) else SqliteTasks(place)
        if app.tasks is None:
            app.tasks = store
        elif not _is_same(app.tasks, store):
            raise UsageError(
                f"--tasks {place}: the server has a store of its own,"
                f" tasks={app.tasks!r}; leave out the option, or remove tasks= from"
                " Server()"
            )
    if isinstance(app.tasks, SqliteTasks):
        app.tasks.open()


def _is_same(one: TaskHost, other: SqliteTasks | RestateTasks) -> bool:
    if isinstance(one, SqliteTasks) and isinstance(other, SqliteTasks):
        paths = one.path, other.path
        return None not in paths and len({*map(os.path.realpath, paths)}) == 1  # type: ignore[arg-type]  # neither is `None`
    return isinstance(one, RestateTasks) and repr(one) == repr(other)


def ensure_tasks(app: Server, *, is_alone: bool) -> None:
    """Keep the tasks of `app` in memory, unless it has a store.

    Args:
        app: The server.
        is_alone: Whether no other process serves it: another one would not find them.

    Raises:
        UsageError: If there is no store or no ledger, and a tool cannot do without.
    """
    if app.tasks is None and is_alone:
        app.tasks = SqliteTasks()
    needing = [tool.name for tool in app.tools.values() if tool.task == "required"]
    if app.tasks is None and needing:
        raise UsageError(
            f"the tool {needing[0]!r} is always a task, and this server keeps none: give"
            " Server(tasks=SqliteTasks(path)), or --tasks PATH"
        )
    counting = [tool.name for tool in app.tools.values() if tool.single_use]
    if app.ledger is None and counting:
        raise LedgerError(f"the tool {counting[0]!r}")
    if counting and app.ledger is not None and not app.ledger.is_shared:
        logger.warning(
            "calls of %r count once, in the memory of this process: after a restart, its"
            " states could be used again if its keys stay. Give --tasks PATH, or"
            " Server(tasks=SqliteTasks(path))",
            counting[0],
        )


def check_shared(app: Server) -> None:
    """Refuse tasks that other processes of this server could not use.

    Raises:
        UsageError: If they are kept in memory, or there is no store or no ledger that all
            share and a tool cannot do without.
    """
    if isinstance(app.tasks, SqliteTasks) and app.tasks.path is None:
        raise UsageError(
            "tasks=SqliteTasks() keeps tasks in the memory of one process, where no other"
            " finds them: give SqliteTasks(path), or remove it and give --tasks PATH"
        )
    ensure_tasks(app, is_alone=False)
    if app.ledger is not None and not app.ledger.is_shared:
        raise UsageError(
            f"ledger={app.ledger!r} counts in one process only: in another one, a call that"
            " counts once would count again. Give SqliteTasks(path), or remove it and give"
            " --tasks PATH"
        )
