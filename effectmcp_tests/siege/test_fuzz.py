"""A little of each campaign, in every run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from .fuzz import CAMPAIGNS, main, run_block


@pytest.fixture(autouse=True)
def logs_again() -> Iterator[None]:
    """Log again afterwards: a campaign mutes what handlers log."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_campaign_finds_nothing(name: str) -> None:
    seen, found = run_block((name, 0, 0, 2_000))
    assert found == []
    assert len(seen) >= 3  # of the outcomes that the campaign can have


def test_command_prints_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--heads", "100", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "heads: 100 in" in said
    assert "heads: 0 findings" in said


def test_command_repeats_one_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tokens", "5001", "--block", "1"]) == 0
    assert "tokens: 1 in" in capsys.readouterr().out
