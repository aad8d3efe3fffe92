"""Filling streams and reading them, on both loops."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import attrs
import pytest

from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import trio as on_trio
from effectmcp.drivers.loops import Loop
from effectmcp.exchange.commands import Reply
from effectmcp.exchange.sessions import Session
from effectmcp.protocol.jsonrpc import Request
from effectmcp.protocol.legacy import Hello
from effectmcp.protocol.revisions import HANDSHAKES
from effectmcp.transports.reading import Calls, pump, run_call, settle
from effectmcp.transports.sessions import Stream

from .test_asgi import LOOPS
from .test_asgi import Loop as Running
from .test_sessions import Kept

REQUEST = Request(7, "tools/call", {}, {})
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


@pytest.fixture(params=LOOPS, ids=lambda loop: loop.name)
def running(request: pytest.FixtureRequest) -> Running:
    """Every test on both."""
    chosen: Running = request.param
    return chosen


def loop_of(running: Running) -> Loop:
    return on_trio if running.name == "trio" else on_asyncio


@attrs.frozen
class Begun:
    """A started exchange, which `work` finishes."""

    work: Callable[[Send], Awaitable[Any]]

    async def finish(self, send: Send) -> Reply:
        return Reply(await self.work(send))


async def says(send: Send) -> Any:
    await send({"method": "said"})
    return {"id": 7}


async def fails(send: Send) -> Any:
    raise ValueError("as it happens")


async def is_silent(send: Send) -> Any:
    return None


def session() -> Session:
    """Return a session of an unknown client."""
    return Session(HANDSHAKES["2025-11-25"], Hello("2025-11-25", {}, None))


def messages(stream: Stream) -> list[Any]:
    assert stream.is_over
    events = stream.read(0, lambda: None).take()
    return [json.loads(one.partition(b"data: ")[2]) for one in events]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (says, [{"method": "said"}, {"id": 7}]),
        (is_silent, []),
    ],
)
def test_a_call_fills_its_stream(running: Running, work: Any, expected: Any) -> None:
    stream = Stream("s", 1000)
    running.run(
        lambda: run_call(loop_of(running), Begun(work), REQUEST, session(), stream)
    )
    assert messages(stream) == expected


def test_a_call_that_fails_is_answered(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream("s", 1000)
    running.run(
        lambda: run_call(loop_of(running), Begun(fails), REQUEST, session(), stream)
    )
    (only,) = messages(stream)
    assert (only["id"], only["error"]["code"]) == (7, -32603)
    assert "as it happens" not in str(only)
    assert "answering tools/call failed" in caplog.text


def test_a_call_that_is_cancelled_ends_its_stream(running: Running) -> None:
    stream = Stream("s", 1000)

    async def main() -> None:
        async def wait(send: Send) -> None:
            await running.Event().wait()

        work = Begun(wait)
        assert not await loop_of(running).within(
            0.01,
            lambda: run_call(loop_of(running), work, REQUEST, session(), stream),
        )

    running.run(main)
    assert messages(stream) == []


def test_a_call_without_a_flow_is_stopped_with_its_session(running: Running) -> None:
    async def main() -> None:
        loop, mine, stream = loop_of(running), session(), Stream("s", 1000)
        began = running.Event()

        async def wait(send: Send) -> None:
            mine.begin(7)
            began.set()
            await running.Event().wait()

        loop.spawn(lambda: run_call(loop, Begun(wait), REQUEST, mine, stream))
        await began.wait()
        mine.close()
        while not stream.is_over:
            await loop.sleep(0)
        assert messages(stream) == []

    running.run(main)


@pytest.mark.parametrize("soon", [True, False])
def test_a_response_that_comes_in_a_moment(running: Running, soon: bool) -> None:
    async def main() -> bytes | None:
        loop, stream = loop_of(running), Stream("s", 1000)
        if soon:
            stream.end(b"{}")
            return await settle(loop, stream)

        async def respond() -> None:
            stream.end(b"{}")

        loop.spawn(respond)
        return await settle(loop, stream)

    assert running.run(main) == b"{}"


def test_a_response_that_does_not(running: Running) -> None:
    async def main() -> None:
        stream = Stream("s", 1000)
        assert await settle(loop_of(running), stream) is None
        stream.add(b"{}")  # and no client reads it

    running.run(main)


def test_calls_are_waited_for(running: Running) -> None:
    async def main() -> None:
        loop, calls, goes = loop_of(running), Calls(), running.Event()
        stream = Stream("s", 1000)

        async def wait(send: Send) -> Any:
            await goes.wait()
            return {"id": 7}

        await calls.end(loop, 20)
        calls.start(loop, Begun(wait), REQUEST, session(), stream)
        await loop.sleep(0)
        while not calls._count:
            await loop.sleep(0)
        await calls.end(loop, 0.01)
        assert not stream.is_over
        goes.set()
        await calls.end(loop, 20)
        assert messages(stream) == [{"id": 7}]

    running.run(main)


def test_a_reader_is_counted_while_it_reads(running: Running) -> None:
    sessions = Kept(idle=10)
    _, session = sessions.open()
    stream = sessions.stream(session)
    stream.add(b"{}")
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        sessions.now += 20
        sessions.sweep()
        assert not session.is_closed
        written.append(data)
        stream.end()

    async def main() -> None:
        await pump(loop_of(running), sessions, session, stream, 0, write)

    running.run(main)
    assert [one.partition(b"\n")[0] for one in written] == [b"id: 1-0", b"id: 1-1"]
    sessions.now += 10
    sessions.sweep()
    assert session.is_closed


def test_a_client_that_is_gone_leaves_its_place(running: Running) -> None:
    sessions = Kept(idle=10)
    _, session = sessions.open()
    stream = sessions.stream(session)

    async def write(data: bytes) -> None:
        raise BrokenPipeError

    async def main() -> None:
        with pytest.raises(BrokenPipeError):
            await pump(loop_of(running), sessions, session, stream, 0, write)

    running.run(main)
    stream.add(b"{}")
    sessions.now = 10
    sessions.sweep()
    assert session.is_closed


def test_sessions_are_swept_as_long_as_there_are_any(running: Running) -> None:
    async def main() -> None:
        loop, calls, sessions = loop_of(running), Calls(), Kept(idle=0.01)
        for _ in range(2):
            _, session = sessions.open()
            calls.sweep(loop, sessions)
            calls.sweep(loop, sessions)
            sessions.now += 1
            while not session.is_closed or calls._sweeps:
                await loop.sleep(0)

    running.run(main)


def test_response_that_is_not_awaited_any_more(running: Running) -> None:
    """Drop the reader of a cancelled wait, so that the stream may be dropped."""

    async def main() -> None:
        loop, stream = loop_of(running), Stream("s", 1000)

        async def settled() -> None:
            await settle(loop, stream)

        assert not await loop.within(0.001, settled)
        assert not stream.is_read

    running.run(main)


def test_end_of_a_call_is_reported(running: Running) -> None:
    ended: list[str] = []

    async def main() -> None:
        loop, calls, stream = loop_of(running), Calls(), Stream("s", 1000)
        told = partial(ended.append, "ended")
        calls.start(loop, Begun(says), REQUEST, session(), stream, told)
        while not ended:
            await loop.sleep(0)
        await calls.end(loop, 20)

    running.run(main)
    assert ended == ["ended"]
