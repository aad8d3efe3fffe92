"""The soak, for seconds: that it mixes, counts and judges."""

from __future__ import annotations

import math
import sys
from functools import partial

import pytest
import trio

from .hosts import HOSTS
from .soak import floors, soak


@pytest.mark.siege
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_honest_clients_get_their_answers_in_the_mix() -> None:
    found = trio.run(partial(soak, HOSTS["own"], 3, seed=1, slope=math.inf))
    assert found.bursts.total() >= 3
    assert all(found.answered.values())
    assert not found.lost
    assert not found.exceptions


def test_floor_is_the_least_of_each_window() -> None:
    samples = [(0.0, 5.0), (1.0, 4.0), (14.0, 9.0), (16.0, 8.0), (31.0, 7.0)]
    assert floors(samples) == [(1.0, 4.0), (16.0, 8.0), (31.0, 7.0)]
