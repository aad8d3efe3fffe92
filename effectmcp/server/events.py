"""What observers hear of: the seam for logging, metrics and tracing.

An observer is called with one event at a time, in the middle of a request: it must be
quick, and what it raises is logged and changes nothing.
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
            `error` for an error of the protocol; `dropped` for a request that nobody
            waits for any more.
    """

    number: int
    method: str
    seconds: float
    outcome: Literal["result", "failed", "error", "dropped"]


@frozen(kw_only=True)
class RoundBegan:
    """A request began or resumed a flow, which ran until it wanted something.

    Attributes:
        method: `tools/call`, `prompts/get` or `resources/read`.
        target: The tool, prompt or URI.
        arguments: With which arguments; `None` for a resource, whose URI has them.
        capabilities: What the client can do.
        flow_id: In hex; the same in every round.
        trace: The W3C trace context of the request.
        first_trace: That of the request which began the flow: a link from each round's
            trace to it shows them together.
        is_first: Whether the flow began with it.
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
    """It ended.

    Attributes:
        flow_id: In hex.
        outcome: How.
        asked: How many questions went out.
        state_size: Characters of the state that went out.
        error: What the handler raised, or what else went wrong.
        journal: What was recorded so far, unless it was dropped. It holds what the user
            said and what steps gave: not for logs.
    """

    flow_id: str
    outcome: Literal["asked", "returned", "raised", "dropped"]
    asked: int = 0
    state_size: int = 0
    error: BaseException | None = None
    journal: Journal | None = field(default=None, repr=False)


@frozen(kw_only=True)
class RoundRefused:
    """A request brought a state that may not go on.

    Attributes:
        method: As in `RoundBegan`.
        target: As in `RoundBegan`.
        error: A `StateError`, which has the reason that the client is not told; or a
            `DivergenceError`, with the report of what the deploy changed.
    """

    method: str
    target: str
    error: StateError | DivergenceError


@frozen(kw_only=True)
class StepPerformed:
    """A step was performed: not one that a replay was fed.

    Attributes:
        flow_id: In hex.
        name: The step's.
        seconds: How long it and those beside it took.
        error: What it raised.
    """

    flow_id: str
    name: str
    seconds: float
    error: Exception | None = None


@frozen(kw_only=True)
class Salvaged:
    """The handler changed under a running flow, which could go on all the same."""

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
