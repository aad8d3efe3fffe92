"""A socket with nothing in between: it does what trio's stream does, and no more."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import closing, suppress

import pytest
import trio
import trio.testing

from effectmcp.transports.connection import Direct

#: Closing sends a reset, as of a client that crashed.
_AT_ONCE = struct.pack("ii", 1, 0)


class Pair:
    """A connection over loopback, with our end and the client's."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = socket.create_connection(listener.getsockname())
            accepted, _ = listener.accept()
        self.number = accepted.fileno()
        self.ours = Direct(trio.SocketStream(trio.socket.from_stdlib_socket(accepted)))

    def crash(self) -> None:
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.client.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.client.close()
    await made.ours.aclose()


async def test_sent_bytes_are_received(pair: Pair) -> None:
    pair.client.sendall(b"hello")
    assert await pair.ours.receive_some() == b"hello"
    assert pair.ours.send_now(b"well met") == b""
    assert pair.client.recv(100) == b"well met"


async def test_no_more_is_received_than_asked_for(pair: Pair) -> None:
    pair.client.sendall(b"hello")
    assert await pair.ours.receive_some(2) == b"he"
    assert await pair.ours.receive_some(100) == b"llo"


async def test_end(pair: Pair) -> None:
    pair.client.shutdown(socket.SHUT_WR)
    assert await pair.ours.receive_some() == b""
    await pair.ours.send_eof()
    assert pair.client.recv(100) == b""


async def test_what_the_kernel_does_not_take_now_is_sent_later(pair: Pair) -> None:
    """No byte is lost or sent twice, wherever the kernel stops."""
    data = bytes(range(256)) * 40_000
    rest: bytes | memoryview = data
    while len(left := pair.ours.send_now(rest)) < len(rest):
        rest = left  # until there is no room at all
    assert 0 < len(rest) < len(data)
    got = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.ours.send_all, rest)
        theirs = trio.SocketStream(trio.socket.from_stdlib_socket(pair.client))
        while len(got) < len(data):
            got += await theirs.receive_some()
    assert got == data
    await pair.ours.wait_send_all_might_not_block()


async def test_waking_up_for_nothing(pair: Pair) -> None:
    """A second reader takes the data between the kernel's report and our read."""
    thief = socket.socket(fileno=os.dup(pair.number))
    thief.setblocking(False)
    stolen: list[bytes] = []
    sent: list[bytes] = []

    class Steal(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            if not stolen:
                with suppress(BlockingIOError):
                    stolen.append(thief.recv(100))

        def before_io_wait(self, timeout: float) -> None:
            if stolen and len(sent) == 1:
                sent.append(b"second")
                pair.client.sendall(b"second")

    with closing(thief):
        pair.client.sendall(b"first")
        sent.append(b"first")
        trio.lowlevel.add_instrument(Steal())
        assert await pair.ours.receive_some() == b"second"
    assert stolen == [b"first"]


async def test_whether_there_is_anything_to_receive(pair: Pair) -> None:
    assert not pair.ours.is_readable()
    pair.client.sendall(b"hello")
    assert pair.ours.is_readable()
    assert await pair.ours.receive_some() == b"hello"  # looking took nothing
    assert not pair.ours.is_readable()
    pair.client.shutdown(socket.SHUT_WR)
    assert pair.ours.is_readable()


async def test_whether_an_error_is_pending(pair: Pair) -> None:
    pair.crash()
    assert pair.ours.is_readable()
    # The kernel has told it.
    assert await pair.ours.receive_some() == b""


async def test_client_that_crashed(pair: Pair) -> None:
    pair.crash()
    with pytest.raises(trio.BrokenResourceError, match="the client is gone"):
        await pair.ours.receive_some()
    with pytest.raises(trio.BrokenResourceError, match="the client is gone"):
        pair.ours.send_now(b"x")


async def test_socket_for_which_the_kernel_has_no_watch_left(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_readable(number: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_readable)
    with pytest.raises(trio.BrokenResourceError, match="no space left"):
        await pair.ours.receive_some()


async def test_closed_by_us(pair: Pair) -> None:
    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await pair.ours.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await pair.ours.aclose()
    await wait()
    await wait()
    with pytest.raises(trio.BrokenResourceError):
        pair.ours.send_now(b"x")
    await pair.ours.aclose()
    assert pair.client.recv(100) == b""
