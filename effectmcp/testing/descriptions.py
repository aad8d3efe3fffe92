"""Names for effects, steps and places in messages about tests."""

from __future__ import annotations

import reprlib
from typing import Any, Final

from ..author_files import is_authors
from ..effects.base import Effect
from ..effects.steps import Step, StepFunction

__all__ = ["describe", "place_of"]

#: Python 3.12 would take these two as arguments.
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = 40


def describe(what: Any) -> str:
    """Describe an effect, a class of effects or a step's function in a few words."""
    if isinstance(what, Step):
        given = [_short.repr(value) for value in what.args]
        given += [f"{name}={_short.repr(one)}" for name, one in what.kwargs.items()]
        return f"{describe(what.fn)}({', '.join(given)})"
    if isinstance(what, Effect):
        return repr(what)
    function = what.fn if isinstance(what, StepFunction) else what
    return getattr(function, "__name__", repr(function))


def place_of(error: BaseException) -> str | None:
    """Return `file:line` of the innermost author's line that an exception passed.

    If all lines are in libraries, return the innermost that is not effectmcp's.
    """
    found = authors = None
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        file = trace.tb_frame.f_code.co_filename
        if module.partition(".")[0] != "effectmcp":
            found = f"{file}:{trace.tb_lineno}"
            authors = found if is_authors(file) else authors
        trace = trace.tb_next
    return authors or found
