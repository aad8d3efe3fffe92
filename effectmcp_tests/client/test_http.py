"""Event streams in any pieces, and all kinds of responses of an HTTP server."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import EffectMCPError, ProtocolError, UsageError
from effectmcp.client import ChannelError, Client, OverHttp, ReplyError, http
from effectmcp.client import events as event_module
from effectmcp.client.events import events

from ..helpers import finish
from .misbehaving_servers import JSON_TYPE, SSE_TYPE, Answer, Asked, event, http_server
from .ways import PATIENCE, Loop, on_both

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


# ---- event streams ------------------------------------------------------------------


def read(parts: list[bytes]) -> list[str]:
    """The data of the events in these bytes."""

    async def collect() -> list[str]:
        async def source() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        return [one.data async for one in events(source()) if one.data]

    found: list[str] = finish(collect())
    return found


LINES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12
)
EVENTS = st.lists(st.lists(LINES, min_size=1, max_size=3), max_size=4)
NOISE = st.sampled_from(
    [":", ": ping", "event: message", "id: 1", "retry: 5", "x", ":data: x"]
)


@st.composite
def streams(draw: st.DrawFn, ends: list[str]) -> tuple[list[bytes], list[str]]:
    """A stream in pieces, and the data in it."""
    end = draw(st.sampled_from(ends))
    wanted = draw(EVENTS)
    lines: list[str] = []
    for data in wanted:
        lines += draw(st.lists(NOISE | st.just(""), max_size=2))
        for line in data:
            lines += draw(st.lists(NOISE, max_size=1))
            # One space after the colon is not of the data; a second one is.
            has_space = line.startswith(" ") or draw(st.booleans())
            lines.append(f"data:{' ' if has_space else ''}{line}")
        lines.append("")
    whole = end.join([*lines, ""]).encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    places = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in zip(places, places[1:], strict=False)]
    return pieces, ["\n".join(data) for data in wanted if any(data)]


@given(streams(["\n", "\r\n"]))
def test_events_in_any_pieces(stream: tuple[list[bytes], list[str]]) -> None:
    """Cut anywhere: through the end of a line, through a character."""
    pieces, wanted = stream
    assert read(pieces) == wanted


@given(streams(["\r"]))
def test_events_whose_lines_end_with_a_return(
    stream: tuple[list[bytes], list[str]],
) -> None:
    """Which the format allows, too."""
    pieces, wanted = stream
    assert read(pieces) == wanted


@pytest.mark.parametrize(
    ("stream", "wanted"),
    [
        (b"", []),
        (b"data: a\n\n", ["a"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"data: a\ndata:\ndata: b\n\n", ["a\n\nb"]),
        (b"data: a\ndata\ndata: b\n\n", ["a\n\nb"]),
        (b"data:\n\n", []),
        (b"data: \n\ndata: a\n\n", ["a"]),
        (b"event: x\nid: 1\n\n", []),
        (b": ping\n\n: ping\n\ndata: a\n\n", ["a"]),
        (b"dataset: a\n\n", []),
        (b"data: cut off\n", []),
        (b"data: cut off", []),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data: a\r\ndata: b\n\r\n", ["a\nb"]),
    ],
)
def test_events_of_a_stream(stream: bytes, wanted: list[str]) -> None:
    assert read([stream]) == wanted
    assert read([stream[n : n + 1] for n in range(len(stream))]) == wanted


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_events_of_any_bytes(parts: list[bytes]) -> None:
    assert read(parts) == read([b"".join(parts)])


def test_the_length_of_an_event_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_module, "_LONGEST", 100)
    assert read([b"data: " + b"x" * 80 + b"\n\n"] * 5) == ["x" * 80] * 5
    with pytest.raises(ChannelError, match="more than 100 bytes"):
        read([b"data: " + b"x" * 30] * 4)
    # Nor in lines.
    with pytest.raises(ChannelError, match="more than 100 bytes"):
        read([b"data: x\n"] * 100_000)


def test_a_long_event_takes_no_longer_than_it_is_long() -> None:
    """The time is not the square of that: here it comes in thousands of pieces."""
    began = time.process_time()
    (text,) = read([b"data: ", *[b"x" * 1_000] * 4_000, b"\n\n"])
    assert len(text) == 4_000_000
    assert time.process_time() - began < 0.8


# ---- answers ------------------------------------------------------------------------


def test_answers(loop: Loop) -> None:
    """As they should be: one body, or a stream that ends with the response."""

    async def body(asked: Asked) -> None:
        await asked.write(json.dumps(asked.response(result=DONE)).encode())

    async def stream(asked: Asked) -> None:
        told = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progress": 1},
        }
        parts = [b": ping\r\n\r\n", event(told), event(asked.response(result=DONE))]
        await asked.write(b"".join(parts), f"{SSE_TYPE}; charset=utf-8")

    async def after_the_response(asked: Asked) -> None:
        last = event(asked.response(result=DONE))
        await asked.write(
            last + event(asked.response(result={})) + b"nonsense", SSE_TYPE
        )

    async def left_open(asked: Asked) -> None:
        await asked.write(event(asked.response(result=DONE)), SSE_TYPE)
        await anyio.sleep_forever()

    for answer in (body, stream, after_the_response, left_open):
        assert outcome(loop, answer) == "done"


def test_requests(loop: Loop) -> None:
    """A call over HTTP sends these headers."""
    seen: list[Asked] = []

    async def answer(asked: Asked) -> None:
        seen.append(asked)
        await asked.write(json.dumps(asked.response(result=DONE)).encode())

    assert outcome(loop, answer, headers={"Authorization": "Bearer x"}) == "done"
    (asked,) = seen
    assert asked.message["method"] == "prompts/get"
    for name, value in {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "prompts/get",
        "mcp-name": "note",
        "authorization": "Bearer x",
    }.items():
        assert asked.headers[name] == value


def outcome(loop: Loop, answer: Answer, **options: Any) -> Any:
    """Return the text of the result that `answer` sends, or the error."""

    async def main() -> Any:
        with anyio.fail_after(PATIENCE):
            async with (
                http_server(answer) as url,
                Client(OverHttp(url, **options)) as client,
            ):
                try:
                    return (await client.get_prompt("note")).text
                except EffectMCPError as exc:
                    return exc

    return anyio.run(main, backend=loop)


@pytest.mark.parametrize(
    ("status", "type_", "body", "error", "words"),
    [
        (200, "text/html", b"<p>Hello", ChannelError, "status 200 and no message"),
        (200, "text/plain", b"{}", ChannelError, "status 200 and no message"),
        (200, JSON_TYPE, b"", ChannelError, "no message"),
        (200, JSON_TYPE, b"{", ChannelError, "no message"),
        (200, JSON_TYPE, b"[]", ChannelError, "no message"),
        (200, JSON_TYPE, b"{}", ChannelError, "no message"),
        (200, JSON_TYPE, b"[" * 200_000, ChannelError, "no message"),
        (200, JSON_TYPE, b'{"result": ' + b"[" * 200_000, ChannelError, "no message"),
        (200, JSON_TYPE, b"\xff\xfe", ChannelError, "no message"),
        (200, JSON_TYPE, b'{"id": 5, "result": {}}', ReplyError, "another request"),
        (200, JSON_TYPE, b'{"id": [], "result": {}}', ReplyError, "another request"),
        (
            200,
            JSON_TYPE,
            b'{"id": 1, "result": 5}',
            ReplyError,
            "a result is an object",
        ),
        (200, JSON_TYPE, b'{"id": 1, "error": 5}', ReplyError, "neither a result nor"),
        (202, JSON_TYPE, b"", ChannelError, "status 202|no message"),
        (204, JSON_TYPE, b"", ChannelError, "status 204|no message"),
        (301, "text/html", b"", ChannelError, "status 301"),
        (307, "text/html", b"", ChannelError, "status 307"),
        (400, JSON_TYPE, b'{"detail": "no"}', ChannelError, "status 400"),
        (401, "text/plain", b"who?", ChannelError, "status 401"),
        (404, "text/html", b"<p>Not here", ChannelError, "status 404"),
        (500, "text/plain", b"oops", ChannelError, "status 500"),
        (502, JSON_TYPE, b"<html>", ChannelError, "status 502"),
        (503, SSE_TYPE, b"data: {}\n\n", ChannelError, "status 503"),
        (200, SSE_TYPE, b"", ChannelError, "ended before its response"),
        (200, SSE_TYPE, b": ping\n\n", ChannelError, "ended before its response"),
        (200, SSE_TYPE, b"data: {", ChannelError, "ended before its response"),
        (200, SSE_TYPE, b"data: {\n\n", ChannelError, "other than a message"),
        (200, SSE_TYPE, b"data: []\n\n", ChannelError, "other than a message"),
        (200, SSE_TYPE, b"data: {}\n\n", ReplyError, "neither a result nor an error"),
        (200, SSE_TYPE, b'data: {"id": 9, "result": {}}\n\n', ReplyError, "another"),
    ],
)
def test_invalid_answers(
    loop: Loop, status: int, type_: str, body: bytes, error: type[Exception], words: str
) -> None:
    async def answer(asked: Asked) -> None:
        await asked.write(body, type_, status)

    found = outcome(loop, answer)
    assert isinstance(found, error)
    assert any(one in str(found) for one in words.split("|"))


def test_an_error_in_an_event_and_in_a_body(loop: Loop) -> None:
    error = {"code": -32603, "message": "Internal error"}

    async def in_event(asked: Asked) -> None:
        await asked.write(event(asked.response(error=error)), SSE_TYPE)

    async def in_body(asked: Asked) -> None:
        body = json.dumps(asked.response(error=error)).encode()
        await asked.write(body, JSON_TYPE, 500)

    for answer in (in_event, in_body):
        found = outcome(loop, answer)
        assert isinstance(found, ProtocolError)
        assert found.code == -32603


def test_a_challenge_is_reported(loop: Loop) -> None:
    async def answer(asked: Asked) -> None:
        header = 'WWW-Authenticate: Bearer realm="x", error="invalid_token"'
        await asked.write(b"", "text/plain", 401, header)

    assert "status 401" in str(outcome(loop, answer))
    assert "requires a login (status 401, Bearer)" in str(outcome(loop, answer))


def test_a_redirect_is_not_followed(loop: Loop) -> None:
    """The request and its credentials are for the one address that was given."""
    seen: list[Asked] = []

    async def answer(asked: Asked) -> None:
        seen.append(asked)
        await asked.write(b"", "text/plain", 307, "Location: /elsewhere")

    assert "status 307" in str(outcome(loop, answer))
    assert len(seen) == 1


def test_a_server_that_hangs_up(loop: Loop) -> None:
    async def at_once(asked: Asked) -> None: ...

    async def in_the_head(asked: Asked) -> None:
        await asked.stream.send(b"HTTP/1.1 200 OK\r\nContent-")

    async def in_the_body(asked: Asked) -> None:
        await asked.stream.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: 50\r\n\r\n{"
        )

    async def in_a_chunk(asked: Asked) -> None:
        await asked.stream.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n40\r\ndata: "
        )

    async def no_http(asked: Asked) -> None:
        await asked.stream.send(b"hello\r\n\r\n")

    for answer in (at_once, in_the_head, in_the_body, in_a_chunk, no_http):
        assert "cannot be reached" in str(outcome(loop, answer))


async def no_answer(asked: Asked) -> None: ...


@on_both
async def test_a_server_that_is_not_there() -> None:
    async with http_server(no_answer) as url:
        pass
    async with Client(OverHttp(url)) as client:
        with pytest.raises(ChannelError, match="cannot be reached"):
            await client.discover()


@pytest.mark.parametrize(
    "url",
    [
        *("", "nowhere", "ftp://127.0.0.1/", "http://[", "http://a b/", "http://"),
        "http://\udcff/",
    ],
)
def test_an_invalid_url(loop: Loop, url: str) -> None:
    async def main() -> None:
        async with Client(OverHttp(url)) as client:
            await client.discover()

    with pytest.raises(EffectMCPError):
        anyio.run(main, backend=loop)


def test_a_server_that_never_answers(loop: Loop) -> None:
    """Before the head, in the body, between two events: the timeout is reported."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nConnection: close\r\n\r\n"
    for sent in (
        b"",
        head % b"application/json" + b'{"id"',
        head % b"text/event-stream" + b": ping\n\n",
    ):
        anyio.run(never_answers, sent, backend=loop)


async def never_answers(sent: bytes) -> None:
    is_closed = anyio.Event()

    async def answer(asked: Asked) -> None:
        if sent:
            await asked.stream.send(sent)
        try:
            await asked.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            is_closed.set()

    with anyio.fail_after(PATIENCE):
        async with (
            http_server(answer) as url,
            Client(OverHttp(url), round_timeout=0.1) as client,
        ):
            with pytest.raises(TimeoutError):
                await client.discover()
            await is_closed.wait()


def test_the_length_of_a_body_is_limited(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_LONGEST", 100_000)
    monkeypatch.setattr(event_module, "_LONGEST", 100_000)

    def endless(type_: str, part: bytes) -> Answer:
        async def answer(asked: Asked) -> None:
            await asked.write(b"", type_)
            while True:
                await asked.stream.send(part)

        return answer

    for answer in (
        endless(JSON_TYPE, b"x" * 9_999),
        endless("text/plain", b"x" * 9_999),
        endless(SSE_TYPE, b"data: " + b"x" * 9_999),
    ):
        assert "more than 100,000 bytes" in str(outcome(loop, answer))


@on_both
async def test_a_channel_is_closed_once() -> None:
    async def answer(asked: Asked) -> None:
        await asked.write(json.dumps(asked.response(result=DONE)).encode())

    async with http_server(answer) as url:
        channel = OverHttp(url)
        async with Client(channel) as client:
            assert (await client.get_prompt("note")).text == "done"
        with pytest.raises(UsageError, match="give another OverHttp"):
            async with Client(channel):
                raise AssertionError("not reached")


def test_a_server_that_is_elsewhere(loop: Loop) -> None:
    async def answer(asked: Asked) -> None:
        await asked.write(b"", "text/plain", 307, "Location: http://127.0.0.1/mcp/")

    found = outcome(loop, answer)
    assert "status 307" in str(found)
    assert "the server is at 'http://127.0.0.1/mcp/'" in str(found)


@on_both
async def test_an_external_http_client_outlives_the_channel() -> None:
    async def answer(asked: Asked) -> None:
        await asked.write(json.dumps(asked.response(result=DONE)).encode())

    async with http_server(answer) as url, httpx2.AsyncClient() as own:
        for _ in range(2):
            async with Client(OverHttp(url, http=own)) as client:
                assert (await client.get_prompt("note")).text == "done"
        assert not own.is_closed
