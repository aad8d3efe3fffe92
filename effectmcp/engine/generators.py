"""One turn of one generator: takes a value; returns an effect, result or failure.

This module knows only generators: no journal, no effect kinds. It handles the special
cases of Python.

- Every turn runs in the sequence's own `contextvars` context, so that context variables
  and `decimal` settings of one flow neither leak into another nor get lost
  (docs/internals/replay.md#l1).
- To suspend is to *throw*. `close()` would raise RuntimeError inside the outer frames of
  a `yield from` when cleanup yields, where the handler's code could catch it
  (docs/internals/replay.md#l2).
- A generator that does not end is buried: a reference is kept, because CPython would
  close it when collecting it and print the error. Buried generators are counted, and
  the number of references is bounded.
"""

from __future__ import annotations

import atexit
import decimal
import gc
import inspect
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, TypeAlias

from attrs import define

from ..author_files import is_authors
from ..effects.base import Effect
from ..errors import NotAnEffectError, Signal, Suspended, UsageError
from ..logs import logger_for
from .names import name_of

__all__ = [
    "GRAVEYARD",
    "PATIENCE",
    "Ended",
    "Failed",
    "Graveyard",
    "Running",
    "Yielded",
    "bury",
    "check_branch",
    "is_running",
    "own_context",
    "send",
    "start",
    "suspend",
    "throw",
    "where",
]

logger = logger_for("effectmcp.engine")

Running: TypeAlias = Generator[Any, Any, Any] | Coroutine[Any, Any, Any]

#: How often a signal is thrown at a generator that answers with another effect.
PATIENCE: Final = 16


# Created once per turn and read once, so not frozen: that takes three times as long.
@define
class Yielded:
    """The generator waits at a yield."""

    effect: Any


@define
class Ended:
    """The generator returned."""

    value: Any


@define
class Failed:
    """The generator raised."""

    error: BaseException


def send(running: Running, context: Context, value: Any) -> Yielded | Ended | Failed:
    """Send `value` to the yield where `running` waits; return what it does next."""
    try:
        return Yielded(context.run(running.send, value))
    except StopIteration as stop:
        return Ended(stop.value)
    except KeyboardInterrupt:
        # It is meant for the process, not for the handler.
        raise
    except BaseException as exc:
        return Failed(exc)


def throw(
    running: Running, context: Context, error: BaseException
) -> Yielded | Ended | Failed:
    """Raise `error` at the yield where `running` waits; return what it does next."""
    try:
        return Yielded(context.run(running.throw, error))
    except StopIteration as stop:
        return Ended(stop.value)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        return Failed(exc)


def is_running(value: object) -> bool:
    """Whether `value` is a generator or a coroutine."""
    return type(value) is GeneratorType or (
        not isinstance(value, Effect)
        and isinstance(value, (CoroutineType, Generator, Coroutine))
    )


def start(
    handler: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, context: Context
) -> Running | Ended | Failed:
    """Call `handler`; return its generator or coroutine, or a plain function's result.

    Afterwards, `context` has its own decimal settings.

    The returned value decides, not the kind of function: partials, decorated functions
    and callable objects are all handlers (docs/internals/replay.md#l6).
    """
    own_context(context)
    try:
        value = context.run(handler, *args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        return Failed(exc)
    if isinstance(value, AsyncGeneratorType):
        return Failed(
            NotAnEffectError(
                f"{name_of(handler)} is an async generator. Write a plain generator"
                " (def, yield from), or an async def that only awaits effects"
            )
        )
    if type(value) is GeneratorType and not (
        value.gi_suspended or value.gi_running or value.gi_frame is None
    ):
        return value  # as nearly every handler does
    if is_running(value):
        if _has_begun(value):
            return Failed(
                UsageError(
                    f"{name_of(handler)} returned a flow that has already started. A flow runs"
                    " once: make a new one for each call, and do not cache it"
                )
            )
        return value  # type: ignore[no-any-return]  # is_running has checked it
    return Ended(value)


def _decimal_variable() -> ContextVar[decimal.Context]:
    # decimal does not expose its variable. If it has none, the one here is never set.
    context = Context()
    context.run(decimal.getcontext)
    return next(iter(context), ContextVar("none"))


_DECIMAL: Final = _decimal_variable()


def own_context(context: Context) -> Context:
    """Set a separate decimal context in `context`, and return `context`.

    Copying a context copies the variables. The variable of decimal has a mutable
    object, so `getcontext().prec = 5` in one flow would change all others. If it is not
    set yet, decimal makes a new object on first use.
    """
    shared = context.get(_DECIMAL)
    if shared is not None:
        context.run(_DECIMAL.set, shared.copy())
    return context


# ---- where --------------------------------------------------------------------------

# Code of the effects' own generators, which every `yield from` runs. Authors need the
# line of that `yield from`, not ours.
_OURS: Final = frozenset({Effect.__iter__.__code__, Effect.__await__.__code__})


def where(running: Running | None) -> str | None:
    """Return `file:line` of the innermost yield where `running` waits.

    This is a loop because a flow may be nested deeper than Python's recursion limit.
    For reports: docs/internals/replay.md#d2.
    """
    found = authors = None
    current: Any = running
    while current is not None:
        if type(current) is GeneratorType:
            frame, inner = current.gi_frame, current.gi_yieldfrom
        else:
            frame = getattr(current, "gi_frame", None) or getattr(
                current, "cr_frame", None
            )
            inner = getattr(current, "gi_yieldfrom", None) or getattr(
                current, "cr_await", None
            )
        if frame is None or frame.f_code in _OURS:
            break
        # A foreign await ends deep in its library: the author needs the line that began.
        if type(running) is CoroutineType and is_authors(frame.f_code.co_filename):
            authors = frame
        found, current = frame, inner
    found = authors or found
    return None if found is None else f"{found.f_code.co_filename}:{found.f_lineno}"


# ---- the end ------------------------------------------------------------------------


def suspend(running: Running, context: Context) -> None:
    """End `running` for this round. Effects that it yields are not performed."""
    is_waiting = type(running) is GeneratorType and running.gi_suspended
    if not is_waiting and _has_begun(running) is False:
        # No unwinding needed. Close it: a coroutine never awaited would warn.
        running.close()
        return
    # Not with `throw`, which returns the exception: a kept exception keeps its frames,
    # and those keep the whole round until the garbage collector runs.
    for _ in range(PATIENCE + 1):
        try:
            # pyright solves no overloads for a method of a narrowed union.
            context.run(running.throw, Suspended())  # pyright: ignore[reportArgumentType]
        except (Signal, StopIteration):
            return
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            # It has no consequence: the reply is already decided.
            logger.error("an exception while a round was being suspended", exc_info=exc)
            return
    bury(running)


def _has_begun(running: Running) -> bool | None:
    """Whether `running` has started; `None` if it is only similar to a generator."""
    if isinstance(running, GeneratorType):
        # `inspect` checks the same, one status after the other.
        return running.gi_suspended or running.gi_running or running.gi_frame is None
    if isinstance(running, CoroutineType):
        return inspect.getcoroutinestate(running) != inspect.CORO_CREATED
    return None


class Graveyard:
    """Generators that answered every signal with another yield.

    Attributes:
        buried: The number of such generators since the process started.
    """

    def __init__(self, size: int) -> None:
        self.buried = 0
        self._kept: deque[Running] = deque()
        self._size = size
        self._named: set[str] = set()

    def bury(self, running: Running) -> None:
        """Keep `running` from being collected, and log its handler's name once."""
        self.buried += 1
        self._kept.append(running)
        name = getattr(running, "__qualname__", repr(running))
        if name not in self._named:
            self._named.add(name)
            logger.warning(
                "%s continues to yield while it is being ended (at %s): an except clause"
                " that catches BaseException must re-raise it",
                name,
                where(running),
            )
        if len(self._kept) > self._size:
            # CPython closes it when collecting it, and prints an error. A leak would be
            # worse.
            self._kept.popleft()

    def clear(self) -> None:
        """Release the kept generators; hide errors raised as they close.

        At exit this must run before the interpreter clears the modules. Otherwise a
        loop that swallows every error of its `Elicit(...)` would never end, because
        `Elicit` does not exist any more.
        """
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            self._kept.clear()
            # Free objects that share a cycle with a handler's frames now, not later.
            gc.collect()
        finally:
            sys.unraisablehook = hook


GRAVEYARD: Final = Graveyard(256)
atexit.register(GRAVEYARD.clear)
bury: Final = GRAVEYARD.bury


def check_branch(branch: object) -> None:
    """Refuse values that a `Gather` cannot run.

    Raises:
        UsageError: If `branch` is neither an effect nor an unstarted flow.
    """
    if isinstance(branch, Effect):
        return
    if not is_running(branch):
        if isinstance(branch, type) and issubclass(branch, Effect):
            hint = f"; write {branch.__name__}(...)"
        elif callable(branch):
            hint = f"; call it: {getattr(branch, '__name__', 'flow')}(...)"
        else:
            hint = ""
        raise UsageError(
            f"Gather() takes effects and flows, and {branch!r} is neither{hint}"
        )
    if _has_begun(branch):  # type: ignore[arg-type]  # is_running has checked it
        raise UsageError(
            "Gather() was given a flow that has already started. A flow runs once: call"
            " the function again for each Gather and each branch"
        )
