"""Legacy clients of a WSGI application: its threads ask, and wait."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import math
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.validate import validator

import pytest

from effectmcp import Detach, Elicit, Flow, TimedOut, UsageError, Within
from effectmcp.server import Change
from effectmcp.transports import wsgi as wsgi_module
from effectmcp.transports.sessions import SessionLimits
from effectmcp.transports.web import Site
from effectmcp.transports.wsgi import WSGIApplication, application

from ..legacy_client import NEWEST, VERSIONS
from .era import (
    Desk,
    answered,
    cancelled,
    desk,
    headers_for,
    initialize,
    message,
    tool,
    value_of,
)
from .shop import JSON, call, events, headers_of, sync_bank
from .test_wsgi import Response, asked, environ_of

THREADS: dict[str, Any] = {"wsgi__multithread": True}


def made_of(made: Desk, **options: Any) -> WSGIApplication:
    return application(made.app, **{"run_async": asyncio.run, **options})


class Old:
    """A legacy client, after its handshake."""

    def __init__(
        self, wsgi: Callable[..., Any], session: str | None, version: str = NEWEST
    ) -> None:
        self.wsgi = wsgi
        self.session = session
        self.version = version

    def ask(
        self, body: JSON, method: str = "POST", writes: bool = True, **more: Any
    ) -> Response:
        environ = {**THREADS, **{key: more.pop(key) for key in [*more] if "__" in key}}
        headers = headers_for(self.session, self.version, **more)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asked(
            self.wsgi, content, headers, method=method, writes=writes, **environ
        )


def shake(wsgi: Callable[..., Any], version: str = NEWEST, **more: Any) -> Old:
    got = Old(wsgi, None, version).ask(initialize(version), **more)
    assert got.status == 200, got
    return Old(wsgi, got.headers["mcp-session-id"], version)


class Reading:
    """A request in a thread of its own, whose answer is read while it comes."""

    def __init__(self, old: Old, body: JSON, *, is_gone: bool = False) -> None:
        self._written: queue.SimpleQueue[bytes | BaseException | None]
        self._written = queue.SimpleQueue()
        self._environ = environ_of(
            json.dumps(body).encode(), headers_for(old.session, old.version)
        )
        self._environ["wsgi.multithread"] = True
        self._wsgi = old.wsgi
        #: Whether writing to it fails.
        self.is_gone = is_gone
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            result = self._wsgi(self._environ, self._start_response)
            try:
                for part in result:
                    self._write(part)
            finally:
                getattr(result, "close", int)()
        except BaseException as exc:
            self._written.put(exc)
        self._written.put(None)

    def _start_response(self, status: str, headers: Any, *rest: Any) -> Any:
        self.status = status
        return self._write

    def _write(self, data: bytes) -> None:
        if self.is_gone:
            raise BrokenPipeError
        self._written.put(data)

    def next(self) -> Any:
        """The next message, `comment`, or `None` at the end; raises what that raised."""
        found = self._written.get(timeout=20)
        if isinstance(found, BaseException):
            raise found
        if found is None:
            self._thread.join()
            return None
        if found == b":\n\n":
            return "comment"
        (only,) = events(found)
        return only


# ---- sessions -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_from_its_beginning_to_its_end(version: str) -> None:
    wsgi = made_of(desk())
    old = shake(validator(wsgi), version)
    got = old.ask(message("ping", id=3))
    assert got.json == {"jsonrpc": "2.0", "id": 3, "result": {}}
    got = old.ask(tool("whoami"))
    assert value_of(got.json) == f"None legacy {version}"
    got = old.ask(b"{")
    assert (got.status, got.json["error"]["code"]) == (400, -32700)
    # Not validated: wsgiref requires a Content-Type where there is no content.
    old.wsgi = wsgi
    got = old.ask(message("notifications/initialized"))
    assert (got.status, got.body) == (202, b"")
    got = old.ask(answered({"id": 1}, "x"))
    assert (got.status, got.body) == (202, b"")
    old.wsgi = validator(wsgi)
    assert old.ask(b"", "GET").status == 405
    assert old.ask(b"", "DELETE").status == 204
    for method in ("POST", "DELETE"):
        assert old.ask(b"", method).status == 404


@pytest.mark.parametrize(
    "environ",
    [
        {"wsgi__multithread": False},
        {"wsgi__multiprocess": True},
        {"wsgi__multithread": 0, "wsgi__multiprocess": 1},
    ],
)
def test_no_sessions_where_the_next_request_may_not_find_them(environ: Any) -> None:
    old = Old(made_of(desk()), None)
    got = old.ask(initialize(), **environ)
    assert got.status == 200
    assert "mcp-session-id" not in got.headers
    old.session = "made-up"
    got = old.ask(tool("order", title="x"), **environ)
    assert got.json["result"]["isError"]
    assert old.ask(b"", "DELETE", **environ).status == 405


def test_no_sessions_where_none_are_wanted() -> None:
    wsgi = made_of(desk(), sessions=None)
    got = Old(wsgi, None).ask(initialize())
    wsgi.close()
    assert got.status == 200
    assert "mcp-session-id" not in got.headers
    assert Old(made_of(desk(legacy=False)), None).ask(initialize()).status == 400


def test_a_session_of_another_user() -> None:
    wsgi = made_of(desk(), principal=lambda environ: environ["HTTP_X_USER"])
    old = shake(wsgi, x_user="ann")
    assert value_of(old.ask(tool("whoami"), x_user="ann").json).startswith("ann ")
    assert old.ask(tool("whoami"), x_user="bob").status == 404
    assert old.ask(b"", "DELETE", x_user="bob").status == 404


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_sessions_are_of_the_revisions_that_have_them(method: str) -> None:
    old = shake(made_of(desk()))
    got = old.ask(b"", method, mcp_protocol_version="2026-07-28")
    assert (got.status, got.headers["allow"]) == (405, "POST")
    assert old.ask(message("ping", id=1)).status == 200


def test_pages_may_read_the_session() -> None:
    origin = "https://app.example"
    wsgi = made_of(desk(), site=Site(path=None, origins=[origin]))
    got = Old(wsgi, None).ask(initialize(), origin=origin)
    assert "Mcp-Session-Id" in got.headers["access-control-expose-headers"]
    old = Old(wsgi, got.headers["mcp-session-id"])
    for method, status in [("GET", 405), ("DELETE", 204), ("DELETE", 404)]:
        got = old.ask(b"", method, origin=origin)
        assert got.status == status
        assert got.headers["access-control-allow-origin"] == origin


# ---- a call that asks ---------------------------------------------------------------


def test_a_call_that_asks() -> None:
    made = desk(lifespan=sync_bank)
    wsgi = made_of(made)
    old = shake(validator(wsgi))
    reading = Reading(old, tool("order", title="Dune"))
    old.wsgi = wsgi
    for value in ("Ann", 2):
        assert old.ask(answered(reading.next(), value)).status == 202
    assert value_of(reading.next()) == "2 x Dune for Ann"
    assert reading.next() is None
    wsgi.close()


def test_a_call_that_asks_without_keep_alive_comments() -> None:
    old = shake(made_of(desk(), keep_alive=math.inf))
    reading = Reading(old, tool("order", title="Dune"))
    for value in ("Ann", 2):
        assert old.ask(answered(reading.next(), value)).status == 202
    assert value_of(reading.next()) == "2 x Dune for Ann"
    assert reading.next() is None


def test_three_questions_side_by_side() -> None:
    old = shake(made_of(desk()))
    reading = Reading(old, tool("three"))
    questions = [reading.next() for _ in "abc"]
    for question in reversed(questions):
        old.ask(answered(question, question["params"]["message"][8:-1]))
    assert value_of(reading.next()) == "a, b, c"
    assert reading.next() is None


def test_many_clients_do_not_meet() -> None:
    wsgi = made_of(desk(), questions=2 * 8)
    olds = [shake(wsgi) for _ in range(8)]
    readings = [Reading(old, tool("order", title="x")) for old in olds]
    for value in ("Ann", 2):
        for old, reading in zip(olds, readings, strict=True):
            named = f"{value} {olds.index(old)}" if value == "Ann" else value
            old.ask(answered(reading.next(), named))
    for number, reading in enumerate(readings):
        assert value_of(reading.next()) == f"2 x x for Ann {number}"


def test_two_requests_with_one_id() -> None:
    old = shake(made_of(desk()))
    reading = Reading(old, tool("order", title="x"))
    reading.next()
    got = old.ask(tool("whoami"))
    assert "id is running" in got.json["error"]["message"]
    old.ask(cancelled(1))
    assert reading.next()["method"] == "notifications/cancelled"
    assert reading.next() is None


def test_a_host_that_does_not_let_applications_write() -> None:
    made = desk()
    old = shake(made_of(made))
    with pytest.raises(UsageError, match="sessions=None"):
        old.ask(tool("order", title="x"), writes=False)
    got = old.ask(tool("whoami"))  # and the request is over
    assert value_of(got.json)


# ---- the end of a call --------------------------------------------------------------


def test_a_cancelled_flow_cleans_up_and_sends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp")
    made = desk()
    old = shake(made_of(made))
    reading = Reading(old, tool("order", title="Dune", id="x"))
    question = reading.next()
    assert old.ask(cancelled("x")).status == 202
    assert reading.next()["params"] == {"requestId": question["id"]}
    assert reading.next() is None
    assert made.seen == ["cancelled", "refunded Dune"]
    assert {one.levelname for one in caplog.records} == {"DEBUG"}


def test_a_session_that_is_ended_in_the_middle_of_a_question() -> None:
    made = desk()
    old = shake(made_of(made))
    reading = Reading(old, tool("order", title="Dune"))
    reading.next()
    assert old.ask(b"", "DELETE").status == 204
    assert reading.next()["method"] == "notifications/cancelled"
    assert reading.next() is None
    assert made.seen == ["cancelled", "refunded Dune"]


def test_no_more_are_asked_than_there_are_threads_for() -> None:
    made = desk()
    wsgi = made_of(made, questions=0)
    old = shake(wsgi)
    found = old.ask(tool("order", title="x"))
    assert "are being asked already" in found.body.decode()


def test_a_client_that_thinks_is_kept_connected() -> None:
    """The session is kept, too: it lasts as long as its stream is open."""
    old = shake(made_of(desk(), keep_alive=0.02, sessions=SessionLimits(idle=0.1)))
    reading = Reading(old, tool("order", title="Dune"))
    question = reading.next()
    for _ in range(10):
        assert reading.next() == "comment"
    for value in ("Ann", 2):
        assert old.ask(answered(question, value)).status == 202
        while (question := reading.next()) == "comment":
            pass
    assert value_of(question) == "2 x Dune for Ann"


def test_a_question_that_timed_out_is_withdrawn() -> None:
    made = desk()

    @made.app.tool
    def hurry() -> Flow[str]:
        """Ask a user who must be quick."""
        yield from Detach()
        found = yield from Within(0.05, Elicit("Quick?", str))
        return "late" if isinstance(found, TimedOut) else found

    reading = Reading(shake(made_of(made)), tool("hurry"))
    assert reading.next()["method"] == "elicitation/create"
    assert reading.next()["method"] == "notifications/cancelled"
    assert value_of(reading.next()) == "late"


def test_a_client_that_is_gone_ends_its_flow(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp")
    made = desk()
    old = shake(made_of(made, keep_alive=0.02))
    reading = Reading(old, tool("order", title="Dune"))
    reading.next()
    reading.is_gone = True
    while reading.next() == "comment":
        pass
    assert made.seen == ["cancelled", "refunded Dune"]
    assert {one.levelname for one in caplog.records} == {"DEBUG"}


def test_a_client_that_is_gone_before_it_is_asked() -> None:
    made = desk()
    reading = Reading(shake(made_of(made)), tool("order", title="x"), is_gone=True)
    assert reading.next() is None
    assert made.seen == ["cancelled", "refunded x"]


def test_a_client_of_2026_07_28_that_disconnected_is_sent_nothing_more() -> None:
    """The round ends where it is: the client may come back with its last state."""
    made = desk()
    environ = environ_of(
        json.dumps(call("count", to=3, progress="t")).encode(),
        headers_of(call("count", to=3)),
    )

    def start_response(*args: Any) -> Any:
        def write(data: bytes) -> None:
            raise BrokenPipeError

        return write

    with pytest.raises(BrokenPipeError):
        made_of(made)(environ, start_response)


def test_a_session_that_was_quiet_for_long() -> None:
    now = 0.0
    made = desk()
    wsgi = made_of(made, sessions=SessionLimits(idle=10))
    assert wsgi._endpoint.sessions is not None
    wsgi._endpoint.sessions._clock = lambda: now
    old = shake(wsgi)
    now = 10.0
    assert old.ask(message("ping", id=1)).status == 404


def test_the_host_stops_in_the_middle_of_a_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The values that flows clean up with stay available until they have."""
    made = desk(lifespan=sync_bank)
    wsgi = made_of(made)
    reading = Reading(shake(wsgi), tool("banks"))
    reading.next()
    wsgi.close()
    assert made.seen == ["receipt for back"]
    assert reading.next()["method"] == "notifications/cancelled"
    assert reading.next() is None
    assert not caplog.records


def test_a_cleanup_that_takes_longer_than_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wsgi_module, "_GRACE", 0.05)
    goes_on, began = threading.Event(), threading.Event()
    made = desk()

    @made.app.tool
    def waits() -> None:
        """Wait for longer than any client will."""
        began.set()
        goes_on.wait(20)

    wsgi = made_of(made)
    reading = Reading(shake(wsgi), tool("waits"))
    began.wait(20)
    wsgi.close()
    assert not made.app.is_running
    goes_on.set()
    assert reading.next() is None  # its session has ended, and with it the request
    assert reading.status == "202 Accepted"


def test_changes_are_sent_to_no_client() -> None:
    """There are no streams to send them on."""
    made = desk()
    old = shake(made_of(made))
    made.app.changes.publish(Change("tools"))
    assert old.ask(message("ping", id=1)).status == 200


# ---- over sockets -------------------------------------------------------------------


class Threading(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(wsgi: Callable[..., Any]) -> Iterator[int]:
    def threaded(environ: dict[str, Any], start_response: Any) -> Any:
        # wsgiref says that it has one thread; it does not know of the mixin.
        environ["wsgi.multithread"] = True
        return wsgi(environ, start_response)

    server = make_server("127.0.0.1", 0, threaded, Threading, Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(20)
        server.server_close()


def test_over_sockets() -> None:
    with served(made_of(desk())) as port:

        @contextmanager
        def sent(session: str | None, body: JSON) -> Iterator[Any]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            headers = headers_for(session, host=f"localhost:{port}")
            connection.request("POST", "/mcp", json.dumps(body), headers)
            with closing(connection), connection.getresponse() as response:
                yield response

        with sent(None, initialize()) as got:
            session = got.headers["mcp-session-id"]
        with sent(session, tool("order", title="Dune")) as reading:
            for value in ("Ann", 2):
                (question,) = events(b"".join(reading.readline() for _ in range(3)))
                with sent(session, answered(question, value)) as got:
                    assert got.status == 202
            (reply,) = events(reading.read())
        assert value_of(reply) == "2 x Dune for Ann"


def test_last_place_that_another_call_takes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The places are looked at as the call begins, and taken as it asks."""
    wsgi = made_of(desk(), questions=2)
    old = shake(wsgi)
    monkeypatch.setattr(type(wsgi._asking), "take", lambda self, party: False)
    got = old.ask(tool("order", title="x"))
    assert "notifications/cancelled" in got.body.decode()
