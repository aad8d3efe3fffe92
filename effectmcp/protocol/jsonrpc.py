"""JSON-RPC 2.0, as MCP restricts it: single messages, and no batches.

An id is a string or an integer, and never null. Clients send responses only to
questions that are asked live, which 2026-07-28 does not have (Overview, Messages).
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

#: The whole message of an error that its sender did not cause.
OPAQUE: Final = "Internal error"

#: The arguments alone may have `MAX_DEPTH` levels, and they are nested in the params.
_DEPTH: Final = MAX_DEPTH + 4

_MAX_ID: Final = 256

#: The id of a request: a string or an integer.
Id = str | int

_NO_PARAMS: Final[Mapping[str, JSON]] = {}


@record
class Request:
    """A request, which gets one response.

    Attributes:
        id: The id of the request.
        method: The name of its method.
        params: Its parameters.
        envelope: The whole message: in some drafts, it has parameters beside `params`.
        size: The size of its text; 0 if it was read elsewhere.
    """

    id: Id
    method: str
    params: Mapping[str, JSON]
    envelope: Mapping[str, JSON] = field(default=_NO_PARAMS, eq=False, repr=False)
    size: int = field(default=0, eq=False, repr=False)


@record
class Notification:
    """A notification, which gets no response."""

    method: str
    params: Mapping[str, JSON]


@record
class Response:
    """A response to a request that this side sent.

    Attributes:
        id: The id of that request.
        message: The whole message.
    """

    id: Id
    message: Mapping[str, JSON]


@record
class Malformed:
    """Input that is not a valid message, with the error to respond with.

    Attributes:
        error: The error.
        id: The id to respond to, if it could be read.
    """

    error: ProtocolError
    id: Id | None = None


def read_message(
    message: bytes | str | Mapping[str, JSON],
) -> Request | Notification | Response | Malformed:
    """Read one message of a client.

    Args:
        message: The message: a string, or the output of your own JSON reader.
    """
    value: JSON = message
    size = 0
    try:
        if isinstance(message, (bytes, str)):
            size = len(message)
            value = parse(message, max_depth=_DEPTH)
        else:
            dumps(value, max_depth=_DEPTH)
    except CanonicalError as exc:
        words = f"Parse error: {exc.problem}"
        return Malformed(ProtocolError(PARSE_ERROR, words, status=400))
    if type(value) is dict and value.get("jsonrpc") == "2.0":
        id_, method, params = value.get("id"), value.get("method"), value.get("params")
        if (
            (type(id_) is int and 0 <= id_ <= MAX_SAFE_INTEGER)
            or (type(id_) is str and len(id_) <= _MAX_ID)
        ) and (type(method) is str and type(params) is dict):
            return Request(id_, method, params, value, size)  # as nearly every message
    try:
        return _read(value, size)
    except ProtocolError as exc:
        return Malformed(exc, id_of(value))


def _read(value: JSON, size: int = 0) -> Request | Notification | Response:
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
        raise _invalid("a message needs a method, which must be a string")
    params = value.get("params", _NO_PARAMS)
    if not isinstance(params, dict) and params is not _NO_PARAMS:
        raise _invalid("params are an object")
    if "id" not in value:
        return Notification(method, params)
    id_ = id_of(value)
    if id_ is None:
        raise _invalid("an id must be a string or an integer, of a reasonable size")
    return Request(id_, method, params, value, size)


def id_of(value: JSON) -> Id | None:
    """Return the id of a message; `None` if it has no id that can be sent back."""
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
    """Return the response to a request that succeeded."""
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def error_message(id_: Id | None, error: ProtocolError) -> dict[str, JSON]:
    """Return the response to a request that failed; no id if it could not be read."""
    body: dict[str, JSON] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    message: dict[str, JSON] = {"jsonrpc": "2.0"}
    if id_ is not None:
        message["id"] = id_
    message["error"] = body
    return message


def internal_error(id_: Id | None) -> dict[str, JSON]:
    """Return the response to a request that failed through no fault of its sender."""
    return error_message(id_, ProtocolError(INTERNAL_ERROR, OPAQUE))


def notification(method: str, params: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


_chunks: Final = chunks_by(
    json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
    )
)


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message as one line of UTF-8, without the line end.

    Line ends separate messages in pipes and event streams, and JSON escapes them in
    strings. In neither do U+2028 and the like count as line ends.
    """
    return "".join(_chunks(message, 0)).encode("utf-8")
