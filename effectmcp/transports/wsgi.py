"""`application(app)`: a server for WSGI hosts, with a thread for each request.

    gunicorn bookshop:wsgi                  wsgi = application(app)
    waitress-serve bookshop:wsgi
    wsgiref.simple_server.make_server(host, port, application(app))

Requests are answered by `effectmcp.drivers.sync`: steps run one after the other, async
steps only with `run_async=asyncio.run`. The response is one JSON object, or a stream of
events if there are notifications. These are written immediately if the host lets
applications write; if not, they are sent in order with the response, in one body.

Legacy clients are asked while their request runs: its thread waits for other threads that
handle the answers. So they have sessions only if the host has threads and a single
process, and lets applications write. They cannot reconnect to a stream.

A host does not report when it starts or stops, and many hosts fork in between. So the
server's lifespan, which must be a `contextlib.contextmanager` here, is opened by the
first request, in the process that handles it. It is closed when that process exits, or by
`close()`.
"""

from __future__ import annotations

import atexit
import inspect
import threading
import time
from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from ..canonical import JSON
from ..drivers.local import contain, is_never, left
from ..drivers.sync import handle, running
from ..errors import UsageError
from ..exchange.sessions import TaskInquiry
from ..exchange.shares import Budget, Shares
from ..logs import logger_for
from ..server.changes import Change
from .conversation import Begin, Conversation, Endpoint, Identify, Next, Receive
from .identifying import send_for
from .mounted import EVERY_PATH, prepare
from .sessions import SessionLimits, Sessions
from .web import READY, Head, Send, Site, length_of, refusal

if TYPE_CHECKING:
    from ..exchange.commands import Peer
    from ..exchange.sessions import Inquiry
    from ..server.app import Server

__all__ = ["WSGIApplication", "application"]

logger = logger_for("effectmcp.server")

_SESSIONS: Final = SessionLimits()

#: Seconds that requests have to end when the server is closed.
_GRACE: Final = 5.0

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
Principal: TypeAlias = Callable[[Environ], str | None]


def application(
    app: Server,
    *,
    site: Site = EVERY_PATH,
    principal: Principal | None = None,
    run_async: Callable[[Any], Any] | None = None,
    keep_alive: float = 15,
    sessions: SessionLimits | None = _SESSIONS,
    questions: int = 2,
) -> WSGIApplication:
    """Return a WSGI application that serves `app`.

    Args:
        app: The server. Without keys of its own, it gets the keys in the environment.
        site: The hosts, origins and users that are allowed. Its path is relative to
            `SCRIPT_NAME`; `None`, the default, for every path.
        principal: Returns the user that the host's own middleware found, given the
            environ: an `Identity`, a name, or `None` for an anonymous client. Called
            instead of the server's `auth`.
        run_async: Runs the coroutine of an async step or function, such as
            `asyncio.run`.
        keep_alive: Seconds of silence while a client answers a question, after which a
            comment is sent.
        sessions: Limits on the sessions of legacy clients; `None` to keep no sessions.
            None are kept, either, if the host reports several processes, or no threads.
            Only clients that speak 2026-07-28 can then be asked questions.
        questions: How many calls of sessions may wait for answers; one user or address
            may have half of them. Calls that start while so many wait cannot ask. Each waiting call occupies one of the host's
            threads, and the answers need a thread, too: so choose a number below the
            number of threads.

    Raises:
        UsageError: If a tool is always a task, and no worker runs tasks.
    """
    prepare(app)
    _check_worked(app)
    kept = None
    if sessions is not None and app.legacy:
        kept = Sessions(app, sessions, share=site.share, lock=threading.RLock())
    endpoint = Endpoint(
        app=app,
        site=site,
        sessions=kept,
        has_streams=False,
        quiet=keep_alive,
        has_pieces=True,
        seats=Shares(questions, 0.5, threading.Lock()),
        bodies=Budget(site.bodies, site.share, threading.RLock()),
        unsent=Budget(site.unsent, site.share, threading.RLock()),
    )
    return WSGIApplication(endpoint, principal, run_async, questions)


def _check_worked(app: Server) -> None:
    if app.tasks is None or app.tasks.is_worked:
        return
    for tool in app.tools.values():
        if tool.task == "required":
            raise UsageError(
                f"the tool {tool.name!r} is always a task, and a WSGI host runs none:"
                " start an `effectmcp worker`, and declare it with"
                " SqliteTasks(path, is_worked=True)"
            )


class WSGIApplication:
    """The application that `application` returns."""

    def __init__(
        self,
        endpoint: Endpoint,
        principal: Principal | None = None,
        run_async: Callable[[Any], Any] | None = None,
        questions: int = 2,
    ) -> None:
        self.app = endpoint.app
        self._endpoint = endpoint
        self._principal = principal
        self._run_async = run_async
        #: How many requests wait for answers; half of these may be of one party.
        self._asking = Shares(questions, 0.5, threading.Lock())
        self._lock = threading.Lock()
        self._ended = threading.Condition()
        self._count = 0
        self._opened = ExitStack()

    def __call__(
        self, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Serve one request, as defined by PEP 3333."""
        endpoint = self._endpoint_for(environ)
        find = None if self._principal is None else partial(self._principal, environ)
        head = _asked(environ, endpoint.documents)
        if head.path == READY and READY in endpoint.probes:
            self._try_to_open()
        talk = Conversation(endpoint, head, find=find)
        try:
            step: Next = talk.judge()
            if isinstance(step, Identify):
                step = self._identify(talk, step)
            if isinstance(step, Receive):
                step = _read(environ, endpoint.site.max_body, talk) or talk.body()
            if isinstance(step, Begin):
                return self._begin(talk, step, start_response)
        finally:
            talk.close()
        assert isinstance(step, Send)  # the only other step, without streams
        return _answer(talk, start_response, step)

    def _endpoint_for(self, environ: Environ) -> Endpoint:
        # The next request must reach this process, and another thread of it.
        reaches = environ.get("wsgi.multithread") and not environ.get(
            "wsgi.multiprocess"
        )
        return attrs.evolve(
            self._endpoint,
            sessions=self._endpoint.sessions if reaches else None,
            needs_length=not environ.get("wsgi.input_terminated"),
        )

    def _identify(self, talk: Conversation, step: Identify) -> Next:
        try:
            found = self._found(step)
        except Exception as exc:
            return talk.unidentified(exc)
        return talk.identified(found)

    def _found(self, step: Identify) -> Any:
        try:
            found = send_for(step.find())
            if not inspect.isawaitable(found):
                return found
            if self._run_async is None:
                if inspect.iscoroutine(found):
                    found.close()
                raise UsageError(
                    "the authentication hook is async: give application(run_async=...)"
                )
            # `asyncio.run` accepts only coroutines, not every awaitable.
            return self._run_async(_awaited(found))
        except BaseException as exc:
            contain(exc, "the authentication hook", is_never)
            raise

    def _begin(
        self, talk: Conversation, step: Begin, start_response: StartResponse
    ) -> Iterable[bytes]:
        self._open()
        peer = step.peer
        stream = _EventStream(talk, start_response, is_live=peer.session is not None)
        if peer.session is not None and not self._asking.has_room(peer.party):
            peer = attrs.evolve(peer, is_busy=True)
        try:
            with self._counted(), self._present(peer):
                reply = handle(
                    self.app,
                    step.message,
                    peer,
                    send=stream.notify,
                    run_async=self._run_async,
                    wait=partial(self._wait, peer.party, stream),
                )
            answer = talk.reply(reply)
            del reply  # only the pieces are kept while the client reads
        except OSError:
            raise  # the host's error for a client that has disconnected
        except Exception:
            failed = talk.fail()
            if failed is None:
                raise  # the stream breaks off
            logger.exception("answering a request failed")
            answer = failed
        if stream.is_begun:
            return stream.end(answer)
        return _answer(talk, start_response, answer)

    def _wait(self, party: str | None, stream: _EventStream, asking: Inquiry) -> None:
        # A wait for a task takes a thread, too, and has a seat of its own: otherwise users
        # could not be asked while clients wait for tasks.
        if isinstance(asking, TaskInquiry):
            stream.wait(asking)
            return
        if not self._asking.take(party):
            # Others took the last places since the call began. If it waited, no thread
            # might be left for the answers.
            asking.end()
            return
        try:
            stream.wait(asking)
        finally:
            self._asking.give(party)

    @contextmanager
    def _present(self, peer: Peer) -> Iterator[None]:
        """Note that the client of a session is here, and waits for an answer."""
        session, sessions = peer.session, self._endpoint.sessions
        if session is None or sessions is None:
            yield
            return
        sessions.reading(session, +1)
        try:
            yield
        finally:
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

        Running requests have some seconds to end before that.
        """
        with self._lock:
            if self._endpoint.sessions is not None:
                self._endpoint.sessions.close_all()
            self.app.changes.publish(Change("end"))
            with self._ended:
                self._ended.wait_for(lambda: not self._count, _GRACE)
            self._opened.close()
            atexit.unregister(self.close)

    def drain(self) -> None:
        """Report to balancers that this server will soon stop; serve clients as before.

        A host does not report that it stops, so this has to be called by the code that
        knows it, such as gunicorn's `worker_int` hook.
        """
        self._endpoint.readiness.is_draining = True

    def _try_to_open(self) -> None:
        # A balancer sends no request, which would open it, before the server is ready.
        if not self._endpoint.is_open and not self._endpoint.readiness.is_draining:
            try:
                self._open()
            except Exception:
                logger.exception("the lifespan of %r failed", self.app)

    def _open(self) -> None:
        with self._lock:
            if not self.app.is_running:  # by the host, perhaps
                self._opened.enter_context(running(self.app))
                atexit.register(self.close)


class _BrokenOff(Exception):
    """Raised to break a response off, so that it cannot be taken for a whole one."""


class _EventStream:
    """The response, once it is a stream of events."""

    def __init__(
        self, talk: Conversation, start_response: StartResponse, *, is_live: bool
    ) -> None:
        self.is_begun = False
        self._talk = talk
        self._is_live = is_live
        self._is_gone = False
        self._start_response = start_response
        self._write: Callable[[bytes], Any] | None = None
        self._kept: list[bytes] = []

    def notify(self, message: Mapping[str, JSON]) -> None:
        self._try(self._talk.notify(message))
        if self._write is None and "id" in message:
            raise UsageError(
                "this WSGI host does not let applications write before they are done, so"
                " legacy clients cannot be asked; give sessions=None"
            )

    def wait(self, asking: Inquiry) -> None:
        """Wait for answers; end the inquiry if the client has disconnected."""
        over = threading.Event()
        asking.listen(over.set)
        talk = self._talk
        talk.heard()
        while not self._is_gone:
            seconds = left(asking.until)
            quiet = max(0.0, talk.quiet_until - time.monotonic())
            quiet = min(quiet, threading.TIMEOUT_MAX)  # it may be infinite
            if seconds is not None and seconds <= quiet:
                over.wait(seconds)
                return
            if over.wait(quiet):
                return
            self._try(talk.tick())
        asking.end()

    def _try(self, part: Send | None) -> None:
        """Send a part, and note if the client has disconnected.

        A live flow is notified of that where it waits, and cleans up. In a round of
        2026-07-28 the error is raised, which suspends the flow
        (docs/internals/replay.md#l4).
        """
        try:
            if part is not None and not self._is_gone:
                self._send(part)
                self._talk.heard()
        except OSError:
            if not self._is_live:
                raise
            self._is_gone = True

    def _send(self, part: Send) -> None:
        if part.status is not None:
            self.is_begun = True
            write = _start(self._start_response, part)
            # PEP 3333 requires every host to return a callable, but not every host does.
            self._write = write if callable(write) else None
        for data in _pieces(self._talk, part):
            if self._write is None:
                self._kept.append(data)
            else:
                self._write(data)

    def end(self, last: Send) -> list[bytes]:
        """Send the last event; return the bytes that are left to send.

        Nothing is left if the host lets applications write: some hosts would take a
        single returned part for the whole response.
        """
        self._try(last)
        return self._kept


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


def _asked(environ: Environ, documents: Container[str]) -> Head:
    headers = {
        key.removeprefix("HTTP_").replace("_", "-"): value
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
    for key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        headers[key.replace("_", "-")] = environ.get(key, "")
    address = environ.get("REMOTE_ADDR") or None  # empty for a Unix socket
    path = environ.get("PATH_INFO", "")
    # A document is named by its whole path, at any place where the host mounts.
    whole = environ.get("SCRIPT_NAME", "") + path
    return Head(
        environ["REQUEST_METHOD"],
        whole if whole in documents else path or "/",
        [(name, value) for name, value in headers.items() if value],
        # The receiving address is unknown: some hosts take SERVER_NAME from the request.
        # But a request from a loopback address was received on one.
        bound_to=address,
        peer=address,
    )


def _read(environ: Environ, limit: int, talk: Conversation) -> Send | None:
    """Pass the body to `talk`; return its refusal, if there is one."""
    has_length = bool(environ.get("CONTENT_LENGTH"))
    left = int(environ.get("CONTENT_LENGTH") or limit + 1)
    source = environ["wsgi.input"]
    while left and (part := source.read(min(left, 65_536))):
        refused = talk.part(part)
        if refused is not None:
            return refused
        left -= len(part)
    if left and has_length:
        return refusal(400, "the body breaks off")
    return None


def _answer(
    talk: Conversation, start_response: StartResponse, answer: Send
) -> Iterable[bytes]:
    _start(start_response, answer)
    if answer.more:
        return _pieces(talk, answer)
    return [answer.data] if answer.data else []


def _pieces(talk: Conversation, part: Send) -> Iterator[bytes]:
    if part.data:
        yield part.data
    if part.more is None:
        return
    with talk.holding_unsent(part.more) as holding:
        while part.more:
            piece = part.more.popleft()
            holding.remove(len(piece))
            yield piece
        if holding.is_closed:
            raise _BrokenOff("other clients need the memory: the response breaks off")


def _start(start_response: StartResponse, answer: Send) -> Any:
    assert answer.status is not None  # a whole response, or its start
    phrase = HTTPStatus(answer.status).phrase
    headers = [*answer.headers, *length_of(answer)]
    return start_response(f"{answer.status} {phrase}", headers)
