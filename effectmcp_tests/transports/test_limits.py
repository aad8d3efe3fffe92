"""Shares of one address of the native server, and who gives way: over real sockets.

Attackers connect from 127.0.0.2, honest clients from 127.0.0.1.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, field

from effectmcp.server import Server
from effectmcp.transports import connection
from effectmcp.transports.connection import connections_of
from effectmcp.transports.http import Accepting, Limits
from effectmcp.transports.open_files import files
from effectmcp.transports.web import PIECE, Site

from .shop import JSON, call, request, text_of
from .wire import Client, listening, post, serving

ATTACKER = "127.0.0.2"
HONEST = "127.0.0.1"

DISCOVER = request("server/discover")
LISTEN = request("subscriptions/listen", notifications={"toolsListChanged": True})


def shop() -> Server:
    app = Server("shop")

    @app.tool
    async def large(size: int) -> str:
        await trio.lowlevel.checkpoint()
        return "x" * size

    @app.tool
    async def wait() -> None:
        await trio.sleep_forever()

    @app.tool
    def later(size: int) -> str:
        return "x" * size

    return app


@define(eq=False)
class Yard:
    """A server, and its address."""

    address: tuple[str, int]
    nursery: trio.Nursery
    connections: list[connection.Shared]
    opened: list[Client] = field(factory=list)

    async def connect(self, source: str = HONEST) -> Client:
        found = trio.socket.socket()
        await found.bind((source, 0))
        # Small, so that the kernel does not take a whole response for its reader.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        await found.connect(self.address)
        self.opened.append(Client(trio.SocketStream(found)))
        return self.opened[-1]

    @property
    def shared(self) -> connection.Shared:
        (found,) = self.connections
        return found

    async def settled(self) -> None:
        await trio.testing.wait_all_tasks_blocked(0.02)

    async def ask(self, message: JSON = DISCOVER, source: str = HONEST) -> int:
        async with await self.connect(source) as client:
            return (await client.ask(message, host="localhost")).status


async def until(is_so: Callable[[], bool]) -> None:
    """Let the server work until something is so."""
    while not is_so():
        await trio.testing.wait_all_tasks_blocked(0.01)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[connection.Shared]:
    """The objects that the connections of a server share."""
    found: list[connection.Shared] = []
    old = connection.Shared.__init__

    def init(self: connection.Shared, *args: Any) -> None:
        old(self, *args)
        found.append(self)

    monkeypatch.setattr(connection.Shared, "__init__", init)
    return found


@asynccontextmanager
async def yard(made: list[connection.Shared], **options: Any) -> AsyncIterator[Yard]:
    async with listening(shop(), **options) as address, trio.open_nursery() as nursery:
        found = Yard(address, nursery, made)
        try:
            yield found
        finally:
            for client in found.opened:
                client.close()
            nursery.cancel_scope.cancel()


# ---- connections --------------------------------------------------------------------


async def test_address_with_its_share_is_turned_away(
    made: list[connection.Shared], caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that are being answered are not idle, and none of them gives way."""
    limits, site = Limits(connections=8), Site(share=0.25)
    async with yard(made, limits=limits, site=site) as here:
        held = [await here.connect(ATTACKER) for _ in range(4)]
        for client in held:
            await client.post(call("wait"), host="localhost")
        await here.settled()
        async with await here.connect(ATTACKER) as late:
            assert b" 503 " in await late.rest()
        assert await here.ask() == 200
        assert "127.0.0.2 has its share of the connections" in caplog.text
        assert "127.0.0.1" not in caplog.text
        for client in held:
            client.close()
        await until(lambda: not here.shared.seats.is_spent(ATTACKER))
        assert await here.ask(source=ATTACKER) == 200


@pytest.mark.parametrize("sent", [0, 10, -1], ids=["nothing", "half a head", "a body"])
async def test_slowest_incomplete_request_gives_way(
    made: list[connection.Shared], sent: int
) -> None:
    data = post(DISCOVER, host="localhost")[:sent]
    async with yard(made, limits=Limits(connections=4), site=Site(share=1)) as here:
        held = []
        for _ in range(8):
            client = await here.connect(ATTACKER)
            await client.send(data)
            await here.settled()
            held.append(client)
        assert here.shared.seats.count == 4
        for client in held[:4]:
            rest = await client.rest()
            assert (b" 408 " in rest) is bool(sent)
        assert await here.ask() == 200
        # The slowest of the others made room for it, and the rest are as they were.
        await held[4].rest()
        await held[5].send(post(DISCOVER, host="localhost")[sent:])
        if sent:
            assert (await held[5].answer()).status == 200


async def test_own_incomplete_request_gives_way_first(
    made: list[connection.Shared],
) -> None:
    limits, site = Limits(connections=8), Site(share=0.25)
    half = post(DISCOVER, host="localhost")[:-1]
    async with yard(made, limits=limits, site=site) as here:
        honest = await here.connect()
        await honest.send(half)
        await here.settled()
        held = []
        for _ in range(6):
            held.append(await here.connect(ATTACKER))
            await held[-1].send(half)
            await here.settled()
        for client in held[:2]:
            assert b" 408 " in await client.rest()
        await honest.send(post(DISCOVER, host="localhost")[-1:])
        assert (await honest.answer()).status == 200


async def test_trusted_proxy_has_no_share(made: list[connection.Shared]) -> None:
    limits, site = Limits(connections=8), Site(share=0.25, proxies=[ATTACKER])
    async with yard(made, limits=limits, site=site) as here:
        held = [await here.connect(ATTACKER) for _ in range(6)]
        for client in held:
            assert (await client.ask(DISCOVER, host="localhost")).status == 200
        assert here.shared.seats.count == 6


async def test_clients_of_a_proxy_have_shares(made: list[connection.Shared]) -> None:
    site = Site(share=0.25, waiting=8, proxies=[ATTACKER])
    async with yard(made, site=site) as here:

        async def listen(client: str) -> int:
            connected = await here.connect(ATTACKER)
            await connected.post(LISTEN, host="localhost", x_forwarded_for=client)
            return (await connected.head()).status

        assert [await listen("192.0.2.1") for _ in range(3)] == [200, 200, 503]
        assert await listen("192.0.2.2") == 200
        # What the client wrote itself stands before what the proxy added.
        assert await listen("192.0.2.9, 192.0.2.1") == 503


@pytest.mark.parametrize(
    ("files", "connections"),
    [(64, 24), (256, 168), (1_024, 744), (2_000, 1_000), (10**6, 1_000), (10, 1)],
)
def test_connections_of_a_process(files: int, connections: int) -> None:
    assert connections_of(files) == connections
    assert connections < files


def test_limit_of_files() -> None:
    assert files() > 0
    assert Limits().most_connections == connections_of(files())
    assert Limits(connections=5).most_connections == 5


def test_limit_of_files_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource
    import sys

    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: infinite)
    assert files() > 10**6
    monkeypatch.setitem(sys.modules, "resource", None)
    assert files() > 10**6


# ---- requests that wait -------------------------------------------------------------


async def test_subscriptions_have_seats_of_their_own(
    made: list[connection.Shared],
) -> None:
    limits, site = Limits(connections=100), Site(share=0.25, waiting=8)
    async with yard(made, limits=limits, site=site) as here:
        held = [await here.connect(ATTACKER) for _ in range(3)]
        for client in held:
            await client.post(LISTEN, host="localhost")
        got = [await client.head() for client in held]
        assert [one.status for one in got] == [200, 200, 503]
        assert got[-1].headers["retry-after"] == "5"
        found = json.loads(
            await held[-1].exactly(int(got[-1].headers["content-length"]))
        )
        assert found["error"]["message"] == (
            "Too many requests wait on this server. Subscribe again later."
        )
        assert (await held[-1].ask(DISCOVER, host="localhost")).status == 200
        async with await here.connect() as honest:
            await honest.post(LISTEN, host="localhost")
            assert (await honest.head()).status == 200
        held[0].close()
        await until(lambda: here.shared.endpoint.seats.count == 1)


async def test_waiting_requests_leave_connections_to_others(
    made: list[connection.Shared],
) -> None:
    async with yard(made, limits=Limits(connections=10)) as here:
        assert here.shared.endpoint.seats.limit == 5


# ---- before a request ---------------------------------------------------------------


@pytest.mark.parametrize("empty", [b"\r\n", b"\n"])
@pytest.mark.parametrize("is_split", [False, True])
async def test_one_empty_line_before_a_request(empty: bytes, is_split: bool) -> None:
    """As RFC 9112, section 2.2, asks: some clients send one after a body."""
    async with serving(shop()) as doors:
        client = doors.connect()
        data = post(DISCOVER)
        for _ in range(2):
            if is_split:
                await client.send(empty)
                await trio.testing.wait_all_tasks_blocked()
                await client.send(data)
            else:
                await client.send(empty + data)
            assert (await client.answer()).status == 200


async def test_many_empty_lines_are_refused() -> None:
    async with serving(shop()) as doors:
        client = doors.connect()
        await client.send(b"\r\n\r\n\r\n" + post(DISCOVER))
        assert (await client.answer()).status == 400


async def test_empty_line_and_no_request(autojump_clock: Any) -> None:
    async with serving(shop(), Limits(head_time=3)) as doors:
        client = doors.connect()
        await client.send(b"\r\n")
        assert (await client.answer()).status == 408
        assert trio.current_time() < 10
        client = doors.connect()
        await client.send(b"\r\n")
        assert isinstance(client.stream, trio.abc.HalfCloseableStream)
        await client.stream.send_eof()
        assert await client.is_closed()


async def test_half_closed_client_gets_its_answer() -> None:
    """A client that sends no more may still read."""
    async with listening(shop()) as address:
        async with Client(await trio.open_tcp_stream(*address)) as client:
            message = call("later", size=3)
            await client.post(message, host="localhost")
            assert isinstance(client.stream, trio.SocketStream)
            await client.stream.send_eof()
            assert text_of((await client.answer()).json) == "xxx"
            assert await client.is_closed()


# ---- large responses ----------------------------------------------------------------


@pytest.mark.parametrize("size", [PIECE - 200, PIECE, PIECE + 1, 3 * PIECE + 7])
@pytest.mark.parametrize("tool", ["large", "later"])
@pytest.mark.parametrize("through", ["plain", "h11", "stream"])
async def test_large_answer_arrives_whole(size: int, tool: str, through: str) -> None:
    message = call(tool, size=size)
    headers = {"host": "a"}
    if through == "h11":
        headers["connection"] = "Keep-Alive, x"
    quiet = 0.000_001 if through == "stream" else 15
    async with serving(shop(), Limits(quiet=quiet)) as doors:
        client = doors.connect()
        for _ in range(2):
            got = await client.ask(message, **headers)
            assert got.status == 200
            body = got.body
            if got.headers["content-type"] == "text/event-stream":
                body = body.partition(b"data: ")[2]
            assert json.loads(body)["result"]["content"][0]["text"] == "x" * size


async def test_unread_answers_of_one_address_are_limited(
    made: list[connection.Shared],
) -> None:
    """The oldest breaks off; what others were sent arrives whole."""
    size = 8 * 1024 * 1024
    async with yard(made, site=Site(share=0.25, unsent=8 * size)) as here:
        honest = await here.connect()
        await honest.post(call("large", size=size), host="localhost")
        await honest.head()
        held = []
        for _ in range(6):
            client = await here.connect(ATTACKER)
            await client.post(call("large", size=size), host="localhost")
            await client.head()
            held.append(client)
        await here.settled()
        assert here.shared.endpoint.unsent.size <= 4 * size
        broken = [len(await client.rest()) < size for client in held[:2]]
        assert broken == [True, True]
        assert len(await honest.exactly(size)) == size
    assert here.shared.endpoint.unsent.size == 0


async def test_answer_is_freed_while_it_is_read(made: list[connection.Shared]) -> None:
    size = 8 * 1024 * 1024
    async with yard(made) as here:
        client = await here.connect()
        await client.post(call("large", size=size), host="localhost")
        got = await client.head()
        await here.settled()
        sizes = [here.shared.endpoint.unsent.size]
        left = int(got.headers["content-length"])
        while left:
            part = min(left, size // 8)
            await client.exactly(part)
            left -= part
            await here.settled()
            sizes.append(here.shared.endpoint.unsent.size)
        assert sizes[0] > size // 4
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] == 0


async def test_client_that_reads_nothing_of_a_small_answer_is_counted(
    made: list[connection.Shared],
) -> None:
    """Many answers below the size of a piece, which no client reads."""
    async with yard(made, limits=Limits(write=3_600)) as here:
        client = await here.connect()
        data = post(call("large", size=PIECE // 2), host="localhost")

        async def send() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while True:
                    await client.send(data)

        here.nursery.start_soon(send)
        await until(lambda: here.shared.endpoint.unsent.size > 0)
        assert here.shared.endpoint.unsent.size <= PIECE


# ---- files --------------------------------------------------------------------------


class Failing(trio.abc.Listener[trio.abc.Stream]):
    """A listener that has no files for some connections."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.stream, _ = trio.testing.memory_stream_pair()

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if self.errors:
            raise OSError(self.errors.pop(0), "no")
        return self.stream

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_without_files_an_idle_connection_is_closed() -> None:
    room = iter([True, True, False])
    one = Failing(errno.EMFILE, errno.ENFILE)
    listener = Accepting(one)
    listener.make_room = lambda: next(room)
    assert await listener.accept() is one.stream
    one.errors = [errno.EMFILE]
    with pytest.raises(OSError, match="no"):  # trio waits, and tries again
        await listener.accept()


async def test_other_errors_of_a_listener_are_raised() -> None:
    with pytest.raises(OSError, match="no"):
        await Accepting(Failing(errno.EBADF)).accept()
    with pytest.raises(OSError, match="no"):
        await Accepting(Failing(errno.EMFILE)).accept()


# ---- the end ------------------------------------------------------------------------


async def test_clients_that_the_kernel_accepted_are_answered_at_the_end() -> None:
    """The server is busy when it has to stop, and fifty clients have connected."""
    shutdown = trio.Event()
    async with trio.open_nursery() as nursery:
        async with listening(shop(), shutdown=shutdown) as address:
            late = []
            for _ in range(50):
                # No checkpoint here: the server accepts none of them.
                found = socket.create_connection(address)
                found.sendall(post(DISCOVER, host="localhost"))
                late.append(
                    Client(trio.SocketStream(trio.socket.from_stdlib_socket(found)))
                )
            shutdown.set()
            for client in late:
                got = await client.answer()
                assert (got.status, got.headers["connection"]) == (200, "close")
                assert await client.is_closed()
                client.close()
            with pytest.raises(OSError, match="refused|ECONNREFUSED|failed"):
                await trio.open_tcp_stream(*address)
        nursery.cancel_scope.cancel()


async def test_busy_client_is_not_reset_at_the_end() -> None:
    """The server answers its next request, and announces that the connection closes."""
    shutdown = trio.Event()
    async with listening(shop(), shutdown=shutdown) as address:
        async with Client(await trio.open_tcp_stream(*address)) as client:
            assert (await client.ask(DISCOVER, host="localhost")).status == 200
            shutdown.set()
            await trio.testing.wait_all_tasks_blocked()
            got = await client.ask(DISCOVER, host="localhost")
            assert (got.status, got.headers["connection"]) == (200, "close")
            assert await client.is_closed()


async def test_listener_that_was_not_read_to_its_end() -> None:
    (own,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = own.socket.getsockname()
    listener = Accepting(own)
    async with trio.open_nursery() as nursery:
        client = socket.create_connection(address)
        await trio.testing.wait_all_tasks_blocked()
        await trio.aclose_forcefully(await listener.accept())
        others = [socket.create_connection(address) for _ in range(2)]
        listener.drain()
        assert len(listener.drained) == 2
        await trio.aclose_forcefully(await listener.accept())
        assert len(listener.drained) == 1
        await listener.aclose()
        nursery.cancel_scope.cancel()
    for one in (client, *others):
        one.close()


@pytest.fixture(autouse=True)
def nothing_fails(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no error is logged: clients cause none."""
    yield
    found = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert not [one for one in found if one.name.startswith("effectmcp")]


@pytest.mark.parametrize(
    ("connections", "share"),
    [(1_000, 250), (100, 25), (48, 12), (24, 12), (10, 5), (1, 1)],
)
async def test_share_of_the_connections(
    made: list[connection.Shared], connections: int, share: int
) -> None:
    async with yard(made, limits=Limits(connections=connections)) as here:
        assert here.shared.seats.share == share
