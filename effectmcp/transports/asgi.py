"""`application(app)`: a server for ASGI hosts that run asyncio or trio.

    uvicorn bookshop:asgi                               asgi = application(app)
    hypercorn -k trio bookshop:asgi
    mount(host, "/mcp", application(app))   in a host of Starlette or FastAPI

`conversation` decides on the response, and on whether it is a stream; this module
translates that into ASGI messages.

Some hosts send no `lifespan` to an application; mounted applications get none. Such a
host must open the server's lifespan in its own lifespan:
`async with effectmcp.drivers.local.running(app)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import attrs

from ..drivers.local import check_open, running
from ..drivers.loops import running_loop
from ..errors import UsageError
from ..logs import logger_for
from ..protocol.authorization import RESOURCE_METADATA
from ..server.changes import Change
from . import web
from .conversation import Conversation, Endpoint
from .hosting import Gone, Work, converse
from .mounted import EVERY_PATH, prepare
from .reading import Calls
from .sessions import SessionLimits, Sessions
from .web import Head, Site
from .working import working

if TYPE_CHECKING:
    from ..drivers.loops import Doing, Loop
    from ..server.app import Server

__all__ = ["ASGIApplication", "application", "mount"]

logger = logger_for("effectmcp.server")

_SESSIONS: Final = SessionLimits()

#: Seconds that flows have to clean up when the host shuts down.
_GRACE: Final = 5.0

#: The versions of HTTP whose connections end by a header.
_ONE: Final = ("1.0", "1.1")
_CLOSE: Final = (("Connection", "close"),)

T = TypeVar("T")
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Principal: TypeAlias = Callable[[Scope], str | None | Awaitable[str | None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def application(
    app: Server,
    *,
    site: Site = EVERY_PATH,
    principal: Principal | None = None,
    keep_alive: float = 15,
    sessions: SessionLimits | None = _SESSIONS,
) -> ASGIApplication:
    """Return an ASGI application that serves `app`.

    Args:
        app: The server. Without keys of its own, it gets the keys in the environment.
        site: The hosts, origins and users that are allowed. Its path is relative to
            where the host mounts the application; `None`, the default, for every path.
        principal: Returns the user that the host's own middleware found, given the
            scope: an `Identity`, a name, or `None` for an anonymous client. Called
            instead of the server's `auth`; may be an async function.
        keep_alive: Seconds of silence in a call, after which a comment is sent.
        sessions: Limits on the sessions of legacy clients; `None` to keep no sessions,
            for hosts with several processes, where the next request may reach another
            process. Only clients that speak 2026-07-28 can then be asked questions.
    """
    prepare(app)
    kept = None
    if sessions is not None and app.legacy:
        kept = Sessions(app, sessions, share=site.share)
    endpoint = Endpoint(
        app=app, site=site, sessions=kept, quiet=keep_alive, has_pieces=True
    )
    return ASGIApplication(endpoint, principal)


@attrs.frozen(eq=False)
class ASGIApplication:
    """The application that `application` returns.

    It is not a function, because Starlette's `Route` treats functions as its own handlers
    and instances as ASGI applications.
    """

    endpoint: Endpoint
    principal: Principal | None = None
    _calls: Calls = attrs.field(factory=Calls, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as defined by ASGI 3."""
        match scope["type"]:
            case "http":
                try:
                    await self._serve(scope, receive, send)
                except Gone:
                    pass
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await send({"type": "websocket.close"})
            case other:
                raise UsageError(f"ASGI's {other!r} is not served here")

    # ---- requests ----

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = running_loop()
        find = None if self.principal is None else partial(self.principal, scope)
        endpoint = self.endpoint
        head = _asked(scope, endpoint.documents)
        # A probe reports a server that has not started; other requests fail.
        if head.path not in endpoint.probes:
            check_open(endpoint.app)
        talk = Conversation(endpoint, head, clock=loop.now, find=find)
        # Later versions of HTTP have no such header: their hosts end connections.
        leaves = endpoint.readiness.is_draining and scope.get("http_version") in _ONE
        host = _AsgiHost(loop, talk, receive, send, leaves=leaves)
        await converse(loop, talk, host, self._calls)

    def drain(self) -> None:
        """Report to balancers that this server will soon stop; serve clients as before.

        A host ends the lifespan of an application only after it has stopped to accept
        connections, so this has to be called earlier, such as in a signal handler.
        """
        self.endpoint.readiness.is_draining = True

    # ---- the lifespan ----

    async def _live(self, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        app, sessions = self.endpoint.app, self.endpoint.sessions
        phase = "startup"
        try:
            async with running(app), working(running_loop(), app):
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
                # Before the lifespan closes: streams still use it for their last message.
                if sessions is not None:
                    sessions.close_all()
                app.changes.publish(Change("end"))
                await self.finish(_GRACE)
        except Exception as exc:
            logger.exception("the lifespan of %r failed", app)
            message = f"{type(exc).__name__}: {exc}"
            await send({"type": f"lifespan.{phase}.failed", "message": message})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    async def finish(self, grace: float) -> None:
        """Wait for calls that do not end with their connection, for so many seconds."""
        await self._calls.end(running_loop(), grace)


# ---- hosts that route ---------------------------------------------------------------


class _Router(Protocol):
    """A `Starlette`, a `FastAPI`, or a `Router` of one of them."""

    @property
    def routes(self) -> Sequence[Any]: ...

    def mount(self, path: str, app: Any, /) -> None: ...

    def add_route(self, path: str, route: Any, /) -> None: ...


def mount(host: _Router, path: str, asgi: ASGI) -> None:
    """Mount `asgi` in a host of Starlette or FastAPI, for `/mcp` and `/mcp/` alike.

    Also route the metadata of a server with `auth=` to it, which clients find outside of
    the mount: at `/.well-known/oauth-protected-resource/mcp` (RFC 9728, section 3.1).

    `host.mount("/mcp", asgi)` alone serves `/mcp/` and everything below. A request to
    `/mcp` gets a redirect, which most clients do not follow. The host sends it without
    calling `asgi`, so only a second route can serve that path.

    Args:
        host: The `Starlette`, the `FastAPI`, or a `Router` of one of them.
        path: Where to mount it, such as `/mcp`.
        asgi: What `application` returned, perhaps in middleware of your own.

    Raises:
        UsageError: If `asgi` is something else, such as a `Server`.
    """
    if not callable(asgi):
        raise UsageError(f"mount() takes application(app), and not {asgi!r}")
    host.mount(path, asgi)
    host.add_route(path.rstrip("/") or "/", _WithSlash(host.routes[-1]))
    places = {RESOURCE_METADATA + path.rstrip("/"): None}
    if isinstance(asgi, ASGIApplication):
        # The URL that clients write may begin with a path that a proxy removes.
        places |= dict.fromkeys(asgi.endpoint.documents)
    for one in places:
        host.add_route(one, _Whole(asgi))


@attrs.frozen(eq=False)
class _WithSlash:
    """Passes a request for the path of a mount to that mount, with the slash added.

    So the mount sets `root_path`, and the application sees no difference. It is not a
    function for the same reason as `ASGIApplication`.
    """

    mount: ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.mount({**scope, "path": f"{scope['path']}/"}, receive, send)


@attrs.frozen(eq=False)
class _Whole:
    """Passes a request on as it is. A function would be taken for a handler, as above."""

    asgi: ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.asgi(scope, receive, send)


# ---- the connection -----------------------------------------------------------------


class _AsgiHost:
    """The connection of one request."""

    #: What waits for a disconnect would take the parts of the body.
    reads_ahead = False

    def __init__(
        self,
        loop: Loop,
        talk: Conversation,
        receive: Receive,
        send: Send,
        *,
        leaves: bool,
    ) -> None:
        self._loop = loop
        self._talk = talk
        self._receive = receive
        self._send = send
        #: The headers with which a connection ends after its response.
        self._closing = _CLOSE if leaves else ()

    async def receive(self, add: Callable[[bytes], web.Send | None]) -> web.Send | None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            refused = add(message.get("body", b""))
            if refused is not None or not message.get("more_body", False):
                return refused

    async def send(self, part: web.Send) -> None:
        if part.status is not None:
            headers = [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in (*part.headers, *self._closing, *web.length_of(part))
            ]
            start = {"status": part.status, "headers": headers}
            await self._emit({"type": "http.response.start", **start})
        if not part.more:
            await self._emit_body(part.data, more_body=not part.is_last)
            return
        data, more = part.data, part.more
        with self._talk.holding_unsent(more) as holding:
            while more:
                await self._emit_body(data, more_body=True)
                if more:
                    data = more.popleft()
                    holding.remove(len(data))
            if holding.is_closed:
                raise Gone  # the bytes had to give way: break the response off
            await self._emit_body(data, more_body=not part.is_last)

    async def _emit_body(self, data: bytes, *, more_body: bool) -> None:
        body = {"body": data, "more_body": more_body}
        await self._emit({"type": "http.response.body", **body})

    async def _emit(self, message: MutableMapping[str, Any]) -> None:
        try:
            await self._send(message)
        except OSError as exc:
            # A server may raise this (ASGI, HTTP, Disconnected Client).
            raise Gone from exc

    async def wait(self, work: Work[T], beside: Doing) -> T | None:
        found: T | None = await self._loop.unless(self._gone, work, beside)
        return found

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


# ---- the scope ----------------------------------------------------------------------


def _asked(scope: Scope, documents: Container[str]) -> Head:
    server, client = scope.get("server"), scope.get("client")
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    # A document is named by its whole path, at any place where the host mounts.
    is_below = path == root or path.startswith(f"{root}/")
    if root and is_below and path not in documents:
        path = path[len(root) :] or "/"
    return Head(
        scope["method"],
        path,
        [
            (one.decode("latin-1"), two.decode("latin-1"))
            for one, two in scope["headers"]
        ],
        bound_to=server[0] if server else None,
        peer=client[0] if client else None,
    )
