"""Every scenario that 2026-07-28 and 2025-11-25 require of a client, and the extensions."""

from __future__ import annotations

from pathlib import Path

import pytest

from .clients import EXTENSIONS, LEGACY_SCENARIOS, SCENARIOS, UNSCORED, play
from .suite import LEGACY, REVISION, Suite, Verdict, required_by

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_client_scenario(client_played: dict[str, Verdict], scenario: str) -> None:
    verdict = client_played[scenario]
    assert verdict.passed, verdict.note


@pytest.mark.parametrize("scenario", LEGACY_SCENARIOS)
def test_legacy_client_scenario(
    legacy_client_played: dict[str, Verdict], scenario: str
) -> None:
    verdict = legacy_client_played[scenario]
    assert verdict.passed, verdict.note


@pytest.mark.parametrize(
    ("revision", "scenarios"), [(REVISION, SCENARIOS), (LEGACY, LEGACY_SCENARIOS)]
)
def test_these_are_all_scenarios_of_clients(
    suite: Suite, revision: str, scenarios: tuple[str, ...]
) -> None:
    required = required_by(suite, "client", revision)
    assert {*required} == {*scenarios} - {*UNSCORED} - {*EXTENSIONS}


def test_a_client_that_crashes_or_does_nothing_fails(
    suite: Suite, tmp_path: Path
) -> None:
    """Which the suite itself forgives."""
    client, played = tmp_path / "client.py", tmp_path / "played"
    client.write_text("raise SystemExit(3)")
    played.mkdir()
    name = "http-standard-headers"
    verdict = play(suite, played, client, [name])[name]
    assert not verdict.passed
    assert "ended with 3" in verdict.note
    assert "nothing of its own succeeded" in verdict.note
