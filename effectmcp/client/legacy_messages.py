"""Messages of earlier revisions, and the 2026-07-28 messages for them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..canonical import JSON
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL
from ..protocol.revisions import PROTOCOL_VERSION
from .channels import Frame
from .errors import ReplyError
from .messages import belonging, result_of

__all__ = ["older", "own_result", "pages_first", "result_for"]

#: The error code with which an old server requests to open pages and then call again.
_PAGES_FIRST: Final = -32042

#: The keys of `_meta` that only newer revisions have.
_NEWER: Final = frozenset(
    {PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL}
)


def older(message: Frame) -> Frame:
    """Return a request without the metadata that earlier revisions do not have."""
    params = dict(message["params"])
    meta = {
        key: one for key, one in params.pop("_meta", {}).items() if key not in _NEWER
    }
    if meta:
        params["_meta"] = meta
    older = {key: one for key, one in message.items() if key != "params"}
    return {**older, "params": params} if params else older


def pages_first(response: Frame) -> list[Mapping[str, Any]]:
    """Return the pages that the user must open before the call is repeated."""
    error = response.get("error")
    if not isinstance(error, dict) or error.get("code") != _PAGES_FIRST:
        return []
    data = error.get("data")
    pages = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(pages, list):
        return []
    return [one for one in pages if isinstance(one, dict) and one.get("url")]


def result_for(message: Frame, fields: Mapping[str, JSON]) -> Frame:
    """Return the response to a request."""
    return {"jsonrpc": "2.0", "id": message["id"], "result": fields}


def own_result(message: Frame, response: Frame) -> Mapping[str, Any]:
    """Return the result of a request that the client's program did not make."""
    result = result_of(belonging(response, message["id"]), has_state=False)
    if not isinstance(result, dict):
        raise ReplyError(f"{message['method']} came to {result!r:.80}")
    return result
