"""Inspect a function once, at registration: its parameters, and how it is run.

    flow      a generator function, or a function annotated to return a `Flow`: it
              yields effects, and the engine replays it
    plain     any other function: called once per request, in a worker thread
    async     a coroutine function: awaited on the driver's loop

Plain and async functions have no replay, and none of its costs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from attrs import frozen

from ..canonical import JSON
from ..compat import FLOW_MARK, forgotten_mark
from ..engine.steps import provided_names
from ..errors import ArgumentsError, SchemaError
from ..lowlevel import InputRequired, given_parameter, make_flow, without
from ..schema.arguments import Arguments, input_of
from ..schema.declared import Declared, declared_by
from ..schema.functions import read_signature
from ..schema.raw import RawSchema

__all__ = [
    "Handler",
    "Kind",
    "RawArguments",
    "make_handler",
    "read_texts",
    "values_of_texts",
]

Kind: TypeAlias = Literal["flow", "plain", "async"]


@frozen(eq=False)
class RawArguments:
    """The arguments of a function, by a schema that its author wrote by hand."""

    schema: Mapping[str, JSON]
    description: str
    _raw: RawSchema

    def read(self, value: JSON) -> dict[str, Any]:
        """Return the keyword arguments, exactly as the client sent them.

        Raises:
            ArgumentsError: If the arguments do not fit the schema; lists all problems.
        """
        problems = self._raw.check(value)
        if not problems and not isinstance(value, dict):
            problems = ["the arguments must be an object"]
        if problems:
            raise ArgumentsError(problems)
        return dict(value)


@frozen(eq=False)
class Handler:
    """A function, and everything that a server needs to run it.

    Attributes:
        function: The function.
        kind: How it is run.
        name: Its name in logs and reports.
        takes: Its arguments: their schema, and how to read them from JSON.
        provided: The parameters that the lifespan fills in, with their annotations.
        returns: Its return annotation; `None` without one.
        declared: Checks that a result is of that type; `None` without an annotation, or
            if a schema of results checks them.
    """

    function: Callable[..., Any]
    kind: Kind
    name: str
    takes: Arguments | RawArguments
    provided: Mapping[str, Any]
    returns: Any
    declared: Declared | None = None


def make_handler(
    function: Callable[..., Any],
    *,
    schema: Mapping[str, JSON] | None = None,
    of: str = "",
) -> Handler:
    """Make the handler of `function`.

    Args:
        function: The function.
        schema: A schema of its arguments, if its author wrote one by hand.
        of: The name of that schema in messages.

    Raises:
        SchemaError: If the function cannot be served. The message names the reason,
            with the code to write instead.
    """
    given: object = function
    if not callable(given):
        hint = f"; to name one, write name={given!r}" if isinstance(given, str) else ""
        raise SchemaError(f"{given!r} is no function{hint}")
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    if inner is function and _is_unbound(inner):
        raise SchemaError(
            f"{name} is a method without its self: register the method of"
            " an object, app.tool(shop.order)"
        )
    called = inner if inspect.isroutine(inner) else type(inner).__call__
    hints = read_signature(function).hints
    problem = forgotten_mark(inner, hints)
    if problem is not None:
        raise SchemaError(problem)
    returns = hints.get("return")
    author = function
    kind = _kind(called, inner, returns)
    if kind is None:
        raise SchemaError(
            f"{name} is an async generator, which could not be replayed; write a plain"
            " generator, or an async function without yield"
        )
    # Checked before the arguments are read: a `Given` parameter without `= Provided()`
    # would be taken for an argument.
    parameter = given_parameter(function)
    asks = parameter is not None or InputRequired in (returns, *get_args(returns))
    if kind == "flow" and asks:
        raise SchemaError(
            f"{name} yields effects, so it has no use for Given and InputRequired"
        )
    takes = _raw(function, schema, of) if schema is not None else input_of(function)
    provided = provided_names(function)
    if kind == "flow" and provided:
        raise SchemaError(
            f"{name}({next(iter(provided))}): a handler that yields effects is run again"
            " each round, so it gets no provided value. Take it in a step, or in a"
            " plain function"
        )
    if asks:
        function, kind = make_flow(function, parameter), "flow"
        provided, returns = {}, without(returns)
    declared = declared_by(author, returns) if "return" in hints else None
    return Handler(function, kind, name, takes, provided, returns, declared)


def _is_unbound(inner: object) -> bool:
    if not inspect.isfunction(inner) or "." not in inner.__qualname__.split(">.")[-1]:
        return False
    return next(iter(inspect.signature(inner).parameters), None) == "self"


def _kind(called: Callable[..., Any], inner: object, returns: Any) -> Kind | None:
    if hasattr(inner, FLOW_MARK):
        return "flow"
    # A decorator's wrapper may be of another kind than the function that it wraps, and
    # the server calls the wrapper. A plain wrapper usually returns what the wrapped
    # function returns, so then that function decides.
    for function in (called, inspect.unwrap(called)):
        if inspect.isasyncgenfunction(function):
            return None
        if inspect.isgeneratorfunction(function):
            return "flow"
        if inspect.iscoroutinefunction(function):
            return "async"
    # A plain function that returns the flow of another function.
    return "flow" if get_origin(returns) is Generator else "plain"


def _raw(
    function: Callable[..., Any], schema: Mapping[str, JSON], of: str
) -> RawArguments:
    raw = RawSchema(schema, of=of)
    if raw.schema.get("type") != "object":
        raise SchemaError(f'{of} must have "type": "object": arguments have names')
    text = inspect.getdoc(function) or ""
    return RawArguments(raw.schema, text.partition("\n\n")[0].replace("\n", " "), raw)


# ---- arguments that arrive as strings -----------------------------------------------

#: As in JSON (RFC 8259, section 6), and short enough to be cheap to read.
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,399})")
_NUMBER: Final = re.compile(
    r"-?(0|[1-9][0-9]{0,399})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?"
)


def read_texts(handler: Handler, texts: Mapping[str, str]) -> dict[str, Any]:
    """Read keyword arguments from strings: a prompt's arguments, or the parts of a URI.

    Numbers and booleans are written as in JSON.

    Raises:
        ArgumentsError: If the values do not fit the parameters; lists all problems.
    """
    return handler.takes.read(values_of_texts(handler, texts))


def values_of_texts(handler: Handler, texts: Mapping[str, str]) -> dict[str, JSON]:
    """Convert arguments from strings to JSON, which is not checked yet."""
    properties = handler.takes.schema.get("properties", {})
    return {
        name: _from_text(text, properties.get(name, {})) for name, text in texts.items()
    }


def _from_text(text: str, schema: Mapping[str, JSON]) -> JSON:
    # `int | None` is a union; the first part that can convert the string wins.
    for part in schema.get("anyOf", (schema,)):
        type_ = part.get("type")
        if type_ == "boolean" and text in ("true", "false"):
            return text == "true"
        if type_ == "integer" and _INTEGER.fullmatch(text):
            return int(text)
        if type_ == "number" and _NUMBER.fullmatch(text):
            return float(text)
    return text
