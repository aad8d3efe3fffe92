"""Every error of effectmcp, split by who must act.

    EffectMCPError
    ├── UsageError              you, at the line that the message names
    │   ├── NotAnEffectError        a handler yielded something that is not an effect
    │   ├── FormError               a form that no client could show
    │   ├── SchemaError             a type, signature or schema that no client could use
    │   ├── OutputError             a result that does not fit its outputSchema
    │   ├── CanonicalError          a value that JSON cannot carry unchanged
    │   ├── StepError               a step that cannot be recorded or was misused
    │   │   └── LoopError               async code that needs another event loop
    │   ├── NondeterminismError     a handler whose replay asks another question
    │   ├── BudgetError             a handler that loops without ever asking
    │   ├── KeysError               a state key that protects nothing
    │   ├── LedgerError             a call that counts once, and nothing to count it
    │   └── StateSizeError          a state larger than clients carry
    ├── DivergenceError         operators: the handler changed during a flow
    ├── TaskStoreError          operators: tasks that cannot be read or stored
    │   ├── TaskLimitError          the client: there are too many tasks
    │   └── TaskRowError            operators: a task that no store could keep
    ├── ArgumentsError          the model: arguments that the tool does not take
    ├── ProtocolError           the client: a message that breaks the protocol
    │   └── MissingScope            the user: a token that does not allow a request
    ├── StateError              the client: a requestState that this request may not use
    └── FlowError               the handler, if it likes: raised at its yields
        ├── Refused                 the user said no:  Declined, Dismissed
        ├── ClientError             the client could not:  Unsupported, InvalidAnswer,
        │                           ClientFailed, TooManyRounds
        └── StepFailed, StepInterrupted     a step raised, or its outcome is unknown

    ToolError                   raised *by* a handler, for the model to read

    Signal (BaseException)      for the engine; let them pass
        Suspended, Restarted, Cancelled

Each error keeps its details in fields, and builds its message from them. Errors that a
handler may catch are compared by their fields, because they also serve as values:
`Outcome` returns a `Declined`, and a test script answers with one.
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
    "LedgerError",
    "LoopError",
    "MissingScope",
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
    "TaskLimitError",
    "TaskRowError",
    "TaskStoreError",
    "TooManyRounds",
    "ToolError",
    "Unsupported",
    "UsageError",
]


class EffectMCPError(Exception):
    """Base class of all errors of effectmcp, except the signals."""


# ---- you ----------------------------------------------------------------------------


class UsageError(EffectMCPError):
    """Raised when effectmcp is used in a way that cannot work; fix the code.

    Attributes:
        problem: The mistake, and what to write instead.
        where: The `file:line` of the yield or definition at fault, if it is known.
    """

    def __init__(self, problem: str, *, where: str | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where

    # Built on each read: `where` may be set after the error is raised.
    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem


class NotAnEffectError(UsageError):
    """Raised when a handler yields or returns a value that the engine cannot take."""


class FormError(UsageError):
    """Raised for a form that is malformed, or that the protocol cannot express."""


class SchemaError(UsageError):
    """Raised for a type, signature or schema that cannot become a JSON Schema."""


class OutputError(UsageError):
    """Raised when a handler returns a value that does not fit its annotation.

    Attributes:
        problems: One line per problem, such as `guests[1].age: must be …`.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the result does not fit its type: " + "; ".join(problems))
        self.problems = tuple(problems)


class CanonicalError(UsageError):
    """Raised for a value that a round trip through JSON would change."""


class StepError(UsageError):
    """Raised for a step whose arguments, result or options are not allowed."""


class LoopError(StepError):
    """Raised for an async function, or a lifespan, that needs another event loop.

    Attributes:
        name: The function.
        runs: The loop that runs: `trio` or `asyncio`.
        needs: The loop that it needs.
        error: What the library said.
    """

    def __init__(
        self, name: str, runs: str, needs: str, error: str, *, where: str | None = None
    ) -> None:
        super().__init__(
            f"{name} needs {needs}, and {runs} runs here ({error}). Give"
            f" Server(loop={needs!r}) or --loop {needs}, or serve from a host that runs"
            f" {needs}",
            where=where,
        )
        self.name = name
        self.runs = runs
        self.needs = needs
        self.error = error


class NondeterminismError(UsageError):
    """Raised when a handler, replayed with the same journal, asks another question."""


class BudgetError(UsageError):
    """Raised when a handler yields too often without asking or returning."""


class KeysError(UsageError):
    """Raised for a key ring that is missing or would protect nothing."""


class LedgerError(UsageError):
    """Raised for a call that counts once on a server without a ledger.

    Attributes:
        name: The handler or tool.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} counts once (single_use=True, or a question with once=True), and this"
            " server has nothing that counts: give Server(tasks=SqliteTasks(path)) or"
            " Server(ledger=...), or --tasks PATH"
        )
        self.name = name


class StateSizeError(UsageError):
    """Raised for a state that is larger than clients can be expected to carry.

    Attributes:
        size: Size of the state in characters.
        limit: Limit of the size.
        largest: The largest entries by place, with their sizes in bytes.
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
        # By default, exceptions are copied from `args`, which here is the message only.
        return type(self), (self.size, self.limit, self.largest)


# ---- operators ----------------------------------------------------------------------


class DivergenceError(EffectMCPError):
    """Raised when a handler no longer follows its journal, so that it cannot resume.

    Attributes:
        verdict: `"stop"` (start again), `"park"` (try later) or `"strict"` (a test
            failed).
        report: The recorded effect, the handler's effect, and the place.
    """

    #: The message for users. The report is for logs: it quotes the handler's source.
    PUBLIC: Final = "The server changed while this call was in progress; start again."

    def __init__(self, verdict: str, report: Report) -> None:
        super().__init__(verdict, report)
        self.verdict = verdict
        self.report = report

    def __str__(self) -> str:
        return str(self.report)

    @property
    def public(self) -> str:
        """The message for users, without the report, which quotes the source."""
        if self.verdict == "park":
            return "The server changed while this was in progress; it waits."
        return self.PUBLIC


class TaskStoreError(EffectMCPError):
    """Raised when tasks cannot be read or stored; nothing that was stored is lost."""


class TaskLimitError(TaskStoreError):
    """Raised when a server, or one of its users, has too many tasks."""


class TaskRowError(TaskStoreError):
    """Raised when a task cannot be stored, however often this is tried: it is too large.

    A turn that gets it from a save parks the task.
    """


# ---- the model ----------------------------------------------------------------------


class ArgumentsError(EffectMCPError):
    """Raised for arguments that a tool does not take; the message is for the model.

    Attributes:
        problems: One line per problem: `guests[1].age: must be a whole number`.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "The arguments do not fit: " + "; ".join(self.problems)


# ---- the client ---------------------------------------------------------------------


class ProtocolError(EffectMCPError):
    """A JSON-RPC error: raised when a message of the client breaks the protocol.

    Attributes:
        code: The JSON-RPC error code.
        message: The problem, for the client's author.
        data: Details as JSON, as the protocol defines them for this code.
        status: The HTTP status of the response.
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


class MissingScope(ProtocolError):
    """Raised if the token of a request lacks a scope; its user can log in for more.

    Attributes:
        scopes: The scopes that the request needs.
    """

    def __init__(self, code: int, scopes: frozenset[str]) -> None:
        words = " ".join(sorted(scopes))
        super().__init__(code, f"Insufficient scope: this needs {words}", status=403)
        self.scopes = scopes


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
    """Raised for a `requestState` that this request may not use.

    Clients get the same error for every reason: an attacker who tries keys and
    forgeries must not learn which check failed. The reason is for logs, embedders and
    tests.

    Attributes:
        reason: The reason of the refusal.
    """

    CODE: Final = -32602
    PUBLIC: Final = "Invalid or expired requestState"

    def __init__(self, reason: StateReason) -> None:
        super().__init__(self.PUBLIC)
        self.reason: Final = reason


# ---- the handler, if it likes -------------------------------------------------------


class FlowError(EffectMCPError):
    """Base class of the errors that are raised at a handler's yields, to be caught."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    # By class alone: fields may have values of a client, which need not be hashable.
    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class Refused(FlowError):
    """Raised when the user did not answer: `Declined` or `Dismissed`."""


class Declined(Refused):
    """Raised, or returned by `Outcome`, when the user said no to the question."""

    __match_args__ = ()

    def __str__(self) -> str:
        return "The user declined."


class Dismissed(Refused):
    """Raised, or returned by `Outcome`, when the user closed the question."""

    __match_args__ = ()

    def __str__(self) -> str:
        return "The user dismissed the question."


class ClientError(FlowError):
    """Raised when the client, and not its user, kept a question from being answered."""


class Unsupported(ClientError):
    """Raised when this client cannot be asked this kind of question.

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
    """Raised when the client kept sending answers that do not fit the question.

    Attributes:
        problems: The problems of the last answer, one line per problem.
    """

    __match_args__ = ("problems",)

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "The answers did not fit the question: " + "; ".join(self.problems)


class ClientFailed(ClientError):
    """Raised when the client answered the question with an error.

    Attributes:
        code: The JSON-RPC error code.
        message: The client's message.
        data: Any data that the client attached.
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
    """Raised when one more round would exceed the number that clients tolerate.

    Attributes:
        limit: Limit of such rounds per call.
        state_only: Whether the round was for a `Checkpoint()`, which has its own limit.
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
    """Raised when a step failed with an exception that cannot be raised here itself.

    Attributes:
        type: The name of the exception's class.
        message: The message of the exception.
        data: The `data` attribute of the exception, if JSON can express it.
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
    """Raised when an `at_most_once` step was started and its outcome is unknown.

    Attributes:
        name: The step's name.
    """

    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"The step {self.name} was started and its result was lost. It is not"
            " started again, because it is marked at_most_once."
        )


# ---- raised by handlers -------------------------------------------------------------


class ToolError(EffectMCPError):
    """Raise this in a handler to tell the model, in your words, what went wrong."""

    __match_args__ = ("message",)

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


# ---- for the engine -----------------------------------------------------------------


class Signal(BaseException):
    """Thrown into a generator to end it. It is not an `Exception`: let it pass."""


class Suspended(Signal):
    """Thrown when the round ends here; a later round resumes the flow from its journal.

    Effects that are yielded while this unwinds are not performed.
    """


class Restarted(Signal):
    """Thrown when the flow starts again as another handler; cleanup is performed."""


class Cancelled(Signal):
    """Thrown when the flow is cancelled, or when another branch of its `Gather` fails.

    Cleanup may perform local effects.
    """
