"""Start an exchange in the task that received its message, and finish it on a loop.

    found = begin(app, message, peer)  # most rounds only ask, and end here
    reply = found if isinstance(found, Reply) else await found.finish(send)

`drivers.trio` and `drivers.asyncio` each have this `begin`, with an `obey` of their own:
only the execution of commands differs between loops.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from attrs import define

from ..canonical import JSON
from ..exchange.commands import (
    Ask,
    Command,
    Exchange,
    Incoming,
    Invoke,
    Listen,
    Notify,
    Outlast,
    Peer,
    PerformAll,
    Reply,
)
from ..server.app import Server
from .local import at_once
from .turns import LONG, TURNS, TurnLoop

__all__ = ["BeginExchange", "Begun", "Obey", "Outlasting", "Send", "begin", "drop"]

Send: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[None]]
Obey: TypeAlias = Callable[[Server, Command, Send, Peer | None], Awaitable[Any]]
Outlasting: TypeAlias = Callable[
    [Server, Callable[[], Awaitable[Reply]]], Awaitable[Reply]
]


async def drop(message: Mapping[str, JSON]) -> None:
    """Discard a message."""


def begin(
    app: Server,
    message: Incoming,
    peer: Peer | None = None,
    *,
    answer: Callable[..., Exchange],
    obey: Obey,
    outlast: Outlasting,
    turns: TurnLoop,
) -> Reply | Begun:
    """Start to answer one JSON-RPC message; finish if that needs no waiting.

    Args:
        app: The server, inside of `running(app)`.
        message: Its JSON text, the value parsed from it, or the result of `read_message`.
        peer: The sender.
        answer: `exchange.handle.handle`.
        obey: Executes a command, on the loop.
        outlast: Runs a function even if its task is cancelled, until the server ends.
        turns: The loop, as `TURNS` needs it.

    Returns:
        The reply, or the started exchange, if it has to wait for something.
    """
    exchange = answer(app, message, peer, clock=time.time, entropy=os.urandom)
    began = time.thread_time()
    try:
        command = next(exchange)
        while isinstance(command, PerformAll):
            outcomes = {want.key: at_once(want.effect) for want in command.wants}
            if None in outcomes.values():
                break
            command = exchange.send(outcomes)
    except StopIteration as end:
        reply: Reply = end.value
        return reply
    finally:
        took = time.thread_time() - began
        if took > LONG:
            TURNS.note(peer, took)
    return Begun(app, exchange, command, obey, outlast, turns, peer)


@define(eq=False)
class Begun:
    """A started exchange whose next command has to wait for something."""

    _app: Server
    _exchange: Exchange
    _command: Command
    _obey: Obey
    _outlast: Outlasting
    _turns: TurnLoop
    _peer: Peer | None = None

    async def finish(self, send: Send = drop, *, is_lasting: bool = False) -> Reply:
        """Execute this and all further commands; return the reply. Call it only once.

        Args:
            send: Sends a notification on the stream of this request, immediately.
            is_lasting: Whether to finish the exchange though the client may have left.
        """
        exchange, command = self._exchange, self._command
        try:
            while True:
                if isinstance(command, Outlast) and not is_lasting:
                    self._command = command
                    rest = partial(self.finish, send, is_lasting=True)
                    return await self._outlast(self._app, rest)
                outcome: Any = None
                failure: Exception | None = None
                try:
                    is_work = isinstance(command, (PerformAll, Invoke))
                    if is_work and TURNS.is_needed:
                        await TURNS.begin(self._peer, self._turns)
                    outcome = await self._obey(self._app, command, send, self._peer)
                except Exception as exc:
                    if isinstance(command, Notify) and is_lasting:
                        pass  # the client has left
                    elif isinstance(command, (Notify, Ask, Listen)):
                        raise  # an error of the transport
                    else:
                        failure = exc
                else:
                    if is_work and TURNS.is_needed:
                        await TURNS.end(self._peer, self._turns)
                began = time.thread_time()
                try:
                    if failure is None:
                        command = exchange.send(outcome)
                    else:
                        command = exchange.throw(failure)
                finally:
                    took = time.thread_time() - began
                    if took > LONG:
                        TURNS.note(self._peer, took)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            exchange.close()


class BeginExchange(Protocol):
    """A driver's `begin`."""

    def __call__(
        self, app: Server, message: Incoming, peer: Peer | None = None
    ) -> Reply | Begun: ...
