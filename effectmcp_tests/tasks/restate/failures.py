"""Many tasks while something fails, and the judgement of what is left.

    python -m effectmcp_tests.tasks.restate.failures --tasks 1000 --kills 500

Each task performs steps, one of them at most once, asks and sleeps. Its steps write to a
log. The log is judged, and not the code:

    every task ends with the right result
    a step that is `at_most_once` began once at most
    a step that began again had the same idempotency key
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from attrs import define, field

from effectmcp.errors import TaskStoreError
from effectmcp.exchange.task_rows import TaskRow
from effectmcp.tasks.restate import RestateTasks

from ..kills import campaign
from .engines import Node, install
from .flaky import Proxy
from .workers import Worker, answer, new_row, until, working

__all__ = ["Load"]

T = TypeVar("T")

SOURCE = """
import json, os, pathlib, time
from effectmcp import Elicit, Flow, IdempotencyKey, Server, Sleep, StepInterrupted, step

app = Server("load")
LOG = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(*what: object) -> None:
    os.write(LOG, (json.dumps([os.getpid(), *what]) + "\\n").encode())

@step
def add(number: int, total: int, key: str) -> int:
    note("add", number, key)
    return total + number

@step(at_most_once=True)
def pay(number: int) -> str:
    note("pay", number)
    return "paid"

@app.tool(task="required")
def tool(number: int, asks: bool, turns: int) -> Flow[str]:
    total = 0
    key = yield from IdempotencyKey("add", number)
    for turn in range(turns):
        total = yield from add(number, total, f"{{key}} {{turn}}")
        yield from Sleep(0.01)
    try:
        paid = yield from pay(number)
    except StepInterrupted:
        paid = "interrupted"
    name = (yield from Elicit("Who?", str)) if asks else "nobody"
    return f"{{total}} {{paid}} {{name}}"
"""


@define(eq=False)
class Load:
    """A deployment, and tasks that run on it.

    Args:
        node: The engine.
        folder: An empty folder.
        name: The name of the tasks.
    """

    node: Node
    folder: Path
    name: str
    tasks: RestateTasks = field(init=False)
    rows: list[TaskRow] = field(factory=list)
    source: Path = field(init=False)
    log: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tasks = RestateTasks(
            self.node.ingress, self.node.admin, name=self.name, share=1_000_000
        )
        self.source = self.folder / "app.py"
        self.log = self.folder / "steps"
        self.log.touch()
        self.source.write_text(SOURCE.format(log=str(self.log)))

    def worker(self, number: int = 0, **options: object) -> Worker:
        """Return a worker that is not started."""
        log = self.folder / f"worker{number}.log"
        return Worker(self.node, self.name, self.source, log, **options)  # type: ignore[arg-type]  # as given

    def create(self, count: int, *, turns: int = 3) -> None:
        """Create tasks; a third of them ask. While the engine is away, try again."""
        first = len(self.rows)
        for number in range(first, first + count):
            asks = number % 3 == 0
            row = new_row(number, number=number, asks=asks, turns=turns)
            self.rows.append(row)
            repeat(partial(self.tasks.create, row))

    def finish(self) -> None:
        """Answer all questions, and wait for the ends."""
        with ThreadPoolExecutor(8) as pool:
            for one in [pool.submit(self._finish, row) for row in self.rows]:
                one.result()

    def _finish(self, row: TaskRow) -> None:
        if row.arguments["asks"]:
            repeat(partial(answer, self.tasks, row.id, "Ann"))
        until(
            lambda: (now := repeat(partial(self.tasks.read, row.id))) and now.is_ended
        )

    def judge(self) -> Counter[str]:
        """Judge the log and the results; return how often what happened."""
        found: Counter[str] = Counter()
        keys: dict[tuple[int, str], int] = {}
        for line in self.log.read_text().splitlines():
            _, name, number, *more = json.loads(line)
            found[name] += 1
            if name == "pay":
                assert (number, "pay") not in keys, f"pay {number} began twice"
                keys[number, "pay"] = 1
            else:
                turn = more[0].rpartition(" ")[2]
                known = keys.setdefault((number, turn), more[0])
                assert known == more[0], f"add {number} had two keys"
        for number, row in enumerate(self.rows):
            now = self.tasks.read(row.id)
            assert now is not None, number
            assert now.status == "completed", now
            assert now.result is not None
            content: object = now.result["content"]
            assert isinstance(content, list)
            total, paid, name = content[0]["text"].split()
            turns = row.arguments["turns"]
            assert int(total) == number * turns, now
            assert name == ("Ann" if number % 3 == 0 else "nobody"), now
            assert (paid == "interrupted") or (number, "pay") in keys, now
            found[paid] += 1
        return found


def repeat(call: Callable[[], T]) -> T:
    """Call until the store answers; return what it says."""
    while True:
        try:
            return call()
        except TaskStoreError:
            time.sleep(0.1)


def main(arguments: Sequence[str]) -> None:
    """Kill workers at random points; then run tasks over a network that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/effectmcp")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        node = Node(install(options.cache), folder / "engine")
        node.start()
        stack.callback(node.stop)
        if options.kills:
            place = f"restate+{node.ingress}?admin={node.admin}&name=kills"
            campaign(options.kills, options.seed, place=place)
        load = Load(node, folder, "network")
        worker = load.worker()
        proxy = Proxy(
            ("127.0.0.1", worker.port), seed=options.seed, delay=0.005, cut=0.01
        )
        stack.callback(proxy.close)
        worker.advertise = f"http://127.0.0.1:{proxy.port}"
        # Sooner than for real workers, so that a cut cable costs seconds.
        worker.silence = 1.0
        stack.enter_context(working(worker))
        started = time.monotonic()
        load.create(options.tasks)
        load.finish()
        seconds = time.monotonic() - started
        print(
            f"{options.tasks} tasks, {proxy.cuts} cuts, {seconds:.0f} s:"
            f" {dict(load.judge())}: nothing is lost, nothing twice that may not be"
        )
        load.tasks.close()


if __name__ == "__main__":
    main(sys.argv[1:])
