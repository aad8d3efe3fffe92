from __future__ import annotations

from pathlib import Path

import pytest

from effectmcp.state.codec import KINDS, TAGS

from . import test_golden, write_golden


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No golden tokens yet, so that all kinds and all tags are written."""
    monkeypatch.setattr(test_golden, "GOLDEN", tmp_path)
    monkeypatch.setattr(write_golden, "GOLDEN", tmp_path)
    monkeypatch.setattr(write_golden, "NAMES", [])
    return tmp_path


def test_written_token_opens_and_is_complete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "add them to the commit" in write_golden.write("new")
    token, sealer, call, claims = test_golden.read("1e-new")
    assert sealer.open(token["token"], call, now=token["now"]) == claims
    found = test_golden.walk(claims.journal)
    assert {(one.tag, one.replayable) for one in found} == {
        one for one in TAGS if one[0] is not None
    }
    assert {one.key.rpartition("-")[0] for one in found} == set(KINDS)
    monkeypatch.setattr(write_golden, "NAMES", ["1e-new"])
    assert write_golden.missing_entries() == []


def test_token_is_never_written_again(folder: Path) -> None:
    write_golden.write("new")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "choose another name" in write_golden.write("new")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_nothing_is_written_if_nothing_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_golden, "missing_entries", list)
    assert "is in a golden token already" in write_golden.write("new")
    assert not list(folder.iterdir())
