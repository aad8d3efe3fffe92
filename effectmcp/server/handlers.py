"""A function, looked at once: what it takes, and how it is run.

    flow      a generator function, or one whose result is annotated as a `Flow`: it
              yields effects, and the engine replays it
    plain     any other function: called once a request, in a worker thread
    async     a coroutine function: awaited on the driver's loop

A plain function costs nothing of the replay machinery.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_origin

from attrs import frozen

from ..canonical import JSON
from ..engine.steps import provided_names
from ..errors import ArgumentsError, SchemaError
from ..schema import Arguments, RawSchema, input_of
from ..schema.functions import read_signature

__all__ = ["FLOW_MARK", "Handler", "Kind", "RawArguments", "make_handler", "read_texts"]

Kind: TypeAlias = Literal["flow", "plain", "async"]

#: Set on a coroutine function that awaits nothing but effects; see `effectmcp.compat`.
FLOW_MARK: Final = "__effectmcp_flow__"


@frozen(eq=False)
class RawArguments:
    """What a function takes by a schema that its author wrote by hand."""

    schema: Mapping[str, JSON]
    description: str
    _raw: RawSchema

    def read(self, value: JSON) -> dict[str, Any]:
        """The keyword arguments, which are just what was sent.

        Raises:
            ArgumentsError: with every problem.
        """
        problems = self._raw.check(value)
        if not problems and not isinstance(value, dict):
            problems = ["the arguments must be an object"]
        if problems:
            raise ArgumentsError(problems)
        return dict(value)


@frozen(eq=False)
class Handler:
    """A function as a server runs it.

    Attributes:
        function: The function.
        kind: How it is run.
        name: What logs and reports call it.
        takes: What it takes, from JSON.
        provided: The parameters that the lifespan fills in, with their annotations.
        returns: Its return annotation, or `None` when it has none.
    """

    function: Callable[..., Any]
    kind: Kind
    name: str
    takes: Arguments | RawArguments
    provided: Mapping[str, Any]
    returns: Any


def make_handler(
    function: Callable[..., Any],
    *,
    schema: Mapping[str, JSON] | None = None,
    of: str = "",
) -> Handler:
    """Look at `function`.

    Args:
        function: The function.
        schema: A schema of its arguments that its author wrote by hand.
        of: What messages call that schema.

    Raises:
        SchemaError: naming what about it cannot be served, and what to write instead.
    """
    given: object = function
    if not callable(given):
        raise SchemaError(f"{given!r} is no function")
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    called = inner if inspect.isroutine(inner) else type(inner).__call__
    called = inspect.unwrap(called)
    if inspect.isasyncgenfunction(called):
        raise SchemaError(
            f"{name} is an async generator, which could not be replayed; write a plain"
            " generator, or an async function without yield"
        )
    takes = _raw(function, schema, of) if schema is not None else input_of(function)
    provided = provided_names(function)
    kind = _kind(called, inner)
    if kind == "flow" and provided:
        raise SchemaError(
            f"{name}({next(iter(provided))}): a handler that yields effects is run anew"
            " each round, so it is provided with nothing. Take it in a step, or in a"
            " plain function"
        )
    returns = read_signature(function).hints.get("return")
    return Handler(function, kind, name, takes, provided, returns)


def _kind(called: Callable[..., Any], inner: object) -> Kind:
    if inspect.isgeneratorfunction(called) or hasattr(inner, FLOW_MARK):
        return "flow"
    if inspect.iscoroutinefunction(called):
        return "async"
    # A plain function that hands a flow on.
    returns = getattr(called, "__annotations__", {}).get("return")
    if get_origin(returns) is Generator:
        return "flow"
    return "plain"


def _raw(
    function: Callable[..., Any], schema: Mapping[str, JSON], of: str
) -> RawArguments:
    raw = RawSchema(schema, of=of)
    if raw.schema.get("type") != "object":
        raise SchemaError(f'{of} must have "type": "object": arguments have names')
    text = inspect.getdoc(function) or ""
    return RawArguments(raw.schema, text.partition("\n\n")[0].replace("\n", " "), raw)


# ---- arguments that come as texts ---------------------------------------------------


def read_texts(handler: Handler, texts: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments from texts: a prompt's arguments, or the parts of a URI.

    Numbers and booleans are written as in JSON.

    Raises:
        ArgumentsError: with every problem.
    """
    properties = handler.takes.schema.get("properties", {})
    values = {
        name: _from_text(text, properties.get(name, {})) for name, text in texts.items()
    }
    return handler.takes.read(values)


def _from_text(text: str, schema: Mapping[str, JSON]) -> JSON:
    type_ = schema.get("type")
    if type_ == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if type_ not in ("integer", "number") or len(text) > 400:
        return text
    try:
        return int(text) if type_ == "integer" else float(text)
    except ValueError:
        return text
