"""The stops of a run, and the outcomes that resume it."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ..canonical import JSON
from ..records import record

if TYPE_CHECKING:
    from ..effects.base import Effect, InputRequest

__all__ = [
    "Asked",
    "Done",
    "Failure",
    "Perform",
    "Question",
    "Raised",
    "Returned",
    "Stop",
    "Unread",
    "Want",
]


@record
class Want:
    """One local effect to perform.

    Attributes:
        key: Its name in `performed` and `begin`. Unique for the flow's life.
        effect: A `Step`, `Now`, `Uuid`, `Random`, `Caller`, `Detach` or `Sleep`;
            outside of tasks, also a `Within` or `FirstOf`. A step's arguments are
            copies, so that the handler does not see its function change them.
        context: The context to run steps in a copy of.
        begun: How often it was started before without an outcome.
    """

    key: str
    effect: Effect[Any]
    context: Context = attrs.field(eq=False, repr=False)
    begun: int = 0


@record
class Perform:
    """The run waits for all of these effects. They may be performed concurrently."""

    wants: tuple[Want, ...]


@record
class Question:
    """One question for the client.

    Attributes:
        key: Its wire key, to use in `answered` and in the next round's `start`.
        effect: The question, without an `Outcome` around it.
        problems: The reasons why the last answer did not fit, in words for the user.
        where: `file:line` of the yield.
        race: The place of the `Within` or `FirstOf` that it is in, if any. The first
            answer to one of its questions decides it, so do not wait for the others.
    """

    key: str
    effect: InputRequest[Any]
    problems: tuple[str, ...] = ()
    where: str | None = attrs.field(default=None, eq=False)
    race: str | None = attrs.field(default=None, eq=False)


@record
class Asked:
    """The run waits until an answer or an outcome arrives, or a time is up.

    Attributes:
        questions: The questions for the client. By retry, a stop without questions is a
            state-only round.
        wants: In a task, the steps to perform while waiting: they race against a
            question or a clock.
        due: The time to resume even if nothing arrived, in seconds since 1970; `None`
            for never.
    """

    questions: tuple[Question, ...]
    wants: tuple[Want, ...] = ()
    due: float | None = None


@record
class Returned:
    """The handler returned."""

    value: Any


@record
class Raised:
    """The handler raised, or was misused in a way that ends it."""

    error: BaseException


Stop: TypeAlias = Perform | Asked | Returned | Raised


@record
class Done:
    """The outcome of a local effect that returned `value`."""

    value: Any


@record
class Failure:
    """The outcome of a local effect that raised `error`."""

    error: Exception


@record
class Unread:
    """An answer in raw form, which only its question can read: see `Run(read=...)`.

    Attributes:
        value: The answer, as JSON.
    """

    value: JSON
