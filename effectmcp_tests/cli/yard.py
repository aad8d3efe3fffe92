"""A server whose tasks stop where a test wants, for tests with several processes.

Pipes with names are the events: a step writes the id of its process to `began`, and ends
when something is written to `go`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from effectmcp import Elicit, Flow, Server, Sleep, Status, step

app = Server("yard")


@step
def build(folder: str) -> int:
    Path(folder, "began").write_text(str(os.getpid()))
    Path(folder, "go").read_text()
    return os.getpid()


@app.tool(task="required")
def ship(folder: str) -> Flow[str]:
    """Build a ship."""
    first = yield from build(folder)
    yield from Status("half of it is built")
    second = yield from build(folder)
    name = yield from Elicit("Name it", str)
    yield from Sleep(3_600)
    return f"{name}, by {first} and {second}"


@app.tool
def who() -> str:
    """Return the process."""
    return str(os.getpid())


# ---- for tests ----


def make_pipes(folder: Path) -> None:
    """Make the two pipes."""
    for name in ("began", "go"):
        os.mkfifo(folder / name)


def wait_for_step(folder: Path) -> int:
    """Wait until a step has started; return its process."""
    return int(_run("import sys; print(open(sys.argv[1]).read())", folder / "began"))


def end_step(folder: Path) -> None:
    """Let the running step end."""
    _run("import sys; open(sys.argv[1], 'w').write('go')", folder / "go")


def _run(code: str, file: Path) -> str:
    # In a process, because opening a pipe waits for its other end.
    argv = [sys.executable, "-I", "-S", "-c", code, str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout
