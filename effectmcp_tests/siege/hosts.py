"""Start the attacked server in a process of its own, measure it, and stop it."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio
from attrs import define, field, frozen

from effectmcp.state import make_key

from .server import Form

__all__ = ["ASGI", "HOSTS", "Host", "Served", "Unavailable", "serving"]

ROOT: Final = Path(__file__).parents[2]

#: Seconds that only a server that does not start takes.
_START: Final = 60.0


class Unavailable(Exception):
    """Raised when a host is not installed, with the reason."""


@frozen
class Host:
    """A way to run a server.

    Attributes:
        name: Its name in reports.
        command: Returns the command line for a form. The process logs its URL.
        needs: The module that must be installed.
        has_streams: Whether a session can be resumed on another connection.
        is_ours: Whether this is effectmcp's server.
    """

    name: str
    command: Callable[[Form], list[str]]
    needs: str = "effectmcp"
    has_streams: bool = True
    is_ours: bool = True


def _program(name: str, needs: str = "effectmcp", **options: bool) -> Host:
    module = f"{__package__}.server"

    def command(form: Form) -> list[str]:
        return [sys.executable, "-m", module, name, form]

    return Host(name, command, needs, **options)


def _serve(name: str, *options: str) -> Host:
    target = f"{__package__}.server:app"
    serve = [sys.executable, "-m", "effectmcp", "serve", target, "--http=127.0.0.1:0"]
    return Host(name, lambda form: [*serve, *options])


def _gunicorn() -> Host:
    def command(form: Form) -> list[str]:
        options = ["--worker-class=gthread", "--threads=64", "--bind=127.0.0.1:0"]
        wsgi = f"{__package__}.server:wsgi({form!r})"
        return [sys.executable, "-m", "gunicorn", *options, wsgi]

    return Host("gunicorn", command, "gunicorn", has_streams=False)


ASGI: Final = (
    _program("uvicorn", "uvicorn"),
    _program("hypercorn-trio", "hypercorn"),
    _program("hypercorn-asyncio", "hypercorn"),
)

#: All hosts, by name: our own server with limits, behind the command line, with workers;
#: three hosts of ASGI, and two of WSGI.
HOSTS: Final[Mapping[str, Host]] = {
    host.name: host
    for host in (
        _program("own"),
        _serve("serve"),
        _serve("serve-2", "--workers=2"),
        *ASGI,
        _program("wsgiref", has_streams=False),
        _gunicorn(),
    )
}


@define(eq=False)
class Served:
    """A running server.

    Attributes:
        port: Its port.
        log: The file of its standard error.
        limit: The MB of memory at which it is killed.
        killed: Why it was killed; empty if it was not.
        peak: The largest memory since the last `reset`, in MB.
    """

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    limit: float
    killed: str = ""
    peak: float = 0.0
    samples: list[tuple[float, float]] = field(factory=list)

    def rss(self) -> float:
        """Return the memory of the server and its workers, in MB."""
        return sum(map(_rss, _family(self.process.pid)))

    def cpu(self) -> float:
        """Return the seconds of CPU that the server and its workers have taken."""
        return sum(map(_cpu, _family(self.process.pid)))

    def reset(self) -> None:
        """Forget the peak so far."""
        self.peak = self.rss()

    async def watch(self, pause: float = 0.05) -> None:
        """Measure the memory until cancelled; kill a server that takes too much."""
        while True:
            now = self.rss()
            self.peak = max(self.peak, now)
            self.samples.append((trio.current_time(), now))
            if now > self.limit and not self.killed:
                self.killed = f"killed at {now:,.0f} MB"
                for pid in _family(self.process.pid):
                    _signal(pid, signal.SIGKILL)
            await trio.sleep(pause)

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def lines(self) -> list[str]:
        """Return the lines of the log."""
        return self.log.read_text("utf-8", "replace").split("\n")


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for one in found:
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
        except OSError:
            continue
        found += map(int, children)
    return found


def _rss(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu(pid: int) -> float:
    try:
        # The name of the process, in parentheses, may contain spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


@contextmanager
def serving(
    host: Host, form: Form, *, files: int | None = None, limit: float = 5_000
) -> Iterator[Served]:
    """Start a server, and stop it at the end of the block.

    Args:
        host: The way to run it.
        form: Which of its limits apply.
        files: The limit of its open files.
        limit: The MB of memory at which it is killed.
    """
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        # As docs/security.md advises: otherwise glibc keeps freed blocks.
        "MALLOC_MMAP_THRESHOLD_": str(256 * 1024),
        "EFFECTMCP_STATE_KEYS": make_key(bytes(range(32))),
    }
    if host.is_ours and importlib.util.find_spec(host.needs) is None:
        raise Unavailable(f"{host.needs} is not installed")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log")
        with (
            log.open("wb") as out,
            subprocess.Popen(
                _limited(host.command(form), files),
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                served = Served(_port(process, log), process, log, limit)
                yield served
            finally:
                # Killed: a graceful shutdown would wait for hostile clients.
                for pid in _family(process.pid):
                    _signal(pid, signal.SIGKILL)


def _limited(command: Sequence[str], files: int | None) -> Sequence[str]:
    """Return a command that runs another one, which may open so many files."""
    if files is None:
        return command
    return ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    until = time.monotonic() + _START
    found = None
    while found is None:
        said = log.read_text("utf-8", "replace")
        found = re.search(r"http://127\.0\.0\.1:(\d+)", said)
        if process.poll() is not None or time.monotonic() > until:
            raise Unavailable(f"the server does not start: {said[-500:]}")
        time.sleep(0.01)
    return int(found[1])


def fit(samples: list[tuple[float, float]]) -> float:
    """Return the slope of a line through samples of seconds and MB, in MB per minute."""
    if len(samples) < 2:
        return math.nan
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    above = sum((x - mean_x) * (y - mean_y) for x, y in samples)
    below = sum((x - mean_x) ** 2 for x, _ in samples)
    return 60 * above / below if below else math.nan
