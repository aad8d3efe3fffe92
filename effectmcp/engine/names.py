"""The names of functions in journals, and the functions with these names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["find", "name_of"]


def name_of(function: Callable[..., Any]) -> str:
    """Return `module:qualname`, looking inside partials and objects with `func`."""
    while not hasattr(function, "__qualname__"):
        inner = getattr(function, "func", None)
        if inner is None:
            function = type(function)
        else:
            function = inner
    # Methods of builtins have the class that they belong to, but no module.
    owner = getattr(function, "__objclass__", function)
    return f"{getattr(owner, '__module__', None) or 'builtins'}:{function.__qualname__}"


def find(name: str) -> Callable[..., Any] | None:
    """Return the function with this `name_of()`, or `None` if it is not found.

    No module is imported, because looking up a journal's name must not run code.
    """
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    if found is None:
        return None
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None
