"""The pinned versions, and the judging of checks; the suite itself is not needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .clients import judge_client
from .suite import HERE, Check, Verdict, judge


def check(status: str, id: str = "sep-1-answers") -> Check:
    return {"id": id, "status": status, "description": "it answers"}


@pytest.mark.parametrize(
    "checks",
    [
        [check("SUCCESS")],
        [check("SUCCESS"), check("INFO")],
        [check("SUCCESS"), check("SKIPPED"), check("SUCCESS", "wire-schema-valid")],
    ],
)
def test_judge_passes(checks: list[Check]) -> None:
    assert judge(checks).passed


@pytest.mark.parametrize(
    ("checks", "note"),
    [
        ([check("SUCCESS"), check("FAILURE")], "FAILURE sep-1-answers: it answers"),
        ([check("SUCCESS"), check("WARNING")], "WARNING sep-1-answers: it answers"),
        ([check("SUCCESS"), check("MURKY")], "MURKY sep-1-answers"),
        ([check("SUCCESS", "wire-schema-valid")], "nothing of its own"),
        ([check("SKIPPED")], "nothing of its own"),
        ([], "nothing of its own"),
    ],
)
def test_judge_fails(checks: list[Check], note: str) -> None:
    verdict = judge(checks)
    assert not verdict.passed
    assert note in verdict.note


@pytest.mark.parametrize(
    ("passed", "ended", "note"),
    [
        (False, {"status": 0, "said": ""}, "2 checks"),
        (True, None, "was not run"),
        (True, {"status": None, "said": ""}, "took more than"),
        (True, {"status": 1, "said": "Traceback"}, "ended with 1; it said: Traceback"),
        (True, {"status": 0, "said": "Traceback"}, "it said: Traceback"),
    ],
)
def test_judge_client_fails(passed: bool, ended: Any, note: str) -> None:
    """A client that crashed has failed, even if all checks passed before."""
    text = None if ended is None else json.dumps(ended)
    verdict = judge_client(Verdict(passed, "2 checks"), text)
    assert not verdict.passed
    assert note in verdict.note


def test_judge_client_passes() -> None:
    ended = json.dumps({"status": 0, "said": "a tool is left out"})
    assert judge_client(Verdict(True, "2 checks"), ended) == Verdict(True, "2 checks")


def test_the_lock_pins_everything_and_names_no_host() -> None:
    """npm takes the pinned packages from its configured registry."""
    lock: Any = json.loads((HERE / "package-lock.json").read_text("utf-8"))
    (root, *packages) = lock["packages"].values()
    assert root["dependencies"] == {
        "@modelcontextprotocol/conformance": "0.2.0-alpha.12"
    }
    for package in packages:
        assert "resolved" not in package
        assert package["integrity"].startswith("sha512-")
