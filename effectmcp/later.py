"""Names of a package that are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["later"]


def later(package: dict[str, Any], names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: Its globals.
        names: The module of each name, within the package.
    """

    def get(name: str) -> Any:
        of = package["__name__"]
        if name not in names:
            raise AttributeError(f"module {of!r} has no attribute {name!r}")
        value = getattr(import_module(f".{names[name]}", of), name)
        package[name] = value
        return value

    return get
