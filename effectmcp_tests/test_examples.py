"""The examples run, as their users run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def play(journal: Path, typed: str) -> str:
    """Run the terminal example in a process of its own, typing `typed`."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "engine_only.py"), str(journal)],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_engine_only_orders_a_book(tmp_path: Path) -> None:
    said = play(tmp_path / "j.json", "Ann\n2026-12-01\ny\n")
    assert "Ordered: receipt" in said
    assert "for 'Dune', to Ann" in said
    assert not (tmp_path / "j.json").exists()


def test_engine_only_goes_on_in_another_process(tmp_path: Path) -> None:
    journal = tmp_path / "j.json"
    assert "stopped" in play(journal, "Ann\n")
    assert len(json.loads(journal.read_text())["journal"]["entries"]) == 1
    said = play(journal, "2026-12-01\n")
    assert "Who is it for?" not in said
    assert "Deliver to Ann on which day?" in said
    assert "Ordered: receipt" in play(journal, "y\n")


def test_engine_only_asks_again_with_the_reason(tmp_path: Path) -> None:
    said = play(tmp_path / "j.json", "Ann\n2026-02-30\n2026-12-01\nn\n")
    assert "! value: must be a date that is in the calendar" in said
    assert "Nothing ordered." in said


def test_engine_only_says_what_a_refusal_means(tmp_path: Path) -> None:
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
