"""A function → its parameters and its docstring, behind partials and methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from attrs import frozen

from ..errors import SchemaError
from .classes import hints_of
from .docstrings import Docstring, parse_docstring

__all__ = ["Signature", "read_signature"]


@frozen(eq=False)
class Signature:
    """What a function asks for, and says.

    Attributes:
        name: For messages.
        parameters: Its parameters.
        hints: Its annotations, resolved; `return` among them.
        docstring: What it says of itself.
    """

    name: str
    parameters: list[inspect.Parameter]
    hints: dict[str, Any]
    docstring: Docstring


def read_signature(function: Callable[..., Any]) -> Signature:
    """The signature of `function`.

    Raises:
        SchemaError: when it has none, or an annotation cannot be resolved.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    text = inspect.getdoc(inner) or ""
    if isinstance(inner, type):
        of = inner.__init__  # type: ignore[misc]
    elif inspect.isroutine(inner):
        of = inspect.unwrap(inner)
    else:
        of = type(inner).__call__  # a callable object
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise SchemaError(
            f"{name}: Python knows no signature of it; wrap it in a function"
        ) from None
    return Signature(
        name=name,
        parameters=list(signature.parameters.values()),
        hints=hints_of(of, name),
        docstring=parse_docstring(text),
    )
