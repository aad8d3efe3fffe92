"""A table of the faults that can be read in the source, with advice for each.

A suspect becomes a finding when a conversation runs its lines, so code that is never
reached is not accused, and the finding has a conversation to show.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ..effects.control import Gather
from ..effects.questions import Confirm
from .closures import late_functions, written_variables
from .except_clauses import unreachable_excepts
from .source import Source, sources_of
from .unrun_flows import flows_not_run

if TYPE_CHECKING:
    from .line_coverage import Range

__all__ = ["WRITE", "Suspect", "suspects_of"]

#: Advice if a flow or an effect is built and not run.
WRITE: Final = "Write `yield from` in front of it (in an async handler, `await`)."


@frozen
class Suspect:
    """A fault that can be read in the source.

    Attributes:
        kind: The kind of finding.
        problem: The fault in a sentence.
        where: `file:line`.
        advice: What to write instead.
        shows_at: The file, the first and the last line that show it when they run.
        is_weak: Whether any other finding is more important.
        near: Lines that show it less well, if those above never run.
    """

    kind: str
    problem: str
    where: str
    advice: str
    shows_at: Range
    is_weak: bool = False
    near: Range | None = None


def suspects_of(function: Callable[..., Any]) -> list[Suspect]:
    """Return the faults that can be read in a handler and in the flows that it runs."""
    return [
        suspect
        for source in sources_of(function)
        for reader in READERS
        for suspect in reader(source)
    ]


def _lines(source: Source, node: Any) -> Range:
    return source.file, node.lineno, node.end_lineno or node.lineno


def _flows(source: Source) -> Iterator[Suspect]:
    for node, name, used in flows_not_run(source):
        line: int | None = getattr(used, "lineno", None)
        used_as = ""
        if line == node.lineno:
            used_as = ", and uses it as if it were its result"
        elif line is not None:
            used_as = f", and uses it on line {line} as if it were its result"
        yield Suspect(
            "forgotten",
            f"it makes the flow {name}(...) and never runs it{used_as}",
            source.where(node),
            WRITE,
            _lines(source, node),
        )


def _cached(source: Source) -> Iterator[Suspect]:
    for node in ast.walk(source.node):
        if source.makes_flow(node) is None or not isinstance(node, ast.Call):
            continue
        called = source.value(node.func)
        if hasattr(called, "cache_info"):
            yield Suspect(
                "misuse",
                f"the function {called.__name__} is cached and returns a flow,"
                " which runs once: the next caller gets a flow that has ended",
                source.where(node),
                "Do not cache it. What a user answered is recorded anyway; cache what a"
                " plain function calculates.",
                _lines(source, node),
            )


def _catches(source: Source) -> Iterator[Suspect]:
    for one in unreachable_excepts(source):
        name = one.caught.__name__
        raises = (
            f"Declare the step with raises=({name},), or catch {one.instead}."
            if one.instead == "StepFailed"
            else f"Catch {one.instead}, or raise a class that is not a ToolError and"
            f" declare the step with raises=({name},)."
        )
        first, last = one.body.body[0], one.body.body[-1]
        yield Suspect(
            "unreached",
            f"it catches {name}, which never comes: what {one.step}() raises comes as"
            f" {one.instead}",
            source.where(one.node),
            raises,
            (source.file, one.node.lineno, one.node.lineno),
            near=(source.file, first.lineno, last.end_lineno or last.lineno),
        )


def _late(source: Source) -> Iterator[Suspect]:
    for one in late_functions(source):
        yield Suspect(
            "late",
            f"a function that is made in a loop reads {one.variable} after the loop has"
            " ended, so each of them gets the last value",
            source.where(one.node),
            f"Bind the value when the function is made ({one.variable}={one.variable} as"
            " a parameter), or give it to the step as an argument.",
            _lines(source, one.node),
        )


def _written(source: Source) -> Iterator[Suspect]:
    for one in written_variables(source):
        yield Suspect(
            "mutates",
            f"the step {one.step}() changes the handler's variable {one.variable}; a"
            " replay does not perform the step, and finds the variable as it was",
            source.where(one.node),
            "Return the value from the step, and use what `yield from` gives.",
            _lines(source, one.node),
        )


def _discarded(source: Source) -> Iterator[Suspect]:
    for node in ast.walk(source.node):
        if not isinstance(node, (ast.YieldFrom, ast.Await)):
            continue
        if not source.makes(node.value, Confirm):
            if not _gathers_yes_or_no(source, node):
                continue
        uses = source.uses_of(node)
        if uses == [] or (uses and all(map(_is_empty, uses))):
            problem = "it asks for a yes or a no, and does not use the answer"
        elif uses is not None and all(map(_takes_it_for_another, uses)):
            problem = (
                "it compares the answer of a Confirm, which is True or False, with"
                " something else"
            )
        else:
            continue
        yield Suspect(
            "unused",
            problem,
            source.where(node),
            'Write `if not (yield from Confirm("...")): return ...`, so that a no has'
            " its effect.",
            _lines(source, node),
            is_weak=True,
        )


def _gathers_yes_or_no(source: Source, node: ast.YieldFrom | ast.Await) -> bool:
    """Whether it discards the answers of a `Gather` that includes a yes or a no."""
    gather = node.value
    return (
        isinstance(gather, ast.Call)
        and source.makes(gather, Gather)
        and isinstance(source.parent(node), ast.Expr)
        and any(source.makes(one, Confirm) for one in ast.walk(gather))
    )


def _is_empty(use: ast.AST) -> bool:
    """Whether an answer is used in an `if` whose branches are empty."""
    return isinstance(use, ast.If) and all(
        isinstance(one, ast.Pass) for one in (*use.body, *use.orelse)
    )


def _takes_it_for_another(use: ast.AST) -> bool:
    """Whether an answer is compared with a constant that is neither True nor False."""
    return (
        isinstance(use, ast.Compare)
        and isinstance(use.comparators[0], ast.Constant)
        and not isinstance(use.comparators[0].value, (bool, int))
    )


READERS: Final[tuple[Callable[[Source], Iterator[Suspect]], ...]] = (
    _flows,
    _cached,
    _catches,
    _late,
    _written,
    _discarded,
)
