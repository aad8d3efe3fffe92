"""The source of a handler, and the objects that its names refer to.

Some faults leave no trace when a handler runs: a flow that is made and never run, an
`except` that no exception can reach. The modules that find those read the source
(`source_faults`). This module provides the syntax trees of a handler and of the flows that
it runs, with the line numbers of their file. It resolves names to modules, classes and
functions, but never to the value of a local variable.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import typing
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, Final, TypeAlias, get_args, get_origin

from ..compat import FLOW_MARK
from ..effects.base import Effect
from ..effects.steps import Step, StepFunction

__all__ = [
    "UNKNOWN",
    "FunctionNode",
    "Source",
    "is_flow",
    "raised_by",
    "source_of",
    "sources_of",
]

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)

#: The value of a name that cannot be resolved by reading.
UNKNOWN: Final = object()


class Source:
    """A function's syntax tree, with the line numbers of its file.

    Attributes:
        function: The function.
        node: Its definition.
        file: Its file.
    """

    def __init__(self, function: FunctionType, node: FunctionNode, owner: Any) -> None:
        self.function = function
        self.node = node
        self.file = function.__code__.co_filename
        self._parents = {
            child: parent
            for parent in ast.walk(node)
            for child in ast.iter_child_nodes(parent)
        }
        self._nested = {
            one.name: one
            for one in ast.walk(node)
            if isinstance(one, _FUNCTIONS) and one is not node
        }
        self._stored = {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
        } | {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
        self._names: dict[str, Any] = dict(vars(builtins))
        self._names |= function.__globals__
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            try:
                self._names[name] = cell.cell_contents
            except ValueError:  # an empty cell
                self._names[name] = UNKNOWN
        arguments = node.args.args
        self._self = arguments[0].arg if owner is not None and arguments else None
        self._owner = owner

    def where(self, node: Any) -> str:
        """Return `file:line` of a node."""
        return f"{self.file}:{node.lineno}"

    def parent(self, node: ast.AST) -> ast.AST:
        """Return the node around a node."""
        return self._parents[node]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, the innermost first."""
        while node is not self.node:
            node = self._parents[node]
            yield node

    def function_around(self, node: ast.AST) -> FunctionNode:
        """Return the innermost function around a node; lambdas do not count."""
        return next(one for one in self.above(node) if isinstance(one, _FUNCTIONS))

    def value(self, node: ast.AST) -> Any:
        """Return the object that an expression names, or a nested function's node."""
        match node:
            case ast.Name(id=name):
                if name == self._self:
                    return self._owner
                if name in self._nested:
                    return self._nested[name]
                if name in self._stored:
                    return UNKNOWN
                return self._names.get(name, UNKNOWN)
            case ast.Attribute(value=of, attr=name):
                owner = self.value(of)
                if owner is UNKNOWN or isinstance(owner, ast.AST):
                    return UNKNOWN
                if isinstance(owner, StepFunction):
                    return getattr(owner, name, UNKNOWN)
                try:
                    found = inspect.getattr_static(owner, name)
                except AttributeError:
                    # Modules may make an attribute on first access.
                    if not isinstance(owner, ModuleType):
                        return UNKNOWN
                    return getattr(owner, name, UNKNOWN)
                if inspect.isdatadescriptor(found):
                    return UNKNOWN  # reading it would run the author's code
                return getattr(found, "__func__", found)
            case _:
                return UNKNOWN

    def uses_of(self, node: ast.AST) -> list[ast.AST] | None:
        """Return the nodes that use a value, through one variable; `None` if not known.

        The list is empty if the value is never used.
        """
        parent = self.parent(node)
        match parent:
            case ast.Expr():
                return []
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                around = self.function_around(node)
            case _:
                return [parent]
        found: list[ast.AST] = []
        for one in ast.walk(around):
            if isinstance(one, (ast.Global, ast.Nonlocal)) and name in one.names:
                return None
            is_load = isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
            if is_load and one.id == name:  # type: ignore[attr-defined]  # a Name
                found.append(self.parent(one))
        return found

    def makes_flow(
        self, node: ast.AST, *, inside: tuple[FunctionNode, ...] = ()
    ) -> str | None:
        """Return the function's name, if `node` calls a function that makes a flow.

        Args:
            node: The call.
            inside: Nested functions that are being judged, as they may call each other.
        """
        if not isinstance(node, ast.Call):
            return None
        called = self.value(node.func)
        if isinstance(called, _FUNCTIONS):
            is_known = called in inside
            is_flow_node = not is_known and self._is_flow_node(called, inside)
            return called.name if is_flow_node else None
        if callable(called) and is_flow(called):
            return getattr(called, "__name__", None)
        return None

    def makes(self, node: ast.AST, *classes: type) -> bool:
        """Whether `node` builds an effect of one of these classes; steps included."""
        if not isinstance(node, ast.Call):
            return False
        called = self.value(node.func)
        if isinstance(called, StepFunction):
            return issubclass(Step, classes)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "each":
            called = self.value(node.func.value)
        return isinstance(called, type) and issubclass(called, classes)

    def _is_flow_node(
        self, function: FunctionNode, inside: tuple[FunctionNode, ...]
    ) -> bool:
        inside = (*inside, function)
        return any(
            isinstance(one.value, ast.Call)
            and (
                self.makes(one.value, Effect)
                or self.makes_flow(one.value, inside=inside) is not None
            )
            for one in ast.walk(function)
            if isinstance(one, _YIELDS)
        )


_YIELDS: Final = (ast.Yield, ast.YieldFrom, ast.Await)


def source_of(function: Any) -> Source | None:
    """Return the source of a function; `None` if it cannot be read."""
    while not inspect.isfunction(function):
        inner = getattr(function, "func", None) or getattr(
            function, "__wrapped__", None
        )
        if inspect.ismethod(function):
            return _source(inspect.unwrap(function.__func__), function.__self__)
        if inner is None:
            return None
        function = inner
    return _source(inspect.unwrap(function), None)


def _source(function: Any, owner: Any) -> Source | None:
    if not inspect.isfunction(function):
        return None
    tree = _tree(function)
    return None if tree is None else Source(function, tree, owner)


@lru_cache(256)
def _tree(function: FunctionType) -> FunctionNode | None:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    ast.increment_lineno(tree, first - 1)
    (node, *_) = [*tree.body, None]
    return node if isinstance(node, _FUNCTIONS) else None


def sources_of(function: Callable[..., Any]) -> Iterator[Source]:
    """Yield the source of a handler, and of the flows that it uses from its module."""
    first = source_of(function)
    todo, seen = [] if first is None else [first], set()
    while todo:
        one = todo.pop(0)
        if one.function in seen:
            continue
        seen.add(one.function)
        yield one
        for node in ast.walk(one.node):
            if not isinstance(node, ast.Call):
                continue
            called = one.value(node.func)
            if inspect.isfunction(called) and _is_near(called, one) and is_flow(called):
                found = _source(inspect.unwrap(called), None)
                todo += [found] if found is not None else []


def _is_near(called: FunctionType, source: Source) -> bool:
    return called.__module__ == source.function.__module__


def is_flow(function: Any) -> bool:
    """Whether calling a function makes a flow: a generator that yields effects."""
    if hasattr(function, FLOW_MARK):
        return True
    plain = inspect.unwrap(function) if callable(function) else function
    return inspect.isgeneratorfunction(plain) and _yields_effects(plain)


@lru_cache(256)
def _yields_effects(function: Any) -> bool:
    try:
        returns = typing.get_type_hints(function).get("return", UNKNOWN)
    except Exception:
        returns = UNKNOWN  # names that exist for type checkers only
    if returns is not UNKNOWN:
        first = (*get_args(returns), None)[0]
        is_effect = (get_origin(first) or first) is Effect
        return get_origin(returns) is Generator and is_effect
    found = _source(function, None)
    return found is not None and any(
        found.makes(one.value, Effect)
        for one in ast.walk(found.node)
        if isinstance(one, (ast.Yield, ast.YieldFrom)) and one.value is not None
    )


@lru_cache(256)
def raised_by(function: Any) -> tuple[type[Exception], ...]:
    """Return the classes of the exceptions that a function's own source raises."""
    found = source_of(function)
    if found is None:
        return ()
    raised: dict[type[Exception], None] = {}
    for node in ast.walk(found.node):
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            class_ = found.value(made)
            if isinstance(class_, type) and issubclass(class_, Exception):
                raised[class_] = None
    return tuple(raised)
