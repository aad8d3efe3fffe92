"""The stores of each test are closed after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from effectmcp.tasks.sqlite import _alive


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the stores: each has a thread, which looks for work until it is closed."""
    yield
    for one in list(_alive):
        one.close()
