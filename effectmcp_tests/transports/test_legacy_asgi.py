"""Legacy clients of an ASGI application, on both loops."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import pytest

from effectmcp import Flow, Step
from effectmcp.drivers.local import running
from effectmcp.server import Change
from effectmcp.transports import asgi as asgi_module
from effectmcp.transports.asgi import ASGIApplication, application
from effectmcp.transports.sessions import SessionLimits
from effectmcp.transports.web import Site

from ..legacy_client import NEWEST, VERSIONS
from .era import (
    Desk,
    Event,
    answered,
    cancelled,
    desk,
    event_of,
    headers_for,
    initialize,
    message,
    messages_of,
    tool,
    value_of,
)
from .shop import JSON, bank
from .test_asgi import LOOPS, Loop, Wire
from .test_asgi_hosts import Serving, hypercorn, uvicorn

OLDER = "2025-06-18"


@pytest.fixture(params=LOOPS, ids=lambda loop: loop.name)
def loop(request: pytest.FixtureRequest) -> Loop:
    """Every test on both."""
    chosen: Loop = request.param
    return chosen


class Reading(Wire):
    """A request whose answer is read while it comes."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._loop = loop
        self._came = loop.Event()
        self._taken = 0
        self.last: str | None = None
        self.comments = 0

    async def send(self, message: Mapping[str, Any]) -> None:
        await super().send(message)
        self._came.set()

    async def next(self) -> Event | None:
        """The next event; `None` at the end."""
        while True:
            parts = [one["body"] for one in self.sent[1:]]
            *blocks, _ = b"".join(parts).split(b"\n\n")
            if len(blocks) > self._taken:
                event = event_of(blocks[self._taken])
                self._taken += 1
                if event.is_comment:
                    self.comments += 1
                    continue
                self.last = event.id
                return event
            if self.is_over:
                return None
            self._came = self._loop.Event()
            await self._came.wait()

    @property
    def is_over(self) -> bool:
        return len(self.sent) > 1 and not self.sent[-1]["more_body"]

    async def prime(self) -> Event:
        event = await self.next()
        assert event is not None
        assert (event.data, event.retry is None) == ("", False)
        return event

    async def message(self) -> JSON:
        event = await self.next()
        assert event is not None
        return event.message


class Old:
    """A legacy client, after its handshake."""

    def __init__(
        self, loop: Loop, asgi: Any, session: str | None, version: str = NEWEST
    ) -> None:
        self.loop = loop
        self.asgi = asgi
        self.session = session
        self.version: str | None = version

    async def ask(
        self, body: JSON, method: str = "POST", wire: Wire | None = None, **more: Any
    ) -> Wire:
        headers = headers_for(self.session, self.version, **more)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        wire = Wire(self.loop) if wire is None else wire
        return await wire.ask(self.asgi, content, headers, method=method)

    async def read(
        self,
        body: JSON,
        script: Callable[[Reading], Awaitable[None]],
        method: str = "POST",
        **more: Any,
    ) -> Reading:
        """Do `script` while the answer comes; at its end the client hangs up."""
        reading = Reading(self.loop)

        async def ask() -> None:
            await self.ask(body, method, reading, **more)

        async def act() -> None:
            await script(reading)
            reading.gone.set()

        await self.loop.together(ask, act)
        return reading

    async def news(
        self, script: Callable[[Reading], Awaitable[None]], last: str | None = None
    ) -> Reading:
        return await self.read(b"", script, "GET", last_event_id=last)


async def shake(loop: Loop, asgi: Any, version: str = NEWEST, **more: Any) -> Old:
    stranger = Old(loop, asgi, None)
    stranger.version = None
    got = await stranger.ask(initialize(version), **more)
    assert got.status == 200, got.sent
    return Old(loop, asgi, got.headers["mcp-session-id"], version)


def shaken(
    loop: Loop,
    script: Callable[[Old], Awaitable[None]],
    made: Desk | None = None,
    version: str = NEWEST,
    **options: Any,
) -> None:
    """Do `script` with a client of a new application."""

    async def main() -> None:
        asgi = application((made or desk()).app, **options)
        await script(await shake(loop, asgi, version))

    loop.run(main)


async def until(loop: Loop, made: Desk, what: str) -> None:
    """Wait until the server saw something."""
    while what not in made.seen:
        came = loop.Event()
        made.hear = came.set
        await came.wait()


# ---- requests -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_from_its_beginning_to_its_end(loop: Loop, version: str) -> None:
    async def script(old: Old) -> None:
        assert (await old.ask(message("notifications/initialized"))).status == 202
        got = await old.ask(message("ping", id=3))
        assert got.json == {"jsonrpc": "2.0", "id": 3, "result": {}}
        got = await old.ask(tool("whoami"))
        assert value_of(got.json) == f"None legacy {version}"
        got = await old.ask(tool("naps", seconds=0))
        assert value_of(got.json) == "awake"  # it waited, and is one object
        got = await old.ask(b"{")
        assert (got.status, got.json["error"]["code"]) == (400, -32700)
        got = await old.ask(answered({"id": 1}, "x"))
        assert (got.status, got.body) == (202, b"")
        got = await old.ask(b"", "DELETE")
        assert (got.status, got.body) == (204, b"")
        for method in ("DELETE", "GET", "POST"):
            assert (await old.ask(b"", method)).status == 404

    shaken(loop, script, version=version)


def test_applications_without_sessions(loop: Loop) -> None:
    async def main() -> None:
        for asgi, status in (
            (application(desk().app, sessions=None), 200),
            (application(desk(legacy=False).app), 400),
        ):
            old = Old(loop, asgi, None)
            got = await old.ask(initialize())
            assert got.status == status
            assert "mcp-session-id" not in got.headers
            old.session = "made-up"
            assert (await old.ask(b"", "GET")).status == 405
            async with living(loop, asgi):
                pass

    loop.run(main)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_sessions_are_of_the_revisions_that_have_them(loop: Loop, method: str) -> None:
    async def script(old: Old) -> None:
        got = await old.ask(b"", method, mcp_protocol_version="2026-07-28")
        assert got.status == 405
        assert (await old.ask(message("ping", id=1))).status == 200

    shaken(loop, script)


def test_a_session_of_another_user(loop: Loop) -> None:
    def principal(scope: Any) -> str:
        return str(dict(scope["headers"])[b"x-user"], "ascii")

    async def main() -> None:
        asgi = application(desk().app, principal=principal)
        old = await shake(loop, asgi, x_user="ann")
        got = await old.ask(tool("whoami"), x_user="ann")
        assert value_of(got.json).startswith("ann ")
        assert (await old.ask(tool("whoami"), x_user="bob")).status == 404

    loop.run(main)


def test_a_body_that_is_too_large(loop: Loop) -> None:
    async def script(old: Old) -> None:
        assert (await old.ask(tool("order", title="x" * 999))).status == 413
        assert (await old.ask(message("ping", id=1))).status == 200

    shaken(loop, script, site=Site(path=None, max_body=1000))


def test_pages_may_read_the_session(loop: Loop) -> None:
    async def main() -> None:
        origin = "https://app.example"
        site = Site(path=None, origins=[origin])
        old = Old(loop, application(desk().app, site=site), None)
        got = await old.ask(initialize(), origin=origin)
        assert "Mcp-Session-Id" in got.headers["access-control-expose-headers"]
        old.session = got.headers["mcp-session-id"]
        for got in (
            await old.ask(tool("whoami"), origin=origin),
            await old.ask(b"", "GET", origin=origin, last_event_id="made-up"),
            await old.ask(b"", "DELETE", origin=origin),
            await old.ask(b"", "DELETE", origin=origin),
        ):
            assert got.headers["access-control-allow-origin"] == origin
        assert got.status == 404

    loop.run(main)


def test_a_session_that_ends_while_a_request_comes_in(loop: Loop) -> None:
    async def script(old: Old) -> None:
        class Slow(Wire):
            async def receive(self) -> dict[str, Any]:
                if len(self.incoming) == 1:
                    assert old.asgi.endpoint.sessions is not None
                    old.asgi.endpoint.sessions.close_all()
                return await super().receive()

        for method in ("POST", "GET"):
            got = await old.ask(tool("order", title="x"), method, Slow(loop))
            if method == "POST":
                # It may have come to where nothing begins any more.
                assert got.status == 404 or "session ended" in str(got.json)
            again = await shake(loop, old.asgi)
            old.session = again.session

    shaken(loop, script)


# ---- a call that asks ---------------------------------------------------------------


def test_a_call_that_asks(loop: Loop) -> None:
    async def script(old: Old) -> None:
        async def talk(reading: Reading) -> None:
            assert (await reading.prime()).retry == 1000
            for value in ("Ann", 2):
                question = await reading.message()
                got = await old.ask(answered(question, value))
                assert (got.status, got.body) == (202, b"")
            assert value_of(await reading.message()) == "2 x Dune for Ann"
            assert await reading.next() is None

        got = await old.read(tool("order", title="Dune"), talk)
        assert got.headers["content-type"] == "text/event-stream"
        assert got.headers["x-accel-buffering"] == "no"

    shaken(loop, script)


def test_older_clients_have_no_event_to_resume_from(loop: Loop) -> None:
    async def script(old: Old) -> None:
        got = await old.ask(tool("count", to=2, token="t"))
        told = messages_of(got.body)
        assert [one.get("method") for one in told] == [
            *["notifications/progress"] * 2,
            None,
        ]

        # A stream that ends before there was anything but its head.
        made.app.changes.publish(Change("end"))
        got = await old.ask(b"", "GET")
        assert (got.status, got.body) == (200, b":\n\n")

    made = desk()
    shaken(loop, script, made, version=OLDER)


def test_three_questions_side_by_side(loop: Loop) -> None:
    async def script(old: Old) -> None:
        async def talk(reading: Reading) -> None:
            await reading.prime()
            questions = [await reading.message() for _ in "abc"]
            for question in reversed(questions):
                said = question["params"]["message"][8:-1]
                await old.ask(answered(question, said))
            assert value_of(await reading.message()) == "a, b, c"

        await old.read(tool("three"), talk)

    shaken(loop, script)


def test_two_requests_with_one_id(loop: Loop) -> None:
    async def script(old: Old) -> None:
        async def talk(reading: Reading) -> None:
            await reading.prime()
            await reading.message()
            got = await old.ask(tool("whoami"))
            assert "id is running" in got.json["error"]["message"]
            assert value_of((await old.ask(tool("whoami", id="1"))).json)

        await old.read(tool("order", title="x"), talk)

    shaken(loop, script)


def test_a_client_that_comes_back_to_its_question(loop: Loop) -> None:
    async def script(old: Old) -> None:
        questions: list[JSON] = []

        async def leave(reading: Reading) -> None:
            await reading.prime()
            questions.append(await reading.message())

        primed = (await old.read(tool("order", title="Dune"), leave)).sent[1]["body"]
        last = event_of(primed.removesuffix(b"\n\n")).id

        async def back(reading: Reading) -> None:
            assert (await reading.prime()).id == last
            question = await reading.message()
            assert question == questions[0]
            await old.ask(answered(question, "Ann"))
            await old.ask(answered(await reading.message(), 2))
            assert value_of(await reading.message()) == "2 x Dune for Ann"
            assert await reading.next() is None

        await old.news(back, last)

    shaken(loop, script)


def test_a_client_that_is_gone_when_it_is_written_to(loop: Loop) -> None:
    async def script(old: Old) -> None:
        async def break_off(reading: Reading) -> None:
            last = (await reading.prime()).id
            question = await reading.message()
            reading.is_closed = True
            await old.ask(answered(question, "Ann"))

            async def back(again: Reading) -> None:
                await again.prime()
                assert await again.message() == question
                await old.ask(answered(await again.message(), 2))
                assert value_of(await again.message()) == "2 x Dune for Ann"

            await old.news(back, last)

        await old.read(tool("order", title="Dune"), break_off)

    shaken(loop, script)


def test_a_quiet_stream_is_kept_alive(loop: Loop) -> None:
    async def script(old: Old) -> None:
        async def talk(reading: Reading) -> None:
            await reading.prime()
            assert value_of(await reading.message()) == "awake"
            assert reading.comments >= 2

        reading = Reading(loop)
        # Some hosts say more than once that there is no more.
        reading.trailing.append({"type": "http.request", "body": b""})

        async def ask() -> None:
            await old.ask(tool("naps", seconds=0.3), wire=reading)

        await loop.together(ask, lambda: talk(reading))

    shaken(loop, script, keep_alive=0.05)


def test_a_connection_is_closed_for_the_client_to_reconnect(loop: Loop) -> None:
    async def script(old: Old) -> None:
        got = await old.ask(tool("count", to=5, pause=0.1, token="t"))
        told = messages_of(got.body)
        last = event_of(got.sent[-2]["body"].removesuffix(b"\n\n")).id
        while not any("result" in one for one in told):
            got = await old.ask(b"", "GET", last_event_id=last)
            more = got.body
            told += messages_of(more)
            ids = [event_of(one).id for one in more.split(b"\n\n")]
            last = [one for one in ids if one][-1]
        progress = [one["params"]["progress"] for one in told[:-1]]
        assert progress == [1, 2, 3, 4, 5]

    shaken(loop, script, sessions=SessionLimits(leave=0.12))


# ---- news ---------------------------------------------------------------------------


def test_news(loop: Loop) -> None:
    made = desk()

    async def script(old: Old) -> None:
        changes = made.app.changes

        async def read(first: Reading) -> None:
            primed = await first.prime()
            changes.publish(Change("tools"))
            told = await first.message()
            assert told["method"] == "notifications/tools/list_changed"

            async def take_over(second: Reading) -> None:
                assert await first.next() is None
                await second.prime()
                assert await second.message() == told
                changes.publish(Change("prompts"))
                assert "prompts" in (await second.message())["method"]

            await old.news(take_over, primed.id)

        await old.news(read)

    shaken(loop, script, made)


# ---- the end ------------------------------------------------------------------------


def test_a_cancelled_flow_cleans_up_and_sends_nothing(loop: Loop) -> None:
    made = desk()

    async def script(old: Old) -> None:
        async def cancel(reading: Reading) -> None:
            await reading.prime()
            await reading.message()
            assert (await old.ask(cancelled("x"))).status == 202
            told = await reading.message()
            assert told["method"] == "notifications/cancelled"
            assert await reading.next() is None

        await old.read(tool("order", title="Dune", id="x"), cancel)

    shaken(loop, script, made)
    assert made.seen == ["cancelled", "refunded Dune"]


def test_a_flow_is_cancelled_before_it_sends_anything(loop: Loop) -> None:
    """There is no stream yet, and no response."""

    async def script(old: Old) -> None:
        async def cancel(reading: Reading) -> None:
            while (await old.ask(tool("whoami"))).json.get("error") is None:
                await loop.sleep(0)  # until it runs
            await old.ask(cancelled(1))
            await reading.prime()
            assert await reading.next() is None

        await old.read(tool("naps", seconds=0.01), cancel)

    shaken(loop, script)


@pytest.mark.parametrize("way", ["cancelled", "deleted"])
def test_a_call_is_abandoned_before_the_loop_runs_it(loop: Loop, way: str) -> None:
    """Both requests are here at once, and the call continues in a task of its own."""

    async def script(old: Old) -> None:
        (session,) = old.asgi.endpoint.sessions._by_session

        async def ask() -> None:
            await old.ask(tool("naps", seconds=3600))

        async def give_up() -> None:
            while not session.is_busy:
                await loop.sleep(0)
            if way == "cancelled":
                await old.ask(cancelled(1))
            else:
                await old.ask(b"", "DELETE")

        await loop.together(ask, give_up)
        while session.is_busy:
            await loop.sleep(0)

    shaken(loop, script)


def test_a_session_that_is_ended_in_the_middle_of_a_question(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp")
    made = desk()

    async def script(old: Old) -> None:
        async def end(reading: Reading) -> None:
            await reading.prime()
            await reading.message()
            assert (await old.ask(b"", "DELETE")).status == 204
            assert await reading.next() is None
            await until(loop, made, "refunded Dune")

        await old.read(tool("order", title="Dune"), end)

    shaken(loop, script, made)
    assert made.seen == ["cancelled", "refunded Dune"]
    assert {one.levelname for one in caplog.records} == {"DEBUG"}


def test_a_session_ends_on_time_without_further_requests(loop: Loop) -> None:
    made = desk()

    async def script(old: Old) -> None:
        async def leave(reading: Reading) -> None:
            await reading.prime()
            await reading.message()

        await old.read(tool("order", title="Dune"), leave)
        await until(loop, made, "refunded Dune")
        assert (await old.ask(message("ping", id=1))).status == 404

    shaken(loop, script, made, sessions=SessionLimits(idle=0.2))
    made.seen.clear()
    # On another loop, and with an application whose first one has ended.
    shaken(loop, script, made, sessions=SessionLimits(idle=0.2))


def test_sessions_end_on_time_on_one_loop_after_the_other(loop: Loop) -> None:
    made = desk()
    asgi = application(made.app, sessions=SessionLimits(idle=0.2))

    async def main() -> None:
        old = await shake(loop, asgi)
        await shake(loop, asgi)

        async def leave(reading: Reading) -> None:
            await reading.prime()

        await old.read(tool("order", title="Dune"), leave)
        await until(loop, made, "refunded Dune")

    for _ in range(2):
        made.seen.clear()
        loop.run(main)


@contextlib.asynccontextmanager
async def living(loop: Loop, asgi: ASGIApplication) -> AsyncIterator[None]:
    """Open the lifespan, as a host does; shut down at the end of the block."""
    started, stop, stopped = loop.Event(), loop.Event(), loop.Event()
    came = [{"type": "lifespan.startup"}]
    said: list[str] = []

    async def receive() -> dict[str, Any]:
        if came:
            return came.pop()
        await stop.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: Mapping[str, Any]) -> None:
        said.append(message["type"])
        started.set()

    async def live() -> None:
        await asgi({"type": "lifespan"}, receive, send)
        stopped.set()

    loop.spawn(live)
    await started.wait()
    yield
    stop.set()
    await stopped.wait()
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_the_host_stops_in_the_middle_of_a_question(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    """The values that flows clean up with stay available until they have."""
    made = desk(lifespan=bank)

    async def main() -> None:
        asgi = application(made.app)
        async with living(loop, asgi):
            old = await shake(loop, asgi)

            async def leave(reading: Reading) -> None:
                await reading.prime()
                await reading.message()

            await old.read(tool("banks"), leave)
            await old.read(tool("slow", id=2, seconds=0.05), leave)
        assert sorted(made.seen) == ["receipt for back", "refunded late", "refunding"]

    loop.run(main)
    assert not caplog.records


def test_a_cleanup_that_takes_longer_than_the_grace(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi_module, "_GRACE", 0.05)
    made = desk()

    async def main() -> None:
        asgi = application(made.app)
        async with living(loop, asgi):
            old = await shake(loop, asgi)

            async def leave(reading: Reading) -> None:
                await reading.prime()
                await reading.message()

            await old.read(tool("slow", seconds=3600), leave)

    loop.run(main)
    assert made.seen == ["refunding"]


# ---- hosts --------------------------------------------------------------------------

visitor: ContextVar[str] = ContextVar("visitor")


def test_what_middleware_leaves_in_the_context_is_there(loop: Loop) -> None:
    made = desk()

    async def who() -> str:
        return visitor.get()

    @made.app.tool
    def greet() -> Flow[str]:
        """Return the name of the user, as the host knows it."""
        return (yield from Step(who))

    async def main() -> None:
        inner = application(made.app)

        async def middleware(*args: Any) -> None:
            visitor.set("Ann")
            await inner(*args)

        old = await shake(loop, middleware)
        assert value_of((await old.ask(tool("greet"))).json) == "Ann"

    loop.run(main)


def test_mounted(loop: Loop) -> None:
    applications = pytest.importorskip("starlette.applications")
    routing = pytest.importorskip("starlette.routing")
    made = desk(lifespan=bank)

    async def main() -> None:
        asgi = application(made.app)
        route, mount = routing.Route("/mcp", asgi), routing.Mount("/", asgi)
        async with running(made.app):
            for one in (route, mount):
                old = await shake(loop, applications.Starlette(routes=[one]))

                async def talk(reading: Reading, old: Old = old) -> None:
                    await reading.prime()
                    await old.ask(answered(await reading.message(), "Ann"))
                    assert value_of(await reading.message()) == "Ann"

                await old.read(tool("banks"), talk)
                assert (await old.ask(b"", "DELETE")).status == 204

    loop.run(main)


@contextlib.contextmanager
def sent(
    port: int, session: str | None, body: JSON = None, **more: str
) -> Iterator[http.client.HTTPResponse]:
    """Yield the response to a request on its own connection; finally hang up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = headers_for(session, host=f"localhost:{port}", **more)
    content = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", "/mcp", content, headers)
    with contextlib.closing(connection), connection.getresponse() as response:
        yield response


def next_of(response: http.client.HTTPResponse) -> Event:
    lines = []
    while (line := response.readline()) != b"\n":
        assert line, "it ended"
        lines.append(line)
    return event_of(b"".join(lines).removesuffix(b"\n"))


@pytest.mark.parametrize("host", [uvicorn, hypercorn], ids=lambda one: one.__name__)
def test_over_sockets(host: Serving) -> None:
    """A question, a client that leaves and comes back, and the end of the host."""
    made = desk(lifespan=bank)
    with host(application(made.app)) as port:
        with sent(port, None, initialize()) as got:
            session = got.headers["mcp-session-id"]
        with sent(port, session, tool("order", title="Dune")) as reading:
            last = next_of(reading).id
            question = next_of(reading).message
        assert last
        with sent(port, session, last_event_id=last) as reading:
            next_of(reading)
            assert next_of(reading).message == question
            for value in ("Ann", 2):
                with sent(port, session, answered(question, value)) as got:
                    assert got.status == 202
                question = next_of(reading).message
            assert value_of(question) == "2 x Dune for Ann"
            assert reading.read() == b""
        with sent(port, session, tool("banks")) as reading:
            next_of(reading)
            next_of(reading)
    assert made.seen == ["receipt for back"]
