"""Import the names of a package when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: dict[str, Any],
    names: Mapping[str, str],
    *,
    extra: str = "",
    needs: Collection[str] = (),
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: The globals of the package.
        names: The module of each name, within the package.
        extra: The extra of effectmcp that installs the modules in `needs`.
        needs: The modules that these names need, and that the core does not install.
    """

    def get(name: str) -> Any:
        of = package["__name__"]
        if name not in names:
            raise AttributeError(f"module {of!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(f".{names[name]}", of), name)
        except ModuleNotFoundError as exc:
            if exc.name not in needs:
                raise
            raise ImportError(
                f"{name} needs {exc.name}: pip install 'effectmcp[{extra}]'"
            ) from None
        package[name] = value
        return value

    return get
