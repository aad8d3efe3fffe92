"""Hostile clients, in a process of their own.

    python -m effectmcp_tests.siege.attackers

The first line of standard input is JSON: the fields of `Orders`. A line of JSON is printed
at full force, when each client has sent its requests or was refused; then the clients hold
on until standard input ends, and a last line counts the outcomes.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

import trio
from attrs import define, field, frozen

from ..transports.era import initialize, message, tool
from ..transports.shop import call, request
from .lines import BROKEN, Line, Response, legacy, modern

__all__ = ["ATTACKS", "COMMAND", "Orders", "attack", "crowded"]

#: Seconds until a refused client tries again, and how long it waits for a response.
_PAUSE: Final = 1.0
_PATIENCE: Final = 20.0

#: A receive buffer so small that a response stays with the server.
_TINY: Final = 4_096


@frozen(kw_only=True)
class Orders:
    """The orders of hostile clients.

    Attributes:
        how: The name of the attack; see `ATTACKS`.
        port: The server's port.
        count: The number of clients.
        addresses: The number of addresses that they connect from.
        each: The number of requests of each client, where it makes several.
        size: The size of bodies or responses in bytes.
        seconds: How long a call takes.
        at_once: The number of clients that start at once.
    """

    how: str
    port: int
    count: int
    addresses: int = 1
    each: int = 1
    size: int = 0
    seconds: float = 0
    at_once: int = 50


@define(eq=False)
class Band:
    """The hostile clients of one attack.

    Attributes:
        orders: What they do.
        seen: How their requests were answered, and how often.
    """

    orders: Orders
    seen: Counter[str] = field(factory=Counter)

    def source(self, number: int) -> str:
        """Return the address of a client."""
        place = number % self.orders.addresses + 2
        return f"127.0.{place // 250}.{place % 250}"

    async def line(self, number: int, *, buffer: int | None = None) -> Line:
        """Connect a client."""
        return await Line.open(self.orders.port, self.source(number), buffer=buffer)

    async def ask(self, number: int, data: bytes) -> Response:
        """Return the response to a request on a new connection."""
        async with await self.line(number) as line:
            with trio.fail_after(_PATIENCE):
                return await line.ask(data)


# ---- attacks ------------------------------------------------------------------------

# Each function is one client. It calls `ready` when it has sent its requests, and holds on
# until it is cancelled; or it returns.
Ready = Callable[[], None]


async def _session(band: Band, number: int) -> str:
    """Open a session, and return its id; empty if it was refused."""
    port = band.orders.port
    got = await band.ask(number, legacy(initialize(), port))
    band.seen[f"session {got.status}"] += 1
    id_ = got.headers.get("mcp-session-id", "")
    if id_:
        await band.ask(number, legacy(message("notifications/initialized"), port, id_))
    return id_


async def sessions(band: Band, number: int, ready: Ready) -> None:
    """Open a session, call a tool that asks, and hang up."""
    id_ = await _session(band, number)
    if id_:
        async with await band.line(number) as line:
            body = tool("ask", id=1, title="Dune")
            await line.send(legacy(body, band.orders.port, id_))
            with trio.move_on_after(_PATIENCE):
                status, _ = await line.head()
                band.seen[f"call {status}"] += 1


async def kept(band: Band, number: int, ready: Ready) -> None:
    """Open a session, call for large answers, and read none of them."""
    port = band.orders.port
    id_ = await _session(band, number)
    lines = []
    try:
        for n in range(band.orders.each if id_ else 0):
            one = await band.line(number, buffer=_TINY)
            lines.append(one)
            body = tool("noted", id=n + 1, token=f"t{n}", size=band.orders.size)
            await one.send(legacy(body, port, id_))
            await one.readable(_PATIENCE)
        ready()
        await _hold(band, lines)
    finally:
        for one in lines:
            await one.__aexit__()


async def unread(band: Band, number: int, ready: Ready) -> None:
    """Call for a large answer, and do not read it."""
    async with await band.line(number, buffer=_TINY) as line:
        body = call("big", id=number, size=band.orders.size)
        await line.send(modern(body, band.orders.port))
        await line.readable(_PATIENCE)
        ready()
        await _hold(band, [line])


async def _hold(band: Band, lines: list[Line]) -> None:
    try:
        await trio.sleep_forever()
    finally:
        for line in lines:
            first = line.peek()
            if first is None:
                band.seen["nothing"] += 1
            else:
                band.seen[first[9:12].decode("latin-1") or "closed"] += 1


async def listeners(band: Band, number: int, ready: Ready) -> None:
    """Listen for changes."""
    body = request("subscriptions/listen", notifications={"toolsListChanged": True})
    await _insist(band, number, ready, modern(body, band.orders.port))


async def half_heads(band: Band, number: int, ready: Ready) -> None:
    """Send half of a head."""
    await _insist(band, number, ready, b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")


async def half_bodies(band: Band, number: int, ready: Ready) -> None:
    """Send a head, and half of its body."""
    data = modern(call("echo", text="x" * 500), band.orders.port)
    await _insist(band, number, ready, data[:-250])


async def silent(band: Band, number: int, ready: Ready) -> None:
    """Connect, and send nothing."""
    await _insist(band, number, ready, b"")


async def _insist(band: Band, number: int, ready: Ready, data: bytes) -> None:
    """Hold a connection after these bytes; connect again when the server closes it."""
    while True:
        with suppress(*BROKEN):
            async with await band.line(number) as line:
                await line.send(data)
                ready()
                first = await line.stream.receive_some(4096)
                if first:
                    band.seen[first[9:12].decode("latin-1")] += 1
                while await line.stream.receive_some(4096):
                    pass
        band.seen["closed"] += 1
        ready()
        await trio.sleep(_PAUSE)


async def bodies(band: Band, number: int, ready: Ready) -> None:
    """Send all bytes of a large body but the last one."""
    size = band.orders.size
    text = "x" * (size - len(modern(call("length", text=""), 1).partition(b"{")[2]) - 1)
    data = modern(call("length", text=text), band.orders.port)
    async with await band.line(number) as line:
        with trio.move_on_after(_PATIENCE):
            await line.send(data[:-1])
        ready()
        await _hold(band, [line])


async def slow(band: Band, number: int, ready: Ready) -> None:
    """Call a slow tool, and leave."""
    async with await band.line(number) as line:
        body = call("slow", id=number, seconds=band.orders.seconds)
        await line.send(modern(body, band.orders.port))
        # Until the server has read it: a reset would drop what it has not.
        await trio.sleep(0.2)


def crowded(size: int) -> bytes:
    """Return a list of so many empty objects, as JSON."""
    return b"[" + b"{}," * (size - 1) + b"{}]"


async def objects(band: Band, number: int, ready: Ready) -> None:
    """Call a tool with an argument of very many objects."""
    text = json.dumps(call("echo", text="@")).encode()
    await _crowd(band, number, text.replace(b'"@"', crowded(band.orders.size)))


async def batch(band: Band, number: int, ready: Ready) -> None:
    """Send a list of very many objects, instead of a message."""
    await _crowd(band, number, crowded(band.orders.size))


async def _crowd(band: Band, number: int, many: bytes) -> None:
    """Send a large body several times."""
    head, _, _ = modern(call("echo", text=""), band.orders.port).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if b"content-length" not in line]
    lines.append(b"content-length: %d" % len(many))
    data = b"\r\n".join([*lines, b"", many])
    for _ in range(band.orders.each):
        async with await band.line(number) as line:
            with trio.move_on_after(_PATIENCE):
                await line.send(data)
                band.seen[str((await line.response()).status)] += 1
        await trio.sleep(band.orders.seconds)


#: The ends of a line, in a log, at a terminal, or for Python.
_ENDS: Final = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029")


async def forgers(band: Band, number: int, ready: Ready) -> None:
    """Cause exceptions whose text has line ends, and what looks like a line of the log."""
    forged = "FORGED ERROR effectmcp.server: the disk is full\x1b[2J"
    for n, end in enumerate(_ENDS):
        name = f"no tool{end}{forged}"
        encoded = f"=?base64?{b64encode(name.encode()).decode()}?="
        port = band.orders.port
        for data in (
            modern(call("fails", id=n, text=f"it failed{end}{forged}"), port),
            modern(call(name, id=n), port, mcp_name=encoded),
        ):
            band.seen[str((await band.ask(number, data)).status)] += 1


async def strangers(band: Band, number: int, ready: Ready) -> None:
    """Send requests with another `Host`, on a connection for each few of them."""
    body = call("echo", text="hello")
    data = modern(body, band.orders.port).replace(b"host: localhost", b"host: evil")
    left = band.orders.each
    while left:
        with suppress(*BROKEN):
            async with await band.line(number) as line:
                while left and not line.closes:
                    left -= 1
                    band.seen[str((await line.ask(data)).status)] += 1


ATTACKS: Final[Mapping[str, Callable[[Band, int, Ready], Awaitable[None]]]] = {
    one.__name__: one
    for one in (
        sessions,
        kept,
        unread,
        listeners,
        half_heads,
        half_bodies,
        silent,
        bodies,
        slow,
        objects,
        batch,
        forgers,
        strangers,
    )
}


# ---- together -----------------------------------------------------------------------


async def attack(orders: Orders, *, task_status: trio.TaskStatus[Counter[str]]) -> None:
    """Attack until cancelled; started at full force, with the count of the outcomes."""
    band = Band(orders)
    gate = trio.Semaphore(orders.at_once)
    missing = orders.count
    full = trio.Event()

    async def one(number: int) -> None:
        nonlocal missing
        is_ready = False

        def ready() -> None:
            nonlocal missing, is_ready
            if not is_ready:
                is_ready = True
                gate.release()
                missing -= 1
                if not missing:
                    full.set()

        await gate.acquire()
        try:
            await ATTACKS[orders.how](band, number, ready)
        except (*BROKEN, trio.TooSlowError) as exc:
            band.seen[type(exc).__name__] += 1
        ready()

    async with trio.open_nursery() as nursery:
        for number in range(orders.count):
            nursery.start_soon(one, number)
        await full.wait()
        task_status.started(band.seen)
        await trio.sleep_forever()


async def _main(orders: Orders) -> None:
    async with trio.open_nursery() as nursery:
        seen: Counter[str] = await nursery.start(attack, orders)
        print(json.dumps(seen), flush=True)
        async with trio.lowlevel.FdStream(sys.stdin.fileno()) as stream:
            while await stream.receive_some():
                pass
        nursery.cancel_scope.cancel()
    print(json.dumps(seen), flush=True)


#: The command line of a process of hostile clients.
COMMAND: Final = (sys.executable, "-m", "effectmcp_tests.siege.attackers")


def main() -> None:
    """Attack as ordered."""
    import resource  # POSIX only

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with open(0, "rb", buffering=0, closefd=False) as unbuffered:
        text = unbuffered.readline()
    if text:
        trio.run(_main, Orders(**json.loads(text)))


if __name__ == "__main__":
    main()
