"""Functions by name: what a journal says of them, and the way back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["find", "name_of"]


def name_of(function: Callable[..., Any]) -> str:
    """`module:qualname`, looking through partials and decorators that say so."""
    while not hasattr(function, "__qualname__"):
        inner = getattr(function, "func", None)
        if inner is None:
            function = type(function)
        else:
            function = inner
    # Methods of builtins know the class they belong to and no module.
    owner = getattr(function, "__objclass__", function)
    return f"{getattr(owner, '__module__', None) or 'builtins'}:{function.__qualname__}"


def find(name: str) -> Callable[..., Any] | None:
    """The function that `name_of` called so, if its module is imported and has it.

    Nothing is imported: a name out of a journal must not run code by being looked up.
    """
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    if found is None:
        return None
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None
