"""`effectmcp.client` imports lazily, and names the package that is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import effectmcp.client


@pytest.mark.parametrize("name", effectmcp.client.__all__)
def test_each_name_is_there(name: str) -> None:
    assert getattr(effectmcp.client, name).__name__ == name


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        getattr(effectmcp.client, "Nothing")  # noqa: B009


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ("anyio", ["Client", "OverPipes"]),
        ("httpx2", ["OverHttp"]),
    ],
)
def test_missing_packages_are_named(missing: str, names: list[str]) -> None:
    """The values of rounds need none of these packages."""
    script = f"""
import sys
sys.modules[{missing!r}] = None
from effectmcp.client import OngoingCall, Pending, StateRejected, Form, Result
import effectmcp.client
for name in {names!r}:
    try:
        getattr(effectmcp.client, name)
    except ImportError as exc:
        print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        f"{name} needs {missing}: pip install 'effectmcp[client]'" for name in names
    ], done.stderr


def test_what_the_kit_needs_is_named() -> None:
    script = """
import sys
sys.modules["hypothesis"] = None
from effectmcp.testing import play, PlainKeys
try:
    from effectmcp.testing import check
except ImportError as exc:
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    said = "check needs hypothesis: pip install 'effectmcp[testing]'"
    assert done.stdout.strip() == said, done.stderr


def test_other_missing_modules_are_reported_unchanged() -> None:
    script = """
import sys
sys.modules["anyio.abc"] = None
import effectmcp.client
try:
    effectmcp.client.OverPipes
except ModuleNotFoundError as exc:
    print(exc.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "anyio.abc\n", done.stderr
