"""A server in this very process."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

import sniffio

from ..exchange.commands import Peer
from ..protocol.jsonrpc import encode
from ..server import Server
from ..state import Keys, make_key
from .channels import ChannelError, Frame, Hear

__all__ = ["InMemory"]


class InMemory:
    """A channel to an app. What crosses it is encoded and read, as on a wire.

    Args:
        app: The server. Without keys it gets random ones; its lifespan is opened unless
            somebody serves it already.
        principal: Who asks.
    """

    has_headers = False

    def __init__(self, app: Server, *, principal: str | None = None) -> None:
        self._app = app
        self._peer = Peer(principal=principal)
        self._stack = AsyncExitStack()

    @property
    def keys(self) -> Keys | None:
        """The server's, which opens the states that cross this channel."""
        return self._app.keys

    async def __aenter__(self) -> Self:
        if self._app.keys is None:
            self._app.keys = Keys(make_key(secrets.token_bytes(32)))
        if not self._app.is_running:
            await self._stack.enter_async_context(_driver().running(self._app))
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Have the app handle a request."""

        async def send(told: Frame) -> None:
            await hear(json.loads(encode(told)))

        reply = await _driver().handle(
            self._app, encode(message), self._peer, send=send
        )
        if reply.body is None:
            raise ChannelError("the server answered a request with nothing")
        response: Frame = json.loads(reply.body)
        return response


def _driver() -> Any:
    if sniffio.current_async_library() == "trio":
        from ..drivers import trio

        return trio
    from ..drivers import asyncio

    return asyncio
