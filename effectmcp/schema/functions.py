"""A function → its parameters and its docstring, behind partials and methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from attrs import frozen

from ..errors import SchemaError
from ..shapes.docstrings import Docstring, parse_docstring
from ..shapes.sources import hints_of

__all__ = ["Signature", "read_signature"]


@frozen(eq=False)
class Signature:
    """The signature of a function, with its docstring.

    Attributes:
        name: The name in messages.
        parameters: Its parameters.
        hints: Its annotations, resolved; `return` among them.
        docstring: Its docstring, parsed.
    """

    name: str
    parameters: list[inspect.Parameter]
    hints: dict[str, Any]
    docstring: Docstring


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of `function`.

    Raises:
        SchemaError: If `function` has no signature, or an annotation cannot be
            resolved.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    text = inspect.getdoc(inner) or ""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise SchemaError(
            f"{name}: Python knows no signature of it; wrap it in a function"
        ) from None
    return Signature(
        name=name,
        parameters=list(signature.parameters.values()),
        hints=_hints(_annotated(inner), signature, name),
        docstring=parse_docstring(text),
    )


def _annotated(function: Any) -> Any:
    """Return the object that holds the annotations of `function`."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, type):
            return function.__init__  # type: ignore[misc]
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function):
            return function
        else:
            function = type(function).__call__  # a callable object


def _hints(of: Any, signature: inspect.Signature, name: str) -> dict[str, Any]:
    hints = hints_of(of, name)
    as_written = getattr(of, "__annotations__", {})
    for parameter in signature.parameters.values():
        annotation = parameter.annotation
        if annotation is parameter.empty:
            continue
        # A decorator may have set another signature, in `__signature__`.
        if as_written.get(parameter.name, parameter.empty) != annotation:
            hints[parameter.name] = annotation
    return hints
