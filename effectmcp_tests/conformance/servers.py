"""Servers as people run them: one command each, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from attrs import field, frozen

from effectmcp.state import make_key

from ..npm import Unavailable
from ..tasks.restate.engines import Node
from ..tasks.restate.workers import Worker, working

__all__ = ["SERVERS", "Served", "Server", "serving"]

ROOT: Final = Path(__file__).parents[2]
HOSTED: Final = "effectmcp_tests.conformance.hosted:asgi"


@frozen
class Server:
    """The command line of a server.

    Attributes:
        name: Its name in reports.
        command: The arguments of `python -m`; the first is the package to install. Each
            server takes a free port, and logs its number.
        tasks: Where it keeps its tasks: `memory`, `file`, or `engine`: a Restate, with
            a worker.
        variables: More variables of its environment.
    """

    name: str
    command: tuple[str, ...]
    tasks: str = "file"
    variables: Mapping[str, str] = {}


SERVERS: Final = (
    Server(
        "effectmcp",
        (
            "effectmcp",
            "serve",
            "examples/everything.py:app",
            "--http=127.0.0.1:0",
            # Before the slowest tool ends, and after all others.
            "--leave=1",
        ),
        tasks="memory",
    ),
    Server(
        "uvicorn-asyncio",
        ("uvicorn", "--loop=asyncio", "--host=127.0.0.1", "--port=0", HOSTED),
    ),
    Server(
        "hypercorn-trio",
        # No workers: this process serves, and there is no other that has to be stopped.
        (
            "hypercorn",
            "--worker-class=trio",
            "--workers=0",
            "--bind=127.0.0.1:0",
            HOSTED,
        ),
        tasks="engine",
    ),
)


@frozen
class Served:
    """A server that is running.

    Attributes:
        url: Its address.
        log: The lines of its standard error so far.
    """

    url: str
    _process: subprocess.Popen[str]
    log: list[str] = field(factory=list)

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None


@contextmanager
def serving(server: Server, program: Path | None = None) -> Iterator[Served]:
    """Start a server, and stop it at the end of the block.

    Args:
        server: The server.
        program: The program of Restate, for a server that needs it.

    Raises:
        Unavailable: It is not installed.
    """
    if importlib.util.find_spec(server.command[0]) is None:
        raise Unavailable(f"{server.command[0]} is not installed")
    more = {
        "EFFECTMCP_STATE_KEYS": make_key(secrets.token_bytes(32)),
        "PYTHONUNBUFFERED": "1",
        **server.variables,
    }
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        _keeping(server, program, Path(folder), more) as place,
    ):
        yield from _serving(server, more | {"EFFECTMCP_TASKS_PLACE": place})


@contextmanager
def _keeping(
    server: Server, program: Path | None, folder: Path, more: dict[str, str]
) -> Iterator[str]:
    """Yield the place for the tasks of a server."""
    if server.tasks != "engine":
        yield str(folder / "tasks.db")
        return
    assert program is not None
    node = Node(program, folder / "engine")
    node.start()
    source = ROOT / "examples" / "everything.py"
    worker = Worker(node, "conformance", source, folder / "worker.log", variables=more)
    try:
        with working(worker):
            yield worker.place
    finally:
        node.stop()


def _serving(server: Server, more: dict[str, str]) -> Iterator[Served]:
    with subprocess.Popen(
        [sys.executable, "-m", *server.command],
        cwd=ROOT,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        log: list[str] = []
        ports: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(process, log, ports))
        reader.start()
        try:
            port = ports.get(timeout=60)
            assert port is not None, f"{server.name} does not start: {''.join(log)}"
            yield Served(f"http://127.0.0.1:{port}/mcp", process, log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()


def _read(
    process: subprocess.Popen[str],
    log: list[str],
    ports: queue.SimpleQueue[str | None],
) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line)
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            ports.put(found[1])
    ports.put(None)
