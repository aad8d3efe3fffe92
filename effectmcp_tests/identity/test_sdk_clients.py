"""The official clients log in to our server, at both revisions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

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


@contextmanager
def peer(
    sdk: str, packages: Packages, url: str, user: User, log: Path, **setup: bool
) -> Iterator[Peer]:
    """Run a client.

    Args:
        sdk: Its SDK.
        packages: The packages of npm.
        url: The URL of the server.
        user: Who logs in.
        log: A file for its log.
        setup: Whether it speaks `legacy` revisions only, and whether it sends `proofs`.
    """
    settings = json.dumps({"legacy": False, "proofs": False, **setup})
    programs: dict[str, list[str | Path]] = {
        "python": [sys.executable, HERE / "python_client.py"],
        "typescript": [packages.node, HERE / "typescript_client.mjs", packages.modules],
    }
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [*programs[sdk], settings, url],
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


@pytest.mark.parametrize("legacy", [False, True], ids=["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("sdk", ["python", "typescript"])
def test_client_of_an_sdk_logs_in(
    packages: Packages,
    plain_shop: Shop,
    user: User,
    tmp_path: Path,
    sdk: str,
    legacy: bool,
) -> None:
    log = tmp_path / "log"
    with peer(sdk, packages, plain_shop.url, user, log, legacy=legacy) as one:
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
        with peer("typescript", packages, served.url, user, log, proofs=True) as one:
            assert one.call("whoami") == "ann orders:read"
            assert one.call("order", title="Dune") == "Ordered Dune"
    assert user.kinds == [LOGIN, AGAIN]
