"""Every scenario that 2026-07-28 and 2025-11-25 require of a server, in three servers."""

from __future__ import annotations

import pytest

from .conftest import Played
from .suite import (
    LEGACY,
    LEGACY_SCENARIOS,
    LEGACY_UNSCORED,
    SCENARIOS,
    TASKS,
    UNSCORED,
    Suite,
    required_by,
)

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(played: Played, scenario: str) -> None:
    verdict = played.verdicts[scenario]
    assert verdict.passed, verdict.note


@pytest.mark.parametrize("scenario", LEGACY_SCENARIOS)
def test_legacy_scenario(played: Played, scenario: str) -> None:
    verdict = played.legacy[scenario]
    assert verdict.passed, verdict.note


def test_the_server_outlives_the_suite(played: Played) -> None:
    """The server's log has no failure that the suite could not see."""
    assert played.was_running, played.log
    assert "Traceback" not in played.log, played.log


def test_these_are_all_scenarios(suite: Suite) -> None:
    assert {*SCENARIOS} == {*required_by(suite), *UNSCORED, *TASKS}
    required = required_by(suite, revision=LEGACY)
    assert {*LEGACY_SCENARIOS} == {*required, *LEGACY_UNSCORED}
