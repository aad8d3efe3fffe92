"""JSON-RPC 2.0, as MCP narrows it: one message, and never a batch of them.

An id is a text or an integer and never null. Responses are sent by clients that were
asked live, which those of 2026-07-28 are not (Overview, Messages).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import field

from ..canonical import JSON, MAX_DEPTH, MAX_SAFE_INTEGER, chunks_by, dumps, parse
from ..errors import CanonicalError, ProtocolError
from ..records import record

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "OPAQUE",
    "PARSE_ERROR",
    "Id",
    "Malformed",
    "Notification",
    "Request",
    "Response",
    "encode",
    "error_message",
    "id_of",
    "internal_error",
    "notification",
    "read_message",
    "result_message",
]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

#: All that is said of a failure that is not its sender's.
OPAQUE: Final = "Internal error"

#: Params wrap arguments, which may have `MAX_DEPTH` levels of their own.
_DEPTH: Final = MAX_DEPTH + 4

_MAX_ID: Final = 256

#: Requests with a text or an integer for an id.
Id = str | int

_NO_PARAMS: Final[Mapping[str, JSON]] = {}


@record
class Request:
    """A request, which gets one response.

    Attributes:
        id: Its id.
        method: What is asked for.
        params: With what.
        envelope: All of it: some drafts put parameters beside the others.
    """

    id: Id
    method: str
    params: Mapping[str, JSON]
    envelope: Mapping[str, JSON] = field(default=_NO_PARAMS, eq=False, repr=False)


@record
class Notification:
    """A notification, which gets none."""

    method: str
    params: Mapping[str, JSON]


@record
class Response:
    """A response, to a request of ours.

    Attributes:
        id: The request's.
        message: All of it.
    """

    id: Id
    message: Mapping[str, JSON]


@record
class Malformed:
    """What is no message, and what to say of it.

    Attributes:
        error: What is wrong.
        id: Whom to tell, if that could be read.
    """

    error: ProtocolError
    id: Id | None = None


def read_message(
    message: bytes | str | Mapping[str, JSON],
) -> Request | Notification | Response | Malformed:
    """One message of a client.

    Args:
        message: Its text, or what a JSON reader of yours made of it.
    """
    value: JSON = message
    try:
        if isinstance(message, (bytes, str)):
            value = parse(message, max_depth=_DEPTH)
        else:
            dumps(value, max_depth=_DEPTH)
    except CanonicalError as exc:
        words = f"Parse error: {exc.problem}"
        return Malformed(ProtocolError(PARSE_ERROR, words, status=400))
    try:
        return _read(value)
    except ProtocolError as exc:
        return Malformed(exc, id_of(value))


def _read(value: JSON) -> Request | Notification | Response:
    if isinstance(value, list):
        raise _invalid("batches are not part of MCP; send one message at a time")
    if not isinstance(value, dict):
        raise _invalid("a message is an object")
    if value.get("jsonrpc") != "2.0":
        raise _invalid('a message has "jsonrpc": "2.0"')
    method = value.get("method")
    if not isinstance(method, str):
        if "result" in value or "error" in value:
            id_ = id_of(value)
            if id_ is None:
                raise _invalid("a response has the id of what it answers")
            return Response(id_, value)
        raise _invalid("a message has a method, which is a text")
    params = value.get("params", _NO_PARAMS)
    if not isinstance(params, dict) and params is not _NO_PARAMS:
        raise _invalid("params are an object")
    if "id" not in value:
        return Notification(method, params)
    id_ = id_of(value)
    if id_ is None:
        raise _invalid("an id is a text or an integer, and of a sane size")
    return Request(id_, method, params, value)


def id_of(value: JSON) -> Id | None:
    """The id of a message, if it has one that can be sent back."""
    id_ = value.get("id") if isinstance(value, dict) else None
    if type(id_) is int and -MAX_SAFE_INTEGER <= id_ <= MAX_SAFE_INTEGER:
        return id_
    if isinstance(id_, str) and len(id_) <= _MAX_ID:
        return id_
    return None


def _invalid(problem: str) -> ProtocolError:
    return ProtocolError(INVALID_REQUEST, f"Invalid request: {problem}", status=400)


# ---- what we send -------------------------------------------------------------------


def result_message(id_: Id, result: Mapping[str, JSON]) -> dict[str, JSON]:
    """The response to a request that succeeded."""
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def error_message(id_: Id | None, error: ProtocolError) -> dict[str, JSON]:
    """The response to a request that did not; without an id where none could be read."""
    body: dict[str, JSON] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    message: dict[str, JSON] = {"jsonrpc": "2.0"}
    if id_ is not None:
        message["id"] = id_
    message["error"] = body
    return message


def internal_error(id_: Id | None) -> dict[str, JSON]:
    """The response to a request that failed for a reason that is not its sender's."""
    return error_message(id_, ProtocolError(INTERNAL_ERROR, OPAQUE))


def notification(method: str, params: Mapping[str, JSON]) -> dict[str, JSON]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


_chunks: Final = chunks_by(
    json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
    )
)


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as one line of UTF-8, without its end.

    Lines delimit messages over pipes and in event streams, and JSON escapes the line
    ends inside of texts; U+2028 and its like are no line ends in either.
    """
    return "".join(_chunks(message, 0)).encode("utf-8")
