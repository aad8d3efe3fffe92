"""ASGI in memory, on both loops; `test_asgi_hosts` is about real ones."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from effectmcp import UsageError
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import trio as on_trio
from effectmcp.drivers.local import running
from effectmcp.server import Change, Server
from effectmcp.transports.asgi import ASGIApplication, application
from effectmcp.transports.web import Site

from .shop import (
    JSON,
    Bank,
    answer,
    bank,
    call,
    events,
    headers_of,
    request,
    shop,
    suspended,
    text_of,
)

HERE: dict[str, Any] = {"asgi": {"version": "3.0"}}


@attrs.frozen
class Loop:
    """asyncio or trio."""

    name: str
    run: Callable[[Callable[[], Awaitable[Any]]], Any]
    Event: Callable[[], Any]
    sleep: Callable[[float], Awaitable[Any]]
    spawn: Callable[[Callable[[], Any]], None]

    async def together(self, *work: Callable[[], Awaitable[Any]]) -> None:
        if self.name == "asyncio":
            await asyncio.gather(*(one() for one in work))
            return
        async with trio.open_nursery() as nursery:
            for one in work:
                nursery.start_soon(one)


def _asyncio_run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(20):
            return await main()

    return asyncio.run(limited())


def _trio_run(main: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        with trio.fail_after(20):
            return await main()

    return trio.run(limited)


LOOPS = [
    Loop("asyncio", _asyncio_run, asyncio.Event, asyncio.sleep, on_asyncio.spawn),
    Loop("trio", _trio_run, trio.Event, trio.sleep, on_trio.spawn),
]


@pytest.fixture(params=LOOPS, ids=lambda loop: loop.name)
def loop(request: pytest.FixtureRequest) -> Loop:
    """Every test on both."""
    chosen: Loop = request.param
    return chosen


class Wire:
    """One request to an ASGI application, and its response."""

    def __init__(self, loop: Loop) -> None:
        self.gone = loop.Event()
        self.sent: list[Mapping[str, Any]] = []
        self.incoming: list[dict[str, Any]] = []
        self.trailing: list[dict[str, Any]] = []
        self.leaves_at: bytes | None = None
        self.is_closed = False

    async def receive(self) -> dict[str, Any]:
        if self.incoming:
            return self.incoming.pop(0)
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        if self.is_closed:
            raise BrokenPipeError
        self.sent.append(message)
        if self.leaves_at is not None and self.leaves_at in message.get("body", b""):
            self.gone.set()

    async def ask(
        self,
        asgi: ASGIApplication,
        body: JSON,
        headers: Mapping[str, str] | None = None,
        **scope: Any,
    ) -> Wire:
        if not isinstance(body, bytes):
            headers = headers_of(body) if headers is None else headers
            body = json.dumps(body).encode()
        half = len(body) // 2
        self.incoming += [
            {"type": "http.request", "body": body[:half], "more_body": True},
            {"type": "http.request", "body": body[half:]},
            *self.trailing,
        ]
        raw = [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
        whole = {
            **HERE,
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": raw,
            "server": ("10.0.0.1", 80),
            "client": ("10.0.0.2", 1234),
            **scope,
        }
        await asgi(whole, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        assert not self.sent[-1]["more_body"]
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def json(self) -> JSON:
        assert self.headers["content-type"] == "application/json"
        assert self.headers["content-length"] == str(len(self.body))
        return json.loads(self.body)

    @property
    def events(self) -> list[JSON]:
        assert self.headers["content-type"] == "text/event-stream"
        assert self.headers["x-accel-buffering"] == "no"
        return events(self.body)


def asked(loop: Loop, asgi: ASGIApplication, body: JSON, **options: Any) -> Wire:
    async def main() -> Wire:
        return await Wire(loop).ask(asgi, body, **options)

    wire: Wire = loop.run(main)
    return wire


@pytest.fixture(autouse=True)
def nothing_suspended() -> None:
    """Each test begins with nothing suspended."""
    suspended.clear()


# ---- probes -------------------------------------------------------------------------


READY = {"method": "GET", "path": "/readyz", "http_version": "1.1"}


def test_probe_of_an_application(loop: Loop) -> None:
    """Before its lifespan is open, when it is, and once the host drains it."""
    app = shop(lifespan=bank)
    asgi = application(app, site=Site())

    async def ready(**scope: Any) -> tuple[int, bytes, str | None]:
        wire = await Wire(loop).ask(asgi, b"", **{**READY, **scope})
        assert wire.headers["content-type"] == "text/plain"
        return wire.status, wire.body, wire.headers.get("connection")

    async def main() -> None:
        assert await ready() == (503, b"starting\n", None)
        async with running(app):
            assert await ready() == (200, b"ok\n", None)
            asgi.drain()
            assert await ready() == (503, b"draining\n", "close")
            assert await ready(http_version="2") == (503, b"draining\n", None)
            assert (await ready(path="/healthz"))[:2] == (200, b"ok\n")
            wire = await Wire(loop).ask(asgi, request("tools/list"))
            assert wire.status == 200

    loop.run(main)


def test_probe_where_a_host_routes(loop: Loop) -> None:
    """The host has paths of its own, so this one is the endpoint."""
    wire = asked(loop, application(shop()), b"", **READY)
    assert wire.status == 405
    assert wire.headers["content-type"] == "application/json"


def test_probe_below_a_mount(loop: Loop) -> None:
    asgi = application(shop(), site=Site())
    wire = asked(loop, asgi, b"", **READY | {"path": "/a/readyz", "root_path": "/a"})
    assert (wire.status, wire.body) == (200, b"ok\n")


# ---- responses ----------------------------------------------------------------------


def test_a_request_is_answered_by_an_object(loop: Loop) -> None:
    wire = asked(loop, application(shop()), request("tools/list"))
    assert wire.status == 200
    names = [tool["name"] for tool in wire.json["result"]["tools"]]
    assert "order" in names


def test_a_notification_is_accepted(loop: Loop) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}
    wire = asked(loop, application(shop()), message)
    assert (wire.status, wire.body) == (202, b"")


def test_an_unknown_method_is_a_404(loop: Loop) -> None:
    wire = asked(loop, application(shop()), request("tools/sing"))
    assert (wire.status, wire.json["error"]["code"]) == (404, -32601)


def test_a_body_that_is_not_json(loop: Loop) -> None:
    wire = asked(
        loop, application(shop()), b"{", headers=headers_of({"method": "tools/list"})
    )
    assert (wire.status, wire.json["error"]["code"]) == (400, -32700)


def test_a_header_that_says_something_else(loop: Loop) -> None:
    body = call("echo", text="hello")
    headers = headers_of(body, mcp_name="order")
    wire = asked(loop, application(shop()), body, headers=headers)
    assert (wire.status, wire.json["error"]["code"]) == (400, -32020)


def test_an_async_function_runs_on_the_loop(loop: Loop) -> None:
    wire = asked(loop, application(shop()), call("echo", text="hello"))
    assert text_of(wire.json) == "hello"


def test_a_conversation_of_three_rounds(loop: Loop) -> None:
    """The token goes there and back, and nothing else is kept."""

    async def main() -> None:
        app = shop(lifespan=bank)
        async with running(app):
            asgi = application(app)
            first = await Wire(loop).ask(asgi, call("order", title="Dune"))
            result = first.json["result"]
            assert result["resultType"] == "input_required"
            more = answer(result, "Ann")
            second = await Wire(loop).ask(asgi, call("order", title="Dune", **more))
            more = answer(second.json["result"], 2)
            # Another replica, which shares the key.
            third = await Wire(loop).ask(asgi, call("order", title="Dune", **more))
            assert text_of(third.json) == "2 × Dune for Ann: receipt for Ann"

    loop.run(main)


def test_progress_makes_a_stream_that_ends_with_the_response(loop: Loop) -> None:
    wire = asked(loop, application(shop()), call("count", to=3, progress="p"))
    *told, last = wire.events
    assert [one["params"]["progress"] for one in told] == [1, 2, 3]
    assert {one["params"]["progressToken"] for one in told} == {"p"}
    assert last["result"]["structuredContent"] == 3


def test_each_event_is_sent_by_itself(loop: Loop) -> None:
    wire = asked(loop, application(shop()), call("count", to=2, progress="p"))
    assert [m.get("more_body") for m in wire.sent] == [None, True, True, False]


def test_calls_at_once_do_not_meet(loop: Loop) -> None:
    async def main() -> list[Wire]:
        asgi = application(shop())
        wires = [Wire(loop) for _ in range(20)]

        def asking(n: int) -> Callable[[], Awaitable[Any]]:
            body = call("count", id=n, to=n, progress=f"p{n}")
            return lambda: wires[n].ask(asgi, body)

        await loop.together(*map(asking, range(1, 20)))
        return wires[1:]

    for n, wire in enumerate(loop.run(main), 1):
        *told, last = wire.events
        assert [one["params"]["progressToken"] for one in told] == [f"p{n}"] * n
        assert last["id"] == n


def test_a_waiting_call_does_not_hold_up_another(loop: Loop) -> None:
    async def main() -> None:
        asgi = application(shop())
        waiting = Wire(loop)

        async def second() -> None:
            quick = await Wire(loop).ask(asgi, call("echo", text="quick"))
            assert text_of(quick.json) == "quick"
            waiting.gone.set()

        await loop.together(
            lambda: waiting.ask(asgi, call("endless", say=False)), second
        )
        assert waiting.sent == []

    loop.run(main)


# ---- quiet --------------------------------------------------------------------------


def test_a_quiet_call_becomes_a_stream_of_comments(loop: Loop) -> None:
    asgi = application(shop(), keep_alive=0.02)
    wire = asked(loop, asgi, call("pause", seconds=0.2))
    assert wire.sent[1]["body"] == b":\n\n"
    (only,) = wire.events
    assert text_of(only) == "awake"


def test_a_short_call_stays_an_object(loop: Loop) -> None:
    wire = asked(loop, application(shop()), call("pause", seconds=0.01))
    assert text_of(wire.json) == "awake"


def test_a_stream_that_speaks_has_no_comments(loop: Loop) -> None:
    wire = asked(
        loop, application(shop(), keep_alive=30), call("count", to=9, progress="p")
    )
    assert b":\n\n" not in [message["body"] for message in wire.sent[1:]]


# ---- disconnects --------------------------------------------------------------------


def test_a_disconnect_suspends_the_flow(loop: Loop) -> None:
    async def main() -> Wire:
        wire = Wire(loop)
        wire.leaves_at = b"progress"
        return await wire.ask(application(shop()), call("endless", progress="p"))

    wire = loop.run(main)
    assert suspended == ["endless"]
    # "MUST NOT send any further messages for it" (Cancellation).
    assert [m["type"] for m in wire.sent] == [
        "http.response.start",
        "http.response.body",
    ]
    assert wire.sent[-1]["more_body"]


def test_a_disconnect_while_nothing_was_sent(loop: Loop) -> None:
    async def main() -> Wire:
        wire = Wire(loop)

        async def leave() -> None:
            await loop.sleep(0.01)
            wire.gone.set()

        body = call("endless", say=False)
        await loop.together(lambda: wire.ask(application(shop()), body), leave)
        return wire

    assert loop.run(main).sent == []
    assert suspended == ["endless"]


def test_a_disconnect_ends_a_subscription(loop: Loop) -> None:
    app = shop()

    async def main() -> None:
        wire = Wire(loop)
        wire.leaves_at = b"acknowledged"
        body = request("subscriptions/listen", notifications={"toolsListChanged": True})
        await wire.ask(application(app), body)

    loop.run(main)
    assert not app.changes._listeners


def test_a_host_that_raises_when_the_client_is_gone(loop: Loop) -> None:
    async def main() -> Wire:
        wire = Wire(loop)
        wire.is_closed = True
        return await wire.ask(application(shop()), call("endless", progress="p"))

    assert loop.run(main).sent == []
    assert suspended == ["endless"]


def test_a_host_that_raises_at_a_comment(loop: Loop) -> None:
    async def main() -> Wire:
        wire = Wire(loop)
        wire.is_closed = True
        asgi = application(shop(), keep_alive=0.01)
        return await wire.ask(asgi, call("pause", seconds=0.1))

    assert loop.run(main).sent == []


def test_a_host_that_raises_at_a_comment_and_reports_a_disconnect(loop: Loop) -> None:
    """Both report that the client is gone. The call ends once, and only the call."""

    async def main() -> None:
        wire = Wire(loop)

        async def send(message: Mapping[str, Any]) -> None:
            wire.gone.set()
            raise BrokenPipeError

        wire.send = send  # type: ignore[method-assign]
        asgi = application(shop(), keep_alive=0.01)
        await wire.ask(asgi, call("endless", say=False))
        await loop.sleep(0)
        if loop.name == "asyncio":
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    loop.run(main)
    assert suspended == ["endless"]


def test_a_host_that_only_raises_when_the_client_is_gone(loop: Loop) -> None:
    async def main() -> None:
        wire = Wire(loop)
        wire.is_closed = True
        asgi = application(shop(), keep_alive=0.01)
        await wire.ask(asgi, call("endless", say=False))

    loop.run(main)
    assert suspended == ["endless"]


def test_a_host_that_sends_other_events_than_a_disconnect(loop: Loop) -> None:
    async def main() -> Wire:
        wire = Wire(loop)
        asgi = application(shop())
        wire.trailing.append({"type": "http.request", "body": b""})
        return await wire.ask(asgi, call("pause", seconds=0.01))

    assert text_of(loop.run(main).json) == "awake"


def test_a_comment_does_not_follow_the_response(loop: Loop) -> None:
    """A comment may already wait for its turn when the last event is sent."""

    async def main() -> Wire:
        wire = Wire(loop)
        original = wire.send

        async def send(message: Mapping[str, Any]) -> None:
            if b"awake" in message.get("body", b""):
                await loop.sleep(0.1)
            await original(message)

        wire.send = send  # type: ignore[method-assign]
        asgi = application(shop(), keep_alive=0.02)
        return await wire.ask(asgi, call("pause", seconds=0.1))

    (only,) = loop.run(main).events
    assert text_of(only) == "awake"


def test_a_disconnect_while_the_body_is_received(loop: Loop) -> None:
    async def main() -> list[Any]:
        wire = Wire(loop)
        wire.incoming.append({"type": "http.disconnect"})
        await wire.ask(application(shop()), call("echo", text="hello"))
        return wire.sent

    assert loop.run(main) == []


def test_a_cancellation_from_outside_is_not_taken_for_a_disconnect() -> None:
    async def main() -> None:
        asgi = application(shop())
        loop = LOOPS[0]
        wire = Wire(loop)
        task = asyncio.ensure_future(wire.ask(asgi, call("endless", say=False)))
        await asyncio.sleep(0.01)
        wire.gone.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert suspended == ["endless"]


def test_a_disconnect_leaves_nothing_of_itself_in_the_task() -> None:
    """The calling task can still be cancelled, and is not cancelled."""

    async def main() -> None:
        wire = Wire(LOOPS[0])
        wire.leaves_at = b"progress"
        await wire.ask(application(shop()), call("endless", progress="p"))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {task}

    asyncio.run(main())


# ---- whom it lets in ----------------------------------------------------------------


def test_an_oversize_body_is_refused(loop: Loop) -> None:
    asgi = application(shop(), site=Site(path=None, max_body=1000))
    wire = asked(loop, asgi, call("echo", text="x" * 1000))
    assert wire.status == 413
    assert "1,000 bytes" in wire.json["error"]["message"]


@pytest.mark.parametrize("length", ["1001", "9" * 5000])
def test_an_oversize_body_is_not_even_read(loop: Loop, length: str) -> None:
    async def main() -> Wire:
        wire = Wire(loop)
        asgi = application(shop(), site=Site(path=None, max_body=1000))
        body = call("echo", text="x" * 1000)
        await wire.ask(asgi, body, headers_of(body, content_length=length))
        return wire

    wire = loop.run(main)
    assert wire.status == 413
    assert len(wire.incoming) == 2


@pytest.mark.parametrize(
    ("server", "headers", "status"),
    [
        (("127.0.0.1", 80), {"host": "evil.example"}, 403),
        (("127.0.0.1", 80), {"host": "localhost:80"}, 200),
        (("10.0.0.1", 80), {"host": "shop.example"}, 200),
        (("10.0.0.1", 80), {"origin": "https://evil.example"}, 403),
        (("10.0.0.1", 80), {"origin": "https://app.example"}, 200),
        (None, {"host": "shop.example"}, 200),
    ],
)
def test_host_and_origin_are_looked_at(
    loop: Loop, server: Any, headers: dict[str, str], status: int
) -> None:
    body = call("echo", text="hello")
    asgi = application(shop(), site=Site(path=None, origins=["https://app.example"]))
    wire = asked(loop, asgi, body, headers=headers_of(body, **headers), server=server)
    assert wire.status == status
    if status == 200 and "origin" in headers:
        assert wire.headers["access-control-allow-origin"] == headers["origin"]


def test_a_stream_may_be_read_by_a_page(loop: Loop) -> None:
    body = call("count", to=1, progress="p")
    headers = headers_of(body, origin="https://app.example")
    asgi = application(shop(), site=Site(path=None, origins=["https://app.example"]))
    wire = asked(loop, asgi, body, headers=headers)
    assert wire.headers["access-control-allow-origin"] == "https://app.example"
    assert len(wire.events) == 2


def test_a_preflight_is_answered(loop: Loop) -> None:
    headers = {"host": "shop.example", "origin": "https://app.example"}
    asgi = application(shop(), site=Site(path=None, origins=["https://app.example"]))
    wire = asked(loop, asgi, b"", headers=headers, method="OPTIONS")
    assert wire.status == 204
    assert "content-length" not in wire.headers
    assert wire.headers["access-control-allow-methods"] == "POST, GET, DELETE"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_other_methods_are_refused(loop: Loop, method: str) -> None:
    wire = asked(
        loop,
        application(shop()),
        b"",
        headers={"host": "shop.example"},
        method=method,
    )
    assert (wire.status, wire.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("path", "root", "status"),
    [
        ("/mcp", "", 200),
        ("/mcp/", "", 200),
        ("/api/mcp", "/api", 200),
        ("/apimcp", "/api", 404),
        ("/api/mcp", "", 404),
        ("/mcp", "/api", 200),
        ("/api", "/api/", 404),
    ],
)
def test_the_path_is_the_one_below_the_mount(
    loop: Loop, path: str, root: str, status: int
) -> None:
    asgi = application(shop(), site=Site(path="/mcp"))
    wire = asked(loop, asgi, call("echo", text="hello"), path=path, root_path=root)
    assert wire.status == status


def test_the_user_comes_from_the_servers_authentication(loop: Loop) -> None:
    def authenticate(headers: Mapping[str, str]) -> str:
        if headers.get("authorization") != "Bearer ann's":
            raise PermissionError
        return "ann"

    asgi = application(shop(auth=authenticate))
    body = call("whoami")
    wire = asked(loop, asgi, body)
    assert (wire.status, wire.headers["www-authenticate"]) == (401, "Bearer")
    known = headers_of(body, authorization="Bearer ann's")
    wire = asked(loop, asgi, body, headers=known)
    assert text_of(wire.json) == "ann"


def test_the_user_comes_from_the_host(loop: Loop) -> None:
    asgi = application(shop(), principal=lambda scope: scope["user"])
    wire = asked(loop, asgi, call("whoami"), user="bob")
    assert text_of(wire.json) == "bob"


def test_a_websocket_is_closed(loop: Loop) -> None:
    wire = asked(loop, application(shop()), b"", type="websocket")
    assert wire.sent == [{"type": "websocket.close"}]


def test_a_scope_of_the_future_is_refused(loop: Loop) -> None:
    with pytest.raises(UsageError, match="'carrier-pigeon'"):
        asked(loop, application(shop()), b"", type="carrier-pigeon")


# ---- the lifespan -------------------------------------------------------------------


async def _live(
    loop: Loop, asgi: ASGIApplication, meanwhile: Callable[[], Awaitable[Any]]
) -> list[Mapping[str, Any]]:
    sent: list[Mapping[str, Any]] = []
    begun, ended = loop.Event(), loop.Event()
    incoming = [{"type": "lifespan.startup"}]

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await ended.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)
        begun.set()

    async def visit() -> None:
        await begun.wait()
        await meanwhile()
        ended.set()

    await loop.together(lambda: asgi({"type": "lifespan"}, receive, send), visit)
    return sent


def test_what_the_lifespan_provides_reaches_steps(loop: Loop) -> None:
    app = shop(lifespan=bank)
    asgi = application(app)
    seen: list[Bank] = []

    async def converse() -> None:
        seen.append(app.provided["bank"])
        body = call("order", title="Dune")
        for value in ("Ann", 2):
            wire = await Wire(loop).ask(asgi, body)
            more = answer(wire.json["result"], value)
            body = call("order", title="Dune", **more)
        wire = await Wire(loop).ask(asgi, body)
        assert "receipt for Ann" in text_of(wire.json)

    async def main() -> list[Mapping[str, Any]]:
        return await _live(loop, asgi, converse)

    sent = loop.run(main)
    assert [m["type"] for m in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert not seen[0].is_open


def test_streams_end_with_the_lifespan(loop: Loop) -> None:
    app = shop(lifespan=bank)
    asgi = application(app)
    wire = Wire(loop)
    body = request("subscriptions/listen", notifications={"toolsListChanged": True})
    acknowledged = loop.Event()
    original = wire.send

    async def send(message: Mapping[str, Any]) -> None:
        await original(message)
        if b"acknowledged" in message.get("body", b""):
            acknowledged.set()

    wire.send = send  # type: ignore[method-assign]

    async def main() -> None:
        await loop.together(
            lambda: _live(loop, asgi, acknowledged.wait), lambda: wire.ask(asgi, body)
        )

    # `ask` needs what the lifespan opens; both begin at once.
    app.is_running = True
    loop.run(main)
    assert [one.get("method") for one in wire.events] == [
        "notifications/subscriptions/acknowledged",
        "notifications/cancelled",
        None,
    ]


def test_changes_reach_a_subscription(loop: Loop) -> None:
    app = shop()
    wire = Wire(loop)
    body = request("subscriptions/listen", notifications={"toolsListChanged": True})
    original = wire.send

    async def send(message: Mapping[str, Any]) -> None:
        await original(message)
        sent = message.get("body", b"")
        if b"acknowledged" in sent:
            app.remove(app.tools["echo"])
        elif b"list_changed" in sent:
            app.changes.publish(Change("end"))

    wire.send = send  # type: ignore[method-assign]

    async def main() -> None:
        await wire.ask(application(app), body)

    loop.run(main)
    assert [one.get("method") for one in wire.events][1] == (
        "notifications/tools/list_changed"
    )


def connect() -> None:
    raise ConnectionError("no database")


@asynccontextmanager
async def broken(app: Server) -> AsyncIterator[None]:
    connect()
    yield


@asynccontextmanager
async def leaky(app: Server) -> AsyncIterator[None]:
    yield
    connect()


@pytest.mark.parametrize(
    ("lifespan", "phase"), [(broken, "startup"), (leaky, "shutdown")]
)
def test_a_failing_lifespan_is_reported(
    loop: Loop, lifespan: Any, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing() -> None:
        pass

    async def main() -> list[Mapping[str, Any]]:
        return await _live(loop, application(shop(lifespan=lifespan)), nothing)

    assert loop.run(main)[-1] == {
        "type": f"lifespan.{phase}.failed",
        "message": "ConnectionError: no database",
    }
    assert "the lifespan of <Server 'shop'> failed" in caplog.text


def test_a_lifespan_that_is_not_open_is_an_error(loop: Loop) -> None:
    with pytest.raises(UsageError, match=r"async with .*running\(app\)"):
        asked(loop, application(shop(lifespan=bank)), request("tools/list"))


def test_a_lifespan_that_provides_nothing_counts(loop: Loop) -> None:
    @asynccontextmanager
    async def quiet(app: Server) -> AsyncIterator[None]:
        yield

    async def main() -> Wire:
        app = shop(lifespan=quiet)
        async with running(app):
            return await Wire(loop).ask(application(app), request("tools/list"))

    assert loop.run(main).status == 200


# ---- keys ---------------------------------------------------------------------------


def test_without_keys_handlers_cannot_ask(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EFFECTMCP_STATE_KEYS", raising=False)
    application(shop(keys=None))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "effectmcp keygen" in record.message


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EFFECTMCP_STATE_KEYS", "A" * 43)
    app = shop(keys=None)
    application(app)
    assert app.keys is not None


# ---- imports ------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "other"), [("asyncio", "trio"), ("trio", "asyncio")])
def test_only_the_loop_that_runs_is_imported(used: str, other: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, used, other],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["202"]


IMPORTING = """
import sys
used, other = sys.argv[1:]
from effectmcp.server import Server
from effectmcp.transports.asgi import application

assert "trio" not in sys.modules and "asyncio" not in sys.modules

async def main():
    body = b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}'
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [
        (b"content-type", b"application/json"), (b"host", b"x")]}
    incoming = [{"type": "http.disconnect"}, {"type": "http.request", "body": body}]
    async def receive():
        return incoming.pop()
    async def send(message):
        print(*[message[key] for key in ("status",) if key in message])
    await application(Server("x"))(scope, receive, send)

if used == "trio":
    import trio
    trio.run(main)
else:
    import asyncio
    asyncio.run(main())
    assert "trio" not in sys.modules
assert f"effectmcp.drivers.{used}" in sys.modules
assert f"effectmcp.drivers.{other}" not in sys.modules
"""
