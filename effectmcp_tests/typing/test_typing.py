"""Both type checkers accept what authors write, and refuse the marked lines of `errors.py`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


#: What authors write: effects, and forms and steps of their own types.
RIGHT = ["api.py", "own_types.py"]


def marked(path: Path) -> set[int]:
    lines = path.read_text().splitlines()
    return {n for n, line in enumerate(lines, 1) if line.endswith("# error")}


def mypy(path: Path) -> set[int]:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed: pip install -e '.[dev]'")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    found = re.findall(rf"{path.name}:(\d+): error", done.stdout)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert bool(found) == bool(done.returncode), done.stdout
    return set(map(int, found))


def pyright(path: Path) -> set[int]:
    command = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("pyright is not installed: pip install -e '.[dev]'")
    done = subprocess.run(
        [command, "--outputjson", "--pythonpath", sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    report = json.loads(done.stdout)
    return {
        one["range"]["start"]["line"] + 1
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    }


@pytest.mark.parametrize("file", RIGHT)
def test_mypy_accepts_what_authors_write(file: str) -> None:
    assert mypy(HERE / file) == set()


def test_mypy_refuses_what_is_wrong() -> None:
    assert mypy(HERE / "errors.py") == marked(HERE / "errors.py")


@pytest.mark.parametrize("file", RIGHT)
def test_pyright_accepts_what_authors_write(file: str) -> None:
    assert pyright(HERE / file) == set()


def test_pyright_refuses_what_is_wrong() -> None:
    assert pyright(HERE / "errors.py") == marked(HERE / "errors.py")
