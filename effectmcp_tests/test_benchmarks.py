"""Benchmarks run, with the smallest sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def run_tiny(name: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--tiny"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["benchmark"] == name
    return result


def test_tasks() -> None:
    result = run_tiny("tasks")
    assert {"effectmcp", "effectmcp, async"} <= result["step_ms"].keys()
    assert len(result["mb"]) == 2


def test_authenticating() -> None:
    """Each way to know a caller is asked, and lets it in."""
    more = run_tiny("authenticating")["more_us"]
    assert more.pop("no authentication") == 0
    assert len(more) == 5


def test_parsing() -> None:
    """Each shape is read, and each fault is refused: those have no digest."""
    times = run_tiny("parsing")["ms"]
    refused = {name for name, row in times.items() if "digest" not in row}
    assert refused == {name for name in times if name.startswith("then")}
