"""A call that is made one round at a time, and followed to its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import anyio
from attrs import evolve

from ..canonical import JSON
from ..errors import ProtocolError, UsageError
from ..logs import logger_for
from ..protocol.jsonrpc import INTERNAL_ERROR
from .channels import ChannelError
from .errors import RoundsError, TaskCancelled
from .results import Result
from .rounds import OngoingCall, Pending
from .tracing import Trail

if TYPE_CHECKING:
    from .client import Client, Told

__all__ = ["Steps"]

logger = logger_for("effectmcp.client")

#: Seconds before the next round if a round has no questions; doubled each time.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

#: How often a request about a task is repeated if its connection or its server fails:
#: the task continues. With a poll interval of a second, this takes 15 seconds.
_REPEATS: Final = 4
_LONGEST_REPEAT: Final = 60.0

#: Seconds for a server to acknowledge that a task is cancelled. The caller waits.
_PARTING: Final = 5.0


class Steps:
    """A call that is made one round at a time.

    Attributes:
        pending: The last interim result, with its questions, or the last description of
            the task; `None` before the first round and after the last.
        result: The result of the call; `None` until it has ended.
    """

    def __init__(
        self,
        client: Client,
        call: OngoingCall,
        on_progress: Told | None = None,
        pending: Pending | None = None,
    ) -> None:
        self.pending = pending
        self.result: Result | None = None
        self._client = client
        self._call = call
        self._on_progress = on_progress
        #: When the task may be polled next. A stored one is polled at once.
        self._due = -math.inf
        self._trail = Trail(call.trace)

    async def round(
        self, responses: Mapping[str, JSON] | None = None
    ) -> Pending | Result:
        """Send the next request.

        If the call has become a task, this is a poll, after waiting for the interval of
        the server, or the update that carries the responses.

        Args:
            responses: The responses to the questions, by key; by default, the client's
                registered functions make them.

        Returns:
            The next interim result, which can be stored; or the result of the call.

        Raises:
            UsageError: If the call has ended already.
            TaskCancelled: If the task was cancelled.
        """
        if self.result is not None:
            raise UsageError("the call is over; its result is in .result")
        before = self.pending
        if before is not None:
            if responses is None:
                responses = await self._answers(before)
            self._call = before.answered(responses)
        call = self._call
        if call.method_now == "tasks/get":
            await anyio.sleep_until(self._due)
        result = await self._client.request(
            call.method_now,
            call.params_now,
            on_progress=self._on_progress,
            trail=self._trail,
        )
        call = evolve(call, trace=self._trail.first)
        try:
            came = call.received(result)
        except (ProtocolError, TaskCancelled):
            self.pending = None  # the task has ended
            raise
        if isinstance(came, Pending):
            self.pending = came
            if came.task is not None:
                self._due = anyio.current_time() + came.task.pause
            on_round = self._client._on_round
            if on_round is not None and _is_news(before, came):
                on_round(came)
            return came
        self.pending = None
        self.result = Result(came.fields, call.rounds + 1)
        return self.result

    async def finish(self) -> Result:
        """Make all further rounds, as `Client.call_tool` does; return the result.

        If this fails or is cancelled, the call is cancelled on the server.

        Raises:
            UsageError: If the call has ended already.
            RoundsError: If the call has more interim results than allowed.
            TaskCancelled: If the task was cancelled.
        """
        try:
            return await self._all_rounds()
        except BaseException:
            try:
                with anyio.fail_after(_PARTING, shield=True):
                    await self.cancel()
            except Exception as exc:
                logger.warning("the call may still run on the server: %r", exc)
            raise

    async def cancel(self) -> None:
        """Cancel the call on the server, if it waits or works there.

        This ends a task when its server allows it; another `round()` shows whether it
        did. A call in rounds needs no request: its server keeps nothing of it.

        Raises:
            ProtocolError: If the server responds with an error.
            ChannelError: If the server cannot be reached.
        """
        if self.pending is None:
            return
        task = self.pending.task
        if task is None:
            self._client._leave(self.pending)
        else:
            await self._client.request(
                "tasks/cancel", {"taskId": task.id}, trail=self._trail
            )

    async def _answers(self, pending: Pending) -> dict[str, JSON]:
        if pending.task is not None and not pending.questions:
            return {}
        return await self._client.answers(pending)

    async def _all_rounds(self) -> Result:
        pause = _FIRST_PAUSE
        came = self.pending or await self.round()
        while isinstance(came, Pending):
            if came.call.rounds > self._client._rounds:
                raise RoundsError(self._client._rounds)
            if came.task is not None:
                came = await self._round_of_task(await self._answers(came))
                continue
            if not came.questions:
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            came = await self.round(await self._answers(came))
        return came

    async def _round_of_task(self, responses: Mapping[str, JSON]) -> Pending | Result:
        """Make a round; repeat it if only the connection or the server fails.

        Repeating is safe: a task takes the first answer to a question.
        """
        for number in range(_REPEATS):
            try:
                return await self.round(responses)
            except (ChannelError, ProtocolError) as exc:
                is_lasting = isinstance(exc, ProtocolError) and (
                    exc.code != INTERNAL_ERROR
                )
                if self.pending is None or self.pending.task is None or is_lasting:
                    raise
                logger.debug("repeating a request about a task: %s", exc)
                pause = self.pending.task.poll_interval * 2**number
                await anyio.sleep(min(pause, _LONGEST_REPEAT))
        return await self.round(responses)


def _is_news(before: Pending | None, came: Pending) -> bool:
    """Return whether a round differs from the last poll of the same task."""
    if came.task is None or came.questions or before is None or before.task is None:
        return True
    was, now = before.task, came.task
    return (was.status, was.message) != (now.status, now.message)
