"""Run the turns of tasks on a loop, trio or asyncio: the part that waits.

    await work(loop, app, tasks)

`loop` is `drivers.trio` or `drivers.asyncio`. `turn` decides; this module executes its
commands: it saves, performs, waits, and reads the mail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..engine.stops import Done, Failure, Want
from ..errors import TaskStoreError
from ..exchange.task_rows import Mail
from .sqlite import Lease, SqliteTasks, TakenOverError
from .turn import (
    Forget,
    ReadMail,
    Save,
    Start,
    TellTime,
    TurnCommand,
    Wait,
    turn,
)

if TYPE_CHECKING:
    from ..drivers.local import Ringing
    from ..server.app import Server

__all__ = ["WorkLoop", "is_cancelled", "work"]

logger = logging.getLogger("effectmcp.tasks")

#: Seconds to wait after a failure of the store.
_PAUSE = 1.0


class WorkLoop(Protocol):
    """`drivers.trio` or `drivers.asyncio`."""

    @property
    def Bell(self) -> Callable[[], Ringing]: ...

    @property
    def attempt(self) -> Callable[[Server, Want], Awaitable[Done | Failure]]: ...

    @property
    def crew(self) -> Callable[[], Any]: ...


_cancelled: ContextVar[Callable[[], bool]] = ContextVar("_cancelled")


def is_cancelled() -> bool:
    """Return whether the task of this running step was asked to end.

    A step that has started is not stopped: a long one can call this regularly, and return.
    """
    return _cancelled.get(bool)()


async def work(
    loop: WorkLoop,
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
    turns: dict[str, _RunningTurn] = {}
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
                            one = _RunningTurn(
                                loop, app, tasks, lease, spawn, lambda: is_stopping
                            )
                            turns[lease.row.id] = one
                            spawn(partial(_run, one, turns, bell))
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
    one: _RunningTurn, turns: dict[str, _RunningTurn], bell: Ringing
) -> None:
    is_cut_off = True
    try:
        await one.play()
        is_cut_off = one.is_lost
    finally:
        del turns[one.lease.row.id]
        one.release(bell, is_cut_off=is_cut_off)


@define(eq=False)
class _RunningTurn:
    """One turn of one task, which this process holds."""

    _loop: WorkLoop
    _app: Server
    _tasks: SqliteTasks
    lease: Lease
    _spawn: Callable[[Callable[[], Awaitable[None]]], None]
    _is_stopping: Callable[[], bool]
    _read: int = 0
    _mail: list[Mail] = field(factory=list)
    #: Whether there may be mail that was not read.
    _has_rung: bool = True
    _outcomes: dict[str, Done | Failure] = field(factory=dict)
    _running: set[str] = field(factory=set)
    _told: set[str] = field(factory=set)
    _bell: Any = None
    is_lost: bool = False

    def ring(self) -> None:
        """Wake the turn: mail may have arrived. Any thread may call this."""
        self._has_rung = True
        if self._bell is not None:
            self._bell.ring()

    async def play(self) -> None:
        """Run the turn; give the task back. Errors are only logged."""
        self._bell = self._loop.Bell()
        row = self.lease.row
        going = turn(self._app, row, self._is_stopping)
        try:
            command: TurnCommand = next(going)
            while True:
                try:
                    outcome = await self._obey(command)
                except TaskStoreError as exc:
                    command = going.throw(exc)
                else:
                    command = going.send(outcome)
        except StopIteration:
            pass
        except TakenOverError as exc:
            logger.warning("a turn was not accepted: %s", exc)
        except TaskStoreError as exc:
            logger.error("the turn of task %s (%s) is lost: %s", row.id, row.tool, exc)
            self.is_lost = True
            await self._bell.wait(_PAUSE)
        except Exception:
            # An error of this package: other tasks continue, and this one is tried again
            # later, but never in a hot loop.
            logger.exception("the turn of task %s (%s) failed", row.id, row.tool)
            self.is_lost = True
            await self._bell.wait(_PAUSE)
        finally:
            going.close()

    def release(self, bell: Ringing, *, is_cut_off: bool) -> None:
        """Give the task back; ring `bell` when it can be claimed again."""
        self._tasks.release(self.lease, bell.ring, is_cut_off=is_cut_off)

    async def _obey(self, command: TurnCommand) -> Any:
        match command:
            case TellTime():
                return time.time()
            case ReadMail():
                mail, self._mail = [*self._mail, *self._new_mail()], []
                return mail
            case Save(row, dropped):
                return await self._save(
                    partial(self._tasks.save, self.lease, row, dropped)
                )
            case Start(wants):
                self._running |= {want.key for want in wants}
                for want in wants:
                    want.context.run(_cancelled.set, partial(self._is_told, want.key))
                    # A new task has a copy of the context that starts it.
                    want.context.run(self._spawn, partial(self._perform, want))
                return None
            case Wait(until):
                return await self._wait(until)
            case Forget(keys, is_over):
                self._told |= set(keys)
                if is_over:
                    self._running -= set(keys)
                return None

    def _new_mail(self) -> list[Mail]:
        if not self._has_rung:
            return []
        self._has_rung = False
        mail, self._read = self._tasks.mail(self.lease, self._read)
        return mail

    async def _save(self, save: Callable[..., None]) -> None:
        ended: list[Future[bool]] = []

        def then(future: Future[bool]) -> None:
            ended.append(future)
            self._bell.ring()

        save(self._read, then)
        while not ended:
            await self._bell.wait()
        if ended[0].result():
            self._has_rung = True

    def _is_told(self, key: str) -> bool:
        return key in self._told

    async def _perform(self, want: Want) -> None:
        outcome: Done | Failure
        try:
            outcome = await self._loop.attempt(self._app, want)
        except Exception as exc:
            outcome = Failure(exc)
        if want.key in self._running:
            self._running.discard(want.key)
            self._outcomes[want.key] = outcome
            self._bell.ring_here()

    async def _wait(self, until: float | None) -> dict[str, Done | Failure]:
        while not self._outcomes:
            self._mail += self._new_mail()
            left = None if until is None else max(0.0, until - time.time())
            if self._mail or left == 0.0:
                break
            await self._bell.wait(left)
        outcomes, self._outcomes = self._outcomes, {}
        return outcomes
