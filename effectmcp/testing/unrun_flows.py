"""Find flows that are made and never run: `notify(name)` without `yield from`.

Python does not report a generator that is never started, the engine never sees it, and
both type checkers let it into an f-string. So the source is read, and each flow is
followed to where it is used, through one variable:

    runs       `yield from`, `await`, `Gather(...)`, any function that may run it
    value      an f-string, an operator, an attribute, the argument of a step
    wasted     a statement of its own; a variable that nothing reads

A flow that is used in one of the last two ways, and never in the first, is forgotten.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

from ..effects.base import Effect
from ..effects.control import Gather
from ..effects.steps import StepFunction
from .source import Source, sources_of

__all__ = ["flows_not_run", "forgotten_flow"]

_Use: TypeAlias = Literal["runs", "value", "wasted", "neutral"]

#: Builtins that take any object and never run it.
_READERS: Final = tuple(
    getattr(builtins, name)
    for name in "str repr len print int float bool sorted sum format hash type".split()
)
#: Attributes of generators and coroutines.
_OF_GENERATORS: Final = frozenset({"send", "throw", "close", "__next__", "__await__"})


def forgotten_flow(function: Callable[..., Any]) -> tuple[str, str] | None:
    """Return the first flow that a handler makes and never runs, and `file:line`."""
    for source in sources_of(function):
        for node, name, _ in flows_not_run(source):
            return f"{name}(...)", source.where(node)
    return None


def flows_not_run(source: Source) -> Iterator[tuple[ast.Call, str, ast.AST | None]]:
    """Yield the calls that make flows which never run, with the function's name.

    The last item is the node that uses the flow as if it were a value; `None` if nothing
    uses it.
    """
    for node in ast.walk(source.node):
        name = source.makes_flow(node)
        if name is None or not isinstance(node, ast.Call):
            continue
        used = dict(_uses(source, node))
        uses = set(used.values())
        if uses <= {"value", "wasted", "neutral"} and uses != {"neutral"}:
            values = [at for at, use in used.items() if use == "value"]
            yield node, name, min(values, key=_line) if values else None


def _line(node: Any) -> int:
    line: int = getattr(node, "lineno", 0)
    return line


def _uses(
    source: Source, node: ast.AST, *, in_list: bool = False
) -> Iterator[tuple[ast.AST, _Use]]:
    """Yield the uses of a flow; `in_list` for a list with flows in it."""
    parent = source.parent(node)
    match parent:
        case ast.Expr():
            yield parent, "wasted"
        case ast.ListComp() | ast.SetComp() if parent.elt is node:
            yield from _uses(source, parent, in_list=True)
        case ast.List() | ast.Tuple() | ast.Set() | ast.Dict():
            yield from _uses(source, parent, in_list=True)
        case ast.IfExp() if parent.test is not node:
            yield from _uses(source, parent, in_list=in_list)
        case ast.NamedExpr(target=ast.Name() as target):
            yield from _uses(source, parent, in_list=in_list)
            yield from _uses_of_name(source, target, in_list=in_list)
        case (
            ast.Assign(targets=[ast.Name() as target])
            | ast.AnnAssign(target=ast.Name() as target)
        ):
            yield from _uses_of_name(source, target, in_list=in_list)
        case ast.keyword():
            yield parent, _argument(source, source.parent(parent), in_list=in_list)
        case ast.Call() if parent.func is not node:
            yield parent, _argument(source, parent, in_list=in_list)
        case _:
            yield parent, _other(source, parent, node, in_list=in_list)


def _uses_of_name(
    source: Source, name: ast.Name, *, in_list: bool
) -> Iterator[tuple[ast.AST, _Use]]:
    around = source.function_around(name)
    is_shared = any(
        isinstance(one, (ast.Global, ast.Nonlocal)) and name.id in one.names
        for one in ast.walk(around)
    )
    if is_shared:
        yield name, "runs"
        return
    loads = [
        one
        for one in ast.walk(around)
        if isinstance(one, ast.Name)
        and one.id == name.id
        and isinstance(one.ctx, ast.Load)
    ]
    if not loads:
        yield name, "wasted"
    for one in loads:
        yield from _uses_of_load(source, one, in_list=in_list)


def _uses_of_load(
    source: Source, load: ast.Name, *, in_list: bool
) -> Iterator[tuple[ast.AST, _Use]]:
    parent = source.parent(load)
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        yield parent, "runs"  # a second variable is not followed
    else:
        yield from _uses(source, load, in_list=in_list)


def _argument(source: Source, call: ast.AST, *, in_list: bool) -> _Use:
    if not isinstance(call, ast.Call):
        return "runs"
    called = source.value(call.func)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "join":
        return "value" if isinstance(call.func.value, ast.Constant) else "runs"
    if isinstance(called, StepFunction):
        return "value"
    is_effect = isinstance(called, type) and issubclass(called, Effect)
    if is_effect and called is not Gather:
        return "value"
    if not in_list and any(called is one for one in _READERS):
        return "value"
    return "runs"


def _other(source: Source, parent: ast.AST, node: ast.AST, *, in_list: bool) -> _Use:
    match parent:
        case ast.FormattedValue():
            return "value"
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return "neutral"
        case ast.Return() if source.function_around(parent) is source.node:
            # The caller of a flow may run the flow that it returns; the caller of a
            # handler is a client.
            return "runs"
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert() if not in_list:
            return "value" if parent.test is node else "runs"
        case ast.UnaryOp() | ast.BinOp() | ast.Compare() if not in_list:
            return "value"
        case ast.Subscript() if not in_list and parent.value is node:
            return "value"
        case ast.Attribute() if not in_list:
            return "runs" if _is_generators(parent.attr) else "value"
        case _:
            return "runs"


def _is_generators(attribute: str) -> bool:
    return attribute in _OF_GENERATORS or attribute.startswith(("gi_", "cr_"))
