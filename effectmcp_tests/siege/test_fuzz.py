"""A little of each campaign, in every run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from effectmcp.drivers import sync
from effectmcp.state import Sealer
from effectmcp.transports import http1

from . import fuzz_heads
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


# ---- planted faults -----------------------------------------------------------------


def test_head_that_is_read_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes, *, size: int, count: int) -> http1.FoundHead | None:
        found = http1.read(data, size=size, count=count)
        return found and found._replace(length=found.length + 1)

    monkeypatch.setattr(fuzz_heads, "read", read)
    _, found = run_block(("heads", 0, 0, 200))
    assert found


def test_token_that_is_opened_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sealer, "open", lambda *args, **options: None)
    _, (first, *_) = run_block(("tokens", 0, 0, 50))
    assert "opened" in first


def test_reply_with_another_status_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = sync.handle

    def worse(*args: Any, **options: Any) -> Any:
        reply = handle(*args, **options)
        return attrs.evolve(reply, status=reply.status + 1)

    monkeypatch.setattr(sync, "handle", worse)
    _, found = run_block(("messages", 0, 0, 100))
    assert len(found) > 20
