"""The benchmarks that start servers run, with the smallest sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_tasks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tasks", "--tiny"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["benchmark"] == "tasks"
    assert {"effectmcp", "effectmcp, async"} <= result["step_ms"].keys()
    assert len(result["mb"]) == 2
