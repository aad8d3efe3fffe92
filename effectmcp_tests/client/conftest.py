"""The loops, and the ways from a client to a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import get_args

import pytest

from .ways import Kind, Loop, Servers, Way


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The servers that all tests share."""
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=get_args(Loop))
def loop(request: pytest.FixtureRequest) -> Loop:
    """Each loop."""
    loop: Loop = request.param
    return loop


@pytest.fixture(params=get_args(Kind))
def way(request: pytest.FixtureRequest, loop: Loop, servers: Servers) -> Way:
    """Each channel, on each loop."""
    return Way(request.param, loop, servers)
