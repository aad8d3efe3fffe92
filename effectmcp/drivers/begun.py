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
from typing import Any, Protocol, TypeAlias

from attrs import define

from ..canonical import JSON
from ..exchange.commands import (
    Ask,
    Command,
    Exchange,
    Incoming,
    Listen,
    Notify,
    Peer,
    PerformAll,
    Reply,
)
from ..server.app import Server
from .local import at_once

__all__ = ["BeginExchange", "Begun", "Obey", "Send", "begin", "drop"]

Send: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[None]]
Obey: TypeAlias = Callable[[Server, Command, Send], Awaitable[Any]]


async def drop(message: Mapping[str, JSON]) -> None:
    """Discard a message."""


def begin(
    app: Server,
    message: Incoming,
    peer: Peer | None = None,
    *,
    answer: Callable[..., Exchange],
    obey: Obey,
) -> Reply | Begun:
    """Start to answer one JSON-RPC message; finish if that needs no waiting.

    Args:
        app: The server, inside of `running(app)`.
        message: Its JSON text, the value parsed from it, or the result of `read_message`.
        peer: The sender.
        answer: `exchange.handle.handle`.
        obey: Executes a command, on the loop.

    Returns:
        The reply, or the started exchange, if it has to wait for something.
    """
    exchange = answer(app, message, peer, clock=time.time, entropy=os.urandom)
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
    return Begun(app, exchange, command, obey)


@define(eq=False)
class Begun:
    """A started exchange whose next command has to wait for something."""

    _app: Server
    _exchange: Exchange
    _command: Command
    _obey: Obey

    async def finish(self, send: Send = drop) -> Reply:
        """Execute this and all further commands; return the reply. Call it only once.

        Args:
            send: Sends a notification on the stream of this request, immediately.
        """
        exchange, command = self._exchange, self._command
        try:
            while True:
                try:
                    outcome = await self._obey(self._app, command, send)
                except Exception as exc:
                    if isinstance(command, (Notify, Ask, Listen)):
                        raise  # an error of the transport
                    command = exchange.throw(exc)
                else:
                    command = exchange.send(outcome)
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
