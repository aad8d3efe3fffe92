"""Start an exchange in the task that received its message, and finish it on a loop.

    found = begin(app, exchange, obey)  # most rounds only ask, and end here
    reply = found if isinstance(found, Reply) else await found.finish(send)

`obey` executes a command; only this part differs between trio and asyncio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from attrs import define

from ..canonical import JSON
from ..exchange.commands import (
    Ask,
    Command,
    Exchange,
    Listen,
    Notify,
    PerformAll,
    Reply,
)
from ..server.app import Server
from .local import at_once

__all__ = ["Begun", "Obey", "Send", "begin", "drop"]

Send: TypeAlias = Callable[[Mapping[str, JSON]], Awaitable[None]]
Obey: TypeAlias = Callable[[Server, Command, Send], Awaitable[Any]]


async def drop(message: Mapping[str, JSON]) -> None:
    """Discard a message."""


def begin(app: Server, exchange: Exchange, obey: Obey) -> Reply | Begun:
    """Start an exchange; return the reply if nothing has to wait."""
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
