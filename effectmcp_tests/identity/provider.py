"""The identity provider: a process that runs `provider.mjs`.

with running(install(cache)) as provider:
    provider.issuer
    provider.set(lifetime=1)
    provider.counts()
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, Final

import httpx2
from attrs import frozen

from .. import npm

__all__ = ["PATIENCE", "Packages", "Provider", "install", "limited", "running"]

HERE: Final = Path(__file__).parent

#: Seconds that only a failure takes.
PATIENCE: Final = 120


@frozen
class Packages:
    """The installed packages.

    Attributes:
        node: The Node that runs them.
        modules: Their folder.
    """

    node: str
    modules: Path


def install(cache: Path) -> Packages:
    """The packages in `cache`, downloaded if they are not there yet.

    Raises:
        Unavailable: If they cannot be downloaded.
    """
    modules = npm.install(cache, HERE) / "node_modules"
    return Packages(npm.install_node(cache).node, modules)


@frozen(eq=False)
class Provider:
    """A provider that is running.

    Attributes:
        issuer: Its URL.
    """

    _process: subprocess.Popen[str]
    _log: Path
    issuer: str

    def _do(self, name: str, **params: Any) -> Any:
        assert self._process.stdin is not None
        with limited(self._process):
            self._process.stdin.write(json.dumps({"do": name, **params}) + "\n")
            self._process.stdin.flush()
            return json.loads(_line(self._process, self._log))

    def set(self, **wanted: Any) -> None:
        """Change settings.

        Args:
            wanted: The `lifetime` of access tokens in seconds; the `algorithm` of their
                signatures; whether the token endpoint `fails`.
        """
        self._do("set", **wanted)

    def rotate(self, *, keeps: bool = True) -> None:
        """Sign with new keys.

        Args:
            keeps: Whether the old keys stay published.
        """
        self._do("rotate", keeps=keeps)

    def lose(self) -> None:
        """Lose all that is stored, such as registered clients."""
        self._do("lose")

    def token_of_program(self, resource: str) -> str:
        """Return a token for a server, of a program that logs in with its secret."""
        form = {
            "grant_type": "client_credentials",
            "scope": "orders:read",
            "resource": resource,
        }
        client = ("robot", "robot secret")
        url = f"{self.issuer}/token"
        response = httpx2.post(url, data=form, auth=client, timeout=PATIENCE)
        token: str = response.json()["access_token"]
        return token

    def counts(self) -> Counter[str]:
        """Return the numbers of requests by path, and of grants, since the last call."""
        return Counter(self._do("counts"))


def _line(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, f"the provider has exited: {log.read_text('utf-8')}"
    return line


@contextmanager
def running(packages: Packages, log: Path) -> Iterator[Provider]:
    """Run a provider.

    Args:
        packages: The installed packages.
        log: A file for its log.
    """
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [packages.node, HERE / "provider.mjs", packages.modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            with limited(process):
                issuer = _line(process, log)
            yield Provider(process, log, issuer)
        finally:
            # It exits when its input ends.
            with limited(process):
                process.communicate()
    assert process.returncode == 0, log.read_text("utf-8")


@contextmanager
def limited(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill a process that takes too long."""
    watchdog = Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
