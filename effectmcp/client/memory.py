"""A channel to a server in the same process."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import attrs

from ..drivers.loops import running_loop
from ..exchange.commands import peer_of
from ..protocol.jsonrpc import encode
from ..state.keys import Keys, make_key
from .channels import ChannelError, Frame, Hear

if TYPE_CHECKING:
    from ..server.app import Server
    from ..server.identity import Identity
    from ..server.loop_name import LoopName

__all__ = ["InMemory"]


class InMemory:
    """A channel to an app, which encodes and decodes all messages, as on a wire.

    Args:
        app: The server. Without keys it gets random ones, and without a ledger one in
            memory. Its lifespan is opened, unless it is open already.
        principal: The user that the server sees: a name, which may do everything, or an
            `Identity`.
    """

    has_headers = False
    probes = False
    origin = None

    def __init__(self, app: Server, *, principal: Identity | str | None = None) -> None:
        self._app = app
        self._peer = peer_of(principal)
        self._stack = AsyncExitStack()

    @property
    def keys(self) -> Keys | None:
        """The keys of the server, which can open the states on this channel."""
        return self._app.keys

    @property
    def loop(self) -> LoopName | None:
        """The loop that the server names."""
        return self._app.loop

    async def __aenter__(self) -> Self:
        if self._app.keys is None:
            self._app.keys = Keys(make_key(secrets.token_bytes(32)))
        if self._app.ledger is None:
            # Imported here: the test kit imports this module, and is pure otherwise.
            from ..tasks.sqlite import SqliteTasks

            self._app.ledger = SqliteTasks()
        if not self._app.is_running:
            await self._stack.enter_async_context(running_loop().running(self._app))
        return self

    async def __aexit__(self, *exc: Any) -> None:
        if self._peer.session is not None:
            self._peer.session.close()
        await self._stack.aclose()

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Let the app handle a request, and return its response."""

        async def send(told: Frame) -> None:
            await hear(json.loads(encode(told)))

        try:
            reply = await running_loop().handle(
                self._app, encode(message), self._peer, send=send
            )
        except BaseException:
            if self._peer.session is not None:
                self._peer.session.cancel(message["id"])
            raise
        if reply.body is None:
            raise ChannelError("the server answered a request with nothing")
        if reply.opened is not None:
            self._peer = attrs.evolve(self._peer, session=reply.opened)
        response: Frame = json.loads(reply.body)
        return response

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Let the app handle a notification or a response."""
        await running_loop().handle(self._app, encode(message), self._peer)

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Receive the notifications of changes."""
        session = self._peer.session
        assert session is not None  # only legacy clients attend

        async def send(told: Frame) -> None:
            await hear(json.loads(encode(told)))

        ready()
        await running_loop().listen(self._app, session.news, send)
