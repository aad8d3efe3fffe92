"""Legacy clients of the server's own HTTP, over streams in memory."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from effectmcp.drivers.trio import Bell
from effectmcp.server import Change
from effectmcp.server.identity import ANONYMOUS
from effectmcp.transports import http
from effectmcp.transports.http import Limits
from effectmcp.transports.sessions import SessionLimits
from effectmcp.transports.web import Site

from ..legacy_client import NEWEST, VERSIONS, hello
from .era import (
    Desk,
    Event,
    Wire,
    answered,
    cancelled,
    desk,
    event_of,
    headers_for,
    initialize,
    message,
    tool,
    value_of,
)
from .shop import answer, bank, call, text_of
from .wire import Client, Doors, Got, serving

OLDER = "2025-06-18"


@define(eq=False)
class Old:
    """A legacy client, after its handshake. Each request has its own connection."""

    doors: Doors
    session: str
    version: str = NEWEST
    also: dict[str, str] = field(factory=dict)

    def bytes_of(self, body: Wire | bytes | None, method: str, **more: Any) -> bytes:
        headers = headers_for(self.session, self.version, **{**self.also, **more})
        content = b"" if body is None else body
        if isinstance(content, dict):
            content = json.dumps(content).encode()
        if body is None:
            del headers["content-type"]
        else:
            headers["content-length"] = str(len(content))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode() + content

    async def ask(
        self, body: Wire | bytes | None, method: str = "POST", **more: Any
    ) -> Got:
        """A whole answer."""
        async with self.doors.connect() as client:
            await client.send(self.bytes_of(body, method, **more))
            return await client.answer()

    async def status(self, body: Wire | bytes | None, *args: Any, **more: Any) -> int:
        return (await self.ask(body, *args, **more)).status

    @asynccontextmanager
    async def stream(
        self, body: Wire | None, method: str = "POST", **more: Any
    ) -> AsyncIterator[Reading]:
        """The events of an answer. At the end of the block the client hangs up."""
        async with self.doors.connect() as client:
            await client.send(self.bytes_of(body, method, **more))
            got = await client.head()
            assert got.status == 200
            assert got.headers["content-type"] == "text/event-stream"
            yield Reading(client)

    def news(self, last: str | None = None) -> Any:
        return self.stream(None, "GET", last_event_id=last)


@define(eq=False)
class Reading:
    """A stream, event by event."""

    client: Client
    buffer: bytes = b""
    #: What was seen.
    last: str | None = None
    comments: int = 0

    async def next(self) -> Event | None:
        """The next event; `None` at the end."""
        while b"\n\n" not in self.buffer:
            size = int(await self.client.until(b"\r\n"), 16)
            data = (await self.client.exactly(size + 2))[:size]
            if not data:
                assert self.buffer == b""
                return None
            self.buffer += data
        block, _, self.buffer = self.buffer.partition(b"\n\n")
        event = event_of(block)
        if event.is_comment:
            self.comments += 1
            return await self.next()
        self.last = event.id
        return event

    async def prime(self) -> Event:
        event = await self.next()
        assert event is not None
        assert event.data == ""
        assert event.id is not None
        return event

    async def message(self) -> Wire:
        event = await self.next()
        assert event is not None
        assert event.id is not None
        return event.message

    async def rest(self) -> list[Wire]:
        found = []
        while event := await self.next():
            found.append(event.message)
        return found


async def shake(
    doors: Doors, version: str = NEWEST, hello: Wire | None = None, **also: str
) -> Old:
    """Perform the handshake as a client does: the first request has no version."""
    stranger = Old(doors, "", version, also)
    got = await stranger.ask(
        hello or initialize(version), mcp_session_id=None, mcp_protocol_version=None
    )
    assert got.status == 200
    assert got.json["result"]["protocolVersion"] == version
    old = Old(doors, got.headers["mcp-session-id"], version, also)
    assert await old.status(message("notifications/initialized")) == 202
    return old


@asynccontextmanager
async def opened(
    made: Desk, version: str = NEWEST, **options: Any
) -> AsyncIterator[Old]:
    async with serving(made.app, **options) as doors:
        yield await shake(doors, version)


async def until(made: Desk, what: str) -> None:
    """Wait until the server saw something."""
    bell = Bell()
    made.hear = bell.ring
    while what not in made.seen:
        await bell.wait()


# ---- the handshake ------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_handshake_gives_a_session(version: str) -> None:
    async with opened(desk(), version) as old:
        assert re.fullmatch(r"[\x21-\x7e]+", old.session)
        got = await old.ask(message("ping", id=3))
        assert got.json == {"jsonrpc": "2.0", "id": 3, "result": {}}
        assert "mcp-session-id" not in got.headers


async def test_a_handshake_may_name_its_revision_in_a_header() -> None:
    async with serving(desk().app) as doors:
        got = await Old(doors, "").ask(initialize(), mcp_session_id=None)
        assert got.status == 200
        assert "mcp-session-id" in got.headers


async def test_a_handshake_that_fails_gives_none() -> None:
    async with serving(desk().app) as doors:
        body = message("initialize", id=1)
        got = await Old(doors, "").ask(
            body, mcp_session_id=None, mcp_protocol_version=None
        )
        assert got.json["error"]["code"] == -32602
        assert "mcp-session-id" not in got.headers


async def test_a_session_does_not_begin_twice() -> None:
    """Requests under its id would continue as the first client."""
    async with opened(desk()) as old:
        got = await old.ask(initialize(OLDER))
        assert got.json["error"]["code"] == -32600
        assert "mcp-session-id" not in got.headers
        got = await old.ask(tool("whoami"))
        assert got.headers["content-type"] == "application/json"
        assert value_of(got.json) == f"None legacy {NEWEST}"


async def test_a_server_without_that_era() -> None:
    async with serving(desk(legacy=False).app) as doors:
        old = Old(doors, "made-up")
        assert await old.status(initialize()) == 400
        assert await old.status(None, "GET") == 405
        assert await old.status(None, "DELETE") == 405


async def test_a_server_that_keeps_no_sessions() -> None:
    """As in one of several processes: all works but what asks."""
    async with serving(desk().app, sessions=None) as doors:
        old = Old(doors, "made-up")
        got = await old.ask(initialize())
        assert got.status == 200
        assert "mcp-session-id" not in got.headers
        assert value_of((await old.ask(tool("whoami"))).json).startswith("None legacy")
        assert (await old.ask(tool("order", title="x"))).json["result"]["isError"]
        assert await old.status(None, "GET") == 405


# ---- whose session ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_an_unknown_session(method: str) -> None:
    async with serving(desk().app) as doors:
        body = tool("whoami") if method == "POST" else None
        assert await Old(doors, "made-up").status(body, method) == 404


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_session_of_another_user(method: str) -> None:
    app = desk().app
    app.auth = lambda headers: headers.get("x-user", ANONYMOUS)
    async with serving(app) as doors:
        old = await shake(doors, x_user="ann")
        assert value_of((await old.ask(tool("whoami"))).json).startswith("ann ")
        body = tool("whoami") if method == "POST" else None
        for user in ("bob", None):
            assert await old.status(body, method, x_user=user) == 404
        assert await old.status(message("ping", id=1)) == 200


async def test_without_a_session_calls_work_but_questions_fail() -> None:
    async with opened(desk()) as old:
        got = await old.ask(tool("whoami"), mcp_session_id=None)
        assert value_of(got.json) == f"None legacy {NEWEST}"
        got = await old.ask(tool("order", title="x"), mcp_session_id=None)
        assert got.json["result"]["isError"]
        assert await old.status(None, "GET", mcp_session_id=None) == 405
        assert await old.status(None, "DELETE", mcp_session_id=None) == 405
        answer = answered({"id": 1}, "x")
        assert await old.status(answer, mcp_session_id=None) == 400


async def test_both_eras_at_one_place() -> None:
    """A header of 2026-07-28 makes a request modern, with any other headers."""
    async with opened(desk()) as old:
        modern = Client(old.doors.connect().stream)
        async with old.stream(tool("order", title="Dune")) as reading:
            await reading.prime()
            question = await reading.message()
            got = await modern.ask(
                call("order", title="Dune"), mcp_session_id=old.session
            )
            result = got.json["result"]
            assert result["resultType"] == "input_required"
            got = await modern.ask(call("whoami"), mcp_session_id="made-up")
            assert text_of(got.json) == "None modern 2026-07-28"
            for value in ("Ann", 2):
                assert await old.status(answered(question, value)) == 202
                question = await reading.message()
                more = answer(result, value)
                got = await modern.ask(call("order", title="Dune", **more))
                result = got.json["result"]
            assert value_of(question) == text_of(got.json) == "2 x Dune for Ann"
        await trio.aclose_forcefully(modern.stream)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_sessions_are_of_the_revisions_that_have_them(method: str) -> None:
    async with opened(desk()) as old:
        got = await old.ask(None, method, mcp_protocol_version="2026-07-28")
        assert (got.status, got.headers["allow"]) == (405, "POST")
        assert await old.status(message("ping", id=1)) == 200


async def test_an_unknown_revision() -> None:
    async with opened(desk()) as old:
        assert (
            await old.status(tool("whoami"), mcp_protocol_version="1999-01-01") == 400
        )


async def test_pages_may_read_the_session() -> None:
    origin = "https://app.example"
    async with serving(desk().app, site=Site(origins=[origin])) as doors:
        old = Old(doors, "", NEWEST, {"origin": origin})
        preflight = await old.ask(None, "OPTIONS", mcp_session_id=None)
        assert "DELETE" in preflight.headers["access-control-allow-methods"]
        got = await old.ask(initialize(), mcp_session_id=None)
        assert "Mcp-Session-Id" in got.headers["access-control-expose-headers"]
        old = Old(doors, got.headers["mcp-session-id"], NEWEST, {"origin": origin})
        for answer in (
            await old.ask(message("notifications/initialized")),
            await old.ask(None, "GET", last_event_id="made-up"),
            await old.ask(None, "DELETE"),
            await old.ask(None, "DELETE"),
        ):
            assert answer.headers["access-control-allow-origin"] == origin
        assert answer.status == 404


# ---- messages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"", 400, -32700),
        (b"\xff", 400, -32700),
        (b"5", 400, -32600),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', 400, -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', 400, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/sing"}', 200, -32601),
    ],
)
async def test_bodies_that_cannot_be(body: bytes, status: int, code: int) -> None:
    async with opened(desk()) as old:
        got = await old.ask(body)
        assert (got.status, got.json["error"]["code"]) == (status, code)
        assert await old.status(message("ping", id=1)) == 200


async def test_notifications_and_answers_without_a_recipient() -> None:
    async with opened(desk()) as old:
        for body in (
            message("notifications/of/the/future", a=1),
            cancelled(77),
            cancelled([]),
            answered({"id": 1}, "x"),
            answered({"id": "1"}, "x"),
            {"jsonrpc": "2.0", "id": 9, "error": {"code": -1, "message": "no"}},
        ):
            got = await old.ask(body)
            assert (got.status, got.body) == (202, b"")


async def test_a_body_that_is_too_large() -> None:
    async with opened(desk(), site=Site(max_body=1000)) as old:
        assert await old.status(tool("order", title="x" * 1000)) == 413


async def test_an_immediate_response_is_one_json_object() -> None:
    async with opened(desk()) as old:
        got = await old.ask(tool("whoami"))
        assert got.headers["content-type"] == "application/json"
        got = await old.ask(message("tools/list", id=2))
        assert len(got.json["result"]["tools"]) == 9


async def test_requests_of_one_connection() -> None:
    """GET and DELETE have no body, and what follows them is understood."""
    async with opened(desk()) as old, old.doors.connect() as client:
        ping = old.bytes_of(message("ping", id=1), "POST")
        await client.send(ping + old.bytes_of(None, "DELETE") + ping)
        statuses = [(await client.answer()).status for _ in range(3)]
        assert statuses == [200, 204, 404]


async def test_two_requests_with_one_id() -> None:
    async with opened(desk()) as old:
        async with old.stream(tool("order", title="x", id=5)) as reading:
            await reading.prime()
            question = await reading.message()
            got = await old.ask(tool("whoami", id=5))
            assert "id is running" in got.json["error"]["message"]
            assert value_of((await old.ask(tool("whoami", id="5"))).json)
            await old.ask(answered(question, "Ann"))
            await old.ask(answered(await reading.message(), 1))
            assert value_of(await reading.message()) == "1 x x for Ann"
        assert value_of((await old.ask(tool("whoami", id=5))).json)


# ---- a call that asks ---------------------------------------------------------------


async def test_a_call_that_asks_is_a_stream_with_ids() -> None:
    async with opened(desk()) as old:
        async with old.stream(tool("order", title="Dune")) as reading:
            first = await reading.prime()
            assert first.retry == 1000
            ids = [first.id]
            for value in ("Ann", 2):
                question = await reading.message()
                ids.append(reading.last)
                await old.ask(answered(question, value))
            assert value_of(await reading.message()) == "2 x Dune for Ann"
            ids.append(reading.last)
            assert await reading.next() is None
        assert len(set(ids)) == 4


@pytest.mark.parametrize("version", [OLDER, "2025-03-26"])
async def test_older_clients_have_no_event_to_resume_from(version: str) -> None:
    """Older clients would take its empty data for a message."""
    async with opened(desk(), version) as old:
        async with old.stream(tool("count", to=2, token="t")) as reading:
            told = await reading.rest()
        assert [one.get("method") for one in told[:2]] == ["notifications/progress"] * 2
        assert value_of(told[2]) == "2"


async def test_three_questions_side_by_side() -> None:
    async with opened(desk()) as old:
        async with old.stream(tool("three")) as reading:
            await reading.prime()
            questions = [await reading.message() for _ in range(3)]
            assert len({one["id"] for one in questions}) == 3
            for question in reversed(questions):
                await old.ask(answered(question, question["params"]["message"][8:-1]))
                await old.ask(answered(question, "twice"))
            assert value_of(await reading.message()) == "a, b, c"


async def test_questions_go_where_they_came_from() -> None:
    """Each on the stream of its request, and none on GET."""
    made = desk()
    async with (
        opened(made) as old,
        old.news() as news,
        old.stream(tool("order", id=1, title="a")) as one,
        old.stream(tool("order", id=2, title="b")) as two,
    ):
        for reading in (news, one, two):
            await reading.prime()
        asked = [await reading.message() for reading in (one, two)]
        for reading, question, id_ in zip((one, two), asked, (1, 2), strict=True):
            await old.ask(answered(question, "Ann"))
            await old.ask(answered(await reading.message(), 1))
            assert (await reading.message())["id"] == id_
        made.app.changes.publish(Change("tools"))
        told = await news.message()
        assert told["method"] == "notifications/tools/list_changed"


async def test_progress_and_logs_of_the_level_of_the_session() -> None:
    async with opened(desk()) as old:
        for level, expected in [
            (None, ["middling", "large"]),
            ("error", ["large"]),
            ("debug", ["small", "middling", "large"]),
        ]:
            if level is not None:
                await old.ask(message("logging/setLevel", id=9, level=level))
            async with old.stream(tool("says")) as reading:
                await reading.prime()
                *told, last = await reading.rest()
            assert [one["params"]["data"] for one in told] == expected
            assert value_of(last) == "said"
        async with old.stream(tool("count", to=3, token="t")) as reading:
            await reading.prime()
            *told, last = await reading.rest()
        assert [one["params"]["progress"] for one in told] == [1, 2, 3]
        assert {one["params"]["progressToken"] for one in told} == {"t"}


async def test_a_response_that_no_encoding_can_carry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened(desk()) as old:
        async with old.stream(tool("surrogate", token="t")) as reading:
            await reading.prime()
            await reading.message()
            assert (await reading.message())["result"]["isError"]
            assert await reading.next() is None
    assert "surrogate" in caplog.text


# ---- cancelling ---------------------------------------------------------------------


async def test_a_cancelled_flow_cleans_up_and_sends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp")
    made = desk()
    async with opened(made) as old:
        async with old.stream(tool("order", title="Dune", id="x")) as reading:
            await reading.prime()
            question = await reading.message()
            assert await old.status(cancelled("x")) == 202
            (told,) = await reading.rest()  # and no response
        assert told["method"] == "notifications/cancelled"
        assert told["params"] == {"requestId": question["id"]}
        assert made.seen == ["cancelled", "refunded Dune"]
        assert await old.status(answered(question, "Ann")) == 202
        assert await old.status(cancelled("x")) == 202
    assert {one.levelname for one in caplog.records} <= {"DEBUG", "INFO"}
    assert [one.levelname for one in caplog.records if "cancel" in one.message] == [
        "DEBUG"
    ]


async def test_a_cancelled_function_is_not_answered(autojump_clock: Any) -> None:
    made = desk()
    async with opened(made) as old:
        async with old.stream(tool("naps", seconds=20, id=4)) as reading:
            await reading.prime()
            assert await old.status(cancelled(4)) == 202
            assert await reading.rest() == []
        assert made.seen == ["napped"]


async def test_a_session_that_is_ended_in_the_middle_of_a_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "effectmcp")
    made = desk()
    async with opened(made) as old:
        async with (
            old.news() as news,
            old.stream(tool("order", title="Dune")) as reading,
        ):
            await news.prime()
            await reading.prime()
            question = await reading.message()
            got = await old.ask(None, "DELETE")
            assert (got.status, got.body) == (204, b"")
            for one in (news, reading):
                assert await one.next() is None
        assert await old.status(answered(question, "Ann")) == 404
        assert await old.status(None, "DELETE") == 404
        await until(made, "refunded Dune")
    assert made.seen == ["cancelled", "refunded Dune"]
    assert {one.levelname for one in caplog.records} <= {"DEBUG", "INFO"}
    ending = [one for one in caplog.records if "session" in one.message]
    assert [one.levelname for one in ending] == ["DEBUG"]


# ---- coming back --------------------------------------------------------------------


async def test_a_client_that_comes_back_to_its_question() -> None:
    made = desk()
    async with opened(made) as old:
        async with old.stream(tool("order", title="Dune")) as reading:
            primed = (await reading.prime()).id
            question = await reading.message()
        # It is gone; its flow is not.
        async with old.news(primed) as reading:
            assert (await reading.prime()).id == primed
            assert await reading.message() == question
            after = reading.last
        assert await old.status(answered(question, "Ann")) == 202
        async with old.news(after) as reading:
            assert (await reading.prime()).id == after
            await old.ask(answered(await reading.message(), 3))
            assert value_of(await reading.message()) == "3 x Dune for Ann"
            assert await reading.next() is None
            last = reading.last
        async with old.news(last) as reading:
            await reading.prime()
            assert await reading.next() is None
        async with old.news(primed) as reading:  # all of it again
            await reading.prime()
            assert len(await reading.rest()) == 3
        assert made.seen == []


async def test_a_client_can_resume_its_own_stream_only() -> None:
    async with opened(desk()) as old:
        other = await shake(old.doors)
        async with old.stream(tool("order", title="Dune")) as reading:
            await reading.prime()
            await reading.message()
            last = reading.last
        for who, id_ in [(other, last), (old, "9-1"), (old, "1-9"), (old, "x")]:
            got = await who.ask(None, "GET", last_event_id=id_)
            assert got.status == 400


async def test_a_second_reader_takes_over() -> None:
    async with opened(desk()) as old:
        async with old.stream(tool("order", title="Dune")) as first:
            primed = await first.prime()
            question = await first.message()
            async with old.news(primed.id) as second:
                assert await first.next() is None
                await second.prime()
                assert await second.message() == question
                await old.ask(answered(question, "Ann"))
                await old.ask(answered(await second.message(), 3))
                assert value_of(await second.message()) == "3 x Dune for Ann"


async def test_a_connection_is_closed_for_the_client_to_reconnect(
    autojump_clock: Any,
) -> None:
    limits = SessionLimits(leave=10, retry=2.5)
    async with opened(desk(), sessions=limits) as old:
        body = tool("count", to=6, pause=4, token="t")
        async with old.stream(body) as reading:
            assert (await reading.prime()).retry == 2500
            began = trio.current_time()
            told = await reading.rest()
            assert trio.current_time() - began == pytest.approx(10, abs=0.1)
            last = reading.last
        while not any("result" in one for one in told):
            await trio.sleep(2.5)
            async with old.news(last) as reading:
                assert (await reading.prime()).retry == 2500
                told += await reading.rest()
                last = reading.last
        *progress, response = told
        assert [one["params"]["progress"] for one in progress] == list(range(1, 7))
        assert value_of(response) == "6"


async def test_connections_of_older_clients_are_kept_open(
    autojump_clock: Any,
) -> None:
    async with opened(desk(), OLDER, sessions=SessionLimits(leave=1)) as old:
        async with old.stream(tool("naps", seconds=50)) as reading:
            (only,) = await reading.rest()
            assert value_of(only) == "awake"


async def test_a_quiet_stream_is_kept_alive(autojump_clock: Any) -> None:
    async with opened(desk(), OLDER, limits=Limits(quiet=10)) as old:
        async with old.stream(tool("naps", seconds=35)) as reading:
            assert value_of(await reading.message()) == "awake"
            assert reading.comments == 4  # the first one at once


async def test_a_client_that_does_not_read_may_come_back(autojump_clock: Any) -> None:
    """The connection is cut off, and no message that it missed is lost."""
    async with opened(desk(), limits=Limits(write=5)) as old:
        slow = old.doors.connect(slow=True)
        await slow.send(old.bytes_of(tool("count", to=50, token="t"), "POST"))
        reading = Reading(slow)
        await slow.head()
        primed = await reading.prime()
        await trio.sleep(20)
        async with old.news(primed.id) as again:
            await again.prime()
            *told, last = await again.rest()
        assert [one["params"]["progress"] for one in told] == list(range(1, 51))
        assert value_of(last) == "50"
        await trio.aclose_forcefully(slow.stream)


# ---- news ---------------------------------------------------------------------------


async def test_news() -> None:
    made = desk()
    changes = made.app.changes
    async with opened(made) as old:
        changes.publish(Change("prompts"))  # before any client reads
        async with old.news() as news:
            first = await news.prime()
            told = await news.message()
            assert told["method"] == "notifications/prompts/list_changed"
            subscribed = message("resources/subscribe", id=1, uri="desk://a")
            assert (await old.ask(subscribed)).json["result"] == {}
            changes.publish(Change("resource", "desk://b"))
            changes.publish(Change("resource", "desk://a"))
            told = await news.message()
            assert told["method"] == "notifications/resources/updated"
            assert told["params"] == {"uri": "desk://a"}
        changes.publish(Change("tools"))  # while no client reads
        changes.publish(Change("tools"))
        async with old.news(news.last) as news:
            await news.prime()
            told = await news.message()
            assert told["method"] == "notifications/tools/list_changed"
        async with old.news(first.id) as news:
            await news.prime()
            assert [(await news.message())["method"][-7:] for _ in range(3)] == [
                *["changed", "updated", "changed"]
            ]


async def test_news_continues_where_it_is_read_last() -> None:
    made = desk()
    async with opened(made) as old, old.news() as first:
        await first.prime()
        async with old.news() as second:
            await second.prime()
            assert await first.next() is None
            made.app.changes.publish(Change("tools"))
            await second.message()


async def test_news_is_for_each_session() -> None:
    made = desk()
    async with opened(made) as old:
        other = await shake(old.doors)
        await old.ask(message("resources/subscribe", id=1, uri="desk://a"))
        async with old.news() as mine, other.news() as theirs:
            await mine.prime()
            await theirs.prime()
            made.app.changes.publish(Change("resource", "desk://a"))
            made.app.changes.publish(Change("tools"))
            assert "uri" in (await mine.message())["params"]
            await mine.message()
            assert (await theirs.message())["method"].endswith("list_changed")


async def test_a_get_that_reads_no_events() -> None:
    async with opened(desk()) as old:
        assert await old.status(None, "GET", accept="application/json") == 406
        async with old.stream(None, "GET", accept="text/event-stream") as news:
            await news.prime()


# ---- how long sessions last ---------------------------------------------------------


async def test_a_session_ends_when_it_was_quiet_for_long(autojump_clock: Any) -> None:
    """The client leaves in the middle of a question, and no other request comes."""
    made = desk()
    async with opened(made, sessions=SessionLimits(idle=60)) as old:
        async with old.stream(tool("order", title="Dune")) as reading:
            await reading.prime()
            await reading.message()
            await trio.sleep(100)  # it thinks, and is there
            assert made.seen == []
        began = trio.current_time()
        await until(made, "refunded Dune")
        assert trio.current_time() - began == pytest.approx(60, abs=0.1)
        assert await old.status(message("ping", id=1)) == 404


async def test_too_many_handshakes_end_quiet_sessions() -> None:
    made = desk()
    async with opened(made, sessions=SessionLimits(sessions=3, resume=0)) as old:
        async with old.stream(tool("order", title="Dune")) as reading:
            await reading.prime()
            question = await reading.message()
            quiet = await shake(old.doors)
            for _ in range(4):
                await shake(old.doors)
            assert await quiet.status(message("ping", id=1)) == 404
            await old.ask(answered(question, "Ann"))
            await old.ask(answered(await reading.message(), 3))
            assert value_of(await reading.message()) == "3 x Dune for Ann"


# ---- the end ------------------------------------------------------------------------


@asynccontextmanager
async def stopping(made: Desk, **limits: Any) -> AsyncIterator[tuple[Old, trio.Event]]:
    """At the end of the block the server has ended by itself."""
    shutdown, doors = trio.Event(), Doors()
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(
                http.serve,
                made.app,
                listeners=[doors],
                shutdown=shutdown,
                limits=Limits(**limits),
            )
        )
        yield await shake(doors), shutdown


async def test_the_server_stops_in_the_middle_of_a_question(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = desk(lifespan=bank)
    async with stopping(made) as (old, shutdown), old.news() as news:
        await news.prime()
        async with old.stream(tool("banks")) as reading:
            await reading.prime()
            await reading.message()
            async with old.stream(tool("slow", seconds=5, id=2)) as abandoned:
                await abandoned.prime()
                await abandoned.message()
            shutdown.set()
            assert await reading.next() is None
            assert await news.next() is None
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(5, abs=0.1)
    assert sorted(made.seen) == ["receipt for back", "refunded late", "refunding"]
    assert not caplog.records


async def test_a_cleanup_that_takes_longer_than_the_grace(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = desk()
    async with stopping(made, grace=3) as (old, shutdown):
        async with old.stream(tool("slow", seconds=100)) as reading:
            await reading.prime()
            await reading.message()
        began = trio.current_time()
        shutdown.set()
    assert trio.current_time() - began == pytest.approx(3, abs=0.1)
    assert made.seen == ["refunding"]
    (record,) = caplog.records
    assert record.getMessage() == "what still ran after 3 s was cut off"


async def test_nothing_of_a_handshake_is_left_at_the_end() -> None:
    made = desk()
    async with opened(made):
        assert made.app.changes._listeners != {}
    made = desk()
    async with stopping(made) as (_, shutdown):
        shutdown.set()
    assert made.app.changes._listeners == {}


async def test_initialize_declares_what_can_be_asked() -> None:
    async with serving(desk().app) as doors:
        old = await shake(doors, hello=hello(NEWEST, {}))
        got = await old.ask(tool("order", title="x"))
        assert got.json["result"]["isError"]
