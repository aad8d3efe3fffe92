"""Run the turns of tasks beside a transport."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from ..logs import logger_for
from ..server.changes import Change
from ..tasks.restate import RestateTasks
from ..tasks.sqlite import SqliteTasks
from ..tasks.worker import work

if TYPE_CHECKING:
    from ..drivers.loops import Loop
    from ..exchange.task_rows import TaskHost
    from ..server.app import Server

__all__ = ["run_turns", "working"]

logger = logger_for("effectmcp.server")


@asynccontextmanager
async def working(
    loop: Loop, app: Server, *, grace: float = 5.0
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
    loop: Loop, app: Server, tasks: TaskHost | None, grace: float
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
    loop: Loop,
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
        self, loop: Loop, app: Server, tasks: SqliteTasks, *, concurrency: int
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
