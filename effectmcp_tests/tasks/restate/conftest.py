"""One real engine for each test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import engines


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engines.Node]:
    if engines.find_server() is None:
        pytest.skip(f"no Restate is installed: npm install {engines.PACKAGE}")
    node = engines.Node(tmp_path_factory.mktemp("restate"))
    node.start()
    yield node
    node.stop()
