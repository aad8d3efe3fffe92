"""The loops."""

from __future__ import annotations

from typing import get_args

import pytest

from ..client.ways import Loop


@pytest.fixture(params=get_args(Loop))
def loop(request: pytest.FixtureRequest) -> Loop:
    """Each loop."""
    loop: Loop = request.param
    return loop
