"""The events that observers receive: the extension point for logs, metrics and traces.

An observer is called with one event at a time, in the middle of a request, so it must
be quick. An error that it raises is logged and has no other effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import field, frozen

from ..canonical import JSON

if TYPE_CHECKING:
    from ..engine.divergence import Report
    from ..engine.journal import Journal
    from ..errors import DivergenceError, StateError

__all__ = [
    "Event",
    "Observer",
    "RequestBegan",
    "RequestEnded",
    "RoundBegan",
    "RoundEnded",
    "RoundRefused",
    "Salvaged",
    "StepPerformed",
]


@frozen(kw_only=True)
class RequestBegan:
    """A client asks for something. Every request of every revision begins with this.

    Attributes:
        number: The request's number in this process. `RequestEnded` has the same.
        method: The method, such as `tools/list`, whether or not there is one.
        revision: The revision to which the request belongs.
        principal: The authenticated user, if the transport knows one.
    """

    number: int
    method: str
    revision: str
    principal: str | None


@frozen(kw_only=True)
class RequestEnded:
    """The request ended.

    Attributes:
        number: The request's number in this process.
        method: The method.
        seconds: The time between the beginning and the end.
        outcome: `result`; `failed` for the result of a tool that says that it failed;
            `error` for an error of the protocol; `dropped` for a request that was
            cancelled, or whose client has left.
    """

    number: int
    method: str
    seconds: float
    outcome: Literal["result", "failed", "error", "dropped"]


@frozen(kw_only=True)
class RoundBegan:
    """A request started or resumed a flow, which ran up to its first stop.

    Attributes:
        method: `tools/call`, `prompts/get` or `resources/read`.
        target: The tool, prompt or URI.
        arguments: The arguments of the request; `None` for a resource, whose URI
            contains them.
        capabilities: The client's capabilities.
        flow_id: The flow's id in hex; the same in every round.
        trace: The W3C trace context of the request.
        first_trace: The trace context of the request that started the flow. Link each
            round's trace to it, to show the rounds together.
        is_first: Whether this request started the flow.
    """

    method: str
    target: str
    arguments: JSON
    capabilities: Mapping[str, JSON]
    flow_id: str
    trace: str | None
    first_trace: str | None
    is_first: bool


@frozen(kw_only=True)
class RoundEnded:
    """A round ended.

    Attributes:
        flow_id: The flow's id in hex.
        outcome: How the round ended; `"detached"` if the flow became a task, and
            `"dropped"` if no response was sent. Observers receive no events of a task.
        asked: Number of questions that were sent.
        state_size: Size of the state that was sent, in characters.
        error: The error of the handler, or any other that ended the round.
        journal: The journal so far; `None` if the round was dropped or passed the limit
            on rounds. Keep it out of logs: it contains the user's answers and the
            results of steps.
    """

    flow_id: str
    outcome: Literal["asked", "returned", "raised", "detached", "dropped"]
    asked: int = 0
    state_size: int = 0
    error: BaseException | None = None
    journal: Journal | None = field(default=None, repr=False)


@frozen(kw_only=True)
class RoundRefused:
    """A request had a state that cannot be resumed.

    Attributes:
        method: The method; see `RoundBegan`.
        target: The tool, prompt or URI.
        error: A `StateError`, with the reason that the client does not see; or a
            `DivergenceError`, with the report of what the deploy changed.
    """

    method: str
    target: str
    error: StateError | DivergenceError


@frozen(kw_only=True)
class StepPerformed:
    """A step was performed. A replay that reuses a recorded result is no such event.

    Attributes:
        flow_id: The flow's id in hex.
        name: The step's name.
        seconds: Duration of the step and the effects that were performed along with it.
        error: The error that the step raised, if any.
    """

    flow_id: str
    name: str
    seconds: float
    error: Exception | None = None


@frozen(kw_only=True)
class Salvaged:
    """The handler changed during a flow, and the flow could be salvaged and resumed."""

    flow_id: str
    report: Report


Event: TypeAlias = (
    RequestBegan
    | RequestEnded
    | RoundBegan
    | RoundRefused
    | StepPerformed
    | Salvaged
    | RoundEnded
)
Observer: TypeAlias = Callable[[Event], None]
