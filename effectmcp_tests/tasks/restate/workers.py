"""Workers in processes of their own, and tasks for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field

from effectmcp.effects.local import CallerInfo
from effectmcp.exchange.task_rows import Mail, TaskRow
from effectmcp.tasks.restate import RestateTasks

from .engines import Node, free_ports

__all__ = ["PATIENCE", "Worker", "answer", "new_row", "until", "working"]

#: Seconds to wait for what must happen: far more than the slowest machine needs.
PATIENCE = 60.0

#: The command `effectmcp`, perhaps with other limits.
_WORKER = """
import sys
from effectmcp.cli import main
from effectmcp.tasks.restate import endpoint

silence = float(sys.argv.pop(1))
if silence:
    endpoint._SILENCE, endpoint._ABORT, endpoint._BEAT = silence, 0.2, silence / 3
sys.exit(main(sys.argv[1:]))
"""

T = TypeVar("T")


@define(eq=False)
class Worker:
    """One process of `effectmcp worker`.

    Args:
        node: The engine.
        name: The name of the tasks.
        source: The file with the app.
        log: Where it writes.
        port: Where the engine calls it.
        variables: More variables of its environment.
        advertise: The URL at which the engine finds it; by default the address of the port.
        silence: Seconds after which the engine takes it for frozen; by default, as long
            as for any worker.
        process: The process that runs.
    """

    node: Node
    name: str
    source: Path
    log: Path
    port: int = field(factory=lambda: free_ports(1)[0])
    variables: Mapping[str, str] = field(factory=dict)
    advertise: str | None = None
    silence: float | None = None
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def place(self) -> str:
        """The value of `--tasks`."""
        return f"restate+{self.node.ingress}?admin={self.node.admin}&name={self.name}"

    def start(self) -> None:
        """Start it, and wait until the engine calls it."""
        before = self.log.read_text().count("Restate runs") if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _WORKER, str(self.silence or 0)),
                    *("worker", f"{self.source}:app", "--grace", "1"),
                    *("--tasks", self.place, "--http", f"127.0.0.1:{self.port}"),
                    *(["--advertise", self.advertise] if self.advertise else []),
                ],
                env={**os.environ, **self.variables},
                stdout=log,
                stderr=log,
            )
        until(lambda: self.log.read_text().count("Restate runs") > before)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, politely or not."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)


@contextmanager
def working(*workers: Worker) -> Iterator[None]:
    """Have workers work while the block runs; some may end before."""
    try:
        for one in workers:
            one.start()
        yield
    finally:
        for one in workers:
            one.stop(signal.SIGKILL)


def until(found: Callable[[], T]) -> T:
    """Wait until `found` returns something true; return that."""
    late = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < late, "it does not happen"
        time.sleep(0.02)
    return value


def new_row(id_number: int, tool: str = "tool", **arguments: Any) -> TaskRow:
    """Return the row of a whole task."""
    id_ = f"{id_number:040x}"
    now = time.time()
    return TaskRow(
        id=id_,
        tool=tool,
        arguments=arguments,
        owner=None,
        capabilities={"elicitation": {"form": {}}},
        caller=CallerInfo(
            principal=None,
            client="tests 1",
            era="modern",
            protocol_version="2026-07-28",
            progress_token=None,
            flow_id=id_[:32],
        ),
        flow_id=bytes.fromhex(id_[:32]),
        is_whole=True,
        created=now,
        updated=now,
    )


def answer(tasks: RestateTasks, id_: str, value: str) -> None:
    """Answer the one question of a task."""
    key = until(lambda: _asked(tasks, id_))
    content = {"action": "accept", "content": {"value": value}}
    tasks.post(id_, [Mail(f"answer:{key}", "answer", key, content)])


def _asked(tasks: RestateTasks, id_: str) -> str:
    row = tasks.read(id_)
    return next(iter(row.questions), "") if row is not None else ""
