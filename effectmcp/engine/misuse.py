"""Error messages for authors whose handler did something that cannot work.

Every message states the mistake and what to write instead. The code that raises it adds
the place, because only that code knows which generator waits where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..author_files import authors_line
from ..effects.base import Effect
from ..errors import UsageError
from .generators import is_running

if TYPE_CHECKING:
    from .sequences import Sequence

__all__ = [
    "awaited",
    "forgotten",
    "located",
    "not_an_effect",
    "text_of",
    "traced",
    "translated",
]


def located(exc: UsageError, sequence: Sequence) -> UsageError:
    """Add the `file:line` of the yield to `exc`, and return it."""
    if exc.where is None:
        exc.where = sequence.where
    return exc


def traced(error: BaseException) -> BaseException:
    """Add the author's line to the error of a wrong effect, and return the error."""
    if isinstance(error, UsageError) and error.where is None:
        trace = error.__traceback__
        while trace is not None:
            module = trace.tb_frame.f_globals.get("__name__", "")
            if module.partition(".")[0] != "effectmcp":
                error.where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
            trace = trace.tb_next
    return error


def translated(error: BaseException, sequence: Sequence) -> BaseException:
    """Return a branch's exception, or a clearer one for an error of trio."""
    # trio notices when the cancel scopes of two branches overlap, and reports it in its
    # internal terms. The cause is always the same.
    if (
        sequence.path
        and isinstance(error, RuntimeError)
        and "ancel scope" in str(error)
    ):
        known = UsageError(
            "a trio cancel scope (or nursery) stayed open across a yield inside a"
            " Gather, whose branches take turns. Put what needs it into a Step"
        )
        known.__cause__ = error
        return known
    return traced(awaited(error, sequence.running))


def awaited(error: BaseException, running: object) -> BaseException:
    """Return a coroutine's exception, or a clearer one for a foreign await."""
    if (
        hasattr(running, "cr_frame")
        and isinstance(error, (RuntimeError, AttributeError))
        and any(words in str(error) for words in _NO_LOOP)
    ):
        said = str(error).partition("\n")[0].rstrip(".")
        known = UsageError(f"{said}. {_EFFECTS_ONLY}", where=authors_line(error))
        known.__cause__ = error
        return known
    return error


#: Messages of asyncio and trio about an await outside of their loops.
_NO_LOOP: Final = (
    *("no running event loop", "no current event loop"),  # gather() raises the latter
    *("must be called from async context", "'RunContext' object has no attribute"),
    *("unknown async library", "running on any asynchronous event loop"),
)

_EFFECTS_ONLY: Final = (
    "A handler may await effects only: wrap it in a `Step`, and ask several things at"
    " once with `Gather`"
)


def text_of(effect: Effect[Any] | None) -> str | None:
    """Return the text that a user would read, if the effect has one."""
    text = getattr(effect, "message", None)
    return text if isinstance(text, str) else None


def forgotten(value: object) -> str | None:
    """Return a message about a result that is an effect or a flow; otherwise `None`."""
    if isinstance(value, Effect):
        what = f"the effect {type(value).__name__}"
    elif is_running(value):
        what = f"the flow {getattr(value, '__name__', value)}"
    else:
        return None
    return f"{what} came back instead of its answer: a forgotten `yield from`?"


def not_an_effect(sequence: Sequence, value: object) -> str:
    """Return a message about a yielded value that is not an effect."""
    if isinstance(value, str) and len(value) == 1:
        hint = (
            "`yield from` a string yields its characters. Write Elicit(...) or Log(...)"
        )
    elif isinstance(value, str):
        hint = "Write Elicit(...) to ask with it, or Log(...) to send it"
    elif isinstance(value, type) and issubclass(value, Effect):
        hint = f"That is the class. Write {value.__name__}(...)"
    elif is_running(value):
        hint = "That is a flow. Write `yield from`, not `yield`"
    elif hasattr(sequence.running, "cr_frame"):
        hint = _EFFECTS_ONLY
    elif callable(value):
        hint = "Write Step(function, ...) to call it and record the result"
    elif value is None:
        hint = "A bare `yield` does nothing here. Yield an effect, or leave it out"
    elif isinstance(value, (list, tuple)):
        hint = "To do several things at once, write Gather(...)"
    else:
        hint = "A handler yields effects only"
    return f"{value!r} is not an effect. {hint}"
