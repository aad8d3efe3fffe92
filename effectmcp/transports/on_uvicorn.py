"""Streamable HTTP on asyncio, by uvicorn: the counterpart of `http`, for its loop.

    await run(app, bind("127.0.0.1", 8000, shared=False))

uvicorn accepts and reads; `asgi` answers. Connections have uvicorn's limits, and requests
have the same limits as on every host. uvicorn waits without limit for slow clients, so this
module closes their connections.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h11

from ..drivers import asyncio as loop
from ..errors import UsageError
from ..server.changes import Change
from .announcing import announce, at, clients_of
from .asgi import ASGIApplication
from .connection import Limits, drained, endpoint_of
from .default_keys import ensure_keys
from .sessions import SessionLimits, Sessions
from .signals import until_signalled
from .sockets import host_of, url_of
from .stores import ensure_tasks
from .web import Site
from .working import working

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ModuleNotFoundError as exc:
    if exc.name != "uvicorn":
        raise
    raise UsageError(
        "uvicorn serves HTTP on asyncio, and is not installed: pip install"
        " 'effectmcp[asyncio]'"
    ) from None

if TYPE_CHECKING:
    from ..drivers.loops import Event
    from ..server.app import Server

__all__ = ["run", "serve"]

_LIMITS: Final = Limits()
_SESSIONS: Final = SessionLimits()

#: Seconds, for uvicorn, which takes no infinity here.
_LONG: Final = 10**8


async def serve(
    app: Server,
    sockets: Sequence[socket.socket],
    *,
    shutdown: Event,
    site: Site | None = None,
    limits: Limits = _LIMITS,
    sessions: SessionLimits | None = _SESSIONS,
    certificate: str | None = None,
    key: str | None = None,
    is_alone: bool = True,
    is_announced: bool = False,
) -> None:
    """Serve `app` over HTTP until `shutdown` is set, or until cancelled.

    Args:
        app: The server.
        sockets: Sockets that listen. The server closes them.
        shutdown: An event that the caller sets to shut the server down.
        site: Its path, and the hosts, origins and users that are allowed.
        limits: Limits for connections and requests; all but `headers`, `linger` and
            `retry_after` count here.
        sessions: Limits on the sessions of legacy clients; `None` to keep no sessions.
        certificate: A file with the certificate chain, to serve TLS.
        key: A file with the certificate's private key.
        is_alone: Whether no other process serves these clients; see `ensure_keys`.
        is_announced: Whether another process has logged the start of the server.

    Raises:
        KeysError: If the keys are invalid; see `ensure_keys`.
    """
    ensure_keys(app, is_alone=is_alone)
    ensure_tasks(app, is_alone=is_alone)
    site = Site() if site is None else site
    async with (
        loop.running(app),
        working(loop, app, grace=limits.grace) as stop_working,
        loop.crew() as spawn,
    ):
        kept = None
        if sessions is not None and app.legacy:
            kept = Sessions(app, sessions, share=site.share)
        endpoint = endpoint_of(app, site, limits, kept)
        served = ASGIApplication(endpoint)
        host = _Host(
            uvicorn.Config(
                served,
                http=type("Protocol", (_Protocol,), {"limits": limits, "waiting": {}}),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                # uvicorn refuses the connection that reaches the number.
                limit_concurrency=limits.most_connections + 1,
                timeout_keep_alive=_whole(limits.idle) or _LONG,
                timeout_graceful_shutdown=_whole(limits.grace),
                h11_max_incomplete_event_size=limits.head,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )

        async def stop() -> None:
            await drained(loop, endpoint, shutdown, limits)
            stop_working()
            if kept is not None:
                kept.close_all()
            app.changes.publish(Change("end"))
            host.should_exit = True

        spawn(stop)
        if not is_announced:
            scheme = "http" if certificate is None else "https"
            where = at(url_of(scheme, one, site.path) for one in sockets)
            clients = clients_of(app, site, map(host_of, sockets))
            announce(app, where, clients, loop=loop.name, tasks=app.tasks)
        await host.serve(list(sockets))
        await served.finish(limits.grace)


async def run(app: Server, sockets: Sequence[socket.socket], **options: Any) -> None:
    """Serve `app` until SIGTERM or SIGINT; a second signal cancels it immediately.

    Args:
        app: The server.
        sockets: Sockets that listen.
        **options: As for `serve`.
    """
    options.setdefault("shutdown", loop.Event())
    shutdown: Event = options["shutdown"]
    await until_signalled(shutdown, partial(serve, app, sockets, **options))


class _Host(uvicorn.Server):
    """uvicorn's server, which leaves signals to `until_signalled`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _Protocol(H11Protocol):
    """uvicorn's connection, which ends if its client is too slow.

    uvicorn waits without limit for the rest of a head or of a body, and for a client that
    does not read. If there are too many connections, the oldest connection that waits for
    a request is closed.
    """

    limits: Limits
    #: The connections that wait for a request, or for its rest: the oldest first.
    waiting: dict[_Protocol, None]
    _timer: asyncio.TimerHandle | None = None
    _awaited: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for a request."""
        super().connection_made(transport)
        self._await(h11.IDLE)
        oldest = next(iter(self.waiting))
        if len(self.connections) > self.limits.most_connections and oldest is not self:
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._await(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and wait for the rest of their request."""
        super().data_received(data)
        state = self.conn.their_state
        if not self.transport.is_closing():
            self._await(state if state in (h11.IDLE, h11.SEND_BODY) else None)

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn has a timer until its first byte."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.waiting.setdefault(self)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._await("reads")

    def resume_writing(self) -> None:
        """Wait no longer."""
        super().resume_writing()
        self._await(None)

    def _await(self, what: object) -> None:
        if what is self._awaited and what is not None:
            return
        self._awaited = what
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if what is None:
            self.waiting.pop(self, None)
            return
        self.waiting.setdefault(self)
        seconds: dict[object, float] = {
            h11.IDLE: self.limits.head_time,
            h11.SEND_BODY: self.limits.body_time,
        }
        limit = seconds.get(what, self.limits.write)
        if limit < math.inf:
            self._timer = self.loop.call_later(limit, self.transport.abort)


def _whole(seconds: float) -> int | None:
    """Return seconds as uvicorn takes them: a whole number, or `None` for no limit."""
    return None if seconds == math.inf else math.ceil(seconds)
