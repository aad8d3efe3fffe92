"""A user's machine: the command line, and the browser that it opens."""

from __future__ import annotations

import json
import os
import shlex
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from .chromium import User
from .provider import PATIENCE

__all__ = ["Desk", "desk"]

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


@define(eq=False)
class Desk:
    """A user's machine.

    Attributes:
        user: The user, at the browser.
        variables: The environment of commands.
    """

    user: User
    _folder: Path
    variables: dict[str, str] = field(factory=dict)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `effectmcp` with arguments."""
        return subprocess.Popen(
            [sys.executable, "-m", "effectmcp", *arguments],
            cwd=ROOT,
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def fail(self, *arguments: str) -> tuple[int, str]:
        """Run `effectmcp`; return its exit status, and all that it wrote."""
        with self.start(*arguments) as process:
            try:
                out, errors = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
        return process.returncode, out + errors

    def run(self, *arguments: str) -> str:
        """Run `effectmcp`; return its standard output."""
        return finish(self.start(*arguments))

    @property
    def kept(self) -> Any:
        """The JSON that is kept for the only server."""
        (file,) = self._folder.rglob("*.json")
        return json.loads(file.read_text("utf-8"))

    def age(self) -> None:
        """Make the kept access token so old that the client renews it."""
        (file,) = self._folder.rglob("*.json")
        kept = self.kept
        kept["tokens"]["expires"] = 0
        file.write_text(json.dumps(kept), "utf-8")

    @property
    def access(self) -> str:
        """The access token that is kept."""
        token: str = self.kept["tokens"]["access"]
        return token


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a command; return its standard output."""
    with process:
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    return out


@contextmanager
def desk(user: User, folder: Path) -> Iterator[Desk]:
    """Yield a machine with the browser of `user`.

    Args:
        user: The user.
        folder: An empty one, for the user's files.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            user.visit(self.rfile.readline().decode().strip())

    class Visits(socketserver.ThreadingTCPServer):
        daemon_threads = False

    with Visits(("127.0.0.1", 0), Handler) as visits:
        thread = threading.Thread(target=visits.serve_forever, args=(0.01,))
        thread.start()
        script = shlex.join([sys.executable, "-S", str(HERE / "hand_over.py"), "%s"])
        variables: Mapping[str, str] = {
            "XDG_STATE_HOME": str(folder),
            "BROWSER": script,
            "EFFECTMCP_TEST_BROWSER": str(visits.server_address[1]),
        }
        try:
            yield Desk(user, folder, dict(variables))
        finally:
            visits.shutdown()
            thread.join()
