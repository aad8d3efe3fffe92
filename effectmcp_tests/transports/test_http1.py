"""Two kinds of wire: they read every message that both can read in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import event, given, settings
from hypothesis import strategies as st

from effectmcp import Flow, Progress
from effectmcp.server import Server
from effectmcp.transports import http1
from effectmcp.transports.connection import Shared
from effectmcp.transports.http import Limits
from effectmcp.transports.http1 import ByH11, MalformedHttp, Plain, Wire, open_wire
from effectmcp.transports.web import Site

from .heads import GOOD, head_of, messages
from .shop import call, request
from .wire import post, serving

LIMITS: dict[str, Any] = {"max_head": 65536, "max_headers": 100}
NOW = b"Thu, 19 Nov 2026 10:00:00 GMT"


def plain(data: bytes) -> Plain:
    wire = open_wire(bytearray(data), **LIMITS)
    assert isinstance(wire, Plain)
    return wire


def test_request_of_the_one_shape_is_plain() -> None:
    wire = plain(head_of(*GOOD) + b"[1,")
    asked = wire.head()
    assert asked is not None
    assert asked.target == "/mcp"
    assert wire.invitation() == b""
    assert (wire.part(), wire.part()) == (b"[1,", None)
    wire.receive(b"2]POST")
    assert (wire.part(), wire.part()) == (b"2]", b"")
    assert wire.rest() is None
    assert wire.answer(200, (), b"{}", NOW).endswith(b"\r\n\r\n{}")
    assert not wire.may_answer
    assert wire.rest() == bytearray(b"POST")


def test_long_heads_of_answers_are_not_remembered() -> None:
    before = dict(http1._starts)
    fields = (("Access-Control-Allow-Origin", "https://" + "a" * 600),)
    for _ in range(2):
        wire = plain(head_of(*GOOD) + b"[1,2]")
        assert b"a" * 600 in wire.answer(200, fields, b"{}", NOW)
    assert http1._starts == before


def test_remembered_heads_of_answers_are_few() -> None:
    for number in range(200):
        wire = plain(head_of(*GOOD) + b"[1,2]")
        wire.answer(200, (("A", str(number)),), b"{}", NOW)
    assert len(http1._starts) <= 64


def test_request_of_another_shape_is_for_h11() -> None:
    wire = open_wire(bytearray(b"GET / HTTP/1.1\r\n"), **LIMITS)
    assert isinstance(wire, ByH11)
    assert wire.head() is None
    wire.receive(b"Host: a\r\n\r\nGET")
    asked = wire.head()
    assert asked is not None
    assert asked.method == "GET"
    assert wire.part() == b""
    assert wire.answer(200, (), b"{}", NOW).endswith(b"\r\n\r\n{}")
    assert wire.rest() == bytearray(b"GET")


def test_body_that_is_not_read_leaves_no_place_for_a_next_message() -> None:
    wire = plain(head_of(*GOOD) + b"[1,")
    assert not wire.skip()
    wire.answer(403, (), b"{}", NOW)
    assert wire.rest() is None
    wire = plain(head_of(*GOOD) + b"[1,2]POST")
    assert wire.skip()
    wire.answer(403, (), b"{}", NOW)
    assert wire.rest() == bytearray(b"POST")


def test_body_that_breaks_off() -> None:
    wire = plain(head_of(*GOOD) + b"[1,")
    wire.receive(b"")
    assert wire.part() == b"[1,"
    with pytest.raises(MalformedHttp) as caught:
        wire.part()
    assert caught.value.status == 400


def test_answer_that_cannot_be_written_is_not_tried_again() -> None:
    """Data of a client must not become a second header, or a second response."""
    wire = plain(head_of(*GOOD))
    with pytest.raises(ValueError, match="is no header"):
        wire.answer(200, (("Access-Control-Allow-Origin", "a\r\nB: c"),), b"{}", NOW)
    assert not wire.may_answer
    assert wire.rest() is None


# ---- side by side -------------------------------------------------------------------


def read_by(wire: Wire, pieces: Sequence[bytes]) -> Any:
    """Return everything that a wire reads from the pieces; it has the first already."""
    left = list(pieces[1:])
    try:
        while (request := wire.head()) is None:
            if not left:
                return "no head"
            wire.receive(left.pop(0))
        method, target, headers = request
        # A dict says that no name came twice, and only of the one shape is that known.
        pairs = list(headers.items()) if isinstance(headers, dict) else headers
        asked = method, target, pairs
        invitation = wire.invitation()
        body = b""
        while (part := wire.part()) != b"":
            if part is not None:
                body += part
            elif left:
                wire.receive(left.pop(0))
            else:
                return asked, invitation, body, wire.may_answer
    except MalformedHttp as exc:
        return exc.status, wire.may_answer
    fields = (("Content-Type", "application/json"),)
    if len(body) % 2:
        answer = wire.answer(200, fields, b"{}", NOW)
    else:
        answer = wire.open(200, fields, NOW)
        assert not wire.may_answer
        answer += wire.chunk(b"x" * 17) + wire.end()
    rest = wire.rest()
    return asked, invitation, body, answer, rest if rest is None else bytes(rest), left


@settings(max_examples=400)
@given(
    data=messages(),
    cuts=st.lists(st.integers(60, 400), max_size=3),
    ends=st.booleans(),
)
def test_both_wires_read_and_write_the_same(
    data: bytes, cuts: list[int], ends: bool
) -> None:
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in zip(edges, edges[1:], strict=False) if data[a:b]]
    pieces += [b""] * ends
    chosen = open_wire(bytearray(pieces[0]), **LIMITS)
    event(type(chosen).__name__)
    if isinstance(chosen, Plain):
        h11s = ByH11(bytearray(pieces[0]), **LIMITS)
        assert read_by(chosen, pieces) == read_by(h11s, pieces)


def shop() -> Server:
    app = Server("shop")

    @app.tool
    def count(to: int) -> Flow[int]:
        """Say every number."""
        for n in range(1, to + 1):
            yield from Progress(n, to)
        return to

    @app.tool
    async def echo(text: str) -> str:
        """Say it again, when the loop comes round."""
        await trio.lowlevel.checkpoint()
        return text

    return app


COUNTING: dict[str, Any] = {"name": "count", "arguments": {"to": 2}}
PAGE = {"host": "localhost", "origin": "http://localhost:6274"}
ASKED = [
    post(request("server/discover")),
    post(request("server/discover"), **PAGE),
    post(request("server/discover"), origin="https://evil.example"),
    post(request("server/discover"), connection="close"),
    post(request("server/discover"), http_version="1.0"),
    post(request("server/discover"), expect="100-continue"),
    post(request("tools/call", progress="p", **COUNTING)),
    post(request("tools/call", progress="p", **COUNTING), **PAGE),
    post(call("echo", text="é")),
    post(call("echo", text="x" * 1000)),  # more than may be
    post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}),
    post(b"{"),
    post(request("no/such")).replace(b"/mcp", b"/elsewhere", 1),
    b"HEAD /mcp HTTP/1.1\r\nHost: a\r\n\r\n",
    b"OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
]


async def answers_to(pieces: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return everything that a server sends until it closes the connection."""
    monkeypatch.setattr(Shared, "date", lambda self: NOW)
    site = Site(max_body=900)
    async with serving(shop(), Limits(head=2048), site=site) as doors:
        async with doors.connect() as client:
            try:
                for piece in pieces:
                    await client.send(piece)
                    await trio.testing.wait_all_tasks_blocked()
                assert isinstance(client.stream, trio.StapledStream)
                await client.stream.send_eof()
            except trio.BrokenResourceError:
                pass  # it was shut out
            return await client.rest()


@settings(max_examples=150)
@given(
    asked=st.lists(st.one_of(st.sampled_from(ASKED), messages()), min_size=1),
    cuts=st.lists(st.integers(1, 4000), max_size=5),
    noise=st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=2)), max_size=1),
)
async def test_connection_responds_in_the_same_way_with_h11_alone(
    asked: list[bytes], cuts: list[int], noise: list[tuple[int, bytes]]
) -> None:
    text = bytearray(b"".join(asked))
    for at, some in noise:
        text[at : at + len(some)] = some
    data = bytes(text)
    edges = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in zip(edges, edges[1:], strict=False) if data[a:b]]
    with pytest.MonkeyPatch.context() as patch:
        said = await answers_to(pieces, patch)
        patch.setattr(http1, "read", lambda *args, **options: None)
        assert await answers_to(pieces, patch) == said


async def test_every_request_chooses_its_parser_again() -> None:
    """One request for h11 does not make the connection slow for ever; a head that came
    before is not read at all."""
    kinds: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def noting(*args: Any, **options: Any) -> Wire:
            wire = open_wire(*args, **options)
            kinds.append(type(wire).__name__)
            return wire

        patch.setattr("effectmcp.transports.connection.open_wire", noting)
        async with serving(shop()) as doors:
            client = doors.connect()
            data = post(request("server/discover"))
            await client.ask(request("server/discover"))
            await client.send(data[:50])  # incomplete
            await trio.testing.wait_all_tasks_blocked()
            await client.send(data[50:] + data)  # and a request that was sent ahead
            assert (await client.answer()).status == 200
            assert (await client.answer()).status == 200
            await client.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n" + data)
            assert (await client.answer()).status == 405
            assert (await client.answer()).status == 200
    assert kinds == ["Plain", "ByH11", "ByH11"]
