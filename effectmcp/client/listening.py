"""The streams of `Client.listen`: one after the other, on a channel that logs in.

A server ends a stream when the token of its client expires. The client logs in again, and
opens the next stream. The server acknowledges that one, too: so the program knows that it may
have missed changes in between.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from attrs import define, field

from ..errors import ProtocolError
from ..logs import logger_for
from .changes import Changes
from .channels import ChannelError, Frame, Hear
from .deadlines import deadline
from .errors import ReplyError

__all__ = ["Listening"]

logger = logger_for("effectmcp.client")

#: Seconds from the start of a stream to the start of the next one, at least: a server
#: could end each of them at once.
_PAUSE: Final = 1.0


@define(eq=False, kw_only=True)
class Listening:
    """The streams of one `Client.listen`.

    Attributes:
        changes: What has arrived.
        open: Opens a stream, and returns when the server has ended it.
        reopens: Returns whether to open another one then.
        forget: Clears the client's cache.
        patience: Seconds that an acknowledgement may take; `None` for no limit.
    """

    changes: Changes
    open: Callable[[Hear], Awaitable[None]]
    reopens: Callable[[], bool]
    forget: Callable[[], None]
    patience: float | None
    #: The end of a stream, in case that no other one follows.
    _end: Frame | None = field(default=None, init=False)
    _is_acknowledged: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Receive changes until the server ends the last stream.

        Raises:
            ProtocolError: If the server refuses the first stream.
            ReplyError: If too many changes wait, or a response is invalid.
            TimeoutError: If the first acknowledgement takes too long.
            ChannelError: If the server cannot be reached, or a stream breaks off.
        """
        began = anyio.current_time()
        await self._receive()
        while self.reopens():
            await anyio.sleep(max(0.0, began + _PAUSE - anyio.current_time()))
            began = anyio.current_time()
            try:
                await self._receive()
            except (ProtocolError, ReplyError, TimeoutError, ChannelError) as exc:
                if self._is_acknowledged:
                    raise
                # The server has stopped, or the user does not log in again.
                logger.warning("no changes are received any more: %s", exc)
                break
        if self._end is not None:
            self.changes.add(self._end)
        self.changes.end()

    async def _receive(self) -> None:
        """Receive the changes of one stream."""
        problem: ReplyError | None = None
        self._is_acknowledged = False
        with deadline(self.patience, "answer to subscriptions/listen") as scope:

            async def hear(told: Frame) -> None:
                nonlocal problem
                scope.deadline = math.inf
                try:
                    self._hear(told)
                except ReplyError as exc:
                    problem = exc
                    scope.cancel()

            await self.open(hear)
        if problem is not None:
            raise problem

    def _hear(self, told: Frame) -> None:
        self._is_acknowledged = True
        if told.get("method") != "notifications/tasks":
            self.forget()
        if told.get("method") == "notifications/cancelled" and self.reopens():
            self._end = told
            return
        self._end = None
        self.changes.add(told)
