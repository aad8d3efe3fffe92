"""Tasks on a real Restate keep the contract of a `TaskHost`."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from anyio.abc import SocketListener

from effectmcp import Flow, Server, step
from effectmcp.drivers.loops import run, running_loop
from effectmcp.tasks import TaskHost
from effectmcp.tasks.restate import RestateTasks
from effectmcp.tasks.restate import engine as requests
from effectmcp.tasks.restate.attempts import owner_tag
from effectmcp.tasks.restate.endpoint import serve
from effectmcp.testing.task_contract import (
    TASK_CHECKS,
    Ability,
    Fault,
    check_tasks,
)

from ..rows import new_row
from . import engines

pytestmark = pytest.mark.restate


class Bench:
    """`RestateTasks` on one engine, with workers in threads that share an address."""

    lacks: frozenset[Ability] = frozenset()
    _names = count()

    def __init__(self, engine: engines.Node) -> None:
        self._engine = engine
        self._name = ""
        self._socket: socket.socket | None = None

    @contextmanager
    def fresh(self) -> Iterator[None]:
        self._name = f"check{next(self._names)}"
        self._socket = socket.create_server(("127.0.0.1", 0))
        with self._socket, self.working(Server("nobody"), is_first=True):
            pass
        self._socket = socket.create_server(self._socket_name)
        with self._socket:
            yield

    def open(self) -> RestateTasks:
        return RestateTasks(self._engine.ingress, self._engine.admin, name=self._name)

    def close(self, host: TaskHost) -> None:
        assert isinstance(host, RestateTasks)
        host.close()

    @contextmanager
    def working(self, app: Server, *, is_first: bool = False) -> Iterator[None]:
        assert self._socket is not None
        listening = self._socket.dup()
        self._socket_name = listening.getsockname()
        url = "http://{}:{}".format(*self._socket_name) if is_first else None
        stops: list[Any] = []
        ready = threading.Event()
        failures: list[BaseException] = []
        tasks = self.open() if is_first else app.tasks
        assert isinstance(tasks, RestateTasks)

        async def main() -> None:
            listening.setblocking(False)
            loop = running_loop()
            listener = await SocketListener.from_socket(listening)
            stopping = loop.Bell()

            async with loop.running(app), loop.crew() as spawn:

                def give(stop: Any) -> None:
                    async def obey() -> None:
                        await stopping.wait()
                        stop()

                    spawn(obey)
                    stops.append(stopping.ring)
                    if not is_first:
                        ready.set()

                await serve(app, tasks, listener, advertise=url, grace=1, give=give)

        def work() -> None:
            try:
                # The second worker of a store runs on the other loop.
                run("trio" if is_first else "asyncio", main)
            except BaseException as exc:
                failures.append(exc)
            finally:
                ready.set()

        thread = threading.Thread(target=work)
        thread.start()
        if is_first:
            while not tasks.engine.query(
                f"SELECT name FROM sys_service WHERE name = '{tasks.service}'"
            ):
                pass
        else:
            assert ready.wait(60)
        try:
            yield
        finally:
            for stop in stops:
                stop()
            thread.join(60)
            if is_first:
                tasks.close()
        assert not failures, failures

    @contextmanager
    def failing(self, host: TaskHost, fault: Fault) -> Iterator[None]:
        assert isinstance(host, RestateTasks)
        match fault:
            case "away":
                self._engine.stop(signal.SIGKILL)
                yield
                self._engine.start()
            case "full":
                self._engine.fill()
                yield
                self._engine.stop(signal.SIGKILL)
                self._engine.start()
            case "locked":
                # Who connects, gets no answer.
                with socket.create_server(("127.0.0.1", 0)) as silent:
                    url = "http://{}:{}".format(*silent.getsockname())
                    own, host.engine = host.engine, requests.Engine(url, url)
                    yield
                    host.engine = own

    def refuse(self, ability: Ability) -> None:
        raise AssertionError("it lacks nothing")


def test_a_task_is_counted_once_while_its_first_turn_runs(
    engine: engines.Node,
) -> None:
    """Such a task has a state, while its first request has not ended."""
    began, go_on = threading.Event(), threading.Event()

    @step
    def work() -> None:
        began.set()
        go_on.wait(60)

    def job() -> Flow[None]:
        yield from work()

    bench = Bench(engine)
    with bench.fresh():
        app = Server("shop", tasks=bench.open())
        app.tool(name="job")(job)
        tasks = app.tasks
        assert isinstance(tasks, RestateTasks)
        counts = []

        def count_tasks() -> None:
            counts.append(dict(tasks._count()))

        count_tasks()
        id_ = "0f" * 20
        tasks.create(new_row(id_, tool="job", arguments={}))
        count_tasks()
        with bench.working(app):
            assert began.wait(60)
            count_tasks()
            go_on.set()
        tasks.close()
    one = {owner_tag(None).decode(): 1}
    assert counts == [{}, one, one]


@pytest.mark.parametrize("name", TASK_CHECKS)
def test_it_keeps_the_contract(
    engine: engines.Node, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PATIENCE", 2.0)
    check_tasks(Bench(engine), name)
