"""Legacy servers over HTTP: sessions, and streams that break off."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import ProtocolError, UsageError
from effectmcp.client import ChannelError, Client, OverHttp, http
from effectmcp.client import events as event_module
from effectmcp.client.channels import SessionEnded
from effectmcp.client.events import StreamEvent, events

from ..helpers import finish
from .misbehaving_servers import JSON_TYPE, SSE_TYPE, Asked, event, http_server
from .ways import PATIENCE, on_both

DONE = {"content": [{"type": "text", "text": "done"}]}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}

Does = Callable[[Asked], Awaitable[None]]


class Old:
    """A legacy server, with responses that a test defines.

    Args:
        call: What it does with a call.
        get: What it does with a GET; by default it has no stream of its own.
        session: What it calls its sessions.
    """

    def __init__(self, call: Does, get: Does | None = None, session: Any = "s") -> None:
        self.call = call
        self.get = get
        self.session = session
        self.seen: list[Asked] = []
        self.told: list[Mapping[str, Any]] = []

    async def __call__(self, asked: Asked) -> None:
        self.seen.append(asked)
        method = asked.message.get("method")
        if asked.http_method == "GET" and self.get is not None:
            await self.get(asked)
        elif asked.http_method != "POST":
            await asked.write(b"", "text/plain", 405)
        elif method == "initialize":
            more = [] if self.session is None else [f"Mcp-Session-Id: {self.session}"]
            body = json.dumps(asked.response(result=WELCOME)).encode()
            await asked.write(body, JSON_TYPE, 200, *more)
        elif "id" not in asked.message or method is None:
            self.told.append(asked.message)
            await asked.write(b"", "text/plain", 202)
        else:
            await self.call(asked)

    @property
    def methods(self) -> list[str]:
        """The messages received, in order, by their methods."""
        return [one.message.get("method", one.http_method) for one in self.seen]


async def finishes(asked: Asked) -> None:
    await asked.write(json.dumps(asked.response(result=DONE)).encode())


def old_client(url: str, **options: Any) -> Client:
    return Client(OverHttp(url), **{"version": "2025-11-25", **options})


# ---- sessions -----------------------------------------------------------------------


@on_both
async def test_a_session_is_named_until_its_end() -> None:
    server = Old(finishes)
    async with http_server(server) as url, old_client(url) as client:
        assert (await client.get_prompt("note")).text == "done"
    assert server.methods == [
        "initialize",
        "notifications/initialized",
        "GET",
        "prompts/get",
        "DELETE",
    ]
    first, *others = server.seen
    assert not {"mcp-session-id", "mcp-protocol-version"} & {*first.headers}
    for one in others:
        assert one.headers["mcp-session-id"] == "s"
        assert one.headers["mcp-protocol-version"] == "2025-11-25"
    assert server.seen[2].headers["accept"] == "text/event-stream"


async def test_a_server_without_sessions() -> None:
    server = Old(finishes, session=None)
    async with http_server(server) as url, old_client(url) as client:
        assert (await client.get_prompt("note")).text == "done"
    assert "DELETE" not in server.methods
    assert not any("mcp-session-id" in one.headers for one in server.seen)


@pytest.mark.parametrize("name", ["\u00e9", "a\tb"])
async def test_a_session_that_no_header_can_name(name: str) -> None:
    async with http_server(Old(finishes, session=name)) as url:
        with pytest.raises(ChannelError, match="no header can carry"):
            async with old_client(url):
                raise AssertionError("not reached")


@on_both
async def test_a_session_that_ended_is_replaced() -> None:
    """Once, for all calls that it ends; each is repeated under an id of its own."""

    async def call(asked: Asked) -> None:
        if asked.headers["mcp-session-id"] == "s":
            server.session = "t"
            await asked.write(b"", "text/plain", 404)
        else:
            await finishes(asked)

    server = Old(call)
    async with http_server(server) as url, old_client(url) as client:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(client.get_prompt, "note")
    assert server.methods.count("initialize") == 2
    assert server.seen[-1].headers["mcp-session-id"] == "t"
    ids = [one.message["id"] for one in server.seen if "id" in one.message]
    assert len({*ids}) == len(ids)


async def test_a_session_that_always_ends() -> None:
    """Servers behind one address may not know each other's sessions."""

    async def call(asked: Asked) -> None:
        await asked.write(b"", "text/plain", 404)

    server = Old(call)
    async with http_server(server) as url, old_client(url) as client:
        with pytest.raises(SessionEnded):
            await client.get_prompt("note")
    assert server.methods.count("prompts/get") == 2


# ---- streams that break off ---------------------------------------------------------


def resuming(
    *parts: bytes, first: bytes = b"id: a\nretry: 0\ndata:\n\n", is_torn: bool = False
) -> tuple[Old, list[str]]:
    """A server that tells the rest of a call in these parts, each to a GET of its own."""
    left = [*parts]
    places: list[str] = []
    calls: list[Asked] = []

    async def write(asked: Asked, part: bytes) -> None:
        if calls:
            part = part.replace(b"ID", str(calls[0].message["id"]).encode())
        if not is_torn:
            await asked.write(part, SSE_TYPE)
            return
        head = b"HTTP/1.1 200 -\r\nContent-Type: text/event-stream\r\n"
        size = b"%x\r\n" % len(part)
        chunked = b"Transfer-Encoding: chunked\r\n\r\n" + size
        await asked.stream.send(head + chunked + part + b"\r\n")

    async def call(asked: Asked) -> None:
        calls.append(asked)
        await write(asked, first)

    async def get(asked: Asked) -> None:
        if "last-event-id" not in asked.headers:
            await asked.write(b"", "text/plain", 405)
            return
        places.append(asked.headers["last-event-id"])
        await write(asked, left.pop(0))

    return Old(call, get), places


LAST = (
    b'data: {"id": ID, "result": {"content": [{"type": "text", "text": "done"}]}}\n\n'
)


@pytest.mark.parametrize("is_torn", [False, True])
async def test_a_stream_is_resumed(is_torn: bool) -> None:
    """As often as it breaks off, and from where it did."""
    heard: list[Any] = []
    params = b'{"progressToken": ID, "progress": 1}'
    progress = b'data: {"method": "notifications/progress", "params": %b}\n\n' % params
    parts = (b"id: b\n" + progress, b": nothing\n\n", b"id: c\n" + LAST)
    server, places = resuming(*parts, is_torn=is_torn)
    async with http_server(server) as url, old_client(url) as client:
        found = await client.get_prompt("note", on_progress=heard.append)
        assert found.text == "done"
    assert places == ["a", "b", "b"]
    assert len(heard) == 1
    again = [one for one in server.seen if "last-event-id" in one.headers]
    assert {one.headers["mcp-session-id"] for one in again} == {"s"}
    assert {one.headers["mcp-protocol-version"] for one in again} == {"2025-11-25"}
    assert server.methods.count("prompts/get") == 1


@on_both
async def test_the_client_waits_as_long_as_the_server_declares() -> None:
    server, _ = resuming(LAST, first=b"id: a\nretry: 300\ndata:\n\n")
    async with http_server(server) as url, old_client(url) as client:
        began = anyio.current_time()
        await client.get_prompt("note")
        assert 0.3 <= anyio.current_time() - began < 1


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [
        (b"0", 0.05),
        (b"2000", 2),
        (b"60000", 60),
        (b"99999999999999999999999999", 60),
        (b"9" * 10_000, 60),
        (b"-5", 1),
        (b"1.5", 1),
        (b"soon", 1),
        (b"", 1),
        ("\u0665".encode(), 1),
    ],
)
async def test_how_long_it_is_waited(
    retry: bytes, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    server, _ = resuming(LAST, first=b"id: a\nretry: %b\ndata:\n\n" % retry)
    async with http_server(server) as url, old_client(url) as client:
        await client.get_prompt("note")
    assert slept == [seconds]


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (b"id: a\nid: b", "b"),
        (b"id:a b", "a b"),
        (b"id: a\nid: \xc3\xa9", "a"),
        (b"id: a\nid: \x00b", "a"),
        (b"id: " + b"x" * 5_000, "x" * 5_000),
        (b"id: a\nid: b\x7f", "a"),
    ],
)
async def test_the_id_by_which_a_stream_is_resumed(line: bytes, place: str) -> None:
    server, places = resuming(LAST, first=line + b"\nretry: 0\ndata:\n\n")
    async with http_server(server) as url, old_client(url) as client:
        assert (await client.get_prompt("note")).text == "done"
    assert places == [place]


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize(
    "first",
    [b"data:\n\n", b": x\n\n", b"id:\ndata:\n\n", b"id: a\ndata:\n\nid:\ndata:\n\n"],
)
async def test_a_stream_that_cannot_be_resumed(first: bytes, is_torn: bool) -> None:
    """An empty id takes the place back (HTML, Server-sent events)."""
    server, places = resuming(first=first, is_torn=is_torn)
    async with http_server(server) as url, old_client(url) as client:
        with pytest.raises(ChannelError):
            await client.get_prompt("note")
    assert not places


@pytest.mark.parametrize("status", [400, 404, 405, 500])
async def test_a_stream_that_is_not_there_any_more(status: int) -> None:
    """The call may have started: it is not repeated, even if the session has ended."""
    server, _ = resuming()

    async def get_later(asked: Asked) -> None:
        is_first = "last-event-id" not in asked.headers
        await asked.write(b"", "text/plain", 405 if is_first else status)

    server.get = get_later
    async with http_server(server) as url, old_client(url) as client:
        with pytest.raises(ChannelError, match=f"status {status}") as raised:
            await client.get_prompt("note")
    assert not isinstance(raised.value, SessionEnded)
    assert server.methods.count("prompts/get") == 1


async def test_a_stream_of_2026_07_28_is_not_resumed() -> None:
    server, places = resuming()
    async with http_server(server) as url:
        async with Client(OverHttp(url), version="2026-07-28") as client:
            with pytest.raises(ChannelError, match="ended before its response"):
                await client.get_prompt("note")
    assert server.methods == ["prompts/get"]
    assert not places


LINES = st.sampled_from([b"id", b"retry", b"data", b"event", b"x"])


@given(st.lists(st.tuples(LINES, st.binary(max_size=12)), max_size=8))
def test_any_places_and_pauses(lines: list[tuple[bytes, bytes]]) -> None:
    """The ids can be sent, and the pauses can be waited for."""
    text = b"\n".join(name + b": " + value for name, value in lines) + b"\n\n"

    async def collect() -> list[StreamEvent]:
        async def source() -> Any:
            yield text

        return [one async for one in events(source())]

    for one in finish(collect()):
        assert one.id is None or (one.id.isascii() and one.id.isprintable())
        assert one.retry is None or 0 <= one.retry < 10**6


# ---- a stream of its own ------------------------------------------------------------


@on_both
async def test_questions_on_the_servers_own_stream() -> None:
    """The stream is opened before the first call, and resumed when it ends."""
    is_open, is_answered = anyio.Event(), anyio.Event()
    places: list[Any] = []

    async def get(asked: Asked) -> None:
        places.append(asked.headers.get("last-event-id"))
        question = {"jsonrpc": "2.0", "id": len(places), "method": "ping"}
        part = b"id: %d\nretry: 0\n" % len(places) + event(question)
        await asked.write(part, SSE_TYPE)
        is_open.set()
        if len(places) == 3:
            is_answered.set()
            await anyio.sleep_forever()

    async def call(asked: Asked) -> None:
        assert is_open.is_set()
        await is_answered.wait()
        await finishes(asked)

    server = Old(call, get)
    async with http_server(server) as url, old_client(url) as client:
        assert (await client.get_prompt("note")).text == "done"
        while len([one for one in server.told if "result" in one]) < 3:
            await anyio.lowlevel.checkpoint()
    assert places == [None, "1", "2"]
    assert [one["id"] for one in server.told if "result" in one] == [1, 2, 3]


@on_both
async def test_a_server_that_hangs_up_on_its_own_stream() -> None:
    """Calls are made all the same, also if the server does not respond at all."""

    async def hang_up(asked: Asked) -> None: ...

    async def silent(asked: Asked) -> None:
        await anyio.sleep_forever()

    async def nonsense(asked: Asked) -> None:
        await asked.write(b"data: []\n\n", SSE_TYPE)

    for get in (hang_up, silent, nonsense):
        async with http_server(Old(finishes, get)) as url, old_client(url) as client:
            assert (await client.get_prompt("note")).text == "done"


# ---- questions ----------------------------------------------------------------------


FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_question_over_http(is_own: bool) -> None:
    """On the call's stream or the server's own; later questions are not answered."""
    is_answered, is_asked = anyio.Event(), anyio.Event()
    question = event({"id": "q", "method": "elicitation/create", "params": FORM})

    async def get(asked: Asked) -> None:
        await asked.write(b": hello\n\n", SSE_TYPE)
        await is_asked.wait()
        await asked.stream.send(question)
        await anyio.sleep_forever()

    async def call(asked: Asked) -> None:
        await asked.write(question if is_own else b"", SSE_TYPE)
        if not is_own:
            is_asked.set()
        while not any(one.get("id") == "q" for one in server.told):
            await anyio.lowlevel.checkpoint()
        is_answered.set()
        last = event(asked.response(result=DONE))
        await asked.stream.send(last + event(asked.response(result={})) + question)

    server = Old(call, get)
    async with http_server(server) as url:
        async with old_client(url, elicit=lambda form: {}) as client:
            result = await client.get_prompt("note")
    assert (result.text, result.rounds) == ("done", 2)
    (reply,) = [one for one in server.told if one.get("id") == "q"]
    assert reply["result"] == {"action": "accept", "content": {}}


@on_both
async def test_an_abandoned_call_is_reported_to_the_server() -> None:
    """While it runs, in the middle of a question, and when the client closes."""
    question = event({"id": "q", "method": "elicitation/create", "params": FORM})

    async def call(asked: Asked) -> None:
        await asked.write(question, SSE_TYPE)
        await anyio.sleep_forever()

    def elicit(form: Any) -> Any:
        raise LookupError("nobody")

    server = Old(call)

    def cancelled() -> list[Any]:
        told = [one for one in server.told if "cancelled" in str(one.get("method"))]
        return [one["params"]["requestId"] for one in told]

    async with http_server(server) as url:
        async with old_client(url, elicit=elicit) as client:
            with pytest.raises(LookupError):
                await client.get_prompt("note")
            while len(cancelled()) < 1:
                await anyio.lowlevel.checkpoint()
            with anyio.move_on_after(0.1):
                await client.request("prompts/get", {"name": "note"})
                await anyio.sleep_forever()
            await client.start("prompts/get", {"name": "note"}).round()
        assert len(cancelled()) == 3
    calls = [one.message for one in server.seen if "params" in one.message]
    ids = [one["id"] for one in calls if one.get("method") == "prompts/get"]
    assert sorted(cancelled()) == ids


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"data: []\n\n", "other than a message"),
        (b"data: 5\n\n", "other than a message"),
        (b'data: {"id": 99, "result": {}}\n\n', "another request"),
        (b'data: {"id": [1], "result": {}}\n\n', "another request"),
        (b"data: " + b"x" * 200_000 + b"\n\n", "more than 100,000 bytes"),
    ],
)
async def test_streams_that_make_no_sense(
    body: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_LONGEST", 100_000)
    monkeypatch.setattr(event_module, "_LONGEST", 100_000)

    async def call(asked: Asked) -> None:
        await asked.write(body, SSE_TYPE)

    async with http_server(Old(call)) as url, old_client(url) as client:
        with pytest.raises(Exception, match=words):
            await client.get_prompt("note")
        with anyio.fail_after(PATIENCE), pytest.raises(UsageError):
            await client.request("prompts/get", {"name": float("nan")})


async def test_an_answer_that_the_server_does_not_take() -> None:
    question = event({"id": "q", "method": "elicitation/create", "params": FORM})

    class Strict(Old):
        async def __call__(self, asked: Asked) -> None:
            if "result" in asked.message:
                await asked.write(b"", "text/plain", 400)
            else:
                await super().__call__(asked)

    async def call(asked: Asked) -> None:
        await asked.write(question, SSE_TYPE)
        await anyio.sleep_forever()

    async with http_server(Strict(call)) as url:
        async with old_client(url, elicit=lambda form: {}) as client:
            with pytest.raises(ChannelError, match="status 400"):
                await client.get_prompt("note")


async def test_an_error_of_an_old_server_is_one() -> None:
    async def call(asked: Asked) -> None:
        error = {"code": -32000, "message": "not today"}
        body = {"jsonrpc": "2.0", "id": None, "error": error}
        await asked.write(json.dumps(body).encode(), JSON_TYPE, 400)

    server = Old(call)
    async with http_server(server) as url, old_client(url) as client:
        with pytest.raises(ProtocolError, match="not today"):
            await client.get_prompt("note")
    assert server.methods.count("initialize") == 1
