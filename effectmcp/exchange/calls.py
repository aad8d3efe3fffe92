"""Call a plain or an async function, which asks nothing: one `Invoke`.

Functions that ask are in `rounds`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from attrs import define

from ..canonical import JSON
from ..effects.base import Effect
from ..engine.misuse import forgotten
from ..engine.stops import Failure
from ..errors import OutputError, UsageError
from ..lowlevel import InputRequired
from ..records import record
from .commands import Command, Invoke

if TYPE_CHECKING:
    from ..engine.stops import Question
    from ..server.events import QuestionsAsked
    from ..server.handlers import Handler
    from .context import Context
    from .task_rows import TaskRow

__all__ = ["Handle", "Interim", "PlainCall", "checked", "contained"]


@record(eq=False)
class Interim:
    """The questions that a round ends with, and the state for the next round.

    Attributes:
        questions: The questions.
        token: The state.
        asked: The event to tell if they are sent; `None` without observers.
    """

    questions: tuple[Question, ...]
    token: str
    asked: QuestionsAsked | None = None


@record(eq=False)
class Handle:
    """The task that a flow has become."""

    row: TaskRow


@define(eq=False)
class PlainCall:
    """The call of a plain or an async function.

    Args:
        context: The request.
        handler: The handler.
        seconds: The time limit; `None` for no limit.
    """

    _context: Context
    _handler: Handler
    _seconds: float | None
    #: The arguments, if an interceptor changes them: `run` gets them read.
    arguments: JSON = None

    is_resumed = False

    def open(self) -> None:
        """Resume from nothing."""

    def run(self, kwargs: Mapping[str, Any]) -> Generator[Command, Any, Any]:
        """Call the function, and return its result.

        Args:
            kwargs: Its arguments.

        Raises:
            OutputError: If it returned a flow, an effect or an unsealed state.
            Exception: If it raised it.
        """
        context, handler, seconds = self._context, self._handler, self._seconds
        outcome = yield Invoke(
            handler.function,
            kwargs,
            handler.provided,
            is_async=handler.kind == "async",
            deadline=None if seconds is None else context.clock() + seconds,
            variables=None if context.watched is None else context.watched.variables,
        )
        if isinstance(outcome, Failure):
            _explain(outcome.error, handler.name)
            raise outcome.error
        if _may_ask(outcome.value):
            said = forgotten(outcome.value)
            raise OutputError(
                [f"{said} A function that asks is annotated -> Flow[...]"]
            )
        return checked(outcome.value, handler)


def _may_ask(value: object) -> bool:
    if isinstance(value, GeneratorType):
        return value.__name__ != "<genexpr>"  # a generator expression yields results
    return isinstance(value, Effect)


def _explain(error: Exception, name: str) -> None:
    # An effect that is awaited outside of a flow is yielded to the event loop, which
    # throws its error into `Effect.__await__`: the last frame shows that this happened.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and trace.tb_frame.f_code is Effect.__await__.__code__:
        raise UsageError(
            f"{name} awaits effects, and is not marked as a function that does: write"
            " @awaits_effects (from effectmcp.compat) above it"
        ) from error


def checked(value: Any, handler: Handler) -> Any:
    """Return the result of a handler.

    Raises:
        OutputError: If the result is not of the type that the handler declares, or is an
            `InputRequired`, which only flows may return.
    """
    if isinstance(value, InputRequired):
        # Returned as is, it would send the unsealed state.
        raise OutputError(
            [
                f"{handler.name} asks, and its annotation does not show that: -> ... | InputRequired"
            ]
        )
    declared = handler.declared
    if declared is not None and type(value) not in declared.classes:
        declared.check(value)
    return value


def contained(error: BaseException, name: str) -> Exception | KeyboardInterrupt:
    """Return `error`, or a `RuntimeError` in place of a `SystemExit` or the like.

    Without this, `sys.exit()` in one handler would end the server for all its clients.
    """
    if isinstance(error, (Exception, KeyboardInterrupt)):
        return error
    made = RuntimeError(f"{name} raised {error!r}")
    made.__cause__ = error
    return made
