"""Run the turns of tasks beside a transport; without a store, keep tasks in memory."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from ..errors import LedgerError, UsageError
from ..logs import logger_for
from ..server.changes import Change
from ..tasks.playing import WorkLoop
from ..tasks.restate import RestateTasks, is_engine
from ..tasks.sqlite import SqliteTasks
from ..tasks.worker import work

if TYPE_CHECKING:
    from ..exchange.task_rows import TaskHost
    from ..server.app import Server

__all__ = ["check_shared", "ensure_tasks", "keep_tasks", "run_turns", "working"]

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


@asynccontextmanager
async def working(
    loop: WorkLoop, app: Server, *, grace: float = 5.0
) -> AsyncIterator[Callable[[], None]]:
    """Run the turns of the server's tasks while the block runs.

    Args:
        loop: `drivers.trio` or `drivers.asyncio`.
        app: The server, inside of `running(app)`.
        grace: Seconds that running steps have to end, from when the work is stopped. In
            memory they have none, because their tasks are lost anyway.

    Yields:
        A function that stops the work before the block ends.

    Raises:
        UsageError: If the store cannot be opened.
    """
    tasks, ledger = app.tasks, app.ledger
    try:
        async with _working(loop, app, tasks, grace) as stop:
            yield stop
    finally:
        # A store of tasks that is the ledger, too, is closed with its turns.
        if isinstance(ledger, (SqliteTasks, RestateTasks)) and id(ledger) != id(tasks):
            ledger.close()


@asynccontextmanager
async def _working(
    loop: WorkLoop, app: Server, tasks: TaskHost | None, grace: float
) -> AsyncIterator[Callable[[], None]]:
    if tasks is None:
        yield lambda: None
        return

    def publish(id_: str) -> None:
        app.changes.publish(Change("task", id_))

    if isinstance(tasks, RestateTasks):
        # The engine is asked for changes only while clients subscribe to some.
        end = tasks.watch(publish, is_needed=lambda: app.changes.has_listeners)
    else:
        end = tasks.watch(publish)
    if not isinstance(tasks, SqliteTasks):
        try:
            yield lambda: None  # turns of another host run elsewhere
        finally:
            end()
            if isinstance(tasks, RestateTasks):
                tasks.close()
        return
    turns = _Turns(loop, app, tasks, concurrency=32)
    tasks.is_worked = True
    try:
        async with loop.crew() as spawn:
            spawn(turns.run)
            yield turns.stop
            turns.stop()
            if tasks.path is not None:
                await turns.wait(grace)
    finally:
        end()
        tasks.is_worked = False
        tasks.close()


async def run_turns(
    loop: WorkLoop,
    app: Server,
    *,
    concurrency: int = 32,
    grace: float = 20.0,
    give: Callable[[Callable[[], None]], None],
) -> None:
    """Run turns of the server's tasks, and serve nothing, until stopped.

    Args:
        loop: `drivers.trio` or `drivers.asyncio`.
        app: The server, inside of `running(app)`.
        concurrency: The most turns that run at once.
        grace: Seconds that running steps have to end once this is stopped. The others
            are performed again elsewhere.
        give: Called with a function that stops this.
    """
    tasks = app.tasks
    assert isinstance(tasks, SqliteTasks)  # `keep_tasks` and the caller have checked it
    turns = _Turns(loop, app, tasks, concurrency=concurrency)
    stopping = loop.Bell()

    def stop() -> None:
        turns.stop()
        stopping.ring()

    give(stop)
    try:
        async with loop.crew() as spawn:
            spawn(turns.run)
            while not turns.is_stopping:
                await stopping.wait()
            await turns.wait(grace)
    finally:
        tasks.close()


class _Turns:
    """The turns that run in this process, and how they are stopped."""

    def __init__(
        self, loop: WorkLoop, app: Server, tasks: SqliteTasks, *, concurrency: int
    ) -> None:
        self._work = partial(work, loop, app, tasks, concurrency=concurrency)
        self._stop: Callable[[], None] = lambda: None
        self._ended = loop.Bell()
        self._has_ended = False
        self._stopped_at: float | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped_at is not None

    async def run(self) -> None:
        """Run turns until they are stopped, and their steps have ended."""
        try:
            await self._work(give=self._give)
        finally:
            self._has_ended = True
            self._ended.ring()

    def _give(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        if self.is_stopping:
            stop()

    def stop(self) -> None:
        """Begin no turn and no step; running steps have their grace."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            self._stop()

    async def wait(self, grace: float) -> None:
        """Wait until the running steps have ended, or had their grace."""
        assert self._stopped_at is not None  # `stop` comes first
        while not self._has_ended:
            left = self._stopped_at + grace - time.monotonic()
            if left <= 0:
                logger.warning(
                    "cancelled steps of tasks still running after %g s", grace
                )
                return
            await self._ended.wait(left)
