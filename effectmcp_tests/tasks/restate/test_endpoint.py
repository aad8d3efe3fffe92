"""The endpoint of a worker, called by a client that sends what an engine would not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import trio
from anyio.abc import SocketAttribute

from effectmcp import Flow, Server, step
from effectmcp.drivers import trio as loop
from effectmcp.exchange.ledger import Taken, Use
from effectmcp.tasks.restate import RestateTasks
from effectmcp.tasks.restate.endpoint import manifest, serve
from effectmcp.tasks.restate.kept import Kept
from effectmcp.tasks.restate.uses import keep_request, take_request

from ..rows import new_row
from .modelled_uses import told as told_use
from .test_attempts import ID, told
from .wire import decode, frame, unframe

TYPE = "application/vnd.restate.invocation.v6"
ROW = new_row(ID, tool="job", arguments={}, capabilities={"elicitation": {}})


@step
def make(what: str) -> str:
    return f"a {what}"


def job() -> Flow[str]:
    return (yield from make("cup"))


@asynccontextmanager
async def endpoint() -> AsyncIterator[Callable[[], Any]]:
    """An endpoint; yields what connects to it."""
    tasks = RestateTasks("http://127.0.0.1:1", "http://127.0.0.1:1", name="shop")
    app = Server("shop", tasks=tasks)
    app.tool(name="job", task="required")(job)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    stops: list[Callable[[], None]] = []
    with trio.fail_after(60):
        async with loop.running(app), trio.open_nursery() as nursery:
            work = {"advertise": None, "give": stops.append, "grace": 1.0}

            async def run() -> None:
                await serve(app, tasks, listener, **work)  # type: ignore[arg-type]  # of several types

            nursery.start_soon(run)

            async def connect() -> trio.SocketStream:
                return await trio.open_tcp_stream("127.0.0.1", port)

            yield connect
            stops[0]()


async def everything(stream: trio.SocketStream) -> bytes:
    """Read to the end."""
    found = bytearray()
    try:
        async for data in stream:
            found += data
    except trio.BrokenResourceError:
        pass  # it was closed before all was read
    return bytes(found)


async def asked(connect: Callable[[], Any], head: str, body: bytes = b"") -> bytes:
    """Send a request with a body, or pieces of one; return the response."""
    async with await connect() as stream:
        head += f"\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        await stream.send_all(head.encode() + body)
        return await everything(stream)


async def invoked(
    connect: Callable[[], Any], handler: str, body: bytes, *, service: str = "Task"
) -> bytes:
    head = f"POST /invoke/shop.{service}/{handler} HTTP/1.1\r\ncontent-type: {TYPE}"
    return await asked(connect, head, body)


async def still_works(connect: Callable[[], Any]) -> None:
    found = await asked(connect, "GET /discover HTTP/1.1\r\nconnection: close")
    assert found.endswith(manifest("shop.Task", "shop.Use"))


def frames_in(response: bytes) -> list[Any]:
    """Return the messages of a response whose body comes in chunks."""
    head, _, rest = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert TYPE.encode() in head
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return unframe(body)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1", 404),
        ("POST /discover HTTP/1.1", 404),
        ("GET /invoke/shop.Task/wake HTTP/1.1", 404),
        ("POST /invoke/other.Task/wake HTTP/1.1", 404),
        ("POST /invoke/shop.Task/purge HTTP/1.1", 404),
        ("POST /invoke/shop.Task/take HTTP/1.1", 404),
        ("POST /invoke/shop.Use/wake HTTP/1.1", 404),
        ("POST /invoke/shop.Use/ HTTP/1.1", 404),
        ("POST /invoke/other.Use/take HTTP/1.1", 404),
        ("GET /invoke/shop.Use/take HTTP/1.1", 404),
        ("POST /invoke/shop.Use/take HTTP/1.1", 415),
        ("POST /invoke/shop.Task/wake HTTP/1.1", 415),
        (f"POST /invoke/shop.Task/wake HTTP/1.1\r\ncontent-type: {TYPE}0", 415),
    ],
)
async def test_requests_that_are_refused(head: str, status: int) -> None:
    async with endpoint() as connect:
        found = await asked(connect, f"{head}\r\nconnection: close")
        assert found.startswith(f"HTTP/1.1 {status}".encode())


@pytest.mark.parametrize("data", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
async def test_bytes_that_are_not_http(data: bytes) -> None:
    async with endpoint() as connect:
        async with await connect() as stream:
            await stream.send_all(data)
            await stream.send_eof()
            assert b"200" not in await everything(stream)
        await still_works(connect)


def test_manifest() -> None:
    found = json.loads(manifest("shop.Task", "shop.Use"))
    assert found["protocolMode"] == "BIDI_STREAM"
    services = {one["name"]: one for one in found["services"]}
    assert {
        name: [each["name"] for each in one["handlers"]]
        for name, one in services.items()
    } == {
        "shop.Task": ["create", "post", "wake"],
        "shop.Use": ["take", "keep", "forget"],
    }
    for one in services.values():
        assert one["ty"] == "VIRTUAL_OBJECT"
        assert {each["ty"] for each in one["handlers"]} == {"EXCLUSIVE"}


@pytest.mark.parametrize(
    ("handler", "body"),
    [
        ("wake", frame(0x0400)),
        ("wake", b"\xff" * 8),
        ("create", told("create", b"x")),
        ("post", told("post", b"[[1]]", kept=ROW)),
        ("wake", told("wake", state={b"task": b"x"})),
    ],
)
async def test_task_that_cannot_be_read_is_put_off(handler: str, body: bytes) -> None:
    """A later version may read it. The engine repeats it in a minute."""
    async with endpoint() as connect:
        [error] = frames_in(await invoked(connect, handler, body))
        assert error.kind == 0x0002
        fields = dict(error.fields)
        assert (fields[1], fields[8]) == (500, 60_000)
        await still_works(connect)


async def test_nothing_to_do() -> None:
    async with endpoint() as connect:
        found = frames_in(await invoked(connect, "wake", told("wake")))
        assert [one.kind for one in found] == [0x0401, 0x0003]


async def test_request_that_ends_before_its_turn_begins() -> None:
    async with endpoint() as connect:
        assert await invoked(connect, "wake", told("wake", kept=ROW)[:-1]) == b""
        await still_works(connect)


async def test_task_that_is_damaged_does_not_stop_the_worker() -> None:
    """The row is JSON, and has a string instead of a time."""
    data = Kept(row=ROW).dumps().replace(b'"wake":0.0', b'"wake":"x"')
    async with endpoint() as connect:
        body = told("wake", state={b"task": data})
        assert await invoked(connect, "wake", body) == b""
        await still_works(connect)


class Turn:
    """A turn, as the engine plays it: its request and its response are open."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def begin(self) -> None:
        """Send the request, and read until the save that must be acknowledged."""
        head = (
            f"POST /invoke/shop.Task/wake HTTP/1.1\r\nhost: x\r\ncontent-type: {TYPE}"
        )
        chunked = "transfer-encoding: chunked\r\n\r\n"
        await self.stream.send_all(f"{head}\r\n{chunked}".encode())
        await self.send(told("wake", kept=ROW))
        found = b""
        while b"\x04\x03\x80\x00" not in found:
            found += await self.stream.receive_some()

    async def finish(self) -> bytes:
        """Read until the end of the invocation, and end the request; return all."""
        found = b""
        while frame(0x0003) not in found:
            found += await self.stream.receive_some()
        await self.stream.send_all(b"0\r\n\r\n")
        return found + await everything(self.stream)

    async def send(self, body: bytes) -> None:
        """Send frames."""
        await self.stream.send_all(f"{len(body):x}\r\n".encode() + body + b"\r\n")


async def test_turn_that_saves_and_performs_a_step() -> None:
    async with endpoint() as connect, await connect() as stream:
        turn = Turn(stream)
        await turn.begin()
        # The input is command 0, the mark of the owner is 1, and the save is 2.
        for known in (b"", b"\x08\x01", b"\x08\x02"):
            await turn.send(frame(0x0004, known))
        assert b"a cup" in await turn.finish()


@pytest.mark.parametrize(
    "sent", [b"\xff" * 8, frame(0x0004, b"\x80"), frame(0xFBFF, b"\x0b")]
)
async def test_turn_is_given_up_if_it_cannot_read_on(sent: bytes) -> None:
    """The turn would miss the acknowledgement of its save, and wait."""
    async with endpoint() as connect:
        async with await connect() as stream:
            turn = Turn(stream)
            await turn.begin()
            await turn.send(sent)
            assert b"a cup" not in await everything(stream)
        await still_works(connect)


async def test_signal_with_unreadable_mail_is_left_out() -> None:
    bad = frame(0xFBFF, [(2, 17), (5, b"\x0a\x01x")])
    async with endpoint() as connect, await connect() as stream:
        turn = Turn(stream)
        await turn.begin()
        await turn.send(bad + frame(0x0004, b"\x08\x02"))
        assert b"a cup" in await turn.finish()


# ---- requests that count once -------------------------------------------------------


USE = Use(flow="f1", slots=(("1", 1e9),), request="r", owner=None, by="me")
TAKE = told_use(take_request(USE), {})


async def test_take_is_answered() -> None:
    async with endpoint() as connect:
        found = frames_in(await invoked(connect, "take", TAKE, service="Use"))
        assert [one.kind for one in found] == [0x0403, 0x0403, 0x040E, 0x0401, 0x0003]
        assert dict(decode(found[3].fields[0][1])) == {1: b'{"fence":1}'}
        assert dict(found[2].fields)[1] == b"shop.Use"
        await still_works(connect)


@pytest.mark.parametrize(
    ("handler", "body", "wanted"),
    [
        ("keep", keep_request(Taken("f1", "1", 1), b"x"), b'{"kept":false}'),
        ("forget", b"1.0", b"null"),
    ],
)
async def test_requests_for_an_unknown_flow_are_answered(
    handler: str, body: bytes, wanted: bytes
) -> None:
    async with endpoint() as connect:
        body = told_use(body, {})
        found = frames_in(await invoked(connect, handler, body, service="Use"))
        [output] = [one for one in found if one.kind == 0x0401]
        assert dict(decode(output.fields[0][1])) == {1: wanted}


@pytest.mark.parametrize(
    ("handler", "body"),
    [
        ("take", frame(0x0400)),
        ("take", b"\xff" * 8),
        ("take", told_use(b"x", {})),
        ("keep", told_use(b"{}", {})),
        ("take", told_use(take_request(USE), {b"slots": b"x"})),
    ],
)
async def test_request_that_counts_once_and_cannot_be_read_is_put_off(
    handler: str, body: bytes
) -> None:
    """A later version may read it. The engine repeats it in a minute."""
    async with endpoint() as connect:
        [error] = frames_in(await invoked(connect, handler, body, service="Use"))
        assert error.kind == 0x0002
        fields = dict(error.fields)
        assert (fields[1], fields[8]) == (500, 60_000)
        await still_works(connect)


async def test_request_that_counts_once_and_ends_too_early_is_not_answered() -> None:
    async with endpoint() as connect:
        assert await invoked(connect, "take", TAKE[:-1], service="Use") == b""
        await still_works(connect)


async def test_request_that_counts_once_may_arrive_in_pieces() -> None:
    async with endpoint() as connect, await connect() as stream:
        head = f"POST /invoke/shop.Use/take HTTP/1.1\r\nhost: x\r\ncontent-type: {TYPE}"
        head += f"\r\ncontent-length: {len(TAKE)}\r\n\r\n"
        await stream.send_all(head.encode())
        for at in range(len(TAKE)):
            await stream.send_all(TAKE[at : at + 1])
        assert b'{"fence":1}' in await everything(stream)


async def test_request_that_counts_once_and_takes_too_long_is_not_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with endpoint() as connect, await connect() as stream:
        monkeypatch.setattr("effectmcp.tasks.restate.endpoint._SILENCE", 0.05)
        head = f"POST /invoke/shop.Use/take HTTP/1.1\r\nhost: x\r\ncontent-type: {TYPE}"
        await stream.send_all(f"{head}\r\ncontent-length: 9\r\n\r\n".encode())
        assert await everything(stream) == b""
        assert caplog.text == ""
