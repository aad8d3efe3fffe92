"""A server that is a command, spoken to over its standard input and output."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

import anyio
from anyio.abc import Process, TaskGroup
from attrs import define, field

from ..protocol.jsonrpc import encode, notification
from .channels import ChannelError, Frame, Hear

__all__ = ["OverPipes"]

logger = logging.getLogger("effectmcp.client")

#: Seconds for a server to end once its input has, and once more when it was told to.
_PATIENCE: Final = 2.0
#: Bytes that one message may have.
_LONGEST: Final = 64 * 1024 * 1024


@define(eq=False)
class _Waiting:
    hear: Hear
    is_done: anyio.Event = field(factory=anyio.Event)
    response: Frame | None = None


class OverPipes:
    """A channel to a command, which is started with it and ends with it.

    Args:
        command: The command and its arguments.
        env: Its environment, in place of this process's.
        cwd: Where it runs.
    """

    has_headers = False

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self._command = list(command)
        self._env = env
        self._cwd = cwd
        self._stack = AsyncExitStack()
        self._waiting: dict[Any, _Waiting] = {}
        self._lock = anyio.Lock()
        self._problem: str | None = None

    async def __aenter__(self) -> Self:
        try:
            self._process = await anyio.open_process(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None,  # what it logs is for whoever looks at ours
                env=self._env,
                cwd=self._cwd,
            )
        except OSError as exc:
            raise ChannelError(f"{self._command[0]} cannot be started: {exc}") from None
        await self._stack.enter_async_context(_ending(self._process))
        group = anyio.create_task_group()
        await self._stack.enter_async_context(_cancelled_at_end(group))
        group.start_soon(self._listen)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Write a request, and wait for the line that answers it."""
        id_ = message["id"]
        waiting = self._waiting[id_] = _Waiting(hear)
        try:
            await self._write(message)
            await waiting.is_done.wait()
        except BaseException:
            if waiting.response is None and self._problem is None:
                # It may still be under way (Cancellation).
                with anyio.move_on_after(1, shield=True):
                    params = {"requestId": id_}
                    await self._write(notification("notifications/cancelled", params))
            raise
        finally:
            self._waiting.pop(id_, None)
        if waiting.response is None:
            raise ChannelError(self._problem or "the server is gone")
        return waiting.response

    async def _write(self, message: Frame) -> None:
        if self._problem is not None:
            raise ChannelError(self._problem)
        assert self._process.stdin is not None
        try:
            # A line in one piece, however many write.
            async with self._lock:
                await self._process.stdin.send(encode(message) + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ChannelError("the server does not read any more") from None

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        problem = "the server closed its output"
        buffer = bytearray()
        try:
            async for data in self._process.stdout:
                buffer += data
                if len(buffer) > _LONGEST:
                    problem = f"the server sends a line of more than {_LONGEST:,} bytes"
                    break
                *lines, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    await self._heard(bytes(line))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self._problem = problem
            for waiting in self._waiting.values():
                waiting.is_done.set()

    async def _heard(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            logger.warning("the server wrote a line that is no message: %.80r", line)
            return
        if "method" in message:
            for waiting in _hearers(message, self._waiting):
                await waiting.hear(message)
            return
        found = self._waiting.get(message.get("id"))
        if found is None:
            logger.debug("a response to nothing: %.80r", line)
            return
        found.response = message
        found.is_done.set()


def _hearers(
    message: Mapping[str, Any], waiting: Mapping[Any, _Waiting]
) -> list[_Waiting]:
    """Whom a notification is for; all, where it does not say."""
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    for id_ in (
        meta.get("io.modelcontextprotocol/subscriptionId"),
        params.get("progressToken"),
        params.get("requestId"),
    ):
        if id_ in waiting:
            return [waiting[id_]]
    return list(waiting.values())


class _ending:
    """End a process: its input first, then gently, then for good (stdio, Shutdown)."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *exc: object) -> None:
        process = self._process
        with anyio.CancelScope(shield=True):
            if process.stdin is not None:
                await process.stdin.aclose()
            for end in (None, process.terminate, process.kill):
                if process.returncode is not None:
                    break
                if end is not None:
                    end()
                patience = math.inf if end == process.kill else _PATIENCE
                with anyio.move_on_after(patience):
                    await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()


class _cancelled_at_end:
    """A task group whose tasks need not end by themselves."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group

    async def __aenter__(self) -> TaskGroup:
        return await self._group.__aenter__()

    async def __aexit__(self, *exc: Any) -> bool | None:
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(*exc)
