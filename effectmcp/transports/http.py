"""Streamable HTTP on trio and h11: accepting connections, and shutting down.

    await serve(app, "127.0.0.1", 8000)     inside of your own program
    trio.run(run, app)                      a whole program, until SIGTERM or Ctrl-C

`connection` handles a single connection. This module limits their number and ends them: a
server that shuts down accepts no new connections, closes idle ones, and waits for the
rest.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from ..drivers import trio as loop
from ..logs import logger_for
from ..server.changes import Change
from .announcing import announce, at, clients_of
from .connection import Connection, Limits, Shared, drained, endpoint_of
from .default_keys import ensure_keys
from .disconnects import Disconnects
from .open_files import files
from .reading import Calls
from .sessions import SessionLimits, Sessions
from .signals import until_signalled
from .sockets import host_of, url_of
from .stores import ensure_tasks
from .web import Site
from .working import working

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["Accepting", "Limits", "open_listeners", "run", "serve"]

logger = logger_for("effectmcp.server")

Listener: TypeAlias = trio.abc.Listener[Any]

_LIMITS: Final = Limits()
_SESSIONS: Final = SessionLimits()

#: How many clients at once get a response that there are too many connections; the
#: connections of further clients are closed without one.
_TURNED_AWAY: Final = 64


async def serve(
    app: Server,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    site: Site | None = None,
    limits: Limits = _LIMITS,
    sessions: SessionLimits | None = _SESSIONS,
    ssl_context: ssl.SSLContext | None = None,
    listeners: Sequence[Listener] | None = None,
    shutdown: trio.Event | None = None,
    is_alone: bool = True,
    is_announced: bool = False,
    task_status: trio.TaskStatus[Sequence[Listener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` over HTTP until `shutdown` is set, or until cancelled.

    Then `/readyz` reports it for `limits.drain` seconds, while clients are served. After
    that no new connections are accepted, subscriptions end, and running requests have
    `limits.grace` seconds to end.

    Args:
        app: The server.
        host: The address to bind to, or a name with one or more addresses.
        port: The port; 0 for any free port.
        site: Its path, and the hosts, origins and users that are allowed.
        limits: Limits for connections and requests.
        sessions: Limits on the sessions of legacy clients; `None` to keep no sessions,
            for when the next request may reach another process. Only clients that speak
            2026-07-28 can then be asked questions.
        ssl_context: The context to serve TLS with; `None` for plain HTTP.
        listeners: Listeners to use instead of `host` and `port`. The server owns the
            connections that they accept.
        shutdown: An event that the caller sets to shut the server down.
        is_alone: Whether no other process serves these clients; see `ensure_keys`.
        is_announced: Whether another process has logged the start of the server.
        task_status: Started with the listeners once clients can connect.

    Raises:
        OSError: If the address cannot be bound.
        KeysError: If the keys are invalid; see `ensure_keys`.
    """
    ensure_keys(app, is_alone=is_alone)
    ensure_tasks(app, is_alone=is_alone)
    if listeners is None:
        listeners = await open_listeners(host, port)
    accepting_listeners = [Accepting(one) for one in listeners]
    served: Sequence[Listener] = accepting_listeners
    if ssl_context is not None:
        # Not `https_compatible`, which sends no close_notify: an old client could not
        # tell a whole response from half of one. If a client sends none itself, it has
        # just disconnected.
        served = [trio.SSLListener(one, ssl_context) for one in accepting_listeners]
    shutdown = trio.Event() if shutdown is None else shutdown
    closing = trio.Event()
    site = Site() if site is None else site
    async with (
        loop.running(app),
        working(loop, app, grace=limits.grace) as stop_working,
        _watching_disconnects() as disconnects,
        trio.open_nursery() as connections,
    ):
        kept = None
        if sessions is not None and app.legacy:
            kept = Sessions(app, sessions, share=site.share, clock=trio.current_time)
            connections.start_soon(_sweep, kept, closing)
        endpoint = endpoint_of(app, site, limits, kept)
        shared = Shared(
            endpoint, loop, limits, disconnects, Calls(connections.start_soon)
        )
        connections.start_soon(_close_idle, shared, closing)
        serving = _Serving(shared)
        for one in accepting_listeners:
            one.make_room = shared.make_room
        async with trio.open_nursery() as accepting:
            await accepting.start(
                partial(
                    trio.serve_listeners,
                    serving.connected,
                    list(served),
                    handler_nursery=connections,
                )
            )
            task_status.started(listeners)
            if not is_announced:
                scheme = "http" if ssl_context is None else "https"
                where = at(_url(scheme, one, site) for one in listeners)
                clients = clients_of(app, site, map(_address, listeners))
                announce(app, where, clients, loop=loop.name, tasks=app.tasks)
            await drained(loop, endpoint, shutdown, limits)
            closing.set()
            shared.is_closing = True
            for one in accepting_listeners:
                one.drain()
            while any(one.drained for one in accepting_listeners):
                await trio.lowlevel.checkpoint()
            accepting.cancel_scope.cancel()
        stop_working()
        connections.cancel_scope.deadline = trio.current_time() + limits.grace
        serving.close()
    if connections.cancel_scope.cancelled_caught:
        logger.warning("what still ran after %g s was cut off", limits.grace)


def _no_room() -> bool:
    return False


class Accepting(trio.abc.Listener[trio.abc.Stream]):
    """A listener that loses no client, when files run out and at the end.

    Args:
        listener: Accepts the connections.

    Attributes:
        make_room: Closes a connection that keeps the server waiting; returns whether
            there was one.
        drained: Connections that the kernel had accepted when the listener was closed.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._is_drained = False
        self.make_room: Callable[[], bool] = _no_room
        self.drained: deque[trio.abc.Stream] = deque()

    async def accept(self) -> trio.abc.Stream:
        """Accept a connection; wait for ever once the listener is drained."""
        while True:
            if self.drained:
                await trio.lowlevel.checkpoint()
                return self.drained.popleft()
            if self._is_drained:
                await trio.sleep_forever()
            try:
                stream: trio.abc.Stream = await self._listener.accept()
                return stream
            except trio.ClosedResourceError:
                if not self._is_drained:
                    raise
            except OSError as exc:
                # trio waits a moment, logs this, and tries again.
                if exc.errno not in _NO_FILES or not self.make_room():
                    raise
                await trio.lowlevel.checkpoint()  # the connection's task closes it

    def drain(self) -> None:
        """Close the listener; keep the connections that the kernel has accepted.

        The kernel would reset those, whose clients have sent requests already.
        """
        listener = self._listener
        if not isinstance(listener, trio.SocketListener):
            return  # no kernel accepts for it
        self._is_drained = True
        # BlockingIOError: that was the last one. Others: no files are left.
        with suppress(OSError):
            # trio's socket cannot accept without waiting.
            with socket.socket(fileno=os.dup(listener.socket.fileno())) as raw:
                raw.setblocking(False)
                while True:
                    accepted = trio.socket.from_stdlib_socket(raw.accept()[0])
                    self.drained.append(trio.SocketStream(accepted))
        listener.socket.close()

    async def aclose(self) -> None:
        """Close the listener, and the connections that were not taken."""
        await self._listener.aclose()
        for stream in self.drained:
            await trio.aclose_forcefully(stream)


#: The errors when the process or the system can open no more files.
_NO_FILES: Final = (errno.EMFILE, errno.ENFILE)


@asynccontextmanager
async def _watching_disconnects() -> AsyncIterator[Disconnects]:
    async with trio.open_nursery() as nursery:
        disconnects = Disconnects(nursery)
        nursery.start_soon(disconnects.run)
        yield disconnects
        nursery.cancel_scope.cancel()


async def _close_idle(shared: Shared, closing: trio.Event) -> None:
    while not closing.is_set():
        with trio.move_on_at(shared.close_idle()):
            await closing.wait()


async def _sweep(sessions: Sessions, closing: trio.Event) -> None:
    while not closing.is_set():
        with trio.move_on_after(sessions.sweep()):
            await closing.wait()


async def open_listeners(host: str, port: int) -> Sequence[Listener]:
    """Return listeners at every address of `host`, all on one port.

    Raises:
        OSError: If `host` has no address, or an address cannot be bound.
    """
    return await trio.open_tcp_listeners(port, host=host)


async def run(
    app: Server, host: str = "127.0.0.1", port: int = 8000, **options: Any
) -> None:
    """Serve `app` until SIGTERM or SIGINT; a second signal cancels it immediately.

    Args:
        app: The server.
        host: The address to bind to.
        port: The port.
        **options: As for `serve`.
    """
    ensure_keys(app, is_alone=options.get("is_alone", True))
    if options.get("listeners") is None:
        options["listeners"] = await open_listeners(host, port)
    if options.get("shutdown") is None:
        options["shutdown"] = trio.Event()
    shutdown: trio.Event = options["shutdown"]
    await until_signalled(shutdown, partial(serve, app, host, port, **options))


def _url(scheme: str, listener: Listener, site: Site) -> str:
    bound = _socket(listener)
    return repr(listener) if bound is None else url_of(scheme, bound, site.path)


def _address(listener: Listener) -> str | None:
    bound = _socket(listener)
    return None if bound is None else host_of(bound)


def _socket(listener: Listener) -> trio.socket.SocketType | None:
    if isinstance(listener, trio.SSLListener):
        listener = listener.transport_listener
    return listener.socket if isinstance(listener, trio.SocketListener) else None


class _Serving:
    """One server, and the number of its connections."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._turned_away = 0
        # They take files, too.
        self._most_turned_away = min(_TURNED_AWAY, files() // 8)

    async def connected(self, stream: trio.abc.Stream) -> None:
        """Serve a connection to its end; log errors, as other connections continue."""
        connection = Connection(self._shared, stream)
        try:
            if connection.sit_down():
                await connection.run()
            elif self._turned_away < self._most_turned_away:
                await self._turn_away(connection)
            else:
                await trio.aclose_forcefully(stream)
        except Exception:
            logger.exception("a connection failed")

    async def _turn_away(self, connection: Connection) -> None:
        self._turned_away += 1
        try:
            await connection.turn_away()
        finally:
            self._turned_away -= 1

    def close(self) -> None:
        """End sessions and subscriptions, and close connections after their requests."""
        self._shared.is_closing = True
        endpoint = self._shared.endpoint
        if endpoint.sessions is not None:
            endpoint.sessions.close_all()
        endpoint.app.changes.publish(Change("end"))
        for connection in tuple(self._shared.idle):
            connection.finish()
