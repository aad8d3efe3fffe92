"""Measure tasks in a SQLite file: what a durable step costs, and what waiting ones cost.

    a step    flows of plain functions as steps, in turns with DBOS on its SQLite database
              if it is installed: the CPU time of the whole process, and the times that
              it waits for the disk, counted by strace in a run of its own
    a turn    32 tasks at once, each with a step and a short sleep in each turn: how many
              turns share one wait for the disk
    an answer from posting it until the task asks its next question, with the poster in
              the process that works and in another one
    waiting   a server over HTTP that has 10,000 tasks waiting for an answer: how much its
              memory grows, and how long `tasks/get` takes

Every server is a process of its own. Prints tables for people and one JSON line for
machines.

    python -m benchmarks.tasks
"""

from __future__ import annotations

import gc
import http.client
import importlib
import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from operator import truediv
from pathlib import Path
from typing import IO, Any

import trio
from attrs import frozen

from effectmcp import Elicit, Flow, Server, Sleep, Step, step
from effectmcp.drivers import trio as loop
from effectmcp.state import Keys, make_key
from effectmcp.tasks import Mail, SqliteTasks
from effectmcp.transports import http as http_transport
from effectmcp.transports.working import working

KEY = bytes(range(32))
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}
OURS, ASYNC, ONCE, DBOS = "effectmcp", "effectmcp, async", "effectmcp, once", "DBOS"


@frozen
class Sizes:
    """The sizes of a measurement."""

    steps: int = 200
    runs: int = 10
    at_once: int = 32
    turns: int = 20
    answers: int = 200
    waiting: int = 10_000
    gets: int = 2_000


TINY = Sizes(steps=3, runs=2, at_once=4, turns=3, answers=3, waiting=20, gets=10)


# ---- the flows ----------------------------------------------------------------------


@step
def add(total: int, number: int) -> int:
    return total + number


@step
async def add_async(total: int, number: int) -> int:
    return total + number


@step(at_most_once=True)
def add_once(total: int, number: int) -> int:
    return total + number


STEPS: Mapping[str, Callable[[int, int], Step[int]]] = {
    OURS: add,
    ASYNC: add_async,
    ONCE: add_once,
}


def count(name: str, steps: int) -> Flow[int]:
    total = 0
    for number in range(steps):
        total = yield from STEPS[name](total, number)
    return total


def nap(turns: int) -> Flow[int]:
    total = 0
    for number in range(turns):
        total = yield from add(total, number)
        yield from Sleep(0.001)
    return total


def ask() -> Flow[None]:
    number = 0
    while True:
        number += 1
        yield from Elicit(f"Who is guest number {number}?", str)


def shop(path: str) -> Server:
    # One client creates all, and would have no other share.
    tasks = SqliteTasks(path, share=1_000_000)
    app = Server("shop", keys=Keys(make_key(KEY)), tasks=tasks)
    for function in (count, nap, ask):
        app.tool(task="required")(function)
    return app


# ---- the processes that are measured ------------------------------------------------


def orders() -> Iterator[list[Any]]:
    """Yield what the measuring process writes to this one."""
    for line in sys.stdin:
        yield json.loads(line)


def say(value: object) -> None:
    print(json.dumps(value), flush=True)


def request(method: str, **params: object) -> dict[str, Any]:
    params = {**params, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def call(tool: str, **arguments: object) -> dict[str, Any]:
    return request("tools/call", name=tool, arguments=arguments)


async def work(path: str) -> None:
    """Run tasks as `serve` runs them; do what the orders say, and say what it took."""
    app = shop(path)
    tasks = app.tasks
    assert isinstance(tasks, SqliteTasks)

    async def start(message: dict[str, Any]) -> str:
        reply: Any = (await loop.handle(app, message)).message
        id_: str = reply["result"]["taskId"]
        return id_

    async def end(ids: list[str]) -> None:
        for id_ in ids:
            row = None
            # A listener would cost CPU for each save, and so do frequent looks.
            while row is None:
                await trio.sleep(0.02)
                found = tasks.read(id_)
                row = found if found is not None and found.is_ended else None
            assert row.status == "completed", row

    given = orders()
    async with loop.running(app), working(loop, app):
        while (order := await trio.to_thread.run_sync(next, given, None)) is not None:
            match order:
                case ["count", name, steps]:
                    started = time.process_time()
                    await end([await start(call("count", name=name, steps=steps))])
                    say(time.process_time() - started)
                case ["nap", at_once, turns]:
                    started = time.process_time()
                    message = call("nap", turns=turns)
                    await end([await start(message) for _ in range(at_once)])
                    say(time.process_time() - started)
                case ["ask"]:
                    say(await start(call("ask")))
                case ["answer", times]:
                    id_ = await start(call("ask"))
                    say(await trio.to_thread.run_sync(answer, tasks, id_, times))
                case _:
                    raise ValueError(order)


async def serve(path: str) -> None:
    app = shop(path)
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(http_transport.serve, app, port=0))
        say(bound[0].socket.getsockname()[1])
        given = orders()
        while await trio.to_thread.run_sync(next, given, None) is not None:
            pass
        nursery.cancel_scope.cancel()


def dbos(place: str) -> None:
    """Run the flow of `count` as a workflow of DBOS, in a file or at a URL."""
    url = place if "://" in place else f"sqlite:///{place}"
    its: Any = importlib.import_module("dbos").DBOS
    its(config={"name": "shop", "system_database_url": url, "log_level": "ERROR"})
    do = its.step(name="add")(lambda total, number: total + number)

    @its.workflow(name="count")  # type: ignore[untyped-decorator]  # not imported above
    def workflow(steps: int) -> int:
        total = 0
        for number in range(steps):
            total = do(total, number)
        return total

    its.launch()
    for _, _, steps in orders():
        started = time.process_time()
        workflow(steps)
        say(time.process_time() - started)
    its.destroy()


# ---- measuring ----------------------------------------------------------------------


class Worker:
    """A process of `work`, `serve` or `dbos`.

    Args:
        kind: The name of the function.
        *about: Its arguments; the first is its file.
        trace: Where strace is to write the times that it waits for the disk.
        module: The benchmark.
        fd: A file that the process inherits.
    """

    def __init__(
        self,
        kind: str,
        *about: object,
        trace: Path | None = None,
        module: str = "tasks",
        fd: int | None = None,
    ) -> None:
        command = [sys.executable, "-m", f"benchmarks.{module}", kind]
        command += map(str, about)
        if trace is not None:
            watched = ["-f", "--seccomp-bpf", "-qq", "-e", "trace=fsync,fdatasync"]
            command = ["strace", *watched, "-o", str(trace), *command]
        self.trace = trace
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=() if fd is None else (fd,),
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.input.close()
        self.process.wait()

    @property
    def input(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def do(self, *order: object) -> Any:
        self.input.write(json.dumps(order) + "\n")
        self.input.flush()
        return self.hear()

    def syncs(self, *order: object) -> int:
        """Return how often the disk is waited for until an order is done."""
        assert self.trace is not None
        before = self.trace.read_text().count("sync(")
        self.do(*order)
        return self.trace.read_text().count("sync(") - before


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a new folder on a disk, as `/tmp` may be memory."""
    disk = Path("/var/tmp")
    with tempfile.TemporaryDirectory(dir=disk if disk.exists() else None) as name:
        yield Path(name)


def has_dbos() -> bool:
    return importlib.util.find_spec("dbos") is not None


def has_strace() -> bool:
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(
        ["strace", "-f", "--seccomp-bpf", "-qq", "-o", os.devnull, "true"],
        capture_output=True,
    )
    return tried.returncode == 0


def kinds() -> dict[str, str]:
    """Return the function that runs each kind of step."""
    ours = dict.fromkeys(STEPS, "work")
    return {**ours, DBOS: "dbos"} if has_dbos() else ours


def measure_steps(sizes: Sizes, at: Path) -> dict[str, list[float]]:
    """Return the CPU milliseconds of a step, of each kind, run by run."""
    times: dict[str, list[float]] = {name: [] for name in kinds()}
    with ExitStack() as stack:
        running = {
            kind: stack.enter_context(Worker(kind, at / f"{kind}.db"))
            for kind in sorted(set(kinds().values()))
        }
        orders = [(name, running[kind]) for name, kind in kinds().items()]
        for name, worker in orders:
            worker.do("count", name, sizes.steps)  # warm
        # In random order, as each finds the caches as the one before left them.
        chance = random.Random(0)
        for _ in range(sizes.runs):
            chance.shuffle(orders)
            for name, worker in orders:
                seconds = worker.do("count", name, sizes.steps)
                times[name].append(seconds / sizes.steps * 1e3)
    return times


def count_syncs(sizes: Sizes, at: Path) -> dict[str, float]:
    """Return how often the disk is waited for: for a step of each kind, and for a turn."""
    found = {}
    for name, kind in kinds().items():
        with Worker(kind, at / f"{name}.db", trace=at / f"{name}.txt") as worker:
            worker.do("count", name, 1)
            found[name] = worker.syncs("count", name, sizes.steps) / sizes.steps
    with Worker("work", at / "turns.db", trace=at / "turns.txt") as worker:
        worker.do("nap", 1, 1)
        # The difference of two runs, as each creation is a wait of its own: its reply
        # leaves before the next call comes.
        few, many = (
            worker.syncs("nap", sizes.at_once, turns)
            for turns in (sizes.turns, 3 * sizes.turns)
        )
        found["turn"] = (many - few) / (sizes.at_once * 2 * sizes.turns)
    return found


def answer(tasks: SqliteTasks, id_: str, times: int) -> list[float]:
    """Answer the questions of a task; return the seconds until it asks the next one."""
    changed = threading.Event()

    def heard(changed_id: str) -> None:
        if changed_id == id_:
            changed.set()

    def question(last: str) -> str:
        while True:
            changed.clear()
            row = tasks.read(id_)
            assert row is not None
            for key in row.questions:
                if key != last:
                    return key
            # Changes of another process are noticed late, so look for them.
            changed.wait(None if tasks.is_worked else 0.0005)

    found = []
    end = tasks.watch(heard)
    key = question("")
    for number in range(times):
        # Not in step with the looks of the other process.
        time.sleep(random.Random(number).uniform(0.01, 0.03))
        started = time.perf_counter()
        value = {"action": "accept", "content": {"value": "Ann"}}
        tasks.post(id_, [Mail(f"answer:{key}", "answer", key, value)])
        key = question(key)
        found.append(time.perf_counter() - started)
    end()
    return found


def measure_answers(sizes: Sizes, at: Path) -> dict[str, list[float]]:
    """Return the milliseconds from an answer to the next question."""
    times = {}
    with Worker("work", at / "answers.db") as worker:
        times["in one process"] = worker.do("answer", sizes.answers)
        tasks = SqliteTasks(at / "answers.db")
        times["across two"] = answer(tasks, worker.do("ask"), sizes.answers)
        tasks.close()
    return {name: [one * 1e3 for one in found] for name, found in times.items()}


def resident(pid: int) -> float:
    """Return the memory of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [one for one in status.splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


class Http:
    """One connection of a client."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        params = message["params"]
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": message["method"],
            "mcp-name": params.get("name") or params["taskId"],
        }
        self.connection.request("POST", "/mcp", json.dumps(message), headers)
        reply: dict[str, Any] = json.loads(self.connection.getresponse().read())
        result: dict[str, Any] = reply["result"]
        return result


def measure_waiting(sizes: Sizes, at: Path) -> tuple[list[float], list[float]]:
    """Return a server's MB with a tenth of the tasks and with all, and ms of `tasks/get`."""
    with Worker("serve", at / "waiting.db") as worker:
        port = worker.hear()
        store = SqliteTasks(at / "waiting.db")

        def create(number: int) -> None:
            client = Http(port)
            for _ in range(number):
                client.ask(call("ask"))

        def waiting() -> list[str]:
            rows = store.find(limit=sizes.waiting)
            return [row.id for row in rows if row.status == "input_required"]

        memory: list[float] = []
        ids: list[str] = []
        created = 0
        for until in (sizes.waiting // 10, sizes.waiting):
            with ThreadPoolExecutor(8) as pool:
                each, rest = divmod(until - created, 8)
                numbers = [each + (number < rest) for number in range(8)]
                for _ in pool.map(create, numbers):
                    pass
            created = until
            while len(ids := waiting()) < created:
                time.sleep(0.1)
            memory.append(resident(worker.process.pid))
        store.close()
        client = Http(port)
        chance = random.Random(0)
        times = []
        # Not of the client.
        gc.disable()
        for _ in range(sizes.gets):
            message = request("tasks/get", taskId=chance.choice(ids))
            started = time.perf_counter()
            client.ask(message)
            times.append((time.perf_counter() - started) * 1e3)
        gc.enable()
    return memory, times


def spread(times: list[float]) -> tuple[float, float]:
    """Return the median, and what 99 of 100 stay below."""
    ordered = sorted(times)
    return statistics.median(ordered), ordered[int(len(ordered) * 0.99)]


# ---- the report ---------------------------------------------------------------------


def main(sizes: Sizes) -> None:
    with folder() as at:
        times = measure_steps(sizes, at)
        syncs = count_syncs(sizes, at) if has_strace() else {}
        answers = measure_answers(sizes, at)
        memory, gets = measure_waiting(sizes, at)
    print(f"{'a step':26} {'best CPU ms':>12} {'median':>7} {'ratio':>6} {'fsyncs':>7}")
    # Other load on the machine slows down the server that is running, so compare only
    # times of the same run.
    ratios = {
        name: statistics.median(map(truediv, found, times[DBOS]))
        for name, found in times.items()
        if DBOS in times
    }
    for name, found in times.items():
        print(
            f"{name:26} {min(found):12.3f} {statistics.median(found):7.3f}"
            f" {ratios.get(name, float('nan')):6.2f}"
            f" {syncs.get(name, float('nan')):7.2f}"
        )
    if DBOS not in times:
        print("(DBOS is not installed: pip install dbos)")
    if syncs:
        each = syncs["turn"]
        print(f"\n{sizes.at_once} tasks at work: an fsync for {1 / each:.1f} turns")
    else:
        print("(fsyncs are not counted: strace does not run here)")
    print(f"\n{'ms':26} {'median':>7} {'p99':>7}")
    tables = {f"an answer, {name}": found for name, found in answers.items()}
    tables[f"tasks/get of {sizes.waiting:,}"] = gets
    for name, found in tables.items():
        print(f"{name:26} {spread(found)[0]:7.2f} {spread(found)[1]:7.2f}")
    few, all_ = memory
    print(
        f"\nMB with {sizes.waiting // 10:,} and {sizes.waiting:,} waiting tasks:",
        end="",
    )
    print(f" {few:.1f} and {all_:.1f}")
    print(
        json.dumps(
            {
                "benchmark": "tasks",
                "step_ms": {name: round(min(one), 3) for name, one in times.items()},
                "ratio": {name: round(one, 2) for name, one in ratios.items()},
                "syncs": {name: round(one, 3) for name, one in syncs.items()},
                "p99_ms": {
                    name: round(spread(one)[1], 2) for name, one in tables.items()
                },
                "mb": [round(one, 1) for one in memory],
            }
        )
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", path]:
            trio.run(work, path)
        case ["serve", path]:
            trio.run(serve, path)
        case ["dbos", place]:
            dbos(place)
        case arguments:
            with suppress(KeyboardInterrupt):
                main(TINY if arguments == ["--tiny"] else Sizes())
