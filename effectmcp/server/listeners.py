"""Check the plain functions that a server calls: observers, taps, `visible=`.

They are called in the middle of a request, without a loop. So a coroutine function is
refused at once: its body would never run, and its result would count as true.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from ..errors import SchemaError, UsageError

__all__ = ["called_by", "check_test", "checked_listeners", "is_plain", "takes"]

L = TypeVar("L", bound=Callable[..., Any])


def called_by(function: Any) -> Any:
    """Return the function that runs: of a partial, of an object, behind decorators."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    called = inner if inspect.isroutine(inner) else type(inner).__call__
    return inspect.unwrap(called)


def is_plain(function: Any) -> bool:
    """Return whether a function returns its result when it is called."""
    called = called_by(function)
    return not (
        inspect.iscoroutinefunction(called)
        or inspect.isasyncgenfunction(called)
        or inspect.isgeneratorfunction(called)
    )


def takes(function: Callable[..., Any], number: int) -> bool:
    """Return whether a function can be called with so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # of a builtin, which does not tell
    try:
        signature.bind(*[None] * number)
    except TypeError:
        return False
    return True


def check_test(what: str, function: object, *, of: int) -> None:
    """Check a function that decides who may see a feature.

    Args:
        what: Its place, for the message.
        function: The function.
        of: How many arguments it takes.

    Raises:
        SchemaError: If it is not a plain function of so many arguments.
    """
    arguments = "the viewer" if of == 1 else "the feature and the viewer"
    if not callable(function) or not is_plain(function) or not takes(function, of):
        raise SchemaError(
            f"{what}: {function!r} is not a plain function of {arguments}, such as"
            " lambda viewer: viewer.principal is not None. Look up what takes long when"
            " the user is authenticated"
        )


def checked_listeners(what: str, functions: Iterable[L]) -> tuple[L, ...]:
    """Return observers or taps as a tuple.

    Raises:
        UsageError: If one is not a plain function of one argument.
    """
    whole: object = functions
    if callable(whole) or isinstance(whole, (str, bytes)):
        raise UsageError(f"Server({what}=...): give a list of functions")
    checked = tuple(functions)
    for one in checked:
        given: object = one
        if not callable(given) or not is_plain(given) or not takes(given, 1):
            raise UsageError(
                f"Server({what}=...): {given!r} is not a plain function of one argument;"
                " async functions are never called"
            )
    return checked
