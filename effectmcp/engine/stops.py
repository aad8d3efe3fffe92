"""What a run stops with, and what it is told to go on."""

from __future__ import annotations

from contextvars import Context
from typing import Any, TypeAlias

import attrs

from ..canonical import JSON
from ..effects import Accepted, Effect, InputRequest
from ..errors import ClientFailed, Declined, Dismissed
from ..forms.form import Unfit
from ..records import record

__all__ = [
    "Answer",
    "Asked",
    "Done",
    "Failure",
    "Perform",
    "Question",
    "Raised",
    "Returned",
    "Said",
    "Stop",
    "Unread",
    "Want",
]


@record
class Want:
    """One local effect to perform.

    Attributes:
        key: How `performed` and `begin` name it. Unique over the flow's life.
        effect: A `Step`, `Now`, `Uuid`, `Random`, `Caller`, `Detach` or `Sleep`; where
            waiting is not free, also a `Within` or `FirstOf`. A step's arguments are
            copies, so that what its function does to them is not seen by the handler.
        context: Run steps in a copy of it.
        begun: How often it was begun before, and nothing came of it.
    """

    key: str
    effect: Effect[Any]
    context: Context = attrs.field(eq=False, repr=False)
    begun: int = 0


@record
class Perform:
    """Stopped until all of these are performed. They may run side by side."""

    wants: tuple[Want, ...]


@record
class Question:
    """One question for the client.

    Attributes:
        key: Its wire key; `answered` and the next round's `start` name it so.
        effect: What to ask, `Outcome` taken off.
        problems: Why the last answer did not fit, in words for the user.
        where: `file:line` of the yield.
    """

    key: str
    effect: InputRequest[Any]
    problems: tuple[str, ...] = ()
    where: str | None = attrs.field(default=None, eq=False)


@record
class Asked:
    """Stopped until something arrives.

    Attributes:
        questions: What to ask the client. By retry, none of them is a state-only round.
        wants: Steps to perform meanwhile, in a task: they race against a question or a
            clock.
        due: When to go on though nothing arrived, in seconds since 1970; `None` for
            never.
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
    """A local effect was performed and gave this."""

    value: Any


@record
class Failure:
    """A local effect was performed and raised this."""

    error: Exception


@record
class Unread:
    """An answer as it came, which only its question can read: see `Run(read=...)`.

    Attributes:
        value: JSON.
    """

    value: JSON


#: `Accepted(content)` holds the wire content of the answer, JSON; an `Unfit` stands for
#: an answer that the protocol layer could not even read.
Said: TypeAlias = Accepted[Any] | Declined | Dismissed | ClientFailed | Unfit
Answer: TypeAlias = Said | Unread
