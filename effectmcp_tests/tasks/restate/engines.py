"""A real Restate on this machine, for tests: one node on the loopback interface."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from effectmcp.errors import TaskStoreError
from effectmcp.tasks.restate.engine import Engine

from ... import npm

HERE: Final = Path(__file__).parent
PROGRAM: Final = "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"

_CONFIG: Final = """\
roles = ["http-ingress", "admin", "worker", "log-server", "metadata-server"]
cluster-name = "tests"
node-name = "one"
auto-provision = true
base-dir = "{path}/data"
listen-mode = "tcp"
bind-address = "127.0.0.1:{node}"
advertised-address = "http://127.0.0.1:{node}/"
default-num-partitions = 2
default-replication = 1
disable-telemetry = true
disable-prometheus = true
log-filter = "warn,octocrab=off"
log-disable-ansi-codes = true
rocksdb-total-memory-size = "96 MiB"
shutdown-timeout = "5s"
default-journal-retention = "0s"

[ingress]
bind-address = "127.0.0.1:{ingress}"
advertised-address = "http://127.0.0.1:{ingress}/"

[admin]
bind-address = "127.0.0.1:{admin}"
advertised-address = "http://127.0.0.1:{admin}/"
disable-web-ui = true

[worker]
cleanup-interval = "1m"

[worker.invoker]
connect-timeout = "1s"
"""


def install(cache: Path) -> Path:
    """The program in `cache`, downloaded if it is not there yet.

    Raises:
        Unavailable: It cannot be downloaded.
    """
    return npm.install(cache, HERE) / PROGRAM


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Node:
    """One node.

    Args:
        program: The program.
        path: An empty folder for its data.
    """

    def __init__(self, program: Path, path: Path) -> None:
        self._program = program
        self._path = path
        ingress, admin, node = free_ports(3)
        self.ingress = f"http://127.0.0.1:{ingress}"
        self.admin = f"http://127.0.0.1:{admin}"
        path.mkdir(parents=True, exist_ok=True)
        config = _CONFIG.format(path=path, ingress=ingress, admin=admin, node=node)
        (path / "restate.toml").write_text(config)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with open(self._path / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--no-logo", "-c", str(self._path / "restate.toml")],
                cwd=self._path,
                env={"PATH": "/usr/bin:/bin", "HOME": str(self._path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # SIGXFSZ stays ignored: a write that the limit forbids is an error.
                restore_signals=False,
            )
        until = time.monotonic() + 60
        engine = Engine(self.ingress, self.admin)
        while True:
            try:
                engine.query("SELECT count(*) AS number FROM state")
                with urllib.request.urlopen(f"{self.ingress}/restate/health"):
                    return
            except (TaskStoreError, urllib.error.URLError):
                assert self.process.poll() is None, self.log()
                assert time.monotonic() < until, self.log()
                time.sleep(0.01)
            finally:
                engine.close()

    def log(self) -> str:
        """Return the end of its log."""
        return (self._path / "log").read_text(errors="replace")[-4000:]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, politely or not."""
        self.process.send_signal(how)
        self.process.wait(30)

    def fill(self) -> None:
        """Let it write no more, as if its disk were full."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0, 0))
