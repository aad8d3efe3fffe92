"""Run the turns of tasks that are kept in SQLite, on a loop: trio or asyncio.

    await work(loop, app, tasks)

`loop` is `drivers.trio` or `drivers.asyncio`. A task is claimed when its turn is due, and
given back when the turn has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from attrs import define

from ..errors import TaskStoreError
from ..exchange.task_rows import Mail, TaskRow
from ..logs import logger_for
from .playing import RunningTurn
from .sqlite import Lease, SqliteTasks, TakenOverError

if TYPE_CHECKING:
    from ..drivers.local import Ringing
    from ..drivers.loops import Loop
    from ..server.app import Server

__all__ = ["work"]

logger = logger_for("effectmcp.tasks")

#: Seconds to wait after a failure of the store.
_PAUSE = 1.0


async def work(
    loop: Loop,
    app: Server,
    tasks: SqliteTasks,
    *,
    concurrency: int = 32,
    give: Callable[[Callable[[], None]], None] = lambda stop: None,
) -> None:
    """Run turns of tasks until cancelled, or stopped.

    Args:
        loop: The loop that runs this.
        app: The server, inside of `running(app)`.
        tasks: The store.
        concurrency: The most turns that run at once here.
        give: Called with a function that stops the work: no turn begins, no turn begins
            another step, and `work` returns when the running steps have ended. Any
            thread may call that function.
    """
    bell = loop.Bell()
    turns: dict[str, _Leased] = {}
    is_stopping = False

    def stop() -> None:
        nonlocal is_stopping
        is_stopping = True
        bell.ring()

    def changed(id_: str) -> None:
        one = turns.get(id_)
        if one is None:
            bell.ring()
        else:
            one.ring()

    end = tasks.watch(changed, is_worker=True)
    give(stop)
    try:
        async with loop.crew() as spawn:
            while turns or not is_stopping:
                free = 0 if is_stopping else concurrency - len(turns)
                pause: float | None = None
                try:
                    if free and tasks.is_due():
                        claim = tasks.claim(free)
                        claim.add_done_callback(lambda _: bell.ring())
                        while not claim.done():
                            await bell.wait()
                        for lease in claim.result():
                            one = _Leased(tasks, lease, loop.Bell())
                            turns[lease.row.id] = one
                            running = RunningTurn(
                                loop, app, one, one.bell, spawn, lambda: is_stopping
                            )
                            spawn(partial(_run, running, one, turns, bell))
                    free = 0 if is_stopping else concurrency - len(turns)
                    wake = tasks.next_wake() if free else None
                    if wake is not None:
                        pause = max(0.0, wake - time.time())
                except TaskStoreError as exc:
                    logger.error("no turn can be begun: %s", exc)
                    pause = _PAUSE
                await bell.wait(pause)
    finally:
        end()


async def _run(
    running: RunningTurn, one: _Leased, turns: dict[str, _Leased], bell: Ringing
) -> None:
    is_cut_off = True
    try:
        is_cut_off = not await _play(running, one.lease.row, one.bell)
    finally:
        del turns[one.lease.row.id]
        one.release(bell, is_cut_off=is_cut_off)


async def _play(running: RunningTurn, row: TaskRow, bell: Ringing) -> bool:
    """Run a turn; return whether it is this process's last word. Errors are logged."""
    try:
        await running.play(row)
    except TakenOverError as exc:
        logger.warning("a turn was not accepted: %s", exc)
    except TaskStoreError as exc:
        logger.error("the turn of task %s (%s) is lost: %s", row.id, row.tool, exc)
        await bell.wait(_PAUSE)
        return False
    except Exception:
        # An error of this package: other tasks continue, and this one is tried again
        # later, but never in a hot loop.
        logger.exception("the turn of task %s (%s) failed", row.id, row.tool)
        await bell.wait(_PAUSE)
        return False
    return True


@define(eq=False)
class _Leased:
    """A task that this process holds for a turn: its `Keeper`."""

    _tasks: SqliteTasks
    lease: Lease
    bell: Ringing
    _read: int = 0
    #: Whether there may be mail that was not read.
    _has_rung: bool = True

    def ring(self) -> None:
        """Wake the turn: mail may have arrived. Any thread may call this."""
        self._has_rung = True
        self.bell.ring()

    def release(self, bell: Ringing, *, is_cut_off: bool) -> None:
        """Give the task back; ring `bell` when it can be claimed again."""
        self._tasks.release(self.lease, bell.ring, is_cut_off=is_cut_off)

    def take_mail(self) -> list[Mail]:
        """Return the mail that has come since the last time."""
        if not self._has_rung:
            return []
        self._has_rung = False
        mail, self._read = self._tasks.mail(self.lease, self._read)
        return mail

    async def save(self, row: TaskRow, dropped: Sequence[str]) -> None:
        """Store the row durably, and drop mail."""
        ended: list[Future[bool]] = []

        def then(future: Future[bool]) -> None:
            ended.append(future)
            self.bell.ring()

        self._tasks.save(self.lease, row, dropped, self._read, then)
        while not ended:
            await self.bell.wait()
        if ended[0].result():
            self._has_rung = True

    async def settle(self) -> None:
        """Wait for nothing: `save` has done so."""
