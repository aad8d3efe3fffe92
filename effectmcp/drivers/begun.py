"""Begin an exchange where its message came in, and finish it on a loop.

    begun = begin(app, message, peer, obey)  # most rounds only ask, and end here
    reply = begun if isinstance(begun, Reply) else await begun.finish(send)

`obey` does what a command asks for; that is the part in which loops differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

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
from ..exchange.handle import handle
from ..server.app import Server
from .local import at_once

__all__ = ["Begun", "Obey", "Send", "begin", "drop"]

Send: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[None]]
Obey: TypeAlias = Callable[[Server, Command, Send], Awaitable[Any]]


async def drop(message: Mapping[str, JSON]) -> None:
    """Send a message to nobody."""


def begin(
    app: Server, message: Incoming, peer: Peer | None, obey: Obey
) -> Reply | Begun:
    """Answer one JSON-RPC message, as far as that goes without waiting."""
    exchange = handle(app, message, peer, clock=time.time, entropy=os.urandom)
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
    """An exchange that waits for something."""

    _app: Server
    _exchange: Exchange
    _command: Command
    _obey: Obey

    async def finish(self, send: Send = drop) -> Reply:
        """Wait for it, and for all that comes after; once.

        Args:
            send: Sends a notification on the stream of this request, at once.
        """
        exchange, command = self._exchange, self._command
        try:
            while True:
                try:
                    outcome = await self._obey(self._app, command, send)
                except Exception as exc:
                    if isinstance(command, (Notify, Ask, Listen)):
                        raise  # the transport's own
                    command = exchange.throw(exc)
                else:
                    command = exchange.send(outcome)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            exchange.close()
