"""Many conversations at once, some of whose clients leave: nothing of them is left."""

from __future__ import annotations

import gc
import random
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest
import trio

from effectmcp import Elicit, Flow, Progress, Step
from effectmcp.server import Server
from effectmcp.transports import http
from effectmcp.transports.web import Site

from .shop import answer, call, events, nap, shop, text_of
from .wire import Client

#: Few, and many.
CONVERSATIONS = [40, pytest.param(500, marks=pytest.mark.long)]


def crowd() -> Server:
    app = shop()

    @app.tool
    def crowded(title: str) -> Flow[str]:
        """Ask, wait, tell, and ask again."""
        name = yield from Elicit("Who is it for?", str)
        yield from Progress(1)
        yield from Step(nap, 0.001)
        many = yield from Elicit(f"How many for {name}?", int)
        yield from Step(nap, 0.001)
        return f"{many} × {title} for {name}"

    return app


async def converse(address: tuple[str, int], number: int, chance: random.Random) -> str:
    """One conversation, a connection a round; `left` if it ended in the middle."""
    rest: dict[str, Any] = {}
    for value in (f"Ann {number}", 3, None):
        stream = await trio.open_tcp_stream(*address)
        async with stream:
            client = Client(stream)
            progress = chance.choice([None, f"p{number}"])
            await client.post(
                call("crowded", id=number, title="Dune", progress=progress, **rest),
                host=f"localhost:{address[1]}",
            )
            fate = chance.randrange(12)
            if fate == 0:
                return "left"  # without waiting for an answer
            if fate == 1:
                await client.more()  # in the middle of one
                return "left"
            got = await client.answer()
        if got.headers["content-type"] == "application/json":
            message = got.json
        else:
            message = events(got.body)[-1]
        if value is None:
            return text_of(message)
        rest = answer(message["result"], value)
    raise AssertionError("unreachable")


async def storm(address: tuple[str, int], seed: int, count: int) -> list[str]:
    ended: list[str] = []

    async def one(number: int) -> None:
        ended.append(await converse(address, number, random.Random(seed + number)))

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(one, number)
    return ended


def handlers() -> int:
    """Generators of the handler that are still there."""
    gc.collect()
    return sum(
        isinstance(one, GeneratorType) and one.__name__ == "crowded"
        for one in gc.get_objects()
    )


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts files in /proc")
@pytest.mark.parametrize("count", CONVERSATIONS)
async def test_many_conversations_leave_nothing(count: int) -> None:
    """No task, generator or file descriptor; and no more objects each time."""
    ended: list[str] = []
    left: list[tuple[int, int, int]] = []
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                partial(http.serve, crowd(), port=0, site=Site(share=1))
            )
            address = listeners[0].socket.getsockname()[:2]
            for seed in (0, 10_000, 20_000, 30_000):
                ended += await storm(address, seed, count)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert handlers() == 0
                tasks = trio.lowlevel.current_statistics().tasks_living
                left.append((open_files(), tasks, len(gc.get_objects())))
            nursery.cancel_scope.cancel()
    # Until the second, modules and caches fill.
    files, living, objects = zip(*left[1:], strict=True)
    assert files[-1] <= files[0]
    assert living[-1] <= living[0]
    # A leak would leave one for each conversation, each time; what other tests have left
    # in this process comes and goes once.
    growths = [after - before for before, after in pairwise(objects)]
    assert min(growths) < count // 2
    finished = [one for one in ended if one != "left"]
    assert count < len(finished) < len(ended)
    assert all(one.startswith("3 × Dune for Ann ") for one in finished)
