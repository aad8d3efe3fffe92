"""The handlers under test, their arguments, and where other processes find them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from ..canonical import JSON
from ..engine.names import find, name_of
from ..errors import UsageError
from ..exchange.calls import checked
from ..exchange.results import prompt_result, resource_result, tool_result
from ..schema.written import written
from ..server.features import Feature, Prompt, Resource, Tool, make_tool
from .loops import RunAsync, runner_of

if TYPE_CHECKING:
    from ..engine.rules import Rules
    from ..server.app import Server

__all__ = ["Origin", "Subject", "subject_of", "subjects_of"]


@frozen
class Origin:
    """The place where another process finds a handler.

    Attributes:
        module: The module's name.
        file: The module's file, to load it if its name does not find it.
        path: The path in the module, to a function or to a server.
        kind: The registry of the server, such as `tools`; empty for a function.
        key: The name in the registry.
    """

    module: str
    file: str | None
    path: str
    kind: str = ""
    key: str = ""


@frozen(eq=False)
class Subject:
    """A handler under test.

    Attributes:
        feature: The feature that a server offers, or would offer.
        method: The method by which clients call it.
        target: The name or URI that clients call.
        origin: The place where another process finds it; `None` if it cannot.
        run_async: Runs its async functions.
    """

    feature: Feature
    method: str
    target: str
    origin: Origin | None
    run_async: RunAsync = field(factory=partial(runner_of, None))

    @property
    def name(self) -> str:
        """The name in reports."""
        return self.target

    @property
    def function(self) -> Callable[..., Any]:
        """The function that runs."""
        return self.feature.handler.function

    @property
    def where(self) -> str | None:
        """`file:line` of the function."""
        code = _code_of(self.function)
        return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def standing_for(self, handler: Callable[..., Any]) -> Subject:
        """Return this subject with another function, which wraps the original."""
        for name in ("__module__", "__qualname__"):
            if hasattr(self.function, name):
                setattr(handler, name, getattr(self.function, name))
        of = attrs.evolve(self.feature.handler, function=handler)
        return attrs.evolve(self, feature=attrs.evolve(self.feature, handler=of))

    def rules_of(self, rules: Rules) -> Rules:
        """Return the rules of a way of answering as they are for this handler."""
        feature = self.feature
        return feature.rules_of(rules) if isinstance(feature, Tool) else rules

    def read(self, arguments: JSON) -> dict[str, Any]:
        """Return the function's arguments, built again as in every round."""
        return dict(self.feature.handler.takes.read(arguments))

    def result(self, value: Any) -> JSON:
        """Return the result of the handler as the client gets it.

        Raises:
            OutputError: If the result does not match its annotation or schema.
        """
        feature = self.feature
        value = checked(value, feature.handler)
        if isinstance(feature, Tool):
            fields = tool_result(feature, value)
        elif isinstance(feature, Prompt):
            fields = prompt_result(feature, value)
        else:
            assert isinstance(feature, Resource), feature
            fields = resource_result(feature, self.target, value)
        return written(fields)[0]


def _code_of(function: Any) -> Any:
    # Look inside decorators, partials and methods for the author's function.
    found = None
    while function is not None:
        found = getattr(function, "__code__", found)
        function = next(
            filter(
                None,
                (
                    getattr(function, name, None)
                    for name in ("__wrapped__", "func", "__func__")
                ),
            ),
            None,
        )
    return found


_REGISTRIES = {
    "tools": "tools/call",
    "prompts": "prompts/get",
    "resources": "resources/read",
    "templates": "resources/read",
}


def subject_of(handler: Callable[..., Any]) -> Subject:
    """Return a function as the handler of a tool, whether or not it is a tool.

    Raises:
        SchemaError: If it cannot be a tool.
        UsageError: If it yields no effects. It is never replayed, so it needs no check.
    """
    name = getattr(handler, "__name__", type(handler).__name__)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:128]
    tool = make_tool(handler, name=name)
    if tool.handler.kind != "flow":
        raise UsageError(
            f"{name_of(handler)} yields no effects: it is called once per request, and a"
            " plain test can call it"
        )
    where = name_of(handler)
    module, _, path = where.partition(":")
    origin = None
    if find(where) is handler:
        origin = _origin(module, path)
    return Subject(tool, "tools/call", name, origin)


def subjects_of(app: Server) -> Iterable[Subject]:
    """Yield the flow handlers of a server; plain functions are left out."""
    for kind, method in _REGISTRIES.items():
        for key, feature in getattr(app, kind).items():
            if feature.handler.kind == "flow":
                origin = _origin_in(app, feature, kind, key)
                yield Subject(feature, method, key, origin, runner_of(app.loop))


def _origin(module: str, path: str, kind: str = "", key: str = "") -> Origin | None:
    if module == "__main__":
        return None  # loading it again would run it again
    file = getattr(sys.modules[module], "__file__", None)
    return Origin(module, file, path, kind, key)


def _origin_in(app: Server, feature: Feature, kind: str, key: str) -> Origin | None:
    module = name_of(feature.handler.function).partition(":")[0]
    # First in the module of the handler, then in all others.
    for name in (module, *list(sys.modules)):
        for attribute, value in list(vars(sys.modules.get(name) or object).items()):
            if value is app:
                return _origin(name, attribute, kind, key)
    return None
