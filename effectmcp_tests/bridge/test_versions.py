"""Which versions of the other SDKs are supported, and how others are refused."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

import pytest

from effectmcp import UsageError
from effectmcp.bridge.versions import SUPPORTED, check_version


def test_supported_versions() -> None:
    """A change here is a change of what users may install: docs/bridges.md has it, too."""
    assert SUPPORTED == {"fastmcp": ((4, 1), (5, 0)), "mcp": ((2, 3), (3, 0))}


@pytest.mark.parametrize("package", SUPPORTED)
def test_installed_versions_are_supported(package: str) -> None:
    check_version(package)
    first, last = SUPPORTED[package]
    major, minor = metadata.version(package).split(".")[:2]
    assert first <= (int(major), int(minor)) < last


@pytest.mark.parametrize(
    ("package", "installed", "is_supported"),
    [
        ("fastmcp", "4.0.11", False),
        ("fastmcp", "4.1.0", True),
        ("fastmcp", "4.10.2", True),
        ("fastmcp", "5.0.0", False),
        ("fastmcp", "5.0.0rc1", False),
        ("fastmcp", "unknown", False),
        ("mcp", "1.30.0", False),
        ("mcp", "2.2.9", False),
        ("mcp", "2.3.0", True),
        ("mcp", "2.3.0b1", True),
        ("mcp", "3.0", False),
    ],
)
def test_versions(package: str, installed: str, is_supported: bool) -> None:
    if is_supported:
        check_version(package, installed)
        return
    wanted = {"fastmcp": "fastmcp>=4.1,<5.0", "mcp": "mcp>=2.3,<3.0"}[package]
    words = (
        f"effectmcp.bridge.{package} supports {wanted}, and {package} {installed} is"
        f" installed: pip install '{wanted}'"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(words)}$"):
        check_version(package, installed)


@pytest.mark.parametrize("package", SUPPORTED)
def test_missing_package(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(UsageError, match=rf"pip install 'effectmcp\[{package}\]'"):
        check_version(package)


@pytest.mark.parametrize("package", SUPPORTED)
def test_missing_package_is_named(package: str) -> None:
    script = f"""
from importlib import metadata
def version(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = version
try:
    import effectmcp.bridge.{package}
except Exception as exc:
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        f"effectmcp.bridge.{package} needs {package}, which is not installed: pip install"
        f" 'effectmcp[{package}]'\n"
    )
