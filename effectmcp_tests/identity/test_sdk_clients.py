"""The official clients log in to our server, at both revisions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from .. import npm
from ..conformance.task_peers import peers as task_peers
from .chromium import User
from .provider import PATIENCE, Packages, Provider, limited
from .shops import Shop, shop
from .test_command_line import AGAIN, LOGIN

pytestmark = pytest.mark.conformance

HERE: Final = Path(__file__).parent


@frozen(eq=False)
class Peer:
    """A client of another SDK, in a process of its own, and its user."""

    _process: subprocess.Popen[str]
    _log: Path
    user: User

    def do(self, name: str, **params: Any) -> Any:
        """Make a request; visit the pages that the client shows; return the result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with limited(self._process):
            self._process.stdin.write(json.dumps({"do": name, **params}) + "\n")
            self._process.stdin.flush()
            while True:
                line = self._process.stdout.readline()
                assert line, f"the client has exited: {self._log.read_text('utf-8')}"
                found = json.loads(line)
                if "visit" not in found:
                    break
                self.user.visit(found["visit"])
        assert "error" not in found, found
        return found["value"]

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; return the text of its result."""
        return self.do("call", tool=tool, arguments=arguments)


@pytest.fixture(scope="session")
def first_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the first version of the TypeScript SDK."""
    cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
    place = Path(cache) if cache else tmp_path_factory.mktemp("cache")
    return npm.install(place.resolve(), task_peers.HERE) / "node_modules"


@contextmanager
def peer(
    program: Sequence[str | Path], url: str, user: User, log: Path, **setup: bool
) -> Iterator[Peer]:
    """Run a client.

    Args:
        program: Its command.
        url: The URL of the server.
        user: Who logs in.
        log: A file for its log.
        setup: Whether it speaks `legacy` revisions only, whether it sends `proofs`, and
            whether its SDK is of the `first` version.
    """
    settings = json.dumps({"first": False, "legacy": False, "proofs": False, **setup})
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [*program, settings, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield Peer(process, log, user)
        finally:
            with limited(process):
                process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log.read_text("utf-8")


def typescript(packages: Packages) -> list[str | Path]:
    """Return the command of the client on the TypeScript SDK."""
    return [packages.node, HERE / "typescript_client.mjs", packages.modules]


@pytest.mark.parametrize(
    ("sdk", "revision"),
    [
        ("python", "2026-07-28"),
        ("python", "2025-11-25"),
        ("typescript", "2026-07-28"),
        ("typescript", "2025-11-25"),
        ("first-typescript", "2025-11-25"),
    ],
)
def test_client_of_an_sdk_logs_in(
    packages: Packages,
    first_modules: Path,
    plain_shop: Shop,
    user: User,
    tmp_path: Path,
    sdk: str,
    revision: str,
) -> None:
    programs: dict[str, list[str | Path]] = {
        "python": [sys.executable, HERE / "python_client.py"],
        "typescript": typescript(packages),
        "first-typescript": [*typescript(packages)[:2], first_modules],
    }
    setup = {"legacy": revision == "2025-11-25", "first": sdk == "first-typescript"}
    log = tmp_path / "log"
    with peer(programs[sdk], plain_shop.url, user, log, **setup) as one:
        assert one.do("tools") == ["whoami", "survey"]
        assert one.call("whoami") == "ann orders:read"
        assert one.call("survey") == "red it is"
        assert user.kinds == [LOGIN]
        # The tool needs a scope that the token lacks.
        assert one.call("order", title="Dune") == "Ordered Dune"
        assert user.kinds == [LOGIN, AGAIN]
        assert one.call("whoami") == "ann orders:read orders:write"


def test_client_of_the_typescript_sdk_proves_its_key(
    packages: Packages, provider: Provider, user: User, tmp_path: Path
) -> None:
    with shop(provider, tmp_path, auth="proofs") as served:
        log = tmp_path / "log"
        with peer(typescript(packages), served.url, user, log, proofs=True) as one:
            assert one.call("whoami") == "ann orders:read"
            assert one.call("order", title="Dune") == "Ordered Dune"
    assert user.kinds == [LOGIN, AGAIN]
