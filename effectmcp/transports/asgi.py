"""`application(app)`: a server for ASGI hosts, on asyncio or trio, whichever they run.

    uvicorn bookshop:asgi                               asgi = application(app)
    hypercorn -k trio bookshop:asgi
    Starlette(routes=[Route("/mcp", application(app))])
    fastapi_app.mount("/mcp", application(app))

The response is one JSON object. It becomes a stream of events as soon as there is
something to say before it: a notification, or, in a call that has been quiet for long, a
comment that keeps proxies from giving it up. When the client closes the connection, what
it asked for is cancelled and its flow suspended (2026-07-28, Streamable HTTP,
Cancellation).

A host that sends no `lifespan`, as to what is mounted, opens the server's lifespan in its
own: `async with effectmcp.drivers.local.running(app)`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import attrs

from ..canonical import JSON
from ..drivers.local import running
from ..errors import UsageError
from ..exchange.commands import Peer, Reply
from ..protocol.jsonrpc import Request, encode, read_message
from ..server import Change, Server
from .mounted import EVERY_PATH, check_open, prepare
from .reading import Calls, Loop, pump, settle
from .sessions import SESSION_ID, SessionLimits, Sessions
from .web import (
    JSON_TYPE,
    KEEP_ALIVE,
    SSE_HEADERS,
    Head,
    Response,
    Site,
    admit,
    cors,
    sse,
    too_large,
)

__all__ = ["ASGIApplication", "application"]

logger = logging.getLogger("effectmcp.server")

_SESSIONS: Final = SessionLimits()

#: Seconds that flows have to clean up when the host is to stop.
_GRACE: Final = 5.0

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Principal: TypeAlias = Callable[[Scope], str | None]


def application(
    app: Server,
    *,
    site: Site = EVERY_PATH,
    principal: Principal | None = None,
    keep_alive: float = 15,
    sessions: SessionLimits | None = _SESSIONS,
) -> ASGIApplication:
    """An ASGI application that serves `app`.

    Args:
        app: The server. Its keys are those of the environment, if it has none.
        site: Whom it lets in. Its path is the one below the place where a host mounts
            it; `None`, as here, for whatever the host sends.
        principal: The user whom the host's own middleware found, by the scope; used
            instead of what `site.authenticate` says.
        keep_alive: Seconds that a call may be quiet.
        sessions: What the sessions of clients may take up that shake hands; `None` to
            keep none, as where the host runs several processes and the next request may
            reach another. Nobody can be asked then who does not speak 2026-07-28.
    """
    prepare(app)
    kept = Sessions(app, sessions) if sessions is not None and app.legacy else None
    return ASGIApplication(app, site, principal, keep_alive, kept)


@attrs.frozen(eq=False)
class ASGIApplication:
    """What `application` makes. An instance, which Starlette's `Route` takes as it is."""

    app: Server
    site: Site
    principal: Principal | None
    keep_alive: float
    sessions: Sessions | None = None
    _calls: Calls = attrs.field(factory=Calls, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI 3 has it."""
        match scope["type"]:
            case "http":
                check_open(self.app)
                try:
                    await self._serve(scope, receive, send)
                except _Gone:
                    pass
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await send({"type": "websocket.close"})
            case other:
                raise UsageError(f"ASGI's {other!r} is nothing that is served here")

    # ---- requests ----

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _asked(scope)
        peer = admit(self.site, asked, has_sessions=self.sessions is not None)
        if isinstance(peer, Peer) and self.principal is not None:
            peer = attrs.evolve(peer, principal=self.principal(scope))
        if isinstance(peer, Peer) and self.sessions is not None:
            peer = self.sessions.admit(peer)
        if isinstance(peer, Response):
            return await _answer(send, peer)
        assert peer.headers is not None
        shared = cors(peer.headers.get("origin"))
        body = await _read(receive, peer.headers, self.site.max_body)
        if body is None:
            refused = too_large(self.site)
            return await _answer(
                send, attrs.evolve(refused, headers=(*refused.headers, *shared))
            )
        if peer.session is not None:
            response = _Response(send, shared, _running_loop().Lock())
            await self._in_session(asked.method, body, peer, response, receive)
        else:
            await self._handle(body, peer, shared, receive, send)

    async def _handle(
        self,
        body: bytes,
        peer: Peer,
        shared: tuple[tuple[str, str], ...],
        receive: Receive,
        send: Send,
    ) -> None:
        loop = _running_loop()
        response = _Response(send, shared, loop.Lock())
        begun = loop.begin(self.app, body, peer)
        if isinstance(begun, Reply):
            return await response.end(self._kept(begun, response))

        async def work() -> None:
            reply = await begun.finish(response.notify)
            await response.end(self._kept(reply, response))

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def comment() -> None:
            while True:
                # It looks twice, so that no quiet is longer.
                await loop.sleep(self.keep_alive / 2)
                try:
                    await response.comment()
                except _Gone:
                    return  # `gone` hears of it too

        await loop.unless(gone, work, comment)

    def _kept(self, reply: Reply, response: _Response) -> Reply:
        """The reply, whose headers name the session that it opens."""
        if reply.opened is not None and self.sessions is not None:
            response.add_header(SESSION_ID, self.sessions.keep(reply.opened))
            self._calls.sweep(_running_loop(), self.sessions)
        return reply

    async def _in_session(
        self,
        method: str,
        body: bytes,
        peer: Peer,
        response: _Response,
        receive: Receive,
    ) -> None:
        """Answer a client that shook hands; see `sessions`."""
        loop, session, sessions = _running_loop(), peer.session, self.sessions
        assert session is not None
        assert sessions is not None
        assert peer.headers is not None
        if method == "DELETE":
            sessions.close(session)
            return await response.end(Reply(None, 204))
        if method == "GET":
            found = sessions.find_stream(session, peer.headers)
            if isinstance(found, Response):
                return await response.refuse(found)
            stream, after = found
        else:
            read = read_message(body)
            begun = loop.begin(self.app, read, peer)
            if not isinstance(read, Request) and not isinstance(begun, Reply):
                begun = await begun.finish(response.notify)  # waits for nothing
            if isinstance(begun, Reply):
                return await response.end(begun)
            assert isinstance(read, Request)
            opened = sessions.open_stream(session)
            if isinstance(opened, Response):
                return await response.refuse(opened)
            stream, after = opened, 0
            loop.spawn(partial(self._calls.run, loop, begun, read, session, stream))
            only = await settle(loop, stream)
            if only is not None:
                return await response.whole(only)

        async def work() -> None:
            await pump(
                loop,
                sessions,
                session,
                stream,
                after,
                response.write,
                quiet=self.keep_alive,
            )
            await response.close()

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def nothing() -> None:
            pass  # `pump` keeps the stream alive

        await loop.unless(gone, work, nothing)

    # ---- the lifespan ----

    async def _live(self, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        phase = "startup"
        try:
            async with running(self.app):
                await send({"type": "lifespan.startup.complete"})
                phase = "shutdown"
                await receive()
                # First, so that streams end with a word while what they use is there.
                if self.sessions is not None:
                    self.sessions.close_all()
                self.app.changes.publish(Change("end"))
                await self._calls.end(_running_loop(), _GRACE)
        except Exception as exc:
            logger.exception("the lifespan of %r failed", self.app)
            message = f"{type(exc).__name__}: {exc}"
            await send({"type": f"lifespan.{phase}.failed", "message": message})
        else:
            await send({"type": "lifespan.shutdown.complete"})


class _Gone(Exception):
    """The client is gone, and with it the response."""


class _Response:
    """The response to one request: an object, or a stream that ends with it."""

    def __init__(
        self,
        send: Send,
        shared: tuple[tuple[str, str], ...],
        lock: AbstractAsyncContextManager[Any],
    ) -> None:
        self._send = send
        self._shared = shared
        # Comments come from a task of their own, and hosts need not put up with two
        # that send at once.
        self._lock = lock
        self._is_stream = False
        self._is_over = False
        self._is_quiet = False

    def add_header(self, name: str, value: str) -> None:
        self._shared = (*self._shared, (name, value))

    async def notify(self, message: Mapping[str, JSON]) -> None:
        async with self._lock:
            await self._write(sse(encode(message)))

    async def comment(self) -> None:
        """Keep the stream open, if nothing was sent since the last time."""
        if not self._is_quiet:
            self._is_quiet = True
            return
        async with self._lock:
            if not self._is_over:
                await self._write(KEEP_ALIVE)

    async def write(self, data: bytes) -> None:
        """Send events."""
        async with self._lock:
            await self._write(data)

    async def close(self) -> None:
        """Send nothing more."""
        async with self._lock:
            self._is_over = True
            await self._write(b"", is_last=True)

    async def refuse(self, answer: Response) -> None:
        """Send a whole response of another kind."""
        headers = (*answer.headers, *self._shared)
        await _answer(self._send, attrs.evolve(answer, headers=headers))

    async def whole(self, message: bytes) -> None:
        """Send a response that is one JSON object."""
        headers = (("Content-Type", JSON_TYPE), *self._shared)
        await _answer(self._send, Response(200, headers, message))

    async def end(self, reply: Reply) -> None:
        # Waits for a comment that is on its way: half of one would spoil the stream.
        async with self._lock:
            self._is_over = True
            if self._is_stream:
                assert reply.body is not None  # a notification is never quiet
                await self._write(sse(reply.body), is_last=True)
            elif reply.body is None:
                await _answer(self._send, Response(reply.status, self._shared))
            else:
                headers = (("Content-Type", JSON_TYPE), *self._shared)
                answer = Response(reply.status, headers, reply.body)
                await _answer(self._send, answer)

    async def _write(self, data: bytes, *, is_last: bool = False) -> None:
        self._is_quiet = False
        if not self._is_stream:
            self._is_stream = True
            await _start(self._send, 200, (*SSE_HEADERS, *self._shared))
        await _body(self._send, data, is_last=is_last)


# ---- ASGI's own words ---------------------------------------------------------------


def _asked(scope: Scope) -> Head:
    server, client = scope.get("server"), scope.get("client")
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
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


async def _read(
    receive: Receive, headers: Mapping[str, str], limit: int
) -> bytes | None:
    """The body; `None` if it is longer than `limit`."""
    length = headers.get("content-length", "")
    # Said beforehand, so nobody has to send it.
    if length.isdecimal() and (len(length) > 18 or int(length) > limit):
        return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _answer(send: Send, answer: Response) -> None:
    length = ("Content-Length", str(len(answer.body)))
    # RFC 9110, section 8.6: a 204 has none.
    headers = answer.headers if answer.status == 204 else (*answer.headers, length)
    await _start(send, answer.status, headers)
    await _body(send, answer.body, is_last=True)


async def _start(send: Send, status: int, headers: tuple[tuple[str, str], ...]) -> None:
    raw = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in headers
    ]
    await _emit(send, {"type": "http.response.start", "status": status, "headers": raw})


async def _body(send: Send, body: bytes, *, is_last: bool) -> None:
    await _emit(
        send, {"type": "http.response.body", "body": body, "more_body": not is_last}
    )


async def _emit(send: Send, message: MutableMapping[str, Any]) -> None:
    try:
        await send(message)
    except OSError as exc:
        # ASGI, HTTP, Disconnected Client: what a server may raise then.
        raise _Gone from exc


# ---- the loop -----------------------------------------------------------------------


class _Loop(Loop, Protocol):
    """`asgi_asyncio` or `asgi_trio`."""

    @property
    def Lock(self) -> Callable[[], AbstractAsyncContextManager[Any]]: ...

    @property
    def begin(self) -> Callable[..., Any]: ...

    @property
    def unless(self) -> Callable[..., Awaitable[None]]: ...


def _running_loop() -> _Loop:
    # Head of trio first: asyncio says yes inside of a trio that is its guest. And only
    # of a trio that is there: who runs asyncio need not have it.
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        from . import asgi_trio

        return asgi_trio
    from . import asgi_asyncio

    return asgi_asyncio
