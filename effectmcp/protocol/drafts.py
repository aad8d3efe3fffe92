"""`2026-06-XX`: the drafts of multi round-trip requests, before they were released.

A client shakes hands as in the legacy revisions, and is answered by retry as in the
released one. Only words differ: an interim result is told by `result_type`, one that
asks nothing has no `inputRequests`, and what a retry brings may stand beside `params`
as well as in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..canonical import JSON
from .modern import request_of

if TYPE_CHECKING:
    from ..engine.stops import Question
    from .jsonrpc import Request

__all__ = ["incomplete", "is_incomplete", "retry_params"]


def incomplete(questions: Iterable[Question], state: str) -> dict[str, JSON]:
    """The fields of an interim result."""
    fields: dict[str, JSON] = {"result_type": "incomplete", "requestState": state}
    asked = {one.key: request_of(one) for one in questions}
    return {**fields, "inputRequests": asked} if asked else fields


def is_incomplete(result: Mapping[str, Any]) -> bool:
    """Whether a result is an interim one; those of early drafts say so by their fields."""
    type_ = result.get("result_type")
    if type_ is not None:
        return bool(type_ == "incomplete")
    return "inputRequests" in result or "requestState" in result


def retry_params(request: Request) -> dict[str, JSON]:
    """The parameters of a request, with what stands beside them."""
    beside = {
        key: request.envelope[key]
        for key in ("inputResponses", "requestState")
        if key in request.envelope
    }
    return {**request.params, **beside}
