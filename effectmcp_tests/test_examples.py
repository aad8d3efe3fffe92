"""The examples run, as their users run them."""

from __future__ import annotations

import base64
import datetime as dt
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given

from effectmcp import Accepted, Confirm, Elicit, ProtocolError
from effectmcp.testing import MemoryClient, check, play
from effectmcp.testing.replay_workers import ReplayWorkers
from effectmcp.testing.strategies import answers_for

from .helpers import example

ROOT = Path(__file__).parent.parent


KEY = base64.urlsafe_b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.urlsafe_b64encode(bytes(32)).decode()


def process(
    file: Path, typed: str, keys: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the terminal example in a process of its own, typing `typed`."""
    environment = {k: v for k, v in os.environ.items() if k != "EFFECTMCP_STATE_KEYS"}
    if keys is not None:
        environment["EFFECTMCP_STATE_KEYS"] = keys
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "engine_only.py"), str(file)],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )


def typed_into(file: Path, typed: str, keys: str | None = None) -> str:
    done = process(file, typed, keys)
    assert done.returncode == 0, done.stderr
    return done.stdout


SERVERS = [
    *("bookshop", "everything", "guarded", "provisioning", "search", "weather"),
    "wizard",
]


@pytest.fixture(scope="module")
def workers() -> Iterator[ReplayWorkers]:
    with ReplayWorkers() as running:
        yield running


@pytest.mark.parametrize("name", SERVERS)
def test_nothing_is_wrong_with_the_examples(name: str, workers: ReplayWorkers) -> None:
    checked = check(example(name).app, conversations=12, workers=workers)
    assert checked.subjects


def test_engine_only_orders_a_book(tmp_path: Path) -> None:
    said = typed_into(tmp_path / "j.json", "Ann\n2026-12-01\ny\n")
    assert "Ordered: receipt" in said
    assert "for 'Dune', to Ann" in said
    assert not (tmp_path / "j.json").exists()


def test_engine_only_resumes_in_another_process(tmp_path: Path) -> None:
    journal = tmp_path / "j.json"
    assert "stopped" in typed_into(journal, "Ann\n")
    assert len(json.loads(journal.read_text())["journal"]["entries"]) == 1
    said = typed_into(journal, "2026-12-01\n")
    assert "Who is it for?" not in said
    assert "Deliver to Ann on which day?" in said
    assert "Ordered: receipt" in typed_into(journal, "y\n")


def test_engine_only_asks_again_with_the_reason(tmp_path: Path) -> None:
    said = typed_into(tmp_path / "j.json", "Ann\n2026-02-30\n2026-12-01\nn\n")
    assert "! value: must be a date that is in the calendar" in said
    assert "Nothing ordered." in said


def test_engine_only_asks_again_for_what_is_neither_yes_nor_no(tmp_path: Path) -> None:
    said = typed_into(tmp_path / "j.json", "Ann\n2026-12-01\nmaybe\ny\n")
    assert "! y or n, please" in said
    assert "Ordered: receipt" in said


def test_engine_only_reports_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    journal = tmp_path / "j.json"
    journal.write_text('{"flow_id": "00"}')
    done = process(journal, "")
    assert done.returncode == 1
    assert "holds no saved order" in done.stderr


def test_engine_only_explains_a_refusal(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "examples" / "engine_only.py"),
            str(tmp_path / "j"),
        ],
        input="\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "Declined: The user declined." in done.stderr


def test_engine_only_carries_a_token_between_processes(tmp_path: Path) -> None:
    """The two processes share a key, and nothing else."""
    token = tmp_path / "token"
    typed_into(token, "Ann of Green Gables\n", KEY)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", token.read_text())
    assert "Green" not in token.read_text()
    said = typed_into(token, "2026-12-01\n", f"{KEY},{OTHER_KEY}")
    assert "Who is it for?" not in said
    assert "Ordered: receipt" in typed_into(token, "y\n", f"{KEY},{OTHER_KEY}")
    assert not token.exists()


def test_engine_only_refuses_a_token_of_another_key(tmp_path: Path) -> None:
    token = tmp_path / "token"
    typed_into(token, "Ann\n", KEY)
    done = process(token, "2026-12-01\n", OTHER_KEY)
    assert done.returncode == 1
    assert "Invalid or expired requestState (forged)" in done.stderr


# ---- the bookshop, by hand ----


def bookshop_module() -> ModuleType:
    path = ROOT / "examples" / "bookshop.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bookshop = bookshop_module()


def test_bookshop_charges_once_the_user_has_agreed() -> None:
    with play(bookshop.order, "Dune") as dialogue:
        dialogue.expect(Elicit("Who is it for?", str)).answer("Ann")
        dialogue.expect(Elicit).answer(dt.date(2026, 12, 1))
        dialogue.expect(Confirm("Order 'Dune' for Ann on 01 Dec?")).answer(True)
        dialogue.expect(bookshop.charge_card("Dune", "Ann", ANY)).performs()
        assert dialogue.result.startswith("Ordered: receipt ")


@given(answers_for(str), answers_for(dt.date))
def test_bookshop_charges_no_user_who_does_not_agree(
    name: Accepted[str], day: Accepted[str]
) -> None:
    with play(bookshop.order, "Dune") as dialogue:
        dialogue.expect(Elicit).send(name).expect(Elicit).send(day)
        assert dialogue.expect(Confirm).answer(False).result == "Nothing ordered."


# ---- guarded ------------------------------------------------------------------------


def test_guarded_counts_and_refuses_rounds() -> None:
    module: Any = example("guarded")
    answers = {"What about": "much"}
    ann, bob = (MemoryClient(module.app, answers, principal=one) for one in ("a", "b"))
    assert ann.call_tool("interview", topics=3).text == "much, much, much"
    asked = ann.call_tool("interview", topics=4)
    assert (asked.rounds, asked.is_error) == (4, True)
    assert asked.text.startswith("I have asked enough.")
    for _ in range(2):
        ann.send("tools/call", name="interview", arguments={})
    with pytest.raises(ProtocolError, match="Answer your other calls first"):
        ann.send("tools/call", name="interview", arguments={})
    assert bob.call_tool("interview").text == "much, much"
