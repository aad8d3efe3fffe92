"""Find nested functions that run when their variables have other values.

late       a function made in a loop reads the loop's variable, and is called when
           the loop has ended: all such functions then see its last value
written    a nested function that is performed as a step changes a variable of the
           handler: a replay does not perform it, and finds the variable unchanged
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from ..effects.base import Effect
from ..effects.control import Gather
from ..effects.steps import Step, step

if TYPE_CHECKING:
    from .source import FunctionNode, Source

__all__ = ["LateFunction", "Written", "late_functions", "written_variables"]

_Nested: TypeAlias = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef
_NESTED: Final = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Methods that keep their argument.
_KEEPING: Final = frozenset({"append", "add", "insert", "appendleft", "setdefault"})
#: Methods that change their object.
_CHANGING: Final = frozenset(
    {
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"),
        *("add", "discard", "update", "setdefault", "popitem", "appendleft"),
    }
)


@frozen
class LateFunction:
    """A nested function that reads a loop's variable after the loop.

    Attributes:
        node: The place that keeps it for later.
        variable: The variable.
    """

    node: ast.AST
    variable: str


@frozen
class Written:
    """A variable of a handler that a nested step changes.

    Attributes:
        node: The place that builds the step.
        step: The nested function.
        variable: The variable.
    """

    node: ast.AST
    step: str
    variable: str


# ---- late binding -------------------------------------------------------------------


def late_functions(source: Source) -> Iterator[LateFunction]:
    """Yield the functions that are made in a loop and called after it."""
    for node in ast.walk(source.node):
        if not isinstance(node, _NESTED) or node is source.node:
            continue
        free = _free_names(node)
        for loop in _loops_around(source, node):
            shared = sorted(free & _bound_by(loop))
            if not shared:
                continue
            for use in _made_at(source, node):
                if _is_kept(source, use, loop):
                    yield LateFunction(use, shared[0])


def _loops_around(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    # Each call of an outer function makes a new inner function.
    for above in takewhile(
        lambda one: not isinstance(one, _NESTED), source.above(node)
    ):
        if isinstance(above, (*_LOOPS, *_COMPREHENSIONS)):
            yield above


def _bound_by(loop: ast.AST) -> set[str]:
    """Return the names that change from one turn of a loop to the next."""
    if isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
        parts: list[ast.AST] = [*loop.body]
        parts += [] if isinstance(loop, ast.While) else [loop.target]
    else:
        parts = [one.target for one in getattr(loop, "generators", ())]
    return {
        one.id
        for part in parts
        for one in _outside_functions(part)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    yield tree
    if not isinstance(tree, (*_NESTED, *_COMPREHENSIONS)):
        for child in ast.iter_child_nodes(tree):
            yield from _outside_functions(child)


def _free_names(function: _Nested) -> set[str]:
    """Return the names that a function reads from around it when it is called."""
    body = function.body if isinstance(function.body, list) else [function.body]
    names = {
        one.id
        for part in body
        for one in ast.walk(part)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
    }
    own = {
        one.id
        for part in body
        for one in ast.walk(part)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    return names - own - {one.arg for one in _parameters(function)}


def _parameters(function: _Nested) -> list[ast.arg]:
    takes = function.args
    some = [one for one in (takes.vararg, takes.kwarg) if one is not None]
    return [*takes.posonlyargs, *takes.args, *takes.kwonlyargs, *some]


def _made_at(source: Source, node: _Nested) -> Iterator[ast.AST]:
    """Yield the uses of a function: a lambda itself, or each load of its name."""
    if isinstance(node, ast.Lambda):
        yield node
        return
    for one in ast.walk(source.parent(node)):
        if isinstance(one, ast.Name) and one.id == node.name:
            parent = source.parent(one)
            is_called = isinstance(parent, ast.Call) and parent.func is one
            # A call of a plain function reads the variable now; a flow reads it later.
            if not is_called:
                yield one
            elif source.makes_flow(parent):
                yield parent


def _is_kept(source: Source, node: ast.AST, loop: ast.AST) -> bool:
    """Whether a function is kept after the turn of the loop that makes it."""
    inner = node
    for above in source.above(node):
        match above:
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return (
                    above is loop and inner is above.elt and _is_lasting(source, loop)
                )
            case ast.DictComp():
                return above is loop and inner is above.value
            case ast.YieldFrom() | ast.Await() | ast.Yield():
                return False  # performed at once
            case ast.Call(func=ast.Attribute(attr=name)) if inner is not above.func:
                if name in _KEEPING:
                    return True
            case ast.Assign(targets=[ast.Subscript(), *_]):
                return True
            case ast.Call() if not _is_effect(source, above):
                return False  # it calls the function at once, as `sorted` does
            case _:
                pass
        inner = above
    return False


def _is_lasting(source: Source, loop: ast.AST) -> bool:
    """Whether a comprehension keeps its items, unlike one inside `all(...)`."""
    if not isinstance(loop, ast.GeneratorExp):
        return True
    parent = source.parent(loop)
    return isinstance(parent, ast.Call) and (
        source.makes(parent, Gather)
        or source.value(parent.func) in (list, tuple, set, dict)
    )


def _is_effect(source: Source, call: ast.Call) -> bool:
    return source.makes_flow(call) is not None or source.makes(call, Effect)


# ---- steps that write ---------------------------------------------------------------


def written_variables(source: Source) -> Iterator[Written]:
    """Yield the handler's variables that a nested step changes and it reads later."""
    nested = {
        one.name: one
        for one in ast.walk(source.node)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
        and one is not source.node
    }
    for node in ast.walk(source.node):
        name = _step_of(source, node, nested)
        if name is None:
            continue
        around = source.function_around(nested[name])
        for variable in sorted(_changed_by(nested[name])):
            if _is_local(around, variable) and _is_read_after(
                around, variable, node, nested[name]
            ):
                yield Written(node, name, variable)


def _step_of(
    source: Source, node: ast.AST, nested: dict[str, FunctionNode]
) -> str | None:
    """Return the nested function that `node` builds a step of."""
    if not isinstance(node, ast.Call):
        return None
    if source.value(node.func) is Step and node.args:
        given = node.args[0]
    else:
        given = node.func
        function = source.value(given)
        if not isinstance(function, ast.FunctionDef) or not any(
            isinstance(source.value(one), type(step)) and source.value(one) is step
            for one in map(_decorator, function.decorator_list)
        ):
            return None
    if isinstance(given, ast.Name) and given.id in nested:
        return given.id
    return None


def _decorator(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _changed_by(function: FunctionNode) -> set[str]:
    """Return the names from around a function that its body changes."""
    given = {one.arg for one in _parameters(function)}
    declared = {
        name
        for one in ast.walk(function)
        if isinstance(one, ast.Nonlocal)
        for name in one.names
    }
    stored = {
        one.id
        for one in ast.walk(function)
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
    }
    changed = set()
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
                if method in _CHANGING:
                    changed.add(name)
            case (
                ast.Subscript(value=ast.Name(id=name))
                | ast.Attribute(value=ast.Name(id=name))
            ) if not isinstance(node.ctx, ast.Load):
                changed.add(name)
            case _:
                pass
    return (changed - given - (stored - declared)) | (declared & stored)


def _is_local(function: FunctionNode, name: str) -> bool:
    return any(
        isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
        for statement in function.body
        for one in _outside_functions(statement)
    )


def _is_read_after(
    around: FunctionNode, name: str, step: ast.Call | ast.AST, inside: FunctionNode
) -> bool:
    own = set(ast.walk(inside))
    first: int = getattr(step, "lineno", 0)
    return any(
        isinstance(one, ast.Name)
        and one.id == name
        and isinstance(one.ctx, ast.Load)
        and one.lineno >= first
        and one not in own
        for one in ast.walk(around)
    )
