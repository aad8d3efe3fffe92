"""One real engine for each test module. Such tests are marked `restate`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...npm import Unavailable
from . import engines


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, from the cache if there is one."""
    cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
    try:
        place = Path(cache) if cache else tmp_path_factory.mktemp("cache")
        return engines.install(place.resolve())
    except Unavailable as exc:
        if os.environ.get("CI") == "true":
            pytest.fail(str(exc))
        pytest.skip(str(exc))


@pytest.fixture(scope="module")
def engine(
    program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Node]:
    node = engines.Node(program, tmp_path_factory.mktemp("restate"))
    node.start()
    yield node
    node.stop()
