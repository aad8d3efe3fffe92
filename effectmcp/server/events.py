"""What observers hear of: the seam for logging, metrics and tracing.

An observer is called with one event at a time, in the middle of a request: it must be
quick, and what it raises is logged and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from attrs import frozen

from ..engine import Report

__all__ = ["Event", "Observer", "RoundBegan", "RoundEnded", "Salvaged"]


@frozen(kw_only=True)
class RoundBegan:
    """A request began or resumed a flow.

    Attributes:
        method: `tools/call`, `prompts/get` or `resources/read`.
        target: The tool, prompt or URI.
        flow_id: In hex; the same in every round.
        trace: The W3C trace context of the request.
        is_first: Whether the flow began with it.
    """

    method: str
    target: str
    flow_id: str
    trace: str | None
    is_first: bool


@frozen(kw_only=True)
class RoundEnded:
    """It ended.

    Attributes:
        flow_id: In hex.
        outcome: How.
        asked: How many questions went out.
        state_size: Characters of the state that went out.
        error: What the handler raised.
    """

    flow_id: str
    outcome: Literal["asked", "returned", "raised", "dropped"]
    asked: int = 0
    state_size: int = 0
    error: BaseException | None = None


@frozen(kw_only=True)
class Salvaged:
    """The handler changed under a running flow, which could go on all the same."""

    flow_id: str
    report: Report


Event: TypeAlias = RoundBegan | RoundEnded | Salvaged
Observer: TypeAlias = Callable[[Event], None]
