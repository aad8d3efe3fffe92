"""Attack the server of another SDK in the same ways: `mcp`, under uvicorn.

    python -m effectmcp_tests.siege.peers --attack 1 2 4 5 10

The SDK is installed into an environment of its own, in the folder that
EFFECTMCP_CONFORMANCE_CACHE names or in a temporary folder: at the pinned version, or with
`--newest` at the newest version. Its verdicts only compare: it has made no such claims.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from ..npm import DOWNLOAD_TIME, Unavailable
from .attacks import ATTACKS
from .besiege import besiege
from .hosts import Host
from .reports import table
from .run import chosen
from .server import Form

__all__ = ["SDK", "install", "peer"]

#: The version that is compared; uvicorn comes with it.
SDK: Final = "mcp==2.3.0"

#: The attacks that make sense there.
COMPARED: Final = ("1", "2", "4", "5", "10")

SERVER: Final = Path(__file__).with_name("python_sdk_server.py")


def install(cache: Path, sdk: str = SDK) -> Path:
    """Return the Python of an environment with the SDK, downloaded if need be.

    Raises:
        Unavailable: If it cannot be downloaded.
    """
    cache.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(f"{sdk} {sys.version}".encode()).hexdigest()
    place = cache / f"siege-{digest[:12]}"
    if not place.exists():
        with TemporaryDirectory(dir=cache) as name:
            partial_place = Path(name) / "environment"
            _do(sys.executable, "-m", "venv", str(partial_place))
            python = str(partial_place / "bin" / "python")
            _do(python, "-m", "pip", "install", "--quiet", sdk)
            # At once, so that an installation that was broken off is never used.
            try:
                partial_place.rename(place)
            except OSError:
                if not place.exists():
                    raise
    return place / "bin" / "python"


def _do(*command: str) -> None:
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIME,
            check=True,
        )
    except subprocess.CalledProcessError as exc:
        raise Unavailable(f"it cannot be installed: {exc.stderr[-200:]}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"it cannot be installed: {exc}") from exc


def peer(python: Path) -> Host:
    """Return the host that runs the SDK's server."""
    return Host("python-sdk", lambda form: [str(python), str(SERVER)], is_ours=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack the other SDK, and print the table."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attack", nargs="+", default=list(COMPARED))
    parser.add_argument("--short", action="store_true", help="the form for every push")
    parser.add_argument("--newest", action="store_true", help="the newest version")
    parser.add_argument("--limit", type=float, default=10_000, help="MB, then kill")
    options = parser.parse_args(arguments)
    form: Form = "short" if options.short else "long"
    cache = os.environ.get("EFFECTMCP_CONFORMANCE_CACHE")
    reports = []
    with TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        place = Path(cache or temporary).resolve()
        host = peer(install(place, "mcp" if options.newest else SDK))
        for name in chosen(options.attack):
            if name in ATTACKS:
                run = partial(besiege, ATTACKS[name], host, form, limit=options.limit)
                reports.append(trio.run(run))
                print(*table(reports[-1:]).split("\n")[2:], sep="\n", flush=True)
    print()
    print(table(reports))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
