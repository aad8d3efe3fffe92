"""A real Restate on this machine, for tests: one node on the loopback interface."""

from __future__ import annotations

import re
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from effectmcp.errors import TaskStoreError
from effectmcp.tasks.restate.engine import Engine

from ... import npm

HERE: Final = Path(__file__).parent
PROGRAM: Final = "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"

EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "restate"

#: What tests add to a configuration: small, quiet, and soon to notice who is gone.
_FIRST: Final = """\
disable-prometheus = true
log-filter = "warn,octocrab=off"
log-disable-ansi-codes = true
rocksdb-total-memory-size = "96 MiB"
shutdown-timeout = "5s"
"""
_LAST: Final = """
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
        example: The configuration, among the examples.
        ports: The port to use instead of each of the configuration; by default, free
            ports.
    """

    def __init__(
        self,
        program: Path,
        path: Path,
        example: str = "one-node.toml",
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self._program = program
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        config = (EXAMPLES / example).read_text()
        used = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", config)))
        ports = ports or dict(zip(used, free_ports(len(used)), strict=True))
        config = re.sub(
            r"127\.0\.0\.1:(\d+)", lambda one: f"127.0.0.1:{ports[one[1]]}", config
        )
        # Snapshots need a store that no test has.
        config = config.partition("# A log is cut off")[0]
        config = re.sub('base-dir = ".*"', f'base-dir = "{path}/data"', config)
        config = re.sub("(roles = .*\n)", rf"\1{_FIRST}", config) + _LAST
        (path / "restate.toml").write_text(config)
        self.ingress = self._url(config, "ingress")
        self.admin = self._url(config, "admin")
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _url(config: str, section: str) -> str:
        found = re.search(rf'\[{section}\]\nbind-address = "(.*)"', config)
        assert found is not None, config
        return f"http://{found[1]}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it."""
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

    def wait(self) -> None:
        """Wait until it answers."""
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
