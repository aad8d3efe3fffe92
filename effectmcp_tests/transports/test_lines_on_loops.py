"""A channel of lines is served the same on trio and asyncio."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest

from effectmcp import Elicit, Flow, Server
from effectmcp.drivers.loops import run
from effectmcp.server.loop_name import LOOPS
from effectmcp.transports.lines import LineLimits, TooLong, serve_lines

from .shop import KEYS, request

pytestmark = pytest.mark.parametrize("loop", LOOPS)

JSON = Any
SHORT = LineLimits(requests=2, waiting=1, patience=0.01, grace=0.1)


class Talk:
    """The other end: it says lines, waits, and notes what it gets."""

    def __init__(self, *says: Any) -> None:
        self.says = says
        self.got: list[JSON] = []
        self.came = anyio.Event()

    async def lines(self) -> AsyncIterator[bytes | TooLong]:
        """Yield messages; call functions in between; raise errors."""
        for one in self.says:
            if isinstance(one, Exception):
                raise one
            if callable(one):
                await one(self)
            else:
                yield json.dumps(one).encode()

    async def send(self, line: bytes) -> None:
        self.got.append(json.loads(line))
        self.came.set()


def answered(count: int) -> Callable[[Talk], Coroutine[Any, Any, None]]:
    async def wait(talk: Talk) -> None:
        while len(talk.got) < count:
            talk.came = anyio.Event()
            await talk.came.wait()

    return wait


def app_with(ended: list[str]) -> Server:
    app = Server("shop", keys=KEYS)

    @app.tool
    async def wait() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("ended")
        return "never"

    @app.tool
    def order(title: str) -> Flow[str]:
        return f"{title} for {yield from Elicit('Who?', str)}"

    return app


def served(loop: Any, *says: Any, **options: Any) -> tuple[Talk, list[str]]:
    ended: list[str] = []
    talk: list[Talk] = []

    async def main() -> None:
        talk.append(Talk(*says))
        send = options.pop("send", talk[0].send)
        await serve_lines(app_with(ended), talk[0].lines(), send, **options)

    run(loop, main)
    return talk[0], ended


def call(name: str, id_: Any, **arguments: Any) -> JSON:
    return request("tools/call", id=id_, name=name, arguments=arguments)


def test_requests_are_answered(loop: Any) -> None:
    says = [call("order", number, title="Dune") for number in range(50)]
    talk, _ = served(loop, *says, answered(50))
    assert sorted(one["id"] for one in talk.got) == list(range(50))


def test_cancelled_request_gets_no_answer(loop: Any) -> None:
    async def nap(talk: Talk) -> None:
        await anyio.sleep(0.02)

    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    for pauses in ((), (nap,)):  # before its task starts, and after
        talk, ended = served(
            loop,
            call("wait", 1),
            *pauses,
            {**cancel, "params": {"requestId": 1}},
            call("order", 2, title="Dune"),
            answered(1),
        )
        assert [one["id"] for one in talk.got] == [2]
        assert ended == ["ended"] * len(pauses)


def test_too_many_requests(loop: Any) -> None:
    says = [call("wait", number) for number in range(4)]
    talk, ended = served(loop, *says, answered(1), limits=SHORT)
    [refused] = talk.got
    assert refused["id"] == 3
    assert "too many requests" in refused["error"]["message"]
    assert ended == ["ended"] * 2


def test_requests_that_last_are_cut_off(
    loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        talk, ended = served(loop, call("wait", 1), limits=SHORT)
    assert (talk.got, ended) == ([], ["ended"])
    assert "what still ran after 0.1 s was cut off" in caplog.text


def test_client_that_is_gone(loop: Any) -> None:
    async def send(line: bytes) -> None:
        raise BrokenPipeError

    async def never(talk: Talk) -> None:
        await anyio.sleep_forever()

    _, ended = served(
        loop, call("wait", 1), call("order", 2, title="x"), never, send=send
    )
    assert ended == ["ended"]


def test_errors_of_the_channel_are_raised(loop: Any) -> None:
    async def send(line: bytes) -> None:
        raise ZeroDivisionError("of send")

    with pytest.raises(ZeroDivisionError, match="of send"):
        served(loop, call("order", 1, title="x"), send=send)
    with pytest.raises(ZeroDivisionError, match="of lines"):
        served(loop, ZeroDivisionError("of lines"))


def test_caller_that_is_cancelled(loop: Any) -> None:
    ended: list[str] = []

    async def main() -> None:
        talk = Talk(call("wait", 1), answered(1))
        with anyio.move_on_after(0.05) as scope:
            await serve_lines(app_with(ended), talk.lines(), talk.send)
        assert scope.cancelled_caught

    run(loop, main)
    assert ended == ["ended"]
