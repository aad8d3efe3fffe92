"""Find `except` clauses around steps that no step can reach.

A handler gets a step's exception unchanged if it is built in, a `ToolError`, or of a
class in the step's `raises=`. It gets every other one as `StepFailed`. So

    try:
        page = yield from fetch(url)
    except FetchError:

catches nothing unless `fetch` is declared with `raises=(FetchError,)`. Reported only if
no other code in the `try` may raise the class, and no other clause of the `try` catches the
class that replaces it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Iterator
from typing import Any, Final

from attrs import Factory, define, frozen

from ..effects.base import Effect
from ..effects.steps import DEFAULT_OPTIONS, Step, StepFunction, StepOptions
from ..errors import EffectMCPError, StepFailed, ToolError
from .source import UNKNOWN, Source, is_flow, raised_by, source_of

__all__ = ["UnreachableExcept", "unreachable_excepts"]


@frozen
class UnreachableExcept:
    """An `except` clause that catches nothing.

    Attributes:
        node: The clause.
        body: The `try` that it belongs to.
        caught: The class that it names.
        step: The step that raises it, or would.
        instead: The class that the handler gets instead.
    """

    node: ast.ExceptHandler
    body: ast.Try
    caught: type[Exception]
    step: str
    instead: str


def unreachable_excepts(source: Source) -> Iterator[UnreachableExcept]:
    """Yield the `except` clauses of a function that no step can reach."""
    for node in ast.walk(source.node):
        if not isinstance(node, ast.Try):
            continue
        caught = [(one, _classes(source, one.type)) for one in node.handlers]
        everything = [class_ for _, classes in caught for class_ in classes]
        if any(class_ is UNKNOWN for class_ in everything):
            continue
        inside = _Inside()
        for statement in node.body:
            inside.read(source, statement)
        for clause, classes in caught:
            for class_ in classes:
                if _is_own(class_) and not _is_met(class_, everything, inside):
                    yield _in_vain(clause, node, class_, inside)


def _in_vain(
    clause: ast.ExceptHandler, body: ast.Try, class_: Any, inside: _Inside
) -> UnreachableExcept:
    step = next(
        (one for one in inside.steps if class_ in one.raised), inside.steps[0]
    ).name
    instead = ToolError if issubclass(class_, ToolError) else StepFailed
    return UnreachableExcept(clause, body, class_, step, instead.__name__)


def _classes(source: Source, type_: ast.expr | None) -> list[Any]:
    if type_ is None:
        return [BaseException]
    parts = type_.elts if isinstance(type_, ast.Tuple) else [type_]
    found: list[Any] = []
    for one in parts:
        value = source.value(one)
        found += value if isinstance(value, tuple) else [value]
    return found


def _is_own(class_: Any) -> bool:
    """Whether handlers get another class instead, unless `raises=` names this one."""
    if not isinstance(class_, type) or not issubclass(class_, Exception):
        return False
    if class_.__module__ == builtins.__name__:
        return False
    is_ours = issubclass(class_, EffectMCPError)
    return not is_ours or (class_ is not ToolError and issubclass(class_, ToolError))


def _is_met(class_: type[Exception], caught: list[Any], inside: _Inside) -> bool:
    """Whether the exception may be raised, or its replacement is caught as well."""
    instead = ToolError if issubclass(class_, ToolError) else StepFailed
    if any(isinstance(one, type) and issubclass(instead, one) for one in caught):
        return True
    if not inside.steps or class_ in inside.raised:
        return True
    if any(issubclass(one, class_) for one in inside.raised):
        return True
    for step in inside.steps:
        if any(issubclass(one, class_) for one in step.options.raises):
            return True
    if any(one is UNKNOWN for one in inside.others):
        return True
    is_evident = any(
        issubclass(one, class_) for step in inside.steps for one in step.raised
    ) or any(_package(class_) in step.packages for step in inside.steps)
    if is_evident and not _is_of_source(class_, inside):
        return False
    if _package(class_) in sys.stdlib_module_names:
        return True  # operators may raise it, as in Decimal
    return any(map(_may_raise, inside.others))


def _is_of_source(class_: type, inside: _Inside) -> bool:
    """Whether other code in the `try` uses the package that the class is from."""
    return any(_package_of(one) == _package(class_) for one in inside.others)


def _may_raise(called: Any) -> bool:
    return _package_of(called) not in sys.stdlib_module_names


def _package(class_: type) -> str:
    return class_.__module__.partition(".")[0]


def _package_of(called: Any) -> str:
    module = getattr(called, "__module__", None) or type(called).__module__
    return str(module).partition(".")[0]


@frozen
class _StepCall:
    name: str
    options: StepOptions
    raised: tuple[type[Exception], ...]
    packages: frozenset[str]


#: Methods of strings, lists and dicts, as reading rarely shows an object's type.
_HARMLESS: Final = frozenset(
    name for type_ in (str, list, dict, set, bytes) for name in dir(type_)
)


@define
class _Inside:
    """The code in the body of a `try`.

    Attributes:
        steps: The steps that it performs.
        raised: The classes that it raises itself.
        others: The functions that it calls; `UNKNOWN` for those not known.
    """

    steps: list[_StepCall] = Factory(list)
    raised: list[type] = Factory(list)
    others: list[Any] = Factory(list)
    _seen: set[Any] = Factory(set)

    def read(self, source: Source, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and node.exc is not None:
                made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                class_ = source.value(made)
                if isinstance(class_, type):
                    self.raised.append(class_)
                else:
                    self.others.append(UNKNOWN)
            elif isinstance(node, ast.Call):
                self._call(source, node)
            elif isinstance(node, (ast.YieldFrom, ast.Await, ast.Yield)):
                # A step or a flow in a variable: it is not known which.
                if not isinstance(node.value, ast.Call):
                    self.others.append(UNKNOWN)

    def _call(self, source: Source, node: ast.Call) -> None:
        called = source.value(node.func)
        match called:
            case StepFunction():
                self._step(called.fn, called.options)
            case type() if issubclass(called, Step):
                given = source.value(node.args[0]) if node.args else UNKNOWN
                if isinstance(given, StepFunction):
                    self._step(given.fn, given.options)
                elif inspect.isroutine(given):
                    self._step(given, DEFAULT_OPTIONS)
                else:
                    self.others.append(UNKNOWN)
            case type() if issubclass(called, Effect):
                pass
            case ast.AST():
                if called not in self._seen:  # a nested function may call itself
                    self._seen.add(called)
                    self.read(source, called)
            case _:
                self._function(source, node, called)

    def _function(self, source: Source, node: ast.Call, called: Any) -> None:
        if called is UNKNOWN:
            attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if attribute not in _HARMLESS and attribute != "each":
                self.others.append(UNKNOWN)
        elif getattr(called, "__module__", None) == builtins.__name__:
            pass
        elif inspect.isfunction(called) and called not in self._seen:
            self._seen.add(called)
            inner = source_of(called)
            is_near = called.__module__ == source.function.__module__
            if inner is None or not (is_near or is_flow(called)):
                self.others.append(called)
            else:
                self.read(inner, inner.node)
        elif not inspect.isfunction(called):
            self.others.append(called)

    def _step(self, function: Any, options: StepOptions) -> None:
        raised = raised_by(function) if inspect.isfunction(function) else ()
        name = getattr(function, "__name__", repr(function))
        self.steps.append(_StepCall(name, options, raised, _packages(function)))


def _packages(function: Any) -> frozenset[str]:
    """Return the packages that a function's source names, except its own."""
    found = source_of(function) if inspect.isfunction(function) else None
    if found is None:
        return frozenset({_package_of(function)})
    packages = set()
    for node in ast.walk(found.node):
        if isinstance(node, ast.Name):
            value = found.value(node)
            if value is not UNKNOWN and not isinstance(value, ast.AST):
                name = getattr(value, "__name__", "") if inspect.ismodule(value) else ""
                packages.add(name.partition(".")[0] or _package_of(value))
    return frozenset(packages - {_package_of(function)})
