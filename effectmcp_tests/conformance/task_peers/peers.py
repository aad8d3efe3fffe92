"""Clients of other SDKs: installed at pinned versions, and driven by lines of JSON.

    install(cache)                          the SDKs
    with peer("python", sdks, log) as one:  a client, connected to `desk`
        one.do("call", tool="greet", arguments={"name": "Ann"})

The programs `python_client.py` and `typescript_client.cjs` know the same requests: each
names the function that a user of the SDK would call. So one test describes all SDKs.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any, Final, Literal, TypeAlias

from attrs import define, field, frozen

from ... import npm

__all__ = ["PATIENCE", "Peer", "PeerError", "Sdk", "Sdks", "install", "peer"]

Sdk: TypeAlias = Literal["python", "typescript"]

HERE: Final = Path(__file__).parent

#: Seconds that only a failure takes.
PATIENCE: Final = 120

#: The answers of the user, by the messages of the forms.
ANSWERS: Final = {
    "Who are you?": {"action": "accept", "content": {"value": "Ann"}},
    "Which color?": {"action": "accept", "content": {"value": "red"}},
    "Order Dune?": {"action": "accept", "content": {}},
}


@frozen
class Sdks:
    """The installed SDKs.

    Attributes:
        python: The Python of an environment with the Python SDK.
        node: The Node that runs the TypeScript SDK.
        modules: The folder of its packages.
    """

    python: Path
    node: str
    modules: Path


def install(cache: Path) -> Sdks:
    """The SDKs in `cache`, downloaded if they are not there yet.

    Raises:
        Unavailable: If they cannot be downloaded.
    """
    modules = npm.install(cache, HERE) / "node_modules"
    return Sdks(_install_python(cache), npm.install_node(cache).node, modules)


def _install_python(cache: Path) -> Path:
    pinned = HERE / "requirements.txt"
    digest = hashlib.sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()
    place = cache / f"python-{digest[:12]}"
    scripts = "Scripts" if os.name == "nt" else "bin"
    if not place.exists():
        with TemporaryDirectory(dir=cache) as name:
            partial = Path(name) / "environment"
            _do(sys.executable, "-m", "venv", str(partial))
            pip = [str(partial / scripts / "python"), "-m", "pip", "install"]
            _do(*pip, "--quiet", "--requirement", str(pinned))
            # At once, as in `npm`. Its scripts do not work where it is moved to, but its
            # Python does.
            try:
                partial.rename(place)
            except OSError:
                if not place.exists():
                    raise
    return place / scripts / "python"


def _do(*command: str) -> None:
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=npm.DOWNLOAD_TIME,
            check=True,
        )
    except subprocess.CalledProcessError as exc:
        # The end of what pip writes has the reason.
        raise npm.Unavailable(f"it cannot be installed: {exc.stderr[-200:]}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise npm.Unavailable(f"it cannot be installed: {exc}") from exc


class PeerError(Exception):
    """Raised when a request of a client fails.

    Attributes:
        code: The JSON-RPC code of the error.
    """

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


@define(eq=False)
class Peer:
    """A client in a process of its own.

    Attributes:
        asked: The params of the questions during the last request.
        polled: The statuses at which the server has seen the client's tasks since then.
    """

    _process: subprocess.Popen[str]
    _log: Path
    asked: list[Any] = field(factory=list, init=False)
    polled: list[str] = field(factory=list, init=False)

    def do(self, name: str, **params: Any) -> Any:
        """Make a request, and return its result as JSON.

        Raises:
            PeerError: If the request fails.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with _limited(self._process):
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps({"do": name, **params}) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, f"the client has exited: {self._log.read_text('utf-8')}"
        reply = json.loads(line)
        self.asked, self.polled = reply["asked"], reply["polled"]
        if (error := reply.get("error")) is not None:
            raise PeerError(error.get("code"), error["message"])
        return reply["value"]

    def run(self, tool: str, **arguments: Any) -> Any:
        """Call a tool as a task, and follow it to its end."""
        return self.do("run", tool=tool, arguments=arguments)


@contextmanager
def peer(sdk: Sdk, sdks: Sdks, log: Path, *, has_tasks: bool = False) -> Iterator[Peer]:
    """Run a client.

    Args:
        sdk: Its SDK.
        sdks: The installed SDKs.
        log: A file for the logs of the client and its server.
        has_tasks: Whether it answers questions as tasks of its own.
    """
    programs: Mapping[Sdk, list[str | Path]] = {
        "python": [sdks.python, "-W", "ignore", HERE / "python_client.py"],
        "typescript": [sdks.node, HERE / "typescript_client.cjs"],
    }
    setup = json.dumps({"answers": ANSWERS, "tasks": has_tasks})
    server = [sys.executable, "-m", "effectmcp", "serve", f"{HERE / 'desk.py'}:app"]
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [*programs[sdk], setup, *server],
            env={**os.environ, "NODE_PATH": str(sdks.modules)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield Peer(process, log)
        finally:
            # It exits when its input ends, and its server with it.
            with _limited(process):
                process.communicate()
    logged = log.read_text("utf-8")
    assert process.returncode == 0, logged
    assert "Traceback" not in logged, logged


@contextmanager
def _limited(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that takes too long."""
    watchdog = Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
