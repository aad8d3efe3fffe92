"""One handler, one outcome: on both loops, in both eras, and inside other servers.

The oracle is the outcome by retry, message by message (`exchange/test_equal_ways.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from effectmcp import Server

from ..engine.programs import Program, programs
from ..exchange.test_equal_ways import (
    Outcome,
    User,
    by_retry,
    observed,
    settled,
    without_structure,
)
from .hosts import HOSTS, Caller, Host, Wire, modern

pytestmark = pytest.mark.usefixtures("quiet")


def in_host(host: Host, program: Program, user: User) -> Outcome:
    def call(app: Server, told: list[Any]) -> Mapping[str, Any]:
        heard: list[Any] = []

        async def main(caller: Caller) -> Wire:
            heard.clear()
            return await caller.call("tool", {})

        found = host.play(app, main, user.writes, told=heard)
        told += heard
        return {key: one for key, one in found.items() if one is not False}

    return observed(program, call)


@pytest.mark.parametrize("host", HOSTS, ids=str)
@settings(max_examples=12)
@given(program=programs.map(settled), seed=st.integers(0, 50))
def test_every_host_has_the_same_outcome(
    host: Host, program: Program, seed: int
) -> None:
    expected = by_retry(program, User(seed))
    if not modern(host):
        expected = evolve(expected, result=without_structure(expected.result))
    found = in_host(host, program, User(seed))
    assert found.result == expected.result
    assert found.events == expected.events
    assert found.performed == expected.performed
