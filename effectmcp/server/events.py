"""The events that observers receive: the extension point for logs, metrics and traces.

    RequestBegan, RequestEnded       every request, of every method and revision
    MessageRefused                   a message that is not valid JSON-RPC
    HttpRefused                      an HTTP request that carries no message
    RoundBegan, RoundEnded           a request that ran a flow
    RoundRefused, Salvaged           what a state, or an edit of the handler, led to
    StepBegan, StepPerformed         a step, in a request or in a task
    QuestionsAsked, QuestionsAnswered    in every way that a question travels
    SessionOpened, SessionEnded      a session of a revision with a handshake
    TaskCreated, TurnBegan, TurnEnded    a task, and each of its turns

An observer is called with one event at a time, in the middle of a request, so it must
be quick. An error that it raises is logged and has no other effect.

Some events have a `context`: what follows runs in copies of it. An observer may set
context variables there, such as the current span of a tracer, and `TRACE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import field, frozen

from ..canonical import JSON

if TYPE_CHECKING:
    from ..engine.divergence import Report
    from ..engine.journal import Journal
    from ..engine.stops import Question
    from ..errors import DivergenceError, StateError

__all__ = [
    "TRACE",
    "Event",
    "HttpRefused",
    "MessageRefused",
    "Observer",
    "QuestionsAnswered",
    "QuestionsAsked",
    "RequestBegan",
    "RequestEnded",
    "RoundBegan",
    "RoundEnded",
    "RoundRefused",
    "Salvaged",
    "SessionEnded",
    "SessionOpened",
    "StepBegan",
    "StepPerformed",
    "TaskCreated",
    "TurnBegan",
    "TurnEnded",
]

#: The W3C trace context of a request's own span, if an observer sets it in the `context`
#: of `RequestBegan`. A flow that starts then carries it to its later rounds and its task,
#: instead of the trace context that the client sent.
TRACE: Final[ContextVar[str | None]] = ContextVar("TRACE", default=None)


# ---- requests -----------------------------------------------------------------------


@frozen(kw_only=True)
class RequestBegan:
    """A client asks for something. Every request of every revision begins with this.

    Attributes:
        number: The request's number in this process. Later events of it have the same.
        method: The method, such as `tools/list`, whether or not there is one.
        is_offered: Whether the server offers this method.
        target: The tool, prompt, URI or task that it names, as the client wrote it.
        feature: The target, if the server has a tool, prompt or resource of that name.
            Count by this one: a stranger can make up any number of the others.
        revision: The revision to which the request belongs.
        era: Whether that revision has rounds (`"modern"`) or sessions (`"legacy"`).
        principal: The authenticated user, if the transport knows one.
        address: The client's address; `None` if unknown.
        client: The client's name and version, in its own words.
        session: The number of its session in this process; `None` without one.
        id: The request's JSON-RPC id.
        size: Its size in bytes; 0 if the transport had read it already.
        is_http: Whether it came over HTTP.
        arguments: The arguments of a call, which are unchecked. Keep them out of logs:
            they are the user's.
        meta: Its `_meta`, which is unchecked.
        context: The context whose copies the handler, its steps and its interceptors run
            in.
    """

    number: int
    method: str
    is_offered: bool
    target: str | None
    feature: str | None
    revision: str
    era: Literal["modern", "legacy"]
    principal: str | None
    address: str | None
    client: str | None
    session: int | None
    id: str | int
    size: int
    is_http: bool
    arguments: JSON = field(repr=False)
    meta: Mapping[str, JSON] = field(repr=False)
    context: Context = field(repr=False, eq=False)


@frozen(kw_only=True)
class RequestEnded:
    """The request ended.

    Attributes:
        number: The request's number in this process.
        method: The method.
        target: The tool, prompt, URI or task.
        principal: The authenticated user.
        seconds: The time between the beginning and the end.
        outcome: `result`; `asked` for questions, or a state alone; `task` for a call that
            became one; `failed` for the result of a tool that says that it failed;
            `error` for an error of the protocol; `dropped` for a request that was
            cancelled, or whose client has left.
        error: The class of the error behind `failed` and `error`, if there was one.
        code: The JSON-RPC error code of an `error`.
        message: Its message, for the client's author.
        size: The size of the response in bytes.
    """

    number: int
    method: str
    target: str | None
    principal: str | None
    seconds: float
    outcome: Literal["result", "asked", "task", "failed", "error", "dropped"]
    error: str | None = None
    code: int | None = None
    message: str | None = None
    size: int = 0


@frozen(kw_only=True)
class MessageRefused:
    """A message could not be read as JSON-RPC, so no request begins.

    Attributes:
        principal: The authenticated user.
        code: The JSON-RPC error code of the response.
        problem: The problem, for the client's author.
    """

    principal: str | None
    code: int
    problem: str


@frozen(kw_only=True)
class HttpRefused:
    """HTTP refused a request: its host, its user, its form or its size.

    Attributes:
        status: The HTTP status, such as 401 or 403.
        address: The address that it came from; `None` if unknown.
    """

    status: int
    address: str | None


# ---- flows --------------------------------------------------------------------------


@frozen(kw_only=True)
class RoundBegan:
    """A request started or resumed a flow, which ran up to its first stop.

    Attributes:
        number: The request's number in this process.
        method: `tools/call`, `prompts/get` or `resources/read`.
        target: The tool, prompt or URI.
        arguments: The arguments of the request; `None` for a resource, whose URI
            contains them.
        capabilities: The client's capabilities.
        flow_id: The flow's id in hex; the same in every round.
        trace: The W3C trace context of the request.
        first_trace: The trace context of the request that started the flow. Link each
            round's trace to it, to show the rounds together.
        round: The number of this round, from 1. A flow that asks live has one.
        is_first: Whether this request started the flow.
    """

    number: int
    method: str
    target: str
    arguments: JSON
    capabilities: Mapping[str, JSON]
    flow_id: str
    trace: str | None
    first_trace: str | None
    round: int
    is_first: bool


@frozen(kw_only=True)
class RoundEnded:
    """A round ended.

    Attributes:
        number: The request's number in this process.
        flow_id: The flow's id in hex.
        outcome: How the round ended; `"detached"` if the flow became a task, and
            `"dropped"` if no response was sent.
        round: The number of this round.
        asked: Number of questions that were sent.
        asked_again: How many of them had an answer that did not fit.
        state_size: Size of the state that was sent, in characters.
        error: The error of the handler, or any other that ended the round.
        journal: The journal so far; `None` if the round was dropped or passed the limit
            on rounds. Keep it out of logs: it contains the user's answers and the
            results of steps.
    """

    number: int
    flow_id: str
    outcome: Literal["asked", "returned", "raised", "detached", "dropped"]
    round: int
    asked: int = 0
    asked_again: int = 0
    state_size: int = 0
    error: BaseException | None = None
    journal: Journal | None = field(default=None, repr=False)


@frozen(kw_only=True)
class RoundRefused:
    """A request had a state that cannot be resumed.

    Attributes:
        number: The request's number in this process.
        method: The method; see `RoundBegan`.
        target: The tool, prompt or URI.
        principal: The user who sent it.
        error: A `StateError`, with the reason that the client does not see; or a
            `DivergenceError`, with the report of what the deploy changed.
    """

    number: int
    method: str
    target: str
    principal: str | None
    error: StateError | DivergenceError


@frozen(kw_only=True)
class Salvaged:
    """The handler changed during a flow, and the flow could be salvaged and resumed."""

    flow_id: str
    report: Report


@frozen(kw_only=True)
class StepBegan:
    """A step begins, of a handler or an interceptor.

    A replay that reuses a recorded result is no such event.

    Attributes:
        flow_id: The flow's id in hex; empty in the call of a plain or async function.
        key: The step's key, which is unique in its flow.
        name: The step's name.
        number: The number of its request; `None` in a task.
        task: The id of its task; `None` in a request.
        context: The context whose copies the step's tries run in.
    """

    flow_id: str
    key: str
    name: str
    number: int | None
    task: str | None
    context: Context = field(repr=False, eq=False)


@frozen(kw_only=True)
class StepPerformed:
    """A step was performed.

    Attributes:
        flow_id: The flow's id in hex.
        key: The step's key, as in `StepBegan`.
        number: The number of its request; `None` in a task.
        name: The step's name.
        seconds: Duration of the step and the effects that were performed along with it.
        task: The id of its task; `None` in a request.
        error: The error that the step raised, if any.
    """

    flow_id: str
    key: str
    name: str
    seconds: float
    number: int | None = None
    task: str | None = None
    error: Exception | None = None


# ---- questions ----------------------------------------------------------------------


@frozen(kw_only=True)
class QuestionsAsked:
    """Questions go to a client: in a result, on its session, or through a task.

    Attributes:
        flow_id: The flow's id in hex.
        method: The method of the call.
        target: The tool, prompt or URI.
        principal: The user who is asked.
        task: The id of the task that asks; `None` in a request.
        questions: The questions, with their words.
    """

    flow_id: str
    method: str
    target: str
    principal: str | None
    task: str | None
    questions: tuple[Question, ...]


@frozen(kw_only=True)
class QuestionsAnswered:
    """A client answered questions that were outstanding, or with its first request.

    The answers are unchecked.

    Attributes:
        flow_id: The flow's id in hex.
        method: The method of the call.
        target: The tool, prompt or URI.
        principal: The user who answered.
        task: The id of the task that asked; `None` in a request.
        answers: The answers as the client sent them, by the keys of the questions. Keep
            them out of logs: they are the user's.
    """

    flow_id: str
    method: str
    target: str
    principal: str | None
    task: str | None
    answers: Mapping[str, JSON] = field(repr=False)


# ---- sessions and tasks -------------------------------------------------------------


@frozen(kw_only=True)
class SessionOpened:
    """A client of a revision with a handshake opened a session.

    Attributes:
        session: The session's number in this process.
        revision: The revision that both sides speak.
        principal: The user.
        client: The client's name and version, in its own words.
    """

    session: int
    revision: str
    principal: str | None
    client: str | None


@frozen(kw_only=True)
class SessionEnded:
    """A session ended: its client left, or another session needed its place.

    Attributes:
        session: The session's number in this process.
        seconds: How long it lasted.
    """

    session: int
    seconds: float


@frozen(kw_only=True)
class TaskCreated:
    """A call became a task.

    Attributes:
        number: The request's number in this process.
        task: The id of the task.
        tool: The tool.
        flow_id: The flow's id in hex.
        principal: The owner.
        is_new: Whether it did so now. The same request becomes the same task again.
    """

    number: int
    task: str
    tool: str
    flow_id: str
    principal: str | None
    is_new: bool


@frozen(kw_only=True)
class TurnBegan:
    """A turn of a task begins: a run of its handler, from one wait to the next.

    Attributes:
        task: The id of the task.
        tool: The tool.
        flow_id: The flow's id in hex.
        principal: The owner of the task.
        first_trace: The trace context of the request that started the flow.
        context: The context whose copies the handler, its steps and its interceptors run
            in.
    """

    task: str
    tool: str
    flow_id: str
    principal: str | None
    first_trace: str | None
    context: Context = field(repr=False, eq=False)


@frozen(kw_only=True)
class TurnEnded:
    """A turn of a task ended.

    Attributes:
        task: The id of the task.
        tool: The tool.
        flow_id: The flow's id in hex.
        principal: The owner of the task.
        status: The status of the task now, or `"parked"` if it waits for its operator;
            `"dropped"` if the turn was cut off.
        was: The status before.
        seconds: The duration of the turn, by the clock of its host.
    """

    task: str
    tool: str
    flow_id: str
    principal: str | None
    status: str
    was: str
    seconds: float


Event: TypeAlias = (
    RequestBegan
    | RequestEnded
    | MessageRefused
    | HttpRefused
    | RoundBegan
    | RoundEnded
    | RoundRefused
    | Salvaged
    | StepBegan
    | StepPerformed
    | QuestionsAsked
    | QuestionsAnswered
    | SessionOpened
    | SessionEnded
    | TaskCreated
    | TurnBegan
    | TurnEnded
)
Observer: TypeAlias = Callable[[Event], None]
