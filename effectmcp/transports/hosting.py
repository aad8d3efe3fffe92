"""Play a `Conversation`: the part of Streamable HTTP that waits, on asyncio or trio.

    await converse(loop, talk, host, calls)

`loop` is `drivers.asyncio` or `drivers.trio`. `host` is the connection, of the native
server or of an ASGI host. `conversation` decides what to send, and when.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from attrs import define

from ..canonical import JSON
from ..drivers.local import contain
from ..drivers.turns import TURNS
from ..exchange.commands import Reply
from ..logs import logger_for
from ..protocol.jsonrpc import Request
from ..server.identity import CredentialsError
from .conversation import Begin, Conversation, Identify, Next, Read, Receive
from .identifying import wait_for
from .reading import Calls, pump, settle
from .web import Send

if TYPE_CHECKING:
    from ..drivers.begun import Begun
    from ..drivers.loops import Doing, Loop

__all__ = ["Gone", "Host", "WaitingResponse", "Work", "converse"]

logger = logger_for("effectmcp.server")


T = TypeVar("T")
Work: TypeAlias = Callable[[], Awaitable[T]]


class Gone(Exception):
    """Raised when the client has disconnected: close the connection."""


class Host(Protocol):
    """Interface of a connection, for one request.

    Attributes:
        reads_ahead: Whether `wait` may be called before `receive`: it keeps what arrives.
    """

    reads_ahead: bool

    async def receive(self, add: Callable[[bytes], Send | None]) -> Send | None:
        """Pass each part of the body to `add`, to the end or until that refuses it.

        Returns:
            The refusal, if there is one.

        Raises:
            Gone: If the client has disconnected.
        """

    async def send(self, part: Send) -> None:
        """Send a response, or a part of one.

        Raises:
            Gone: If the client has disconnected.
        """

    async def wait(self, work: Work[T], beside: Doing) -> T | None:
        """Run `work()` and, at the same time, `beside()`.

        The work is cancelled if the client disconnects, or if `beside()` returns: then
        it has noticed a disconnect.

        Returns:
            The result of the work; `None` if it was cancelled.
        """


async def converse(loop: Loop, talk: Conversation, host: Host, calls: Calls) -> None:
    """Answer one request.

    Args:
        loop: The loop that runs this.
        talk: The request.
        host: Its connection.
        calls: Runs the calls of sessions, which do not end with their connection.

    Raises:
        Gone: If the client has disconnected.
        Exception: If the response cannot be completed: close the connection.
    """
    try:
        step: Next | None = talk.judge()
        if isinstance(step, Identify):
            step = await _identify(loop, talk, step, host)
        if isinstance(step, Receive):
            step = await host.receive(talk.part) or talk.body()
        if isinstance(step, Begin):
            # A large request or reply must not be kept while its client waits or reads:
            # so nothing here refers to them for longer than needed.
            session = step.peer.session
            request = None if session is None else step.message
            if TURNS.is_needed:
                await TURNS.begin(step.peer, loop.turns)
            found = loop.begin(talk.endpoint.app, step.message, step.peer)
            step = None
            if isinstance(found, Reply):
                if found.opened is not None:
                    calls.sweep(loop, talk.endpoint.sessions)
                step = talk.reply(found)
            elif session is None:
                waiting = WaitingResponse(loop, talk, host, loop.Lock())
                talk.heard()
                finish = partial(found.finish, waiting.notify)
                reply = await host.wait(finish, waiting.comment)
                step = None if reply is None else talk.reply(reply)
                del finish, reply
            else:
                assert isinstance(request, Request)  # only requests wait
                step = await _aside(loop, talk, request, found, calls)
            del found, request
        if isinstance(step, Read):
            waiting = WaitingResponse(loop, talk, host, loop.Lock())
            talk.heard()
            is_over = await host.wait(partial(waiting.read, step), waiting.comment)
            step = talk.end() if is_over else None
        if isinstance(step, Send):
            await host.send(step)
    except Gone:
        raise
    except Exception:
        failed = talk.fail()
        if failed is None:
            raise
        logger.exception("answering a request failed")
        await host.send(failed)
    finally:
        if talk.holding is not None or talk.place is not None:
            talk.close()


async def _identify(
    loop: Loop, talk: Conversation, step: Identify, host: Host
) -> Next | None:
    """Find the user of a request; return the next step, or `None` for a lost client."""
    try:
        found = await _found(loop, step, host)
    except Exception as exc:
        return talk.unidentified(exc)
    return talk.identified(found[0]) if found else None


async def _found(loop: Loop, step: Identify, host: Host) -> list[Any] | None:
    try:
        found = step.find()
        if not isinstance(found, Generator) and not inspect.isawaitable(found):
            return [found]
        waiting = partial(_waited, loop, found)
        if not host.reads_ahead:
            return await waiting()
        # A client that leaves must not keep its place until a slow database answers.
        return await host.wait(waiting, loop.Event().wait)
    except BaseException as exc:
        contain(exc, "the authentication hook", loop.is_cancel)
        raise


async def _aside(
    loop: Loop, talk: Conversation, request: Request, begun: Begun, calls: Calls
) -> Next:
    """Finish a session's request in a background task; return the next step."""
    read = talk.waits(request.id)
    holding = talk.hand_over()
    ended = None if holding is None else holding.close
    calls.start(loop, begun, request, read.session, read.stream, ended)
    only = await settle(loop, read.stream)
    if only is None:
        return read
    sessions = talk.endpoint.sessions
    assert sessions is not None  # the stream is from there
    sessions.answered(read.session, read.stream)
    return talk.reply(Reply(None, body=only))


async def _waited(loop: Loop, found: Any) -> list[Any]:
    box: list[Any] = []

    async def wait() -> None:
        box.append(await wait_for(found))

    if not await loop.within(_PATIENCE, wait):
        raise CredentialsError("it took too long", error=None, status=503)
    return box


#: Seconds that the authentication of a client may take.
_PATIENCE: Final = 30.0


@define(eq=False)
class WaitingResponse:
    """A response that has to wait, and the messages and comments sent before it."""

    _loop: Loop
    _talk: Conversation
    _host: Host
    # A separate task sends comments. A comment must not split an event, and not every
    # host allows two tasks to send at once.
    _lock: AbstractAsyncContextManager[Any]

    async def read(self, step: Read) -> bool:
        """Send a session's stream, old events and new ones; return true at its end."""
        sessions = self._talk.endpoint.sessions
        assert sessions is not None
        await pump(
            self._loop,
            sessions,
            step.session,
            step.stream,
            step.after,
            self._write,
            lasts=step.lasts,
        )
        return True

    async def notify(self, message: Mapping[str, JSON]) -> None:
        """Send a message before the response."""
        async with self._lock:
            await self._host.send(self._talk.notify(message))
            self._talk.heard()

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            part = self._talk.event(data)
            del data  # only the pieces are kept while the client reads
            await self._host.send(part)
            self._talk.heard()

    async def comment(self) -> None:
        """Keep the stream alive with comments; return once the client has disconnected."""
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
            pass  # `Host.wait` may not notice it: there is a limit to its reading ahead
