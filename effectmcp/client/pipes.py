"""A channel to a server process, over its standard input and output."""

from __future__ import annotations

import math
import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Self

import anyio
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectSendStream
from attrs import frozen

from ..errors import UsageError
from ..logs import logger_for
from ..protocol.jsonrpc import encode, notification
from ..protocol.meta import SUBSCRIPTION_ID
from .channels import ChannelError, Frame, Hear
from .deadlines import Room
from .limits import LARGEST, LONGEST, MOST_TOLD, memory_of, read_message
from .task_groups import cancelled_at_end

__all__ = ["OverPipes"]

logger = logger_for("effectmcp.client")

#: Seconds for a server to exit after its input has ended, and again after SIGTERM.
_PATIENCE: Final = 2.0
#: The maximum size of a message in bytes.
_LONGEST: Final = LONGEST

#: Messages that are kept until `attend` is called, and the size of each in memory.
_MOST_EARLY: Final = 100
_LONGEST_EARLY: Final = 64 * 1024


@frozen(eq=False)
class _PendingReply:
    """A request that waits for its response.

    Attributes:
        send: Messages for it, each with its size. If too many wait for a slow `hear`,
            reading stops for all.
        room: The room for them.
        is_subscription: Whether it waits for changes.
    """

    send: MemoryObjectSendStream[tuple[Frame, int]]
    room: Room
    is_subscription: bool


class OverPipes:
    """A channel to a server process, which starts and ends with the channel.

    Args:
        command: The command and its arguments.
        env: Its environment variables, instead of this process's variables.
        cwd: Its working directory.
        stderr: The file descriptor of its standard error; by default it inherits ours,
            so that its log is in our log. Do not pass a terminal on: control sequences in
            the log would change the screen.
    """

    has_headers = False
    probes = True
    origin = None

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stderr: int | None = None,
    ) -> None:
        self._command = list(command)
        self._env = env
        self._cwd = cwd
        self._stderr = stderr
        self._stack = AsyncExitStack()
        self._waiting: dict[Any, _PendingReply] = {}
        self._lock = anyio.Lock()
        self._problem: str | None = None
        self._is_used = False
        self._attending: Hear | None = None
        #: Messages that came before `attend`: some follow the `initialize` response.
        self._early: deque[Frame] = deque(maxlen=_MOST_EARLY)

    async def __aenter__(self) -> Self:
        if self._is_used:
            raise UsageError("a command is started once: give another OverPipes(...)")
        self._ended = anyio.Event()
        try:
            self._process = await anyio.open_process(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=self._env,
                cwd=self._cwd,
                # Only this process must receive Ctrl-C: it notifies the server of
                # cancelled calls, and ends it.
                start_new_session=True,
            )
        except OSError as exc:
            raise ChannelError(f"{self._command[0]} cannot be started: {exc}") from None
        self._is_used = True
        await self._stack.enter_async_context(_ending(self._process))
        group = anyio.create_task_group()
        await self._stack.enter_async_context(cancelled_at_end(group))
        group.start_soon(self._listen)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Write a request, and wait for its response."""
        id_ = message["id"]
        send, receive = anyio.create_memory_object_stream[tuple[Frame, int]](MOST_TOLD)
        is_subscription = message["method"] == "subscriptions/listen"
        waiting = _PendingReply(send, Room(LARGEST), is_subscription)
        self._waiting[id_] = waiting
        try:
            with send, receive:
                await self._write(message)
                # Await `hear` here and not in `_listen`, which reads for all requests.
                async for came, size in receive:
                    if "method" not in came:
                        return came
                    await hear(came)
                    waiting.room.give_back(size)
        except BaseException:
            if id_ in self._waiting:
                # The request may still be running (Cancellation).
                with anyio.move_on_after(1, shield=True), suppress(ChannelError):
                    params = {"requestId": id_}
                    await self._write(notification("notifications/cancelled", params))
            raise
        finally:
            self._waiting.pop(id_, None)
            waiting.room.give_back(LARGEST)  # `_listen` may wait for it
        raise self._gone("the server is gone")

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Write a message that has no response."""
        await self._write(message)

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Receive the messages that cannot be matched to one request."""
        self._attending = hear
        ready()
        while self._early:
            await hear(self._early.popleft())
        await anyio.sleep_forever()

    async def _write(self, message: Frame) -> None:
        if self._problem is not None:
            raise ChannelError(self._problem)
        assert self._process.stdin is not None
        try:
            # Several tasks may write: the lock keeps each line in one piece.
            async with self._lock:
                await self._process.stdin.send(encode(message) + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # A server that exits closes both pipes, and either may be noticed first.
            # Wait for `_listen`, which knows more.
            with anyio.move_on_after(_PATIENCE):
                await self._ended.wait()
            raise self._gone("the server does not read any more") from None

    def _gone(self, otherwise: str) -> ChannelError:
        return ChannelError(self._problem or otherwise)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        problem = "the server closed its output"
        buffer = bytearray()
        try:
            async for data in self._process.stdout:
                # Only the new data can contain line ends.
                first, *lines = data.split(b"\n")
                buffer += first
                if len(buffer) > _LONGEST:
                    problem = f"the server sends a line of more than {_LONGEST:,} bytes"
                    break
                if lines:
                    *lines, rest = [bytes(buffer), *lines]
                    buffer = bytearray(rest)
                    for line in lines:
                        await self._heard(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        except ChannelError as exc:
            problem = exc.problem
        finally:
            self._problem = problem
            self._ended.set()
            for waiting in self._waiting.values():
                waiting.send.close()

    async def _heard(self, line: bytes) -> None:
        if not line.strip():
            return
        message = read_message(line)
        if message is None:
            start = line[:80]
            logger.warning("the server wrote a line that is not a message: %r", start)
            return
        if "method" in message:
            hearers = _hearers(message, self._waiting)
            if self._attending is not None and ("id" in message or len(hearers) != 1):
                return await self._attending(message)
            if not hearers and memory_of(message) <= _LONGEST_EARLY:
                self._early.append(message)
            for waiting in hearers:
                await _tell(waiting, message)
            return
        id_ = message.get("id")
        # `True` and `1.0` equal the key 1, and lists are not hashable.
        found = self._waiting.pop(id_, None) if type(id_) is int else None
        if found is None:
            logger.debug("a response to nothing: %r", line[:80])
            return
        await _tell(found, message)


def _hearers(
    message: Mapping[str, Any], waiting: Mapping[Any, _PendingReply]
) -> list[_PendingReply]:
    """Return the requests that a message is for; if it names none, all calls."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    for id_ in (
        meta.get(SUBSCRIPTION_ID),
        params.get("progressToken"),
        params.get("requestId"),
    ):
        if id_ is not None:
            is_here = type(id_) is int and id_ in waiting
            return [waiting[id_]] if is_here else []
    return [one for one in waiting.values() if not one.is_subscription]


async def _tell(waiting: _PendingReply, message: Frame) -> None:
    size = memory_of(dict(message))
    await waiting.room.take(size)
    # The request may have ended meanwhile.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await waiting.send.send((message, size))


class _ending:
    """End a process: close its input, then terminate it, then kill it (stdio, Shutdown)."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *exc: object) -> None:
        process = self._process
        with anyio.CancelScope(shield=True):
            if process.stdin is not None:
                await process.stdin.aclose()
            async with anyio.create_task_group() as group:
                # Read the rest of its output: a process that is blocked on writing
                # cannot exit, and asyncio closes the pipe only at its end.
                group.start_soon(_drain, process)
                for end in (None, process.terminate, process.kill):
                    if process.returncode is not None:
                        break
                    if end is not None:
                        end()
                    patience = math.inf if end == process.kill else _PATIENCE
                    with anyio.move_on_after(patience):
                        await process.wait()
                # Another process may have inherited its output, and keep it open.
                group.cancel_scope.deadline = anyio.current_time() + _PATIENCE
            if process.stdout is not None:
                await process.stdout.aclose()


async def _drain(process: Process) -> None:
    assert process.stdout is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for _ in process.stdout:
            pass
