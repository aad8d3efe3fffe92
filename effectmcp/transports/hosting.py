"""Play a `Conversation`: the part of Streamable HTTP that waits, on either loop.

    await converse(loop, talk, host, calls)

`loop` is `asgi_asyncio` or `asgi_trio`, `host` has the connection: a native server's, or
that of an ASGI host. What is sent, and when, is decided in `conversation`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ..canonical import JSON
from ..drivers.local import contain
from ..exchange.commands import Reply
from ..protocol.jsonrpc import Request
from .conversation import Begin, Conversation, Identify, Next, Read, Receive
from .reading import Calls, Finish, Loop, pump, settle
from .web import Send

__all__ = ["Gone", "Host", "HostLoop", "converse"]

logger = logging.getLogger("effectmcp.server")


class Gone(Exception):
    """The client is gone: close the connection."""


class Host(Protocol):
    """A connection, for one request."""

    async def receive(self, limit: int) -> bytes | None:
        """Return the body; `None` if it is longer than `limit`.

        Raises:
            Gone: The client has left.
        """

    async def send(self, part: Send) -> None:
        """Send an answer, or a part of one.

        Raises:
            Gone: The client has left.
        """

    async def gone(self) -> None:
        """Return when the client has left. Raises nothing."""


class HostLoop(Loop, Protocol):
    """`asgi_asyncio` or `asgi_trio`."""

    @property
    def Lock(self) -> Callable[[], AbstractAsyncContextManager[Any]]: ...

    @property
    def begin(self) -> Callable[..., Reply | Finish]: ...

    @property
    def is_cancel(self) -> Callable[[BaseException], bool]: ...

    @property
    def unless(self) -> Callable[..., Awaitable[None]]: ...


async def converse(
    loop: HostLoop, talk: Conversation, host: Host, calls: Calls
) -> None:
    """Answer one request.

    Args:
        loop: The loop that runs this.
        talk: The request.
        host: Where it came from.
        calls: Takes the calls of sessions, which do not end with their connection.

    Raises:
        Gone: The client has left.
        Exception: The answer breaks off: close the connection.
    """
    try:
        step: Next | None = talk.judge()
        if isinstance(step, Identify):
            step = await _identify(loop, talk, step)
        if isinstance(step, Receive):
            data = await host.receive(step.limit)
            step = talk.too_large() if data is None else talk.body(data)
        if isinstance(step, Begin):
            step = await _begin(loop, talk, step, host, calls)
        if isinstance(step, Read):
            await _Stream(loop, talk, host).read(step)
        elif isinstance(step, Send):
            await host.send(step)
    except Gone:
        raise
    except Exception:
        failed = talk.fail()
        if failed is None:
            raise
        logger.exception("answering a request failed")
        await host.send(failed)


async def _identify(loop: HostLoop, talk: Conversation, step: Identify) -> Next:
    try:
        found = await _found(loop, step)
    except Exception as exc:
        return talk.unidentified(exc)
    return talk.identified(found)


async def _found(loop: HostLoop, step: Identify) -> Any:
    try:
        found = step.find()
        return await found if inspect.isawaitable(found) else found
    except BaseException as exc:
        contain(exc, "what finds out who asks", loop.is_cancel)
        raise


async def _begin(
    loop: HostLoop, talk: Conversation, step: Begin, host: Host, calls: Calls
) -> Next | None:
    """Begin an exchange. Most end at once; return what is left to do after it."""
    begun = loop.begin(talk.app, step.message, step.peer)
    if isinstance(begun, Reply):
        answer = talk.reply(begun)
        if begun.opened is not None:
            calls.sweep(loop, talk.sessions)
        return answer
    if step.peer.session is None:
        await _Stream(loop, talk, host).finish(begun)
        return None
    assert isinstance(step.message, Request)  # nothing else waits
    read = talk.waits()
    calls.start(loop, begun, step.message, read.session, read.stream)
    only = await settle(loop, read.stream)
    return read if only is None else talk.respond(only)


class _Stream:
    """An answer that takes its time, as long as the client is there."""

    def __init__(self, loop: HostLoop, talk: Conversation, host: Host) -> None:
        self._loop = loop
        self._talk = talk
        self._host = host
        # Comments come from a task of their own. One may not get between the halves of
        # an event, and not every host bears two tasks that send.
        self._lock = loop.Lock()

    async def finish(self, begun: Finish) -> None:
        """Send what an exchange tells, and its response."""

        async def work() -> None:
            reply = await begun.finish(self._notify)
            async with self._lock:
                await self._host.send(self._talk.reply(reply))

        await self._loop.unless(self._host.gone, work, self._comment)

    async def read(self, step: Read) -> None:
        """Send what is in a session's stream, and what comes."""
        sessions = self._talk.sessions
        assert sessions is not None

        async def work() -> None:
            await pump(
                self._loop,
                sessions,
                step.session,
                step.stream,
                step.after,
                self._write,
            )
            async with self._lock:
                await self._host.send(self._talk.end())

        await self._loop.unless(self._host.gone, work, self._comment)

    async def _notify(self, message: Mapping[str, JSON]) -> None:
        async with self._lock:
            await self._host.send(self._talk.notify(message))
            self._talk.heard()

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            await self._host.send(self._talk.event(data))
            self._talk.heard()

    async def _comment(self) -> None:
        """Keep the stream alive; returns when there is nobody to keep it alive for."""
        talk = self._talk
        try:
            while True:
                await self._loop.sleep(max(0.0, talk.quiet_until - self._loop.now()))
                async with self._lock:
                    comment = talk.tick()
                    if comment is not None:
                        await self._host.send(comment)
                        talk.heard()
        except Gone:
            pass  # `Host.gone` may not hear of it: it reads only so far ahead
