"""What a run stops with, and what it is told to go on."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeAlias

import attrs

from ..effects import Accepted, Effect, InputRequest
from ..errors import ClientFailed, Declined, Dismissed
from ..forms import Unfit
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
        key: How `performed` names it.
        effect: A `Step`, `Now`, `Uuid`, `Random`, `Caller`, `Detach`, `Sleep`,
            `Within` or `FirstOf`.
        context: Run steps in a copy of it.
    """

    key: str
    effect: Effect[Any]
    context: Context = attrs.field(eq=False, repr=False)


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
    """Stopped until the client answers. No questions: a state-only round."""

    questions: tuple[Question, ...]


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
    """An answer as it came, which only its question can read.

    Attributes:
        read: Given the question, the answer.
    """

    read: Callable[[InputRequest[Any]], Answer]


#: `Accepted(content)` holds the wire content of the answer, JSON; an `Unfit` stands for
#: an answer that the protocol layer could not even read.
Said: TypeAlias = Accepted[Any] | Declined | Dismissed | ClientFailed | Unfit
Answer: TypeAlias = Said | Unread
