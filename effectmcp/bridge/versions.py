"""The versions of other SDKs that the bridges support."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from typing import Final, TypeAlias

from ..errors import UsageError

__all__ = ["SUPPORTED", "check_version"]

_Version: TypeAlias = tuple[int, int]

#: By package: the first version with all that a bridge needs, and the first version after
#: the supported ones. CI runs the bridges on the newest supported version.
SUPPORTED: Final[Mapping[str, tuple[_Version, _Version]]] = {
    "fastmcp": ((4, 1), (5, 0)),
    "mcp": ((2, 3), (3, 0)),
}


def check_version(package: str, installed: str | None = None) -> None:
    """Refuse a package that is missing, or in a version that is not supported.

    Args:
        package: Its name.
        installed: Its version; by default the installed one.

    Raises:
        UsageError: If the bridge cannot use it; the message has the command to install it.
    """
    first, last = SUPPORTED[package]
    wanted = f"{package}>={_text(first)},<{_text(last)}"
    if installed is None:
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise UsageError(
                f"effectmcp.bridge.{package} needs {package}, which is not installed: pip"
                f" install 'effectmcp[{package}]'"
            ) from None
    match = re.match(r"(\d+)\.(\d+)", installed)
    if match is None or not first <= (int(match[1]), int(match[2])) < last:
        raise UsageError(
            f"effectmcp.bridge.{package} supports {wanted}, and {package} {installed} is"
            f" installed: pip install '{wanted}'"
        )


def _text(version: _Version) -> str:
    return "{}.{}".format(*version)
