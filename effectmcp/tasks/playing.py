"""Play one turn on a loop, trio or asyncio: the part that waits.

`turn` decides; this module executes its commands: it saves, performs, waits, and reads
the mail. Where the row and the mail are kept is up to a `Keeper`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..engine.stops import Done, Failure, Want
from ..errors import TaskStoreError
from ..exchange.task_rows import Mail, TaskRow
from ..logs import logger_for
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
    from ..drivers.loops import Doing, Loop
    from ..server.app import Server

__all__ = ["Keeper", "RunningTurn", "is_cancelled"]

logger = logger_for("effectmcp.tasks")


_cancelled: ContextVar[Callable[[], bool]] = ContextVar("_cancelled")


def is_cancelled() -> bool:
    """Return whether the task of this running step was asked to end.

    A step that has started is not stopped: a long one can call this regularly, and return.
    """
    return _cancelled.get(bool)()


class Keeper(Protocol):
    """Interface of what keeps the row and the mail of one running turn."""

    def take_mail(self) -> list[Mail]:
        """Return the mail that has come since the last time.

        Raises:
            TaskStoreError: If the turn cannot continue.
        """
        ...

    async def save(self, row: TaskRow, dropped: Sequence[str]) -> None:
        """Store the row, and drop mail. It is durable when `settle` has returned.

        Raises:
            TaskStoreError: If that failed.
        """
        ...

    async def settle(self) -> None:
        """Wait until the saved row is durable: before an effect begins, and before a wait.

        Raises:
            TaskStoreError: If that failed.
        """


@define(eq=False)
class RunningTurn:
    """One turn of one task.

    Args:
        loop: The loop that plays it.
        app: The server.
        keeper: Keeps the row and the mail.
        bell: Rings when mail may have arrived.
        spawn: Starts a task of the loop.
        is_stopping: Returns whether no further step should begin.
    """

    _loop: Loop
    _app: Server
    _keeper: Keeper
    _bell: Ringing
    _spawn: Callable[[Doing], None]
    _is_stopping: Callable[[], bool]
    _mail: list[Mail] = field(factory=list)
    _outcomes: dict[str, Done | Failure] = field(factory=dict)
    _running: set[str] = field(factory=set)
    _told: set[str] = field(factory=set)

    async def play(self, row: TaskRow) -> None:
        """Run the turn of a task that was saved like this.

        Raises:
            TaskStoreError: If a save failed: the next turn starts from the last one.
        """
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
        finally:
            going.close()

    async def _obey(self, command: TurnCommand) -> Any:
        match command:
            case TellTime():
                return time.time()
            case ReadMail():
                mail, self._mail = [*self._mail, *self._keeper.take_mail()], []
                return mail
            case Save(row, dropped):
                return await self._keeper.save(row, dropped)
            case Start(wants):
                await self._keeper.settle()
                self._running |= {want.key for want in wants}
                for want in wants:
                    want.context.run(_cancelled.set, partial(self._is_told, want.key))
                    # A new task has a copy of the context that starts it.
                    want.context.run(self._spawn, partial(self._perform, want))
                return None
            case Wait(until):
                await self._keeper.settle()
                return await self._wait(until)
            case Forget(keys, is_over):
                self._told |= set(keys)
                if is_over:
                    self._running -= set(keys)
                return None

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
            self._mail += self._keeper.take_mail()
            left = None if until is None else max(0.0, until - time.time())
            if self._mail or left == 0.0:
                break
            await self._bell.wait(left)
        outcomes, self._outcomes = self._outcomes, {}
        return outcomes
