"""Measure tasks on Restate, beside tasks in SQLite and DBOS on PostgreSQL in one run.

    a step    the CPU time of the worker's process for a step of a long flow, and for a
              step of DBOS on PostgreSQL, if that is given
    turns     tasks at once, each with a step and a short sleep in each turn: turns per
              second of one worker and of two that share an address, their CPU time, and
              how even they share
    waiting   10,000 tasks wait for an answer: the memory of the engine, and how long
              `tasks/get` takes through a server

Every server is a process of its own. Prints a table for people and one JSON line for
machines.

    python -m benchmarks.restate PROGRAM [--postgres URL] [--tiny]
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from anyio.abc import SocketListener
from attrs import frozen

from effectmcp import Flow, Server, Sleep, step
from effectmcp.drivers import trio as loop
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.state import Keys, make_key
from effectmcp.tasks.restate import RestateTasks
from effectmcp.tasks.restate.endpoint import serve as serve_engine
from effectmcp.transports import http as http_transport
from effectmcp_tests.tasks.restate.engines import Node
from effectmcp_tests.tasks.restate.workers import new_row

from .tasks import (
    KEY,
    Http,
    Worker,
    add,
    add_async,
    ask,
    folder,
    orders,
    request,
    resident,
    say,
    spread,
)

#: Turns that this process has run.
performed = [0]


@frozen
class Sizes:
    """The sizes of a measurement."""

    steps: int = 200
    runs: int = 7
    at_once: int = 64
    turns: int = 8
    waiting: int = 10_000
    gets: int = 1_000


TINY = Sizes(steps=3, runs=2, at_once=4, turns=2, waiting=20, gets=10)


def count(is_async: bool, steps: int) -> Flow[int]:
    total = 0
    for number in range(steps):
        total = yield from (add_async if is_async else add)(total, number)
    return total


@step
def note() -> int:
    performed[0] += 1
    return performed[0]


def nap(turns: int) -> Flow[None]:
    for _ in range(turns):
        yield from note()
        yield from Sleep(0.001)


def shop(place: str) -> Server:
    tasks = RestateTasks.from_url(place)
    tasks.share = tasks.limit = 1_000_000
    app = Server("shop", keys=Keys(make_key(KEY)), tasks=tasks)
    for function in (count, nap, ask):
        app.tool(task="required")(function)
    return app


async def work(place: str, fd: int, is_first: bool) -> None:
    """Run turns; do what the orders say, and say what it took."""
    app = shop(place)
    tasks = app.tasks
    assert isinstance(tasks, RestateTasks)
    listening = socket.socket(fileno=fd)
    listening.setblocking(False)
    url = "http://{}:{}".format(*listening.getsockname())
    listener = await SocketListener.from_socket(listening)

    async def end(rows: list[TaskRow]) -> None:
        for row in rows:
            while True:
                found = await trio.to_thread.run_sync(tasks.read, row.id)
                if found is not None and found.is_ended:
                    assert found.status == "completed", found
                    break
                await trio.sleep(0.1)

    given = orders()
    async with loop.running(app), trio.open_nursery() as nursery:
        advertise = url if is_first else None
        nursery.start_soon(
            partial(serve_engine, app, tasks, listener, advertise=advertise)
        )
        while (order := await trio.to_thread.run_sync(next, given, None)) is not None:
            match order:
                case ["ready"]:
                    named = f"name = '{tasks.service}'"
                    sql = f"SELECT name FROM sys_service WHERE {named}"
                    # The engine registers the service on its own.
                    while not await trio.to_thread.run_sync(tasks.engine.query, sql):  # noqa: ASYNC110
                        await trio.sleep(0.05)
                    say(True)
                case ["used"]:
                    say([time.process_time(), performed[0]])
                case ["count", is_async, steps]:
                    row = some_row("count", is_async=is_async, steps=steps)
                    started = time.process_time()
                    await trio.to_thread.run_sync(tasks.create, row)
                    await end([row])
                    say(time.process_time() - started)
                case _:
                    raise ValueError(order)
        nursery.cancel_scope.cancel()


def some_row(tool: str, **arguments: Any) -> TaskRow:
    return new_row(random.SystemRandom().getrandbits(100), tool, **arguments)


async def serve(place: str) -> None:
    app = shop(place)
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(http_transport.serve, app, port=0))
        say(bound[0].socket.getsockname()[1])
        given = orders()
        while await trio.to_thread.run_sync(next, given, None) is not None:
            pass
        nursery.cancel_scope.cancel()


# ---- measuring ----------------------------------------------------------------------


def place_of(node: Node, name: str) -> str:
    return f"restate+{node.ingress}?admin={node.admin}&name={name}"


@contextmanager
def workers(node: Node, name: str, number: int) -> Iterator[list[Worker]]:
    with socket.create_server(("127.0.0.1", 0)) as listening, ExitStack() as stack:
        fd = listening.fileno()
        place = place_of(node, name)
        found = [
            stack.enter_context(
                Worker("work", place, fd, int(not one), module="restate", fd=fd)
            )
            for one in range(number)
        ]
        for one in found:
            one.do("ready")
        yield found


def measure_steps(
    sizes: Sizes, node: Node, at: Path, postgres: str | None
) -> dict[str, list[float]]:
    """Return the CPU milliseconds of a step, of each kind, run by run."""
    with ExitStack() as stack:
        (engine,) = stack.enter_context(workers(node, "steps", 1))
        sqlite = stack.enter_context(Worker("work", at / "steps.db"))
        kinds = {
            "Restate": partial(engine.do, "count", False),
            "Restate, async": partial(engine.do, "count", True),
            "SQLite": partial(sqlite.do, "count", "effectmcp"),
            "SQLite, async": partial(sqlite.do, "count", "effectmcp, async"),
        }
        if postgres is not None:
            kinds["DBOS, PostgreSQL"] = partial(
                stack.enter_context(Worker("dbos", postgres)).do, "count", "DBOS"
            )
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for do in kinds.values():
            do(sizes.steps)  # warm
        chance = random.Random(0)
        order = list(kinds.items())
        for _ in range(sizes.runs):
            chance.shuffle(order)
            for name, do in order:
                times[name].append(do(sizes.steps) / sizes.steps * 1e3)
    return times


def measure_turns(sizes: Sizes, node: Node, number: int) -> dict[str, float]:
    """Return turns per second, CPU milliseconds of a turn, and the least worker's share."""
    name = f"turns{number}"
    tasks = RestateTasks.from_url(place_of(node, name))
    tasks.share = 1_000_000
    with workers(node, name, number) as found, ThreadPoolExecutor(8) as pool:

        def run() -> None:
            rows = [some_row("nap", turns=sizes.turns) for _ in range(sizes.at_once)]
            list(pool.map(tasks.create, rows))
            for row in rows:
                while not getattr(tasks.read(row.id), "is_ended", False):
                    time.sleep(0.02)

        run()  # warm
        before = [one.do("used") for one in found]
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        after = [one.do("used") for one in found]
    tasks.close()
    turns = sizes.at_once * (sizes.turns + 1)
    cpu = sum(now[0] - then[0] for now, then in zip(after, before, strict=True))
    shares = [now[1] - then[1] for now, then in zip(after, before, strict=True)]
    return {
        "per_second": turns / seconds,
        "cpu_ms": cpu / turns * 1e3,
        "least_share": min(shares) / sum(shares),
    }


def measure_waiting(sizes: Sizes, node: Node) -> tuple[list[float], list[float]]:
    """Return the engine's MB before and with all tasks, and ms of `tasks/get`."""
    name = "waiting"
    tasks = RestateTasks.from_url(place_of(node, name))
    tasks.share = tasks.limit = 1_000_000
    with (
        workers(node, name, 1),
        Worker("serve", place_of(node, name), module="restate") as server,
    ):
        port = server.hear()
        memory = [resident(node.process.pid)]
        rows = [some_row("ask") for _ in range(sizes.waiting)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(tasks.create, rows))
        for row in rows[:: max(1, sizes.waiting // 100)]:
            while not getattr(tasks.read(row.id), "questions", None):
                time.sleep(0.05)
        memory.append(resident(node.process.pid))
        client = Http(port)
        chance = random.Random(0)
        times = []
        for _ in range(sizes.gets):
            message = request("tasks/get", taskId=chance.choice(rows).id)
            started = time.perf_counter()
            client.ask(message)
            times.append((time.perf_counter() - started) * 1e3)
    tasks.close()
    return memory, times


def main(program: Path, postgres: str | None, sizes: Sizes) -> None:
    with folder() as at:
        node = Node(program, at / "engine")
        node.start()
        try:
            steps = measure_steps(sizes, node, at, postgres)
            one, two = (measure_turns(sizes, node, number) for number in (1, 2))
            memory, gets = measure_waiting(sizes, node)
        finally:
            node.stop()
    print(f"{'a step, CPU ms':26} {'best':>7} {'median':>7}")
    for name, found in steps.items():
        print(f"{name:26} {min(found):7.3f} {statistics.median(found):7.3f}")
    print(f"\n{'turns':26} {'per s':>7} {'CPU ms':>7} {'least share':>12}")
    for name, each in (("one worker", one), ("two workers", two)):
        print(
            f"{name:26} {each['per_second']:7.0f} {each['cpu_ms']:7.2f}"
            f" {each['least_share']:12.2f}"
        )
    median, late = spread(gets)
    print(
        f"\ntasks/get of {sizes.waiting:,}: median {median:.2f} ms, p99 {late:.2f} ms;"
        f" the engine's MB before and with them: {memory[0]:.0f} and {memory[1]:.0f}"
    )
    print(
        json.dumps(
            {
                "benchmark": "restate",
                "step_ms": {name: round(min(one), 3) for name, one in steps.items()},
                "one": {name: round(value, 3) for name, value in one.items()},
                "two": {name: round(value, 3) for name, value in two.items()},
                "get_ms": [round(median, 2), round(late, 2)],
                "mb": [round(each) for each in memory],
            }
        )
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", place, fd, is_first]:
            trio.run(work, place, int(fd), bool(int(is_first)))
        case ["serve", place]:
            trio.run(serve, place)
        case _:
            parser = argparse.ArgumentParser(description=__doc__)
            parser.add_argument("program", type=Path)
            parser.add_argument("--postgres")
            parser.add_argument("--tiny", action="store_true")
            given = parser.parse_args()
            main(given.program, given.postgres, TINY if given.tiny else Sizes())
