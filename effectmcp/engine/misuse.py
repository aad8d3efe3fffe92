"""What to tell an author whose handler did something that cannot work.

Every message says what was wrong and what to write instead; the place is added by
whoever raises it, since only they know which generator is waiting where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..effects import Effect
from ..errors import UsageError
from .turn import is_running

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
    """`exc` with the `file:line` of the yield in it."""
    if exc.where is None:
        exc.where = sequence.where
    return exc


def traced(error: BaseException) -> BaseException:
    """`error`, with the author's line in it if it was raised while building an effect."""
    if isinstance(error, UsageError) and error.where is None:
        trace = error.__traceback__
        while trace is not None:
            module = trace.tb_frame.f_globals.get("__name__", "")
            if module.partition(".")[0] != "effectmcp":
                error.where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
            trace = trace.tb_next
    return error


def translated(error: BaseException, sequence: Sequence) -> BaseException:
    """What left a branch, unless it is trio's word for something we know better."""
    # trio notices when the cancel scopes of two branches overlap, and says so in terms
    # of its own insides. The cause is always the same.
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
    """What a coroutine raised, if a foreign await without its event loop raised it."""
    if (
        hasattr(running, "cr_frame")
        and isinstance(error, (RuntimeError, AttributeError))
        and any(words in str(error) for words in _NO_LOOP)
    ):
        known = UsageError(f"{str(error).rstrip('.')}. {_EFFECTS_ONLY}")
        known.__cause__ = error
        return known
    return error


#: What asyncio and trio say to an await outside of their loops.
_NO_LOOP: Final = (
    *("no running event loop", "no current event loop"),  # gather() says the latter
    *("must be called from async context", "'RunContext' object has no attribute"),
)

_EFFECTS_ONLY: Final = (
    "A handler may await effects only. Wrap other awaits in Step(...), and ask several"
    " things at once with Gather(...)"
)


def text_of(effect: Effect[Any] | None) -> str | None:
    """The text a user would read, if the effect has one."""
    text = getattr(effect, "message", None)
    return text if isinstance(text, str) else None


def forgotten(value: object) -> str | None:
    """What to say of a result that is an effect or a flow; `None` of any other."""
    if isinstance(value, Effect):
        what = f"the effect {type(value).__name__}"
    elif is_running(value):
        what = f"the flow {getattr(value, '__name__', value)}"
    else:
        return None
    return f"{what} came back instead of its answer: a forgotten `yield from`?"


def not_an_effect(sequence: Sequence, value: object) -> str:
    """What to say of a yielded value that is no effect."""
    if isinstance(value, str) and len(value) == 1:
        hint = (
            "`yield from` a text yields its characters. Write Elicit(...) or Log(...)"
        )
    elif isinstance(value, str):
        hint = "Write Elicit(...) to ask with a text, or Log(...) to tell it"
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
