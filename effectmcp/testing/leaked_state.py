"""Notice state that outlives a call: defaults that are filled, globals that are set.

A generator that is run again from the top finds a default as its last run left it, and
a global as the last writer left it: in this process, but not in the next one.
"""

from __future__ import annotations

import ast
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final

from attrs import frozen

__all__ = ["StateChange", "StateChanges"]

_CONTAINERS: Final = (list, dict, set, bytearray)
_PLAIN: Final = (*_CONTAINERS, int, float, str, bytes, tuple, frozenset, type(None))
#: Larger containers are tables, and take too long to compare in every round.
_MOST: Final = 1_000


@frozen
class StateChange:
    """A default or a global that changed.

    Attributes:
        name: What changed.
        what: The change, in words.
        where: `file:line`, of a default.
        is_default: Whether it is a default, which no handler has a reason to change.
    """

    name: str
    what: str
    where: str | None
    is_default: bool


class StateChanges:
    """The defaults and globals of a handler's module.

    Args:
        function: The handler.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        function = inspect.unwrap(function)
        module = sys.modules.get(getattr(function, "__module__", ""))
        of_module = getattr(module, "__dict__", {})
        self._globals: dict[str, Any] = getattr(function, "__globals__", of_module)
        functions = [
            one
            for one in {**self._globals, "": function}.values()
            if isinstance(one, FunctionType) and one.__globals__ is self._globals
        ]
        # Compared in every round, so only defaults that can change are kept.
        self._defaults = [
            (f"{name} of {one.__name__}()", value, _line_of(one, name))
            for one in functions
            for name, value in _defaults(one)
            if isinstance(value, _CONTAINERS)
        ]
        self._names = {
            name
            for one in functions
            for code in _codes(one.__code__)
            for name in _set_globals(code)
        } | {
            name
            for name, value in self._globals.items()
            if isinstance(value, _CONTAINERS) and not name.startswith("__")
        }
        self._before = self._first = self._look()

    def take(self) -> list[StateChange]:
        """Return the changes since the last call."""
        before, self._before = self._before, self._look()
        found = []
        for key, (value, where) in self._before.items():
            if key in before and before[key][0] != value:
                kind, name = key
                was, _ = self._first.get(key, before[key])
                said = f"{name} was {_cut(was)} and is {_cut(value)} now"
                is_default = kind == "default"
                found.append(
                    StateChange(
                        f"{kind} {name}", f"the {kind} {said}", where, is_default
                    )
                )
        return found

    def outlived(self) -> dict[str, StateChange]:
        """Return the changes since the start, by name."""
        now = self._before
        self._before = self._first
        found = {one.name: one for one in self.take()}
        self._before = now
        return found

    def _look(self) -> dict[tuple[str, str], tuple[str, str | None]]:
        found: dict[tuple[str, str], tuple[str, str | None]] = {}
        for name, value, where in self._defaults:
            found["default", name] = _said(value), where
        for name in sorted(self._names & self._globals.keys()):
            value = self._globals[name]
            if _is_plain(value):
                found["global", name] = _said(value), None
        return found


def _said(value: Any) -> str:
    try:
        return repr(value)
    except Exception as exc:  # an author-defined class, in a list for example
        return f"<{type(value).__name__} without a repr: {type(exc).__name__}>"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) and getattr(value, "__len__", int)() <= _MOST


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    defaults = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(names[len(names) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _set_globals(code: CodeType) -> Iterator[str]:
    for one in dis.get_instructions(code):
        if one.opname == "STORE_GLOBAL":
            yield one.argval


def _line_of(function: FunctionType, parameter: str) -> str:
    """`file:line` of a parameter."""
    code = function.__code__
    instead = f"{code.co_filename}:{code.co_firstlineno}"
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return instead
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == parameter:
            return f"{code.co_filename}:{first + node.lineno - 1}"
    return instead
