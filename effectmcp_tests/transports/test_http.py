"""Streamable HTTP, over streams in memory wherever it does not have to be a socket."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from effectmcp import Elicit, Flow, Progress, Step, UsageError
from effectmcp.drivers import trio as trio_driver
from effectmcp.server import Server
from effectmcp.state import Keys, make_key
from effectmcp.transports import connection, conversation, http
from effectmcp.transports.connection import Shared
from effectmcp.transports.http import Limits
from effectmcp.transports.signals import until_signalled
from effectmcp.transports.web import Site

from .shop import answer, call, events, request, text_of
from .wire import Client, Doors, Got, listening, post, serving

KEYS = Keys(make_key(bytes(range(32))))
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}


@define(eq=False)
class Shop:
    """A server, and a look behind its counter."""

    app: Server = field(factory=lambda: Server("shop", keys=KEYS))
    waits: trio.Event = field(factory=trio.Event)
    go_on: trio.Event = field(factory=trio.Event)
    ended: list[str] = field(factory=list)


def shop() -> Shop:
    """A server with one tool for each thing that a transport carries."""
    made = Shop()

    @made.app.tool
    def order(title: str) -> Flow[str]:
        """Ask, and end in the next round."""
        name = yield from Elicit("Who is it for?", str)
        return f"{title} for {name}"

    @made.app.tool
    def count(to: int) -> Flow[int]:
        """Say every number."""
        for n in range(1, to + 1):
            yield from Progress(n, to)
        return to

    async def wait_in_step() -> None:
        made.waits.set()
        await made.go_on.wait()

    @made.app.tool
    def wait(say: bool) -> Flow[str]:
        """Wait, after a word or without one."""
        try:
            if say:
                yield from Progress(1)
            yield from Step(wait_in_step)
        finally:
            made.ended.append("wait")
        return "waited"

    @made.app.tool
    async def echo(text: str) -> str:
        """Say it again, when the loop comes round."""
        await trio.lowlevel.checkpoint()
        return text

    @made.app.tool
    def surrogate() -> Flow[str]:
        """Return what no encoding can carry."""
        yield from Progress(0)
        return "\ud800"

    return made


def one_of(got: Got) -> Any:
    """The response of an answer, however it came."""
    if got.headers["content-type"] == "text/event-stream":
        return events(got.body)[-1]
    return got.json


@pytest.fixture(autouse=True)
def nothing_is_logged_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> Iterator[None]:
    """Check that no error is logged: clients cause none. Tests of bugs clear it."""
    caplog.set_level(logging.DEBUG, "effectmcp.server")
    yield
    found = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not found


# ---- responses ----------------------------------------------------------------------


async def test_http_answer_is_one_line_of_json() -> None:
    async with serving(shop().app) as doors:
        got = await doors.connect().ask(request("server/discover"))
    assert got.status == 200
    assert got.json["result"]["supportedVersions"] == ["2026-07-28"]
    assert set(got.headers) == {"date", "content-type", "content-length"}
    assert got.headers["date"].endswith(" GMT")


async def test_http_origin_that_no_answer_could_repeat() -> None:
    """No error is logged either; see the fixture."""
    async with serving(shop().app) as doors:
        data = post(call("echo", text="x"), origin="h\xe9://localhost")
        client = doors.connect()
        await client.send(data)
        assert (await client.answer()).status == 403


async def test_http_conversation_over_one_connection() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        got = await client.ask(call("order", title="Dune"))
        assert got.json["result"]["resultType"] == "input_required"
        again = call("order", title="Dune", **answer(got.json["result"], "Ann"))
        got = await client.ask(again)
        assert text_of(got.json) == "Dune for Ann"


async def test_http_conversation_over_two_servers_with_one_key() -> None:
    async with serving(shop().app) as first, serving(shop().app) as second:
        got = await first.connect().ask(call("order", title="Dune"))
        again = call("order", title="Dune", **answer(got.json["result"], "Ann"))
        got = await second.connect().ask(again)
        assert text_of(got.json) == "Dune for Ann"


async def test_http_notification_is_taken_without_a_word() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        got = await client.ask(NOTIFICATION)
        assert (got.status, got.body) == (202, b"")
        assert (await client.ask(request("server/discover"))).status == 200


@pytest.mark.parametrize(
    ("message", "headers", "status", "code"),
    [
        (request("no/such"), {}, 404, -32601),
        (b"{", {}, 400, -32700),
        (b"[]", {}, 400, -32600),
        (request("server/discover"), {"mcp_method": "tools/list"}, 400, -32020),
        (request("server/discover"), {"mcp_method": ""}, 400, -32020),
        (request("server/discover"), {"content_type": "text/plain"}, 415, -32600),
        (request("server/discover"), {"accept": "text/html"}, 406, -32600),
    ],
)
async def test_http_status_of_a_protocol_error(
    message: Any, headers: dict[str, str], status: int, code: int
) -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        got = await client.ask(message, **headers)
        assert (got.status, got.json["error"]["code"]) == (status, code)
        # It was the message that was wrong, and not the connection.
        assert (await client.ask(request("server/discover"))).status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT", "OPTIONS"])
async def test_http_unsupported_method(method: str) -> None:
    """GET streams and DELETE are of earlier revisions."""
    async with serving(shop().app) as doors:
        client = doors.connect()
        head = f"{method} /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}"
        await client.send(head.encode())
        got = await client.answer(to=method)
        assert got.status == 405
        assert got.headers["allow"] == "POST"
        assert (got.body == b"") == (method == "HEAD")
        assert (await client.ask(request("server/discover"))).status == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/mcp", 200),
        ("/mcp/", 200),
        ("/mcp?a=b", 200),
        ("http://shop.example/mcp", 200),
        ("http://shop.example/mcp?a=/b", 200),
        ("http://evil.example/mcp", 403),
        ("http://shop.example", 404),
        ("/", 404),
        ("/mcp/more", 404),
        ("*", 404),
    ],
)
async def test_http_target(target: str, status: int) -> None:
    async with serving(shop().app, site=Site(hosts=["shop.example"])) as doors:
        client = doors.connect()
        data = post(request("server/discover")).replace(b"/mcp", target.encode(), 1)
        await client.send(data)
        assert (await client.answer()).status == status


async def test_http_connect_opens_no_tunnel() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        await client.send(b"CONNECT shop.example:80 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.answer()).status == 404


async def test_http_upgrade_is_not_taken_up() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        upgrade = {"connection": "upgrade", "upgrade": "websocket"}
        got = await client.ask(request("server/discover"), **upgrade)
        assert got.status == 200
        assert (await client.ask(request("server/discover"))).status == 200


async def test_http_connection_close() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        got = await client.ask(request("server/discover"), connection="close")
        assert got.headers["connection"] == "close"
        assert await client.is_closed()


async def test_http_old_client_gets_its_answer_and_the_end() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect(http_version="1.0")
        got = await client.ask(request("server/discover"))
        assert "transfer-encoding" not in got.headers
        assert got.json["result"]
        assert await client.is_closed()


# ---- streams ------------------------------------------------------------------------


async def test_stream_has_notifications_in_order_and_ends_with_the_response() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        got = await client.ask(call("count", to=3, id=7, progressToken="p"))
        assert got.status == 200
        assert got.json["result"]
        got = await client.ask(request("tools/call", progress="p", id=7, **counting(3)))
        assert got.headers["content-type"] == "text/event-stream"
        assert got.headers["cache-control"] == "no-store"
        assert got.headers["x-accel-buffering"] == "no"
        assert "content-length" not in got.headers
        *told, last = events(got.body)
        assert [one["params"]["progress"] for one in told] == [1, 2, 3]
        assert last["id"] == 7
        assert text_of(last) == "3"
        # The connection continues.
        assert (await client.ask(request("server/discover"))).status == 200


def counting(to: int) -> dict[str, Any]:
    return {"name": "count", "arguments": {"to": to}}


async def test_stream_events_are_sent_at_once() -> None:
    made = shop()
    async with serving(made.app) as doors:
        client = doors.connect()
        await client.post(waiting(say=True))
        assert (await client.head()).status == 200
        assert (await client.message())["method"] == "notifications/progress"
        await made.waits.wait()
        made.go_on.set()
        assert text_of(await client.message()) == "waited"
        assert await client.until(b"\r\n\r\n") == b"0"


def waiting(*, say: bool) -> Any:
    arguments = {"say": say}
    return request("tools/call", progress="p", name="wait", arguments=arguments)


async def test_stream_for_an_old_client_has_no_chunks() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect(http_version="1.0")
        got = await client.ask(request("tools/call", progress="p", **counting(2)))
        assert "transfer-encoding" not in got.headers
        assert len(events(got.body)) == 3


async def test_waiting_without_a_word_is_answered_with_json() -> None:
    async with serving(shop().app) as doors:
        got = await doors.connect().ask(call("echo", text="é"))
        assert text_of(got.json) == "é"


async def test_silence_is_broken_by_comments(autojump_clock: MockClock) -> None:
    made = shop()
    async with serving(made.app, Limits(quiet=15)) as doors:
        client = doors.connect()
        began = trio.current_time()
        await client.post(waiting(say=True))
        await client.head()
        await client.message()
        for n in range(1, 4):
            assert await client.chunk() == b":\n\n"
            assert trio.current_time() - began == pytest.approx(15 * n, abs=0.1)
        made.go_on.set()
        assert text_of(await client.message()) == "waited"


async def test_a_silent_call_becomes_a_stream_of_comments(
    autojump_clock: MockClock,
) -> None:
    """A proxy would think the connection dead, and cut it."""
    made = shop()
    async with serving(made.app, Limits(quiet=15)) as doors:
        client = doors.connect()
        await client.post(waiting(say=False))
        got = await client.head()
        assert got.headers["content-type"] == "text/event-stream"
        assert await client.chunk() == b":\n\n"
        made.go_on.set()
        assert text_of(await client.message()) == "waited"


async def test_comment_does_not_get_between_the_halves_of_an_event(
    autojump_clock: MockClock,
) -> None:
    """A client that reads an event for longer than the silence lasts."""
    async with serving(shop().app, Limits(quiet=1, write=60)) as doors:
        client = doors.connect(slow=True)
        await client.post(request("tools/call", progress="p", **counting(3)))
        await client.head()
        await trio.sleep(5)
        told: list[Any] = []
        while len(told) < 3:
            chunk = await client.chunk()
            if chunk != b":\n\n":
                told += events(chunk)
        assert [one["params"]["progress"] for one in told] == [1, 2, 3]
        assert text_of(await client.message()) == "3"


async def test_subscription_receives_changes_and_the_end() -> None:
    made = shop()
    shutdown = trio.Event()
    async with serving(made.app, shutdown=shutdown) as doors:
        client = doors.connect()
        await client.post(listening_for("toolsListChanged"))
        await client.head()
        ack = await client.message()
        assert ack["method"] == "notifications/subscriptions/acknowledged"
        made.app.remove(made.app.tools["echo"])
        told = await client.message()
        assert told["method"] == "notifications/tools/list_changed"
        shutdown.set()
        assert (await client.message())["method"] == "notifications/cancelled"
        assert (await client.message())["id"] == 9
        assert await client.until(b"\r\n\r\n") == b"0"
        assert await client.is_closed()


def listening_for(flag: str) -> Any:
    return request("subscriptions/listen", id=9, notifications={flag: True})


# ---- a client that leaves -----------------------------------------------------------


@pytest.mark.parametrize("say", [True, False], ids=["streaming", "silent"])
async def test_leaving_cancels_the_call(say: bool, autojump_clock: MockClock) -> None:
    made = shop()
    async with serving(made.app) as doors:
        client = doors.connect()
        await client.post(waiting(say=say))
        await made.waits.wait()
        assert made.ended == []
        await client.stream.aclose()
        await trio.sleep(1)
        assert made.ended == ["wait"]  # suspended: its generator is gone
        tasks = trio.lowlevel.current_statistics().tasks_living
        await doors.connect().ask(request("server/discover"))
        await trio.testing.wait_all_tasks_blocked()
        # The new connection's own, and nothing that the old one left behind.
        assert trio.lowlevel.current_statistics().tasks_living == tasks + 1


async def test_leaving_after_more_than_is_read_ahead(
    autojump_clock: MockClock,
) -> None:
    """Neither further data nor the hangup is read; sending a comment detects it."""
    made = shop()
    async with serving(made.app, Limits(head=1024, quiet=5)) as doors:
        client = doors.connect()
        await client.post(waiting(say=False))
        await made.waits.wait()
        await client.post(call("echo", text="x" * 1024))
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.aclose()
        await trio.sleep(4)
        assert made.ended == []
        await trio.sleep(2)
        assert made.ended == ["wait"]


async def test_leaving_before_it_is_answered() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        await client.post(request("server/discover"))
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        await doors.connect().ask(request("server/discover"))
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == tasks + 1


async def test_leaving_while_an_event_is_sent() -> None:
    made = shop()
    async with serving(made.app) as doors:
        client = doors.connect(slow=True)
        await client.post(waiting(say=True))
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert made.ended == ["wait"]
        assert not made.waits.is_set()


def open_files() -> int:
    """Return the number of open files, or 0 where it cannot be known."""
    fds = Path("/proc/self/fd")
    return len(list(fds.iterdir())) if fds.exists() else 0


def reset(stream: trio.SocketStream) -> None:
    """Leave, without a goodbye."""
    at_once = b"\1\0\0\0\0\0\0\0"
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    stream.socket.close()


async def test_leaving_a_real_socket_leaks_nothing() -> None:
    made = shop()
    async with listening(made.app) as address:
        await trio.testing.wait_all_tasks_blocked(0.01)
        before = open_files()
        for _ in range(3):
            made.waits = trio.Event()
            client = Client(await trio.open_tcp_stream(*address))
            await client.post(waiting(say=True), host="localhost")
            await made.waits.wait()
            assert isinstance(client.stream, trio.SocketStream)
            reset(client.stream)
            while len(made.ended) == 0:
                await trio.lowlevel.checkpoint()
            assert made.ended.pop() == "wait"
        while open_files() > before:
            await trio.lowlevel.checkpoint()


# ---- several requests ---------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        texts = ["a", "b", "c"]
        await client.send(
            b"".join(post(call("echo", id=n, text=t)) for n, t in enumerate(texts))
            + post(request("server/discover", id=3))
        )
        got = [await client.answer() for _ in range(4)]
        assert [one.json["id"] for one in got] == [0, 1, 2, 3]


async def test_a_client_that_sends_ahead_does_not_keep_others_waiting() -> None:
    """No call here waits for anything, so others run only if the server lets them."""
    order = []
    app = Server("shop", keys=KEYS)

    @app.tool
    def say(text: str) -> Flow[str]:
        order.append(text)
        return text or (yield from Elicit("What?", str))

    async with listening(app) as address:
        greedy, modest = [
            Client(await trio.open_tcp_stream(*address)) for _ in range(2)
        ]
        # Both have been let in.
        for client in (greedy, modest):
            await client.send(post(call("say", text="hello"), host="localhost"))
            await client.answer()
        one = post(call("say", text="greedy"), host="localhost")
        await greedy.send(one * 50)
        await modest.send(post(call("say", text="modest"), host="localhost"))
        for _ in range(50):
            await greedy.answer()
        await modest.answer()
        assert order.index("modest") < len(order) / 2
        for client in (greedy, modest):
            await client.stream.aclose()


async def test_request_that_comes_while_another_waits_is_not_lost() -> None:
    made = shop()
    async with serving(made.app) as doors:
        client = doors.connect()
        await client.post(waiting(say=False))
        await made.waits.wait()
        data = post(call("echo", text="next"))
        for at in range(0, len(data), 50):
            await client.send(data[at : at + 50])
            await trio.testing.wait_all_tasks_blocked()
        made.go_on.set()
        assert text_of((await client.answer()).json) == "waited"
        assert text_of((await client.answer()).json) == "next"


async def test_requests_that_come_while_another_waits_are_bounded(
    autojump_clock: MockClock,
) -> None:
    """A limited amount is read ahead; then the client must wait, and loses nothing."""
    made = shop()
    async with serving(made.app, Limits(head=2048, quiet=5)) as doors:
        client = doors.connect(slow=True)
        data = post(call("echo", text="x" * 900))
        sent = 0

        async def flood() -> None:
            nonlocal sent
            await client.post(waiting(say=False))
            for _ in range(12):
                await client.send(data)
                sent += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            got = await client.head()  # a comment: it is still served
            assert got.status == 200
            assert sent < 5
            made.go_on.set()
            async for _ in client.chunks():
                pass
            for _ in range(12):
                assert text_of((await client.answer()).json) == "x" * 900


REQUESTS = b"".join(
    [
        post(request("server/discover", id=0)),
        post(call("order", id=1, title="Dune")),
        post(NOTIFICATION),
        post(request("tools/call", progress="p", id=2, **counting(2))),
        post(b"{"),
    ]
)


def chunked(message: Any, sizes: list[int]) -> bytes:
    """A POST whose body comes in chunks."""
    data = post(message, content_length="", transfer_encoding="chunked")
    head, _, body = data.partition(b"\r\n\r\n")
    parts = [head, b"\r\n\r\n"]
    for size in [*sizes, len(body)]:
        chunk, body = body[:size], body[size:]
        if chunk:
            parts.append(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    return b"".join([*parts, b"0\r\n\r\n"])


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(0, 4000)), sizes=st.lists(st.integers(1, 200)))
async def test_cut_anywhere_the_answers_are_the_same(
    cuts: list[int], sizes: list[int]
) -> None:
    data = REQUESTS + chunked(call("echo", id=4, text="é"), sizes)
    pieces = [0, *sorted(set(cuts)), len(data)]
    async with serving(shop().app) as doors:
        client = doors.connect()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for start, end in zip(pieces, pieces[1:], strict=False):
                    await client.send(data[start:end])
                    await trio.testing.wait_all_tasks_blocked()

            nursery.start_soon(send)
            got = [await client.answer() for _ in range(6)]
    assert [one.status for one in got] == [200, 200, 202, 200, 400, 200]
    assert [one_of(one)["id"] for one in got if one.status == 200] == [0, 1, 2, 4]


@settings(max_examples=200)
@given(
    data=st.data(),
    noise=st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=3))),
)
async def test_any_bytes_give_answers_or_one_error(
    data: st.DataObject, noise: list[tuple[int, bytes]]
) -> None:
    """For any input: whole responses, at most one of them the last, and the end."""
    text = bytearray(REQUESTS + chunked(call("echo", id=4, text="é"), [7, 9]))
    for at, some in noise:
        text[at : at + len(some)] = some
    del text[data.draw(st.integers(0, len(text))) :]
    async with serving(shop().app) as doors:
        client = doors.connect()
        await client.send(bytes(text))
        assert isinstance(client.stream, trio.StapledStream)
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.send_eof()
        while await client.more():
            pass
        while client._buffer:
            got = await client.answer()
            # 501 is for a transfer coding that noise made of `chunked`.
            assert got.status in (100, 200, 202, 204, 501) or 400 <= got.status < 500
            if "connection" in got.headers:
                assert await client.is_closed()


# ---- what is too much ---------------------------------------------------------------


async def test_head_of_too_many_bytes() -> None:
    async with serving(shop().app, Limits(head=1024)) as doors:
        client = doors.connect()
        await client.send(b"POST /mcp HTTP/1.1\r\nA: " + b"a" * 2000)
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (431, "close")
        assert await client.is_closed()


@pytest.mark.parametrize("method", ["POST", "PUT"], ids=["plain", "h11"])
async def test_head_of_too_many_bytes_that_comes_in_one_piece(method: str) -> None:
    data = post(request("server/discover"), x_long="x" * 2000)
    async with serving(shop().app, Limits(head=1024)) as doors:
        client = doors.connect()
        await client.send(data.replace(b"POST", method.encode(), 1))
        assert (await client.answer()).status == 431
        assert await client.is_closed()


async def test_head_of_too_many_headers() -> None:
    async with serving(shop().app, Limits(headers=20)) as doors:
        client = doors.connect()
        more = {f"x_{n}": "1" for n in range(20)}
        got = await client.ask(request("server/discover"), **more)
        assert got.status == 431
        assert await client.is_closed()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # TLS to a plain port
        (b"POST /mcp HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /m\x00cp HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    ],
)
async def test_invalid_head(head: bytes, status: int) -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        await client.send(head)
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (status, "close")
        assert await client.is_closed()


async def test_head_that_is_smuggled() -> None:
    """Both lengths: a reader of the other one sees a second request in the body."""
    async with serving(shop().app) as doors:
        client = doors.connect()
        inner = post(call("echo", id=5, text="smuggled"))
        outer = post(request("server/discover"), transfer_encoding="chunked")
        head = outer.partition(b"\r\n\r\n")[0]
        await client.send(head + b"\r\n\r\n0\r\n\r\n" + inner)
        got = await client.answer()
        assert got.status == 400
        assert b"smuggled" not in await client.rest()


async def test_body_with_too_large_a_declared_length_is_not_read() -> None:
    async with serving(shop().app, site=Site(max_body=100)) as doors:
        client = doors.connect()
        head = post(request("server/discover")).partition(b"\r\n\r\n")[0]
        await client.send(head + b"\r\n\r\n")
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (413, "close")
        assert await client.is_closed()


async def test_body_too_large_is_noticed_while_it_is_received() -> None:
    async with serving(shop().app, site=Site(max_body=1000)) as doors:
        client = doors.connect()
        data = chunked(call("echo", text="x" * 2000), [300] * 10)
        await client.send(data[:1800])
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (413, "close")


async def test_body_as_large_as_may_be() -> None:
    message = call("echo", text="x" * 5000)
    size = len(json.dumps(message))
    async with serving(shop().app, site=Site(max_body=size)) as doors:
        assert (await doors.connect().ask(message)).status == 200
    async with serving(shop().app, site=Site(max_body=size - 1)) as doors:
        assert (await doors.connect().ask(message)).status == 413


async def test_invalid_body_does_not_hide_the_reason_for_a_refusal() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        data = post(b"xyz\r\n", content_length="", transfer_encoding="chunked")
        await client.send(data.replace(b"/mcp", b"/"))
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (404, "close")
        assert await client.is_closed()


async def test_body_in_crumbs() -> None:
    """A chunk of a byte costs its sender six bytes, and us a thousand instructions."""
    async with serving(shop().app) as doors:
        client = doors.connect()
        await client.send(chunked(call("echo", text="x" * 9000), [1] * 8000))
        assert (await client.answer()).status == 400
        client = doors.connect()
        got = await client.ask(call("echo", text="x" * 9000))
        assert got.status == 200


async def test_body_is_asked_for_only_once_it_is_wanted() -> None:
    async with serving(shop().app, site=Site(hosts=["shop.example"])) as doors:
        data = post(request("server/discover"), expect="100-continue")
        head, _, body = data.partition(b"\r\n\r\n")
        client = doors.connect()
        await client.send(head + b"\r\n\r\n")
        assert (await client.answer()).status == 100
        await client.send(body)
        assert (await client.answer()).status == 200
        await client.send(head.replace(b"shop.example", b"evil") + b"\r\n\r\n")
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (403, "close")


async def test_body_that_breaks_off() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        await client.send(post(request("server/discover"))[:-5])
        assert isinstance(client.stream, trio.StapledStream)
        await client.stream.send_eof()
        assert (await client.answer()).status == 400
        assert await client.is_closed()


# ---- what is too slow ---------------------------------------------------------------


async def test_silent_new_connection_is_closed(
    autojump_clock: MockClock,
) -> None:
    async with serving(shop().app, Limits(head_time=10)) as doors:
        assert await doors.connect().is_closed()
        assert trio.current_time() == pytest.approx(10, abs=0.1)


async def test_idle_connection_is_closed(autojump_clock: MockClock) -> None:
    async with serving(shop().app, Limits(idle=75)) as doors:
        client = doors.connect()
        for _ in range(2):
            await trio.sleep(9)
            await client.ask(request("server/discover"))
            await trio.sleep(50)
        began = trio.current_time()
        assert await client.is_closed()
        assert trio.current_time() - began == pytest.approx(25, abs=0.1)


async def test_slow_head(autojump_clock: MockClock) -> None:
    """A byte from time to time does not extend the deadline."""
    async with serving(shop().app, Limits(head_time=10)) as doors:
        client = doors.connect()
        async with trio.open_nursery() as nursery:

            async def drip() -> None:
                for byte in b"POST /mcp HTTP/1.1\r\n" * 10:
                    await client.send(bytes([byte]))
                    await trio.sleep(1)

            nursery.start_soon(drip)
            got = await client.answer()
            assert (got.status, got.headers["connection"]) == (408, "close")
            assert trio.current_time() == pytest.approx(10, abs=0.1)
            nursery.cancel_scope.cancel()


async def test_slow_body(autojump_clock: MockClock) -> None:
    async with serving(shop().app, Limits(body_time=60)) as doors:
        client = doors.connect()
        await client.send(post(request("server/discover"))[:-5])
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (408, "close")
        assert trio.current_time() == pytest.approx(60, abs=0.1)
        assert await client.is_closed()


@pytest.mark.parametrize("streams", [True, False])
async def test_slow_reader_is_cut_off(autojump_clock: MockClock, streams: bool) -> None:
    async with serving(shop().app, Limits(write=60)) as doors:
        client = doors.connect(slow=True)
        message = request("tools/call", progress="p", **counting(5))
        await client.post(message if streams else request("server/discover"))
        await trio.sleep(61)
        # What it was sent first is still in this kind of stream; then there is no more.
        assert b"notifications/progress" in (await client.rest()) or not streams
        with pytest.raises(trio.BrokenResourceError):
            await client.post(message)


async def test_slow_reader_of_a_refusal_gets_no_second_response(
    autojump_clock: MockClock,
) -> None:
    """The body is incomplete, but no second response can report that it was slow."""
    site = Site(max_body=10)
    async with serving(shop().app, Limits(write=60), site=site) as doors:
        client = doors.connect(slow=True)
        data = post(b"", content_length="", transfer_encoding="chunked")
        await client.send(data + b"b\r\n01234567890\r\n")
        await trio.sleep(61)
        said = await client.rest()
        assert said.count(b"HTTP/1.1") == said.count(b"HTTP/1.1 413 ")


async def test_slow_reader_of_a_stream_has_its_time_for_each_event(
    autojump_clock: MockClock,
) -> None:
    async with serving(shop().app, Limits(write=60)) as doors:
        client = doors.connect(slow=True)
        await client.post(request("tools/call", progress="p", **counting(5)))
        await client.head()
        for n in range(1, 6):
            assert (await client.message())["params"]["progress"] == n
            await trio.sleep(50)


async def test_slow_reader_holds_one_event_in_memory() -> None:
    """A handler with many events waits for a client that does not read."""
    made = shop()
    told = 0

    @made.app.tool
    def chatter() -> Flow[None]:
        nonlocal told
        for n in range(1000):
            yield from Step(int, n)
            yield from Progress(n)
            told += 1

    async with serving(made.app) as doors:
        client = doors.connect(slow=True)
        await client.post(
            request("tools/call", progress="p", name="chatter", arguments={})
        )
        await client.head()
        await client.message()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert told < 5


async def test_long_call_takes_none_of_the_times(autojump_clock: MockClock) -> None:
    made = shop()
    async with serving(made.app, Limits(quiet=7200)) as doors:
        client = doors.connect()
        await client.post(waiting(say=False))
        await trio.sleep(590)
        made.go_on.set()
        assert text_of((await client.answer()).json) == "waited"


async def test_body_that_is_slightly_late_starts_no_call(
    mock_clock: MockClock,
) -> None:
    """No request is performed if its response can no longer be sent."""
    made = shop()
    async with serving(made.app, Limits(body_time=60)) as doors:
        client = doors.connect()
        data = post(waiting(say=False))
        await client.send(data[:-5])
        await trio.testing.wait_all_tasks_blocked()
        # In one moment it is there, and too late.
        assert isinstance(client.stream, trio.StapledStream)
        assert isinstance(client.stream.send_stream, trio.testing.MemorySendStream)
        pump = client.stream.send_stream.send_all_hook
        client.stream.send_stream.send_all_hook = None
        await client.send(data[-5:])
        assert pump is not None
        mock_clock.jump(60)
        await pump()
        assert (await client.answer()).status == 408
        assert not made.waits.is_set()


async def test_client_that_does_not_hang_up(autojump_clock: MockClock) -> None:
    async with serving(shop().app, Limits(linger=2)) as doors:
        client = doors.connect()
        await client.ask(request("server/discover"), connection="close")
        await client.send(b"more")
        await trio.sleep(3)
        with pytest.raises(trio.BrokenResourceError):
            await client.send(b"more")


# ---- too many -----------------------------------------------------------------------


async def test_one_connection_too_many_while_all_are_busy(
    autojump_clock: MockClock,
) -> None:
    made = shop()
    async with serving(made.app, Limits(connections=2, retry_after=7)) as doors:
        busy = [doors.connect() for _ in range(2)]
        for client in busy:
            await client.post(waiting(say=False))
        await made.waits.wait()
        await trio.testing.wait_all_tasks_blocked()
        late = [doors.connect() for _ in range(100)]
        got = [await one.rest() for one in late]
        # Clients that get a response wait to hang up; beyond 64, none gets one.
        told = [one for one in got if one]
        assert len(told) == 64
        assert b" 503 " in told[0]
        assert b"Retry-After: 7\r\n" in told[0]
        made.go_on.set()
        for client in busy:
            assert text_of((await client.answer()).json) == "waited"


async def test_client_that_leaves_while_it_is_refused_harms_no_other() -> None:
    made = shop()
    async with listening(made.app, limits=Limits(connections=1)) as address:
        busy = Client(await trio.open_tcp_stream(*address))
        await busy.post(waiting(say=False), host="localhost")
        await made.waits.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)
        before = open_files()
        for _ in range(10):
            reset(await trio.open_tcp_stream(*address))
        await trio.testing.wait_all_tasks_blocked(0.01)
        while open_files() > before:
            await trio.lowlevel.checkpoint()
        made.go_on.set()
        assert text_of((await busy.answer()).json) == "waited"
        await busy.stream.aclose()


async def test_one_connection_too_many_while_one_is_idle() -> None:
    """The connection that is idle for longest is closed; no client is turned away."""
    async with serving(shop().app, Limits(connections=2)) as doors:
        clients = [doors.connect() for _ in range(2)]
        for client in reversed(clients):
            await client.ask(request("server/discover"))
        third = doors.connect()
        assert (await third.ask(request("server/discover"))).status == 200
        assert await clients[1].is_closed()
        assert (await clients[0].ask(request("server/discover"))).status == 200


class Idle:
    """A server with one connection, which waits for a request."""

    def __init__(self, shared: list[Shared], client: Client) -> None:
        self.client = client
        (self.connection,) = shared[0].idle

    def ask_at_once(self) -> None:
        """Send a request, before the server has its turn."""
        with self.socket() as raw:
            raw.send(post(request("server/discover"), host="localhost"))

    def socket(self) -> socket.socket:
        """The client's, without a loop that would give the server a turn."""
        assert isinstance(self.client.stream, trio.SocketStream)
        return socket.socket(fileno=os.dup(self.client.stream.socket.fileno()))


@asynccontextmanager
async def one_idle(
    monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[Idle]:
    made: list[Shared] = []

    def share(*args: Any) -> Shared:
        made.append(Shared(*args))
        return made[0]

    monkeypatch.setattr(http, "Shared", share)
    async with listening(shop().app, **options) as address:
        client = Client(await trio.open_tcp_stream(*address))
        await client.send(post(request("server/discover"), host="localhost"))
        assert (await client.answer()).status == 200
        await trio.testing.wait_all_tasks_blocked(0.01)
        yield Idle(made, client)
        await client.stream.aclose()


async def test_request_received_on_an_idle_connection_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with one_idle(monkeypatch) as idle:
        idle.ask_at_once()
        assert not idle.connection.leave()
        assert (await idle.client.answer()).status == 200


async def test_request_after_a_connection_was_left_finds_it_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is not reset while a response is on its way."""
    async with one_idle(monkeypatch) as idle:
        assert idle.connection.leave()
        with idle.socket() as raw:
            assert raw.recv(1) == b""  # before the server's next turn


# ---- shutting down ------------------------------------------------------------------


async def test_shutdown_finishes_what_runs() -> None:
    made = shop()
    shutdown = trio.Event()
    async with serving(made.app, shutdown=shutdown) as doors:
        idle, busy, half = doors.connect(), doors.connect(), doors.connect()
        await idle.ask(request("server/discover"))
        await busy.post(waiting(say=False))
        data = post(request("server/discover"))
        await half.send(data[:50])
        await made.waits.wait()
        await trio.testing.wait_all_tasks_blocked()
        shutdown.set()
        assert await idle.is_closed()
        await half.send(data[50:])
        got = await half.answer()
        assert (got.status, got.headers["connection"]) == (200, "close")
        made.go_on.set()
        got = await busy.answer()
        assert got.headers["connection"] == "close"
        assert text_of(got.json) == "waited"
        assert await busy.is_closed()


async def test_shutdown_ends_serve_and_the_lifespan() -> None:
    made = shop()
    shutdown = trio.Event()
    doors = Doors()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(
                partial(http.serve, made.app, listeners=[doors], shutdown=shutdown)
            )
            client = doors.connect()
            await client.ask(request("server/discover"))
            shutdown.set()
            assert await client.is_closed()


async def test_shutdown_does_not_wait_for_ever(autojump_clock: MockClock) -> None:
    made = shop()
    shutdown = trio.Event()
    async with serving(
        made.app, Limits(grace=20, quiet=99), shutdown=shutdown
    ) as doors:
        client = doors.connect()
        await client.post(waiting(say=False))
        await made.waits.wait()
        shutdown.set()
        assert await client.rest() == b""
        assert trio.current_time() == pytest.approx(20, abs=0.1)
        assert made.ended == ["wait"]


async def test_shutdown_ends_a_subscription_that_comes_late() -> None:
    made = shop()
    shutdown = trio.Event()
    async with serving(made.app, shutdown=shutdown) as doors:
        client = doors.connect()
        data = post(listening_for("toolsListChanged"))
        await client.send(data[:50])
        await trio.testing.wait_all_tasks_blocked()
        shutdown.set()
        await trio.testing.wait_all_tasks_blocked()
        await client.send(data[50:])
        await client.head()
        methods = [(await client.message()).get("method") for _ in range(3)]
        assert methods[1:] == ["notifications/cancelled", None]


async def test_shutdown_after_a_pipelined_request() -> None:
    """Earlier requests are answered; the one after them would start a new exchange."""
    made = shop()
    shutdown = trio.Event()
    async with serving(made.app, shutdown=shutdown) as doors:
        client = doors.connect()
        await client.post(waiting(say=True))
        await client.head()
        await client.message()
        await client.post(request("server/discover"))
        await made.waits.wait()
        shutdown.set()
        made.go_on.set()
        assert text_of(await client.message()) == "waited"
        await client.until(b"\r\n\r\n")
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (200, "close")
        assert await client.is_closed()


async def test_shutdown_leaves_time_to_authenticate_a_known_head(
    autojump_clock: MockClock,
) -> None:
    """The time-out of an idle connection does not apply to a request that arrived."""

    async def authenticate(headers: Mapping[str, str]) -> str | None:
        await trio.sleep(1)
        return "ann"

    shutdown = trio.Event()
    app = shop().app
    app.auth = authenticate
    async with serving(app, shutdown=shutdown) as doors:
        client = doors.connect()
        assert (await client.ask(request("server/discover"))).status == 200
        await trio.testing.wait_all_tasks_blocked()
        shutdown.set()
        await trio.testing.wait_all_tasks_blocked()
        await client.post(request("server/discover"))
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (200, "close")


async def probe(client: Client, path: str = "/readyz") -> tuple[int, bytes]:
    """Ask by a name that this server does not know."""
    await client.send(f"GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
    got = await client.answer()
    return got.status, got.body


async def test_probes_over_one_connection() -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        assert await probe(client, "/healthz") == (200, b"ok\n")
        assert await probe(client) == (200, b"ok\n")
        await client.send(b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        got = await client.answer(to="HEAD")
        assert (got.status, got.headers["content-length"]) == (200, "3")
        assert (await client.ask(request("server/discover"))).status == 200


async def test_drain_serves_clients_and_sends_a_balancer_away(
    autojump_clock: MockClock,
) -> None:
    made = shop()
    shutdown = trio.Event()
    limits = Limits(drain=30, grace=20, idle=1_000, quiet=99)
    async with serving(made.app, limits, shutdown=shutdown) as doors:
        idle, known, busy = doors.connect(), doors.connect(), doors.connect()
        for client in (idle, known):
            assert (await client.ask(request("server/discover"))).status == 200
        await busy.post(waiting(say=False))
        await made.waits.wait()
        shutdown.set()
        await trio.testing.wait_all_tasks_blocked()
        assert await probe(doors.connect()) == (503, b"draining\n")
        assert await probe(doors.connect(), "/healthz") == (200, b"ok\n")
        # A connection that is kept is served, and then closed, so its client moves on.
        got = await known.ask(request("server/discover"))
        assert (got.status, got.headers["connection"]) == (200, "close")
        assert await known.is_closed()
        await trio.sleep(29)
        got = await doors.connect().ask(request("server/discover"))
        assert (got.status, got.headers["connection"]) == (200, "close")
        assert trio.current_time() < 30
        assert await idle.is_closed()
        assert trio.current_time() == pytest.approx(30, abs=0.5)
        assert await busy.rest() == b""
        assert trio.current_time() == pytest.approx(50, abs=0.5)


async def test_drain_closes_idle_connections(
    autojump_clock: MockClock,
) -> None:
    shutdown = trio.Event()
    limits = Limits(drain=30, idle=5)
    async with serving(shop().app, limits, shutdown=shutdown) as doors:
        client = doors.connect()
        await client.ask(request("server/discover"))
        shutdown.set()
        assert await client.is_closed()
        assert trio.current_time() < 15


async def test_drain_ends_with_a_second_signal() -> None:
    made = shop()
    doors = Doors()
    limits = Limits(drain=3_600)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(http.run, made.app, listeners=[doors], limits=limits)
            nursery.start_soon(serve)
            client = doors.connect()
            await client.post(waiting(say=False))
            await made.waits.wait()
            signal.raise_signal(signal.SIGTERM)
            await trio.testing.wait_all_tasks_blocked()
            assert await probe(doors.connect()) == (503, b"draining\n")
            assert not made.ended
            signal.raise_signal(signal.SIGTERM)
    assert made.ended == ["wait"]


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_invalid_time_to_drain(seconds: float) -> None:
    with pytest.raises(ValueError, match="drain"):
        Limits(drain=seconds)


async def test_cancelling_serve_cancels_what_runs() -> None:
    made = shop()
    async with serving(made.app) as doors:
        client = doors.connect()
        await client.post(waiting(say=False))
        await made.waits.wait()
    assert made.ended == ["wait"]


# ---- who may ask --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost"}, 200),
        ({"host": "127.0.0.1:8000"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost", "origin": "http://localhost:6274"}, 200),
        ({"host": "localhost", "origin": "https://evil.example"}, 403),
        ({"host": "localhost", "origin": "null"}, 403),
    ],
)
async def test_socket_of_this_machine_is_for_this_machine(
    headers: dict[str, str], status: int
) -> None:
    async with listening(shop().app) as address:
        async with Client(await trio.open_tcp_stream(*address)) as client:
            got = await client.ask(request("server/discover"), **headers)
        assert got.status == status
        if "origin" in headers and status == 200:
            assert got.headers["access-control-allow-origin"] == headers["origin"]
        else:
            assert "access-control-allow-origin" not in got.headers


async def test_page_of_an_origin_that_may_ask() -> None:
    page = "https://app.example"
    site = Site(origins=[page], max_body=4000)
    async with serving(shop().app, site=site) as doors:
        client = doors.connect()
        await client.send(
            b"OPTIONS /mcp HTTP/1.1\r\nHost: shop.example\r\nOrigin: https://app.example"
            b"\r\nAccess-Control-Request-Method: POST\r\n\r\n"
        )
        got = await client.answer()
        assert got.status == 204
        assert got.headers["access-control-allow-origin"] == page
        assert "content-length" not in got.headers
        assert "transfer-encoding" not in got.headers
        for message, status in [
            (request("server/discover"), 200),
            (NOTIFICATION, 202),
            (request("tools/call", progress="p", **counting(2)), 200),
            (request("no/such"), 404),
            (call("echo", text="x" * 5000), 413),
        ]:
            got = await client.ask(message, origin=page)
            assert got.status == status
            assert got.headers["access-control-allow-origin"] == page


async def test_page_can_read_errors_about_its_body(autojump_clock: MockClock) -> None:
    page = "https://app.example"
    crumbs = post(b"", content_length="", transfer_encoding="chunked", origin=page)
    slow = post(request("server/discover"), origin=page)[:-5]
    async with serving(shop().app, site=Site(origins=[page])) as doors:
        for data, status in [(crumbs + b"xyz\r\n", 400), (slow, 408)]:
            client = doors.connect()
            await client.send(data)
            got = await client.answer()
            assert got.status == status
            assert got.headers["access-control-allow-origin"] == page
        # Nothing is known about the next request yet.
        client = doors.connect()
        await client.ask(request("server/discover"), origin=page)
        await client.send(b"no HTTP\r\n\r\n")
        got = await client.answer()
        assert got.status == 400
        assert "access-control-allow-origin" not in got.headers


async def test_authenticated_user_is_the_peer() -> None:
    def authenticate(headers: Any) -> str | None:
        match headers.get("authorization"):
            case "Bearer ann":
                return "ann"
            case "Bearer bug":
                raise RuntimeError("a bug")
            case _:
                raise PermissionError("sign in")

    app = shop().app
    app.auth = authenticate
    async with serving(app) as doors:
        client = doors.connect()
        got = await client.ask(request("server/discover"))
        assert (got.status, got.headers["www-authenticate"]) == (401, "Bearer")
        got = await client.ask(call("order", title="D"), authorization="Bearer ann")
        assert got.status == 200


async def test_bug_in_authentication_admits_no_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def authenticate(headers: Any) -> str | None:
        raise RuntimeError("a bug")

    app = shop().app
    app.auth = authenticate
    async with serving(app) as doors:
        got = await doors.connect().ask(request("server/discover"))
        assert got.status == 500
        assert b"a bug" not in got.body
    assert "a bug" in caplog.text
    caplog.clear()


async def test_authentication_takes_its_own_time(autojump_clock: MockClock) -> None:
    """Authentication may query a service; its time does not count for the head."""

    async def authenticate(headers: Any) -> str:
        await trio.sleep(25)
        return "ann"

    app = shop().app
    app.auth = authenticate
    async with serving(app, Limits(head_time=10)) as doors:
        data = post(request("server/discover"))
        for cut in (0, 20):
            client = doors.connect()
            await client.send(data[:cut])
            await trio.sleep(1)
            await client.send(data[cut:])
            assert (await client.answer()).status == 200


async def test_authentication_has_a_time_of_its_own(autojump_clock: MockClock) -> None:
    async def authenticate(headers: Any) -> str:
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    app = shop().app
    app.auth = authenticate
    async with serving(app) as doors:
        began = trio.current_time()
        got = await doors.connect().ask(request("server/discover"))
        assert (got.status, trio.current_time() - began) == (503, 30)


async def test_a_client_that_leaves_is_authenticated_no_more(
    autojump_clock: MockClock,
) -> None:
    """Else each client of a hook that hangs would keep a connection."""
    left = trio.Event()

    async def authenticate(headers: Any) -> str:
        try:
            await trio.sleep_forever()
        finally:
            left.set()
        raise AssertionError("unreachable")

    app = shop().app
    app.auth = authenticate
    async with serving(app) as doors:
        client = doors.connect()
        await client.send(post(request("server/discover")))
        await trio.testing.wait_all_tasks_blocked()
        assert not left.is_set()
        await client.stream.aclose()
        with trio.fail_after(10):
            await left.wait()


# ---- what goes wrong here -----------------------------------------------------------


async def test_bug_in_the_server_is_answered_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any) -> Any:
        raise RuntimeError("a bug")

    async with serving(shop().app) as doors:
        client = doors.connect()
        with monkeypatch.context() as patch:
            patch.setattr(trio_driver, "begin", fails)
            got = await client.ask(request("server/discover"))
        assert (got.status, got.json["error"]["code"]) == (500, -32603)
        assert "a bug" in caplog.text
        with monkeypatch.context() as patch:
            patch.setattr(conversation, "sse", fails)
            got = await doors.connect().ask(
                request("tools/call", progress="p", **counting(2))
            )
        assert got.status == 500
        with monkeypatch.context() as patch:
            patch.setattr(connection, "_asked", fails)
            client = doors.connect()
            await client.post(request("server/discover"))
            assert await client.is_closed()
        assert (await doors.connect().ask(request("server/discover"))).status == 200
    caplog.clear()


async def test_bug_in_the_middle_of_a_stream_breaks_it_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = shop()

    def fails(*args: Any) -> Any:
        raise RuntimeError("a bug")

    async with serving(made.app) as doors:
        client = doors.connect()
        await client.post(waiting(say=True))
        await client.head()
        await client.message()
        await made.waits.wait()
        monkeypatch.setattr(conversation, "sse", fails)
        made.go_on.set()
        assert await client.rest() == b""  # and no last chunk: it is not whole
    assert "a bug" in caplog.text
    caplog.clear()


async def test_what_clients_send_is_logged_escaped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(shop().app) as doors:
        client = doors.connect()
        await client.send(b"POST /\x1b[31mevil\nFAKE: line HTTP/1.1\r\n\r\n")
        assert (await client.answer()).status == 400
    assert "\x1b" not in caplog.text
    assert "\nFAKE" not in caplog.text


# ---- sockets, TLS, signals ----------------------------------------------------------


async def test_serving_every_address_of_a_name() -> None:
    async with listening(shop().app, host="localhost") as (host, port):
        async with Client(await trio.open_tcp_stream(host, port)) as client:
            got = await client.ask(request("server/discover"), host="localhost")
        assert got.status == 200


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are Unix sockets")
async def test_serving_a_unix_socket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "socket")
    sock = trio.socket.socket(socket.AF_UNIX)
    await sock.bind(path)
    sock.listen()
    async with trio.open_nursery() as nursery:
        serve = partial(http.serve, shop().app, listeners=[trio.SocketListener(sock)])
        await nursery.start(serve)
        async with Client(await trio.open_unix_socket(path)) as client:
            got = await client.ask(request("server/discover"))
        assert got.status == 200
        nursery.cancel_scope.cancel()
    assert repr(path) in caplog.text


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for localhost, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def make_certificate(folder: Path) -> tuple[str, str]:
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(chain), str(private)


async def test_tls(
    certificate: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    made = shop()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    shutdown = trio.Event()
    async with listening(made.app, ssl_context=context, shutdown=shutdown) as (
        host,
        port,
    ):
        assert "https://127.0.0.1" in caplog.text

        async def connect() -> Client:
            stream = await trio.open_tcp_stream(host, port)
            return Client(trio.SSLStream(stream, trusting, server_hostname="localhost"))

        client = await connect()
        got = await client.ask(request("server/discover"), host="localhost")
        assert got.status == 200
        got = await client.ask(
            request("tools/call", progress="p", **counting(2)), host="localhost"
        )
        assert len(events(got.body)) == 3
        got = await client.ask(request("server/discover"), host="evil.example")
        assert got.status == 403  # it is known to be on this machine
        # A client without TLS harms no other client.
        async with Client(await trio.open_tcp_stream(host, port)) as plain:
            await plain.post(request("server/discover"), host="localhost")
            assert b"HTTP/" not in await plain.rest()
        leaver = await connect()
        await leaver.post(waiting(say=True), host="localhost")
        await leaver.head()
        await made.waits.wait()
        await trio.aclose_forcefully(leaver.stream)
        while not made.ended:
            await trio.lowlevel.checkpoint()
        got = await client.ask(
            request("server/discover"), host="localhost", connection="close"
        )
        assert got.status == 200
        assert await client.rest() == b""
        await client.stream.aclose()


async def test_address_that_is_taken() -> None:
    async with listening(shop().app) as (host, port):
        with pytest.raises(OSError, match="in use"):
            await http.serve(shop().app, host, port)
        with pytest.raises(OSError, match="in use"):
            await http.run(shop().app, host, port)


async def test_run_until_a_signal(caplog: pytest.LogCaptureFixture) -> None:
    made = shop()
    doors = Doors()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(http.run, made.app, listeners=[doors]))
            client = doors.connect()
            await client.post(waiting(say=False))
            await made.waits.wait()
            signal.raise_signal(signal.SIGTERM)
            await trio.testing.wait_all_tasks_blocked()
            made.go_on.set()
            assert text_of((await client.answer()).json) == "waited"
            await client.stream.aclose()
    assert "SIGTERM" in caplog.text


async def test_run_until_a_second_signal() -> None:
    made = shop()
    doors = Doors()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(http.run, made.app, listeners=[doors]))
            client = doors.connect()
            await client.post(waiting(say=False))
            await made.waits.wait()
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
                await trio.testing.wait_all_tasks_blocked()
    assert made.ended == ["wait"]


async def test_run_raises_errors_unchanged() -> None:
    async def fails() -> None:
        raise UsageError("a mistake")

    with pytest.raises(UsageError, match="a mistake"):
        await until_signalled(trio.Event(), fails)
