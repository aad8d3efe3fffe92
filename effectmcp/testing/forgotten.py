"""Notice flows that are made and never run: `notify(name)` on a line of its own.

A generator that nobody starts is silent: Python has no word for it, and an engine never
sees it. So the source is read. A call that stands alone as a statement, of a function
that makes flows, does nothing; whatever is done with its result cannot be judged here.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["forgotten_flow"]


def forgotten_flow(function: Callable[..., Any]) -> tuple[str, str] | None:
    """The first flow that a handler makes and forgets, and its `file:line`.

    The flows that it runs are looked at as well, as far as they are functions of its
    own module.
    """
    todo, seen = [inspect.unwrap(function)], set()
    while todo:
        one: Any = todo.pop()
        if not inspect.isfunction(one) or one in seen:
            continue
        seen.add(one)
        for node, called in _calls(one):
            if isinstance(node, ast.Expr):
                line = one.__code__.co_firstlineno + node.lineno - 1
                return f"{called.__name__}(...)", f"{one.__code__.co_filename}:{line}"
            if called.__module__ == one.__module__:
                todo.append(called)
    return None


def _calls(function: Any) -> Iterator[tuple[ast.AST, Any]]:
    """Calls of functions that make flows: as a statement, or anywhere."""
    try:
        lines, _ = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else node
        if isinstance(value, (ast.ListComp, ast.SetComp)) and value is not node:
            value = value.elt
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            called = function.__globals__.get(value.func.id)
            if called is not None and inspect.isgeneratorfunction(called):
                yield node, called
