"""The SDKs, and a client of each, connected to a server for all tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...npm import Unavailable
from . import peers
from .peers import Peer, Sdks

SDKS = ["python", "typescript"]


@pytest.fixture(scope="session")
def sdks(tmp_path_factory: pytest.TempPathFactory) -> Sdks:
    """The SDKs, from the cache if there is one."""
    cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
    try:
        place = Path(cache) if cache else tmp_path_factory.mktemp("cache")
        return peers.install(place.resolve())
    except Unavailable as exc:
        if os.environ.get("CI") == "true":
            pytest.fail(str(exc))
        pytest.skip(str(exc))


@pytest.fixture(scope="module", params=SDKS)
def peer(
    request: pytest.FixtureRequest,
    sdks: Sdks,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Peer]:
    """A client that is connected to `desk`."""
    log = tmp_path_factory.mktemp("peer") / "log"
    with peers.peer(request.param, sdks, log) as one:
        yield one


@pytest.fixture(scope="module", params=SDKS)
def peer_with_tasks(
    request: pytest.FixtureRequest,
    sdks: Sdks,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Peer]:
    """A client of `desk` that answers questions as tasks of its own."""
    log = tmp_path_factory.mktemp("peer") / "log"
    with peers.peer(request.param, sdks, log, has_tasks=True) as one:
        yield one
