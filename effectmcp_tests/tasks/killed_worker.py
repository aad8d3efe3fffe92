"""A worker that kills itself at a point of its own, and a process that forks such workers.

    python -m effectmcp_tests.tasks.killed_worker           forks a worker for each line
    python -m effectmcp_tests.tasks.killed_worker PLAN      is one worker

A plan is a JSON object, see `Plan`. A worker creates its task, which has no effect the
second time, runs its turns, answers its questions, and exits when it has ended. It counts
points: the commands of its turns, and the begin and the end of each step. At the point of
its plan it kills itself. Everything that happens is appended to a log.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import trio
from anyio.abc import SocketListener
from attrs import asdict, field, frozen

from effectmcp import (
    Elicit,
    Flow,
    Gather,
    IdempotencyKey,
    Server,
    Sleep,
    StepInterrupted,
    Within,
    step,
)
from effectmcp.drivers import asyncio as on_asyncio
from effectmcp.drivers import trio as on_trio
from effectmcp.engine import Journal
from effectmcp.errors import TaskStoreError
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.tasks import SqliteTasks, playing
from effectmcp.tasks.restate import RestateTasks, is_engine
from effectmcp.tasks.restate.endpoint import serve
from effectmcp.tasks.stores import Store
from effectmcp.tasks.turn import Save, Start, Turn, Wait, turn
from effectmcp.transports.working import working

from .simulated import CAPABILITIES, accepted, new

__all__ = ["Plan", "main", "written"]


@frozen
class Plan:
    """The orders of a worker.

    Attributes:
        place: The store: a file, or the URL of an engine.
        log: The file to append to.
        loop: `asyncio` or `trio`.
        kill: The point at which it kills itself; below 0 for never.
        tools: The tools whose tasks it creates.
        gate: A named pipe that the tool `blocked` reads in its step.
    """

    place: str
    log: str
    loop: str = "asyncio"
    kill: int = -1
    tools: tuple[str, ...] = ("shop",)
    gate: str = ""

    def id_of(self, tool: str) -> str:
        """Return the id of the task of a tool; no other run has the same."""
        return blake2b(f"{self.log} {tool}".encode(), digest_size=20).hexdigest()

    def task_of(self, tool: str) -> TaskRow:
        """Return the first row of the task of a tool."""
        return new(
            tool,
            id=self.id_of(tool),
            flow_id=f"the flow of {tool}".encode(),
            created=0.0,
            capabilities=CAPABILITIES,
        )

    def open(self) -> Store:
        """Return the store, as a process that starts has it."""
        if is_engine(self.place):
            return RestateTasks.from_url(self.place)
        return SqliteTasks(self.place)


@frozen
class _Life:
    """The worker of this process."""

    plan: Plan
    _points: list[int] = field(factory=lambda: [0])
    _ended: set[str] = field(factory=set)

    def note(self, what: str, **facts: Any) -> None:
        """Append a line to the log; it outlives this process."""
        facts = {"what": what, "pid": os.getpid(), "time": time.time(), **facts}
        line = json.dumps(facts) + "\n"
        file = os.open(self.plan.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, line.encode())
        os.close(file)
        if self.plan.gate:
            sys.stdout.write(line)
            sys.stdout.flush()

    def point(self) -> None:
        """Count this point; die here if it is the point of the plan."""
        number = self._points[0]
        self._points[0] += 1
        if number == self.plan.kill:
            self.note("killed", at=number)
            os.kill(os.getpid(), signal.SIGKILL)

    def perform(self, name: str, *about: Any) -> None:
        """Have an effect on the world, which no kill takes back."""
        self.point()
        self.note("effect", name=name, about=about)
        self.point()

    # ---- the handlers ----

    def server(self) -> Server:
        """Return the server."""
        life = self

        @step
        def charge(key: str, amount: int) -> int:
            life.perform("charge", key, amount)
            return amount

        @step(at_most_once=True)
        def pay(amount: int) -> str:
            life.perform("pay", amount)
            return "paid"

        @step(retries=2)
        async def fetch(what: str, key: str) -> str:
            life.perform("fetch", what, key)
            if life.count("fetch", what) == 1:
                raise OSError("down")
            return f"the {what}"

        @step
        def block(gate: str) -> str:
            life.perform("block", gate)
            with open(gate, "rb", buffering=0) as file:
                file.read(1)  # until another process writes
            return "open"

        def shop() -> Flow[dict[str, Any]]:
            key = yield from IdempotencyKey("charge", 10)
            first = yield from charge(key, 10)
            try:
                paid = yield from pay(7)
            except StepInterrupted:
                paid = "interrupted"
            name = yield from Elicit("Name?", str)
            other = yield from IdempotencyKey("charge", name)
            second, age = yield from Gather(
                charge(other, 20), Within(600, Elicit("Age?", int))
            )
            yield from Sleep(0.005)
            news = yield from fetch("news", key)
            return {
                "first": first,
                "paid": paid,
                "name": name,
                "second": second,
                "age": age,
                "news": news,
            }

        def blocked() -> Flow[str]:
            return (yield from block(life.plan.gate))

        def quick() -> Flow[int]:
            return (yield from charge("quick", 1))

        app = Server("shop", tasks=self.plan.open())
        for handler in (shop, blocked, quick):
            app.tool(handler)
        return app

    def count(self, name: str, *about: Any) -> int:
        """Return how often an effect was had so far, by all processes."""
        lines = map(json.loads, Path(self.plan.log).read_text().splitlines())
        return sum(
            line["what"] == "effect"
            and line["name"] == name
            and line["about"][: len(about)] == list(about)
            for line in lines
        )

    # ---- the turns ----

    def turn(self, app: Server, row: TaskRow, is_stopping: Callable[[], bool]) -> Turn:
        """Run a turn; each of its commands is a point."""
        going = turn(app, row, is_stopping)
        # Noted when they are durable: then, or at the end of the turn.
        saves: list[TaskRow] = []
        try:
            command = next(going)
            while True:
                self.point()
                try:
                    outcome = yield command
                except Exception as exc:
                    self.note("refused", task=row.tool, error=type(exc).__name__)
                    command = going.throw(exc)
                    continue
                if isinstance(command, Save):
                    saves.append(command.row)
                elif isinstance(command, (Start, Wait)):
                    self._note_saves(saves)
                command = going.send(outcome)
        except StopIteration as exc:
            self._note_saves(saves)
            return exc.value  # type: ignore[no-any-return]  # a row
        finally:
            going.close()

    def _note_saves(self, saves: list[TaskRow]) -> None:
        for row in saves:
            places = Journal.loads(row.journal).places
            self.note(
                "saved",
                task=row.tool,
                begun=sorted(place for place, one in places.items() if one.begun),
                tries=sorted(row.tries),
            )
        saves.clear()

    # ---- the client ----

    def follow(self, tasks: Store) -> None:
        """Answer questions until all tasks have ended; then exit."""
        news = threading.Event()
        tasks.watch(lambda id_: news.set())
        for tool in self.plan.tools:
            self._create(tasks, self.plan.task_of(tool))
        answered: set[str] = set()
        while True:
            news.clear()
            for tool in self.plan.tools:
                self._follow(tasks, self.plan.id_of(tool), answered)
            if len(self._ended) == len(self.plan.tools):
                os._exit(0)
            news.wait(0.5)

    def _create(self, tasks: Store, row: TaskRow) -> None:
        while True:
            try:
                tasks.create(row)
            except TaskStoreError:
                time.sleep(0.05)  # the engine does not know its workers yet
            else:
                return

    def _follow(self, tasks: Store, id_: str, answered: set[str]) -> None:
        row = tasks.read(id_)
        assert row is not None
        if row.is_ended and id_ not in self._ended:
            self._ended.add(id_)
            content = row.result and row.result.get("structuredContent")
            if content is None and row.result is not None:
                content = row.result["content"][0]["text"]
            self.note("ended", task=row.tool, status=row.status, result=content)
        for key, request in row.questions.items():
            if key in answered:
                continue
            answered.add(key)
            # Each process sends another answer: the first stored one counts.
            is_name = "Name" in request["params"]["message"]
            value: Any = f"Ann {os.getpid()}" if is_name else os.getpid()
            self.note("answers", task=row.tool, key=key, value=value)
            tasks.post(id_, [Mail(f"answer:{key}", "answer", key, accepted(value))])
            self.note("answered", task=row.tool, key=key, value=value)

    # ---- the process ----

    async def run(self, loop: Any) -> None:
        """Work until the tasks have ended."""
        vars(playing)["turn"] = self.turn
        # To try again sooner. `effectmcp.tasks.turn` is the function, too.
        sys.modules[turn.__module__].FIRST_PAUSE = 0.005  # type: ignore[attr-defined]
        app = self.server()
        tasks = app.tasks
        assert isinstance(tasks, (SqliteTasks, RestateTasks))
        async with loop.running(app), AsyncExitStack() as stack:
            if isinstance(tasks, SqliteTasks):
                await stack.enter_async_context(working(loop, app))
            else:
                spawn = await stack.enter_async_context(loop.crew())
                spawn(partial(self._serve, app, tasks))
            follower = threading.Thread(target=self.follow, args=(tasks,), daemon=True)
            follower.start()
            self.note("works")
            if loop is on_trio:
                await trio.sleep_forever()
            await asyncio.Event().wait()

    async def _serve(self, app: Server, tasks: RestateTasks) -> None:
        listening = _listening()
        url = "http://{}:{}".format(*listening.getsockname())
        listener = await SocketListener.from_socket(listening)
        known = tasks.engine.query(
            f"SELECT name FROM sys_service WHERE name = '{tasks.service}'"
        )
        await serve(app, tasks, listener, advertise=None if known else url)


@cache
def _listening() -> socket.socket:
    """Return where an engine calls all workers of this process and of its children."""
    found = socket.create_server(("127.0.0.1", 0))
    found.setblocking(False)
    return found


def _work(plan: Plan) -> None:
    life = _Life(plan)
    if plan.loop == "trio":
        trio.run(life.run, on_trio)
    else:
        asyncio.run(life.run(on_asyncio))


def _plans() -> Generator[Plan, None, None]:
    for line in sys.stdin:
        fields = json.loads(line)
        yield Plan(**{**fields, "tools": tuple(fields["tools"])})


def main() -> None:
    """Fork a worker for each line of standard input; print how it ended."""
    if len(sys.argv) > 1:
        fields = json.loads(sys.argv[1])
        _work(Plan(**{**fields, "tools": tuple(fields["tools"])}))
        return
    for plan in _plans():
        _listening()
        child = os.fork()
        if not child:
            try:
                _work(plan)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        print(json.dumps([child, os.waitstatus_to_exitcode(status)]), flush=True)


def written(plan: Plan) -> str:
    """Return a plan as a line."""
    return json.dumps(asdict(plan))


if __name__ == "__main__":
    main()
