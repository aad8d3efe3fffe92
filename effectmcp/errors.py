"""Every error of effectmcp, split by who must act.

    EffectMCPError
    ├── UsageError              you, at the line the message names
    │   ├── NotAnEffectError        a handler yielded something that is not an effect
    │   ├── FormError               a form that no client could show
    │   ├── SchemaError             a type, signature or schema that no client could use
    │   ├── OutputError             a result other than its outputSchema promised
    │   ├── CanonicalError          a value that JSON cannot carry unchanged
    │   ├── StepError               a step that cannot be recorded or was misused
    │   ├── NondeterminismError     one handler, one journal, two different questions
    │   ├── BudgetError             a handler that loops without ever asking
    │   ├── KeysError               a state key that protects nothing
    │   └── StateSizeError          a state larger than clients carry
    ├── DivergenceError         whoever deploys: the handler changed under a running flow
    ├── ArgumentsError          the model: arguments that the tool does not take
    ├── ProtocolError           the client: a message that is not what the protocol says
    ├── StateError              the client: a requestState that this request may not use
    └── FlowError               the handler, if it wants to: raised at its yields
        ├── Refused                 the user said no:  Declined, Dismissed
        ├── ClientError             the client could not:  Unsupported, InvalidAnswer,
        │                           ClientFailed, TooManyRounds
        └── StepFailed, StepInterrupted     a step raised, or its fate is unknown

    ToolError                   raised *by* a handler, for the model to read

    Signal (BaseException)      the engine's own; let them pass
        Suspended, Restarted, Cancelled

Each error keeps what it is about in fields, and builds its message from them. The
ones a handler may catch are plain exceptions with `==` on their fields, because they
also travel as values: `Outcome` returns a `Declined`, a script answers with one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine.divergence import Report

__all__ = [
    "ArgumentsError",
    "BudgetError",
    "Cancelled",
    "CanonicalError",
    "ClientError",
    "ClientFailed",
    "Declined",
    "Dismissed",
    "DivergenceError",
    "EffectMCPError",
    "FlowError",
    "FormError",
    "InvalidAnswer",
    "KeysError",
    "NondeterminismError",
    "NotAnEffectError",
    "OutputError",
    "ProtocolError",
    "Refused",
    "Restarted",
    "SchemaError",
    "Signal",
    "StateError",
    "StateReason",
    "StateSizeError",
    "StepError",
    "StepFailed",
    "StepInterrupted",
    "Suspended",
    "TooManyRounds",
    "ToolError",
    "Unsupported",
    "UsageError",
]


class EffectMCPError(Exception):
    """The root of everything effectmcp raises, but for the signals."""


# ---- you ----------------------------------------------------------------------------


class UsageError(EffectMCPError):
    """effectmcp was used in a way that cannot work.

    Attributes:
        problem: What was wrong and what to write instead.
        where: `file:line` of the yield or definition at fault, when it is known.
    """

    def __init__(self, problem: str, *, where: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where

    # Built when read: whoever raises it may not know yet where it is.
    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem


class NotAnEffectError(UsageError):
    """A handler yielded, or returned, something the engine cannot take."""


class FormError(UsageError):
    """A form that the protocol's form subset cannot express, or that is malformed."""


class SchemaError(UsageError):
    """A type, a signature or a raw schema that cannot be published as JSON Schema."""


class OutputError(UsageError):
    """A handler returned something else than its annotation, and so the tool, promised.

    Attributes:
        problems: What does not fit, one entry a problem: `guests[1].age: must be …`.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the result does not fit its type: " + "; ".join(problems))
        self.problems = tuple(problems)


class CanonicalError(UsageError):
    """A value that JSON cannot carry there and back unchanged."""


class StepError(UsageError):
    """A step whose arguments, result or options cannot be honoured."""


class NondeterminismError(UsageError):
    """The same handler over the same journal asked two different things."""


class BudgetError(UsageError):
    """A handler yielded too often without reaching anything to ask or return."""


class KeysError(UsageError):
    """A key ring that would protect nothing."""


class StateSizeError(UsageError):
    """A state larger than clients can be expected to carry.

    Attributes:
        size: Characters of the token.
        limit: Characters it may have.
        largest: The places that take most of it, with their bytes.
    """

    def __init__(
        self, size: int, limit: int, largest: Sequence[tuple[str, int]]
    ) -> None:
        worst = ", ".join(f"{place} ({count:,} bytes)" for place, count in largest)
        worst = f" The largest entries: {worst}." if worst else ""
        super().__init__(
            f"the state of this flow has {size:,} characters, and clients need not"
            f" carry more than {limit:,}.{worst} Keep less of"
            ' them (Sample(keep="text"), a step that returns a name instead of the'
            " thing), begin again with Restart(...), or run as a task"
        )
        self.size = size
        self.limit = limit
        self.largest = tuple(largest)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are copied by their one argument, which here is the text.
        return type(self), (self.size, self.limit, self.largest)


# ---- whoever deploys ----------------------------------------------------------------


class DivergenceError(EffectMCPError):
    """The handler no longer does what its journal recorded, and may not go on.

    Attributes:
        verdict: `"stop"` (start again), `"park"` (try later) or `"strict"` (a test
            failed).
        report: What was recorded, what the handler did instead, and where.
    """

    #: What a user may read. The report is for logs: it quotes the handler's source.
    PUBLIC: Final = "The server changed while this call was in progress; start again."

    def __init__(self, verdict: str, report: Report) -> None:
        super().__init__(verdict, report)
        self.verdict = verdict
        self.report = report

    def __str__(self) -> str:
        return str(self.report)

    @property
    def public(self) -> str:
        """What a user may read; the report quotes the handler's source."""
        if self.verdict == "park":
            return "The server changed while this was in progress; it waits."
        return self.PUBLIC


# ---- the model ----------------------------------------------------------------------


class ArgumentsError(EffectMCPError):
    """Arguments that a tool does not take, in words a model can act on.

    Attributes:
        problems: One entry a problem: `guests[1].age: must be a whole number`.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "The arguments do not fit: " + "; ".join(self.problems)


# ---- the client ---------------------------------------------------------------------


class ProtocolError(EffectMCPError):
    """A JSON-RPC error: what the client sent is not what the protocol says.

    Attributes:
        code: The JSON-RPC code.
        message: What was wrong, for whoever writes the client.
        data: The protocol's details for this code, as JSON.
        status: The HTTP status that goes with it.
    """

    def __init__(
        self, code: int, message: str, data: Any = None, *, status: int = 200
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


StateReason: TypeAlias = Literal[
    "malformed",
    "format",
    "forged",
    "expired",
    "lifetime",
    "future",
    "audience",
    "target",
    "arguments",
    "principal",
    "used",
]


class StateError(EffectMCPError):
    """A `requestState` that this request may not use.

    Every reason is the same error to the client: whoever tries keys and forgeries must
    not learn how far they came. The reason is for logs, embedders and tests.

    Attributes:
        reason: Why.
    """

    CODE: Final = -32602
    PUBLIC: Final = "Invalid or expired requestState"

    def __init__(self, reason: StateReason) -> None:
        super().__init__(self.PUBLIC)
        self.reason: Final = reason


# ---- the handler, if it wants to ----------------------------------------------------


class FlowError(EffectMCPError):
    """Something a handler meets at a yield, and may catch."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    # By class alone: fields may hold what a client sent, and that need not be hashable.
    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class Refused(FlowError):
    """The user did not answer: `Declined` or `Dismissed`."""


class Declined(Refused):
    """The user read the question and said no."""

    __match_args__ = ()

    def __str__(self) -> str:
        return "The user declined."


class Dismissed(Refused):
    """The user closed the question without choosing."""

    __match_args__ = ()

    def __str__(self) -> str:
        return "The user dismissed the question."


class ClientError(FlowError):
    """The client, not its user, stood in the way."""


class Unsupported(ClientError):
    """This client cannot be asked this kind of question.

    Attributes:
        kind: The effect's name, such as `"Sample"`.
    """

    __match_args__ = ("kind",)

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def __str__(self) -> str:
        return (
            f"The client does not support {self.kind}."
            " Give otherwise=, or test ClientSupports() first."
        )


class InvalidAnswer(ClientError):
    """The client kept answering one question with something that does not fit.

    Attributes:
        problems: What was wrong with the last answer, one entry a problem.
    """

    __match_args__ = ("problems",)

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "The answers did not fit the question: " + "; ".join(self.problems)


class ClientFailed(ClientError):
    """The client answered the question with an error.

    Attributes:
        code: The JSON-RPC error code.
        message: The client's words.
        data: Whatever the client attached.
    """

    __match_args__ = ("code", "message")

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"The client failed to answer: {self.message} ({self.code})"


class TooManyRounds(ClientError):
    """Asking once more would pass what clients put up with.

    Attributes:
        limit: How many interim results one call may have.
        state_only: Whether it was a `Checkpoint()` that would have been one too many.
    """

    __match_args__ = ("limit",)

    def __init__(self, limit: int, *, state_only: bool = False) -> None:
        super().__init__(limit)
        self.limit = limit
        self.state_only = state_only

    def __str__(self) -> str:
        if self.state_only:
            return (
                f"A call may pause at {self.limit} checkpoints, and this would be one"
                " more: clients give up there."
            )
        return (
            f"A call may ask in {self.limit} rounds, and this would be one more: clients"
            " give up there. Ask several questions at once with Gather(...)."
        )


class StepFailed(FlowError):
    """A step raised an exception that cannot come back as itself.

    Attributes:
        type: The name of the exception's class.
        message: Its text.
        data: Its `data` attribute, when it had one that JSON can carry.
    """

    __match_args__ = ("type", "message")

    def __init__(self, type: str, message: str, data: Any = None) -> None:
        super().__init__(type, message)
        self.type = type
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class StepInterrupted(FlowError):
    """An `at_most_once` step was begun and nobody knows whether it ended.

    Attributes:
        name: The step's name.
    """

    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"The step {self.name} was begun and its result was lost. It is not begun"
            " again, because it is marked at_most_once."
        )


# ---- raised by handlers -------------------------------------------------------------


class ToolError(EffectMCPError):
    """Raise this in a handler to tell the model, in your words, what went wrong."""

    __match_args__ = ("message",)

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


# ---- the engine's own ---------------------------------------------------------------


class Signal(BaseException):
    """Thrown into a generator to end it. Not an `Exception`: let it pass."""


class Suspended(Signal):
    """The round ends here; the flow goes on in another process, from its journal.

    Effects yielded while this unwinds are not performed.
    """


class Restarted(Signal):
    """The flow begins again as another handler; this generator's cleanup is real."""


class Cancelled(Signal):
    """The flow, or a sibling in a `Gather`, ended; cleanup may perform local effects."""
