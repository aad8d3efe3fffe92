"""`application(app)`: a server for WSGI hosts, with a thread for each request.

    gunicorn bookshop:wsgi                  wsgi = application(app)
    waitress-serve bookshop:wsgi
    wsgiref.simple_server.make_server(host, port, application(app))

Requests are answered by `effectmcp.drivers.sync`: steps one after the other, async ones
only with `run_async=asyncio.run`. The response is one JSON object, or a stream of events
if there are notifications. They are written at once where the host lets applications
write; where it does not, they come in order with the response, in one body.

Clients of the legacy revisions are asked while their request runs: its thread waits for
threads that handle the answers. So they have sessions where the host has threads, one
process, and lets applications write; streams to come back to they have not.

A host says neither when it begins nor when it ends, and many fork in between. So the
server's lifespan, which is a `contextlib.contextmanager` here, is opened by the first
request, in the process that has it, and closed when that process exits, or by `close()`.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import attrs

from ..canonical import JSON
from ..drivers.local import left
from ..drivers.sync import handle, running
from ..errors import UsageError
from ..exchange.commands import Peer
from ..exchange.sessions import Inquiry
from ..protocol.jsonrpc import encode
from ..server import Change, Server
from .mounted import EVERY_PATH, prepare
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
    refusal,
    sse,
    too_large,
)

__all__ = ["WSGIApplication", "application"]

_SESSIONS: Final = SessionLimits()

#: Seconds in which a client that thinks about a question hears nothing.
_QUIET: Final = 15

#: Seconds that requests have to end when the server is closed.
_GRACE: Final = 5.0

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
Headers: TypeAlias = tuple[tuple[str, str], ...]
Principal: TypeAlias = Callable[[Environ], str | None]


def application(
    app: Server,
    *,
    site: Site = EVERY_PATH,
    principal: Principal | None = None,
    run_async: Callable[[Any], Any] | None = None,
    sessions: SessionLimits | None = _SESSIONS,
    questions: int = 2,
) -> WSGIApplication:
    """A WSGI application that serves `app`.

    Args:
        app: The server. Its keys are those of the environment, if it has none.
        site: Whom it lets in. Its path is the one below `SCRIPT_NAME`; `None`, as here,
            for whatever the host sends.
        principal: The user whom the host's own middleware found, by the environ; used
            instead of what `site.authenticate` says.
        run_async: Runs the coroutine of an async step or function, such as
            `asyncio.run`.
        sessions: What the sessions of clients may take up that shake hands. `None` to
            keep none; so it is anyway where the host says that it has several processes,
            or no threads. Nobody can be asked then who does not speak 2026-07-28.
        questions: How many calls may begin to ask while others wait for answers. Each
            that waits takes one of the host's threads, and the answers need one, too: so
            give fewer than there are.
    """
    prepare(app)
    kept = Sessions(app, sessions) if sessions is not None and app.legacy else None
    return WSGIApplication(app, site, principal, run_async, kept, questions)


class WSGIApplication:
    """What `application` makes."""

    def __init__(
        self,
        app: Server,
        site: Site,
        principal: Principal | None,
        run_async: Callable[[Any], Any] | None,
        sessions: Sessions | None = None,
        questions: int = 2,
    ) -> None:
        self.app = app
        self._site = site
        self._principal = principal
        self._run_async = run_async
        self._sessions = sessions
        self._questions = questions
        self._asking = 0
        self._lock = threading.Lock()
        self._ended = threading.Condition()
        self._count = 0
        self._opened = ExitStack()

    def __call__(
        self, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Serve one request, as PEP 3333 has it."""
        sessions = self._sessions_for(environ)
        asked = _asked(environ)
        peer = admit(self._site, asked, has_sessions=sessions is not None)
        if isinstance(peer, Peer) and self._principal is not None:
            peer = attrs.evolve(peer, principal=self._principal(environ))
        if isinstance(peer, Peer) and sessions is not None:
            peer = sessions.admit(peer)
        if isinstance(peer, Response):
            return _answer(start_response, peer)
        assert peer.headers is not None
        shared = cors(peer.headers.get("origin"))
        if asked.method != "POST":
            return _answer(start_response, self._without_body(asked, peer, shared))
        body = _read(environ, self._site)
        if isinstance(body, Response):
            headers = (*body.headers, *shared)
            return _answer(start_response, attrs.evolve(body, headers=headers))
        self._open()
        stream = _Stream(start_response, shared, is_live=peer.session is not None)
        if peer.session is not None and self._asking >= self._questions:
            peer = attrs.evolve(peer, is_busy=True)
        with self._counted():
            reply = handle(
                self.app,
                body,
                peer,
                send=stream.notify,
                run_async=self._run_async,
                wait=partial(self._wait, peer, stream),
            )
        if reply.opened is not None and sessions is not None:
            shared = (*shared, (SESSION_ID, sessions.keep(reply.opened)))
        if stream.is_begun:
            return stream.end(reply.body)
        if reply.body is None:
            return _answer(start_response, Response(reply.status, shared))
        headers = (("Content-Type", JSON_TYPE), *shared)
        answer = Response(reply.status, headers, reply.body)
        return _answer(start_response, answer)

    def _sessions_for(self, environ: Environ) -> Sessions | None:
        # The next request must reach this process, and another thread of it.
        reaches = environ.get("wsgi.multithread") and not environ.get(
            "wsgi.multiprocess"
        )
        return self._sessions if reaches else None

    def _without_body(self, asked: Head, peer: Peer, shared: Headers) -> Response:
        if peer.session is None or asked.method == "GET":
            refused = refusal(405, "there are no streams here", ("Allow", "POST"))
            return attrs.evolve(refused, headers=(*refused.headers, *shared))
        assert self._sessions is not None
        self._sessions.close(peer.session)
        return Response(204, shared)

    def _wait(self, peer: Peer, stream: _Stream, asking: Inquiry) -> None:
        session, sessions = peer.session, self._sessions
        assert session is not None  # nobody else is asked live
        assert sessions is not None
        sessions.reading(session, +1)
        with self._ended:
            self._asking += 1
        try:
            stream.wait(asking)
        finally:
            with self._ended:
                self._asking -= 1
            sessions.reading(session, -1)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._ended:
            self._count += 1
        try:
            yield
        finally:
            with self._ended:
                self._count -= 1
                self._ended.notify_all()

    def close(self) -> None:
        """Close the server's lifespan, if a request opened it.

        What is running has some seconds to end before that.
        """
        with self._lock:
            if self._sessions is not None:
                self._sessions.close_all()
            self.app.changes.publish(Change("end"))
            with self._ended:
                self._ended.wait_for(lambda: not self._count, _GRACE)
            self._opened.close()
            atexit.unregister(self.close)

    def _open(self) -> None:
        with self._lock:
            if not self.app.is_running:  # by the host, perhaps
                self._opened.enter_context(running(self.app))
                atexit.register(self.close)


class _Stream:
    """The response, as far as it is a stream of events."""

    def __init__(
        self, start_response: StartResponse, shared: Headers, *, is_live: bool
    ) -> None:
        self.is_begun = False
        self._is_live = is_live
        self._is_gone = False
        self._start_response = start_response
        self._shared = shared
        self._write: Callable[[bytes], Any] | None = None
        self._kept: list[bytes] = []

    def notify(self, message: Mapping[str, JSON]) -> None:
        self._try(sse(encode(message)))
        if self._write is None and "id" in message:
            raise UsageError(
                "this WSGI host does not let applications write before they are done, so"
                " clients that shake hands cannot be asked; give sessions=None"
            )

    def wait(self, asking: Inquiry) -> None:
        """Wait for answers, and end with the client if it is gone."""
        over = threading.Event()
        asking.listen(over.set)
        while not self._is_gone:
            seconds = left(asking.until)
            quiet = _QUIET if seconds is None else min(_QUIET, seconds)
            if over.wait(quiet) or quiet == seconds:
                return
            self._try(KEEP_ALIVE)
        asking.end()

    def _try(self, data: bytes) -> None:
        """Send it, and note where nobody is there any more.

        A flow that asks live is told so where it waits, and cleans up then. One that is
        asked by retry is suspended where it is (REPLAY, L4).
        """
        try:
            if not self._is_gone:
                self._send(data)
        except OSError:
            if not self._is_live:
                raise
            self._is_gone = True

    def _send(self, data: bytes) -> None:
        if not self.is_begun:
            self.is_begun = True
            write = _start(self._start_response, 200, (*SSE_HEADERS, *self._shared))
            # PEP 3333 has every host return it, and not every host does.
            self._write = write if callable(write) else None
        if self._write is None:
            self._kept.append(data)
        else:
            self._write(data)

    def end(self, body: bytes | None) -> list[bytes]:
        """What is left to send. A host that lets us write is left nothing: some take one
        part that is returned for the whole response."""
        if body is not None:
            self._try(sse(body))
        return self._kept


def _asked(environ: Environ) -> Head:
    headers = {
        key.removeprefix("HTTP_").replace("_", "-"): value
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
    for key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        headers[key.replace("_", "-")] = environ.get(key, "")
    address = environ.get("REMOTE_ADDR")
    return Head(
        environ["REQUEST_METHOD"],
        environ.get("PATH_INFO", "") or "/",
        [(name, value) for name, value in headers.items() if value],
        # Where it came in is not known: some hosts take SERVER_NAME from the request.
        # But what comes from a loopback address came in at one.
        bound_to=address,
        peer=address,
    )


def _read(environ: Environ, site: Site) -> bytes | Response:
    text = environ.get("CONTENT_LENGTH") or ""
    if text:
        if not text.isdecimal():
            return refusal(400, "Content-Length is a number")
        if len(text) > 18 or int(text) > site.max_body:
            return too_large(site)
        left = int(text)
    elif environ.get("wsgi.input_terminated"):
        left = site.max_body + 1
    else:
        # Reading might wait for ever, for the next request of this connection.
        return refusal(411, "send Content-Length")
    source, parts, size = environ["wsgi.input"], [], 0
    while left and (part := source.read(min(left, 65_536))):
        parts.append(part)
        size += len(part)
        left -= len(part)
    return too_large(site) if size > site.max_body else b"".join(parts)


def _answer(start_response: StartResponse, answer: Response) -> list[bytes]:
    length = ("Content-Length", str(len(answer.body)))
    # RFC 9110, section 8.6: a 204 has none.
    headers = answer.headers if answer.status == 204 else (*answer.headers, length)
    _start(start_response, answer.status, headers)
    return [answer.body] if answer.body else []


def _start(start_response: StartResponse, status: int, headers: Headers) -> Any:
    return start_response(f"{status} {HTTPStatus(status).phrase}", list(headers))
