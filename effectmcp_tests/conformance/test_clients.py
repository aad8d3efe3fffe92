"""Every scenario that 2026-07-28 requires of a client without authorization."""

from __future__ import annotations

from pathlib import Path

import pytest

from .clients import SCENARIOS, UNSCORED, play
from .suite import Suite, Verdict, required_by

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_client_scenario(client_played: dict[str, Verdict], scenario: str) -> None:
    verdict = client_played[scenario]
    assert verdict.passed, verdict.note


def test_these_are_all_scenarios_of_clients(suite: Suite) -> None:
    required = required_by(suite, "client")
    assert {one for one in required if not one.startswith("auth/")} == (
        {*SCENARIOS} - {*UNSCORED}
    )


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
