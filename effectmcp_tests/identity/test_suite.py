"""The official suite against a server that requires a login.

The suite has no scenario for such a server (0.2.0-alpha.12): it tests logins of clients,
and authorization servers. But each scenario of a server must also pass behind a login.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from ..conformance import suite as suites
from ..conformance.suite import LEGACY, REVISION
from .provider import Packages, Provider, limited
from .shops import Shop, shop

pytestmark = pytest.mark.conformance

HERE: Final = Path(__file__).parent
EVERYTHING: Final = HERE.parents[1] / "examples" / "everything.py"


@contextmanager
def proxy(packages: Packages, served: Shop, token: str) -> Iterator[str]:
    """Yield the URL of a proxy that sends a token to the server."""
    port = served.url.rpartition(":")[2].partition("/")[0]
    with subprocess.Popen(
        [packages.node, HERE / "bearer_proxy.mjs", port, token],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            with limited(process):
                line = process.stdout.readline().strip()
            yield f"http://127.0.0.1:{line}/mcp"
        finally:
            with limited(process):
                process.communicate()


@pytest.mark.parametrize("revision", [REVISION, LEGACY])
def test_suite_passes_behind_a_login(
    packages: Packages, provider: Provider, tmp_path: Path, revision: str
) -> None:
    cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
    suite = suites.install(Path(cache).resolve() if cache else tmp_path / "cache")
    (tmp_path / "results").mkdir()
    options = ["--leave=1"]
    with shop(provider, tmp_path, *options, target=EVERYTHING) as served:
        token = provider.token_of_program(served.url)
        with proxy(packages, served, token) as url:
            verdicts = suite.run(url, tmp_path / "results", revision)
    assert len(verdicts) > 30
    assert {name: one.note for name, one in verdicts.items() if not one.passed} == {}
