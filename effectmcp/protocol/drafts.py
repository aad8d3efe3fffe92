"""`2026-06-XX`: the drafts of multi round-trip requests, before they were released.

A client uses the `initialize` handshake, as in the legacy revisions, and is asked by
retry, as in 2026-07-28. Only names and places differ: `result_type` marks an interim
result, an interim result without questions has no `inputRequests`, and a retry may put
its `inputResponses` and `requestState` in `params` or beside it.
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
    """Return the fields of an interim result."""
    fields: dict[str, JSON] = {"result_type": "incomplete", "requestState": state}
    asked = {one.key: request_of(one) for one in questions}
    return {**fields, "inputRequests": asked} if asked else fields


def is_incomplete(result: Mapping[str, Any]) -> bool:
    """Return whether a result is an interim one; early drafts had no `result_type`."""
    type_ = result.get("result_type")
    if type_ is not None:
        return bool(type_ == "incomplete")
    return "inputRequests" in result or "requestState" in result


def retry_params(request: Request) -> dict[str, JSON]:
    """Return the parameters of a request, with the retry fields from beside them."""
    beside = {
        key: request.envelope[key]
        for key in ("inputResponses", "requestState")
        if key in request.envelope
    }
    return {**request.params, **beside}
