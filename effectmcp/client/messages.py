"""Build 2026-07-28 requests, and parse their responses. No I/O.

Every request contains the client's name and capabilities (Overview, Statelessness); over
HTTP its headers repeat the method, the name and some arguments (Streamable HTTP, Request
Metadata).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from .. import __version__
from ..canonical import JSON, dumps
from ..errors import CanonicalError, ProtocolError, StateError, UsageError
from ..protocol.headers import ParamHeader, encode_value
from ..protocol.jsonrpc import encode
from ..protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    TASKS,
    UNSUPPORTED_VERSION,
)
from ..protocol.methods import METHODS
from ..protocol.revisions import PROTOCOL_VERSION, VERSIONS
from .errors import ReplyError
from .rounds import MAY_BECOME_TASKS
from .tasks import error_in

__all__ = [
    "INFO",
    "Profile",
    "StateRejected",
    "belonging",
    "headers_for",
    "request",
    "result_of",
    "supported_version",
]

#: The name and version of clients that give no others.
INFO: Final[Mapping[str, JSON]] = {"name": "effectmcp", "version": __version__}


class StateRejected(ProtocolError):
    """Raised when the server rejects a state that it issued: it has probably expired.

    Call again with `restart=True` to start the call from its beginning. This does not
    undo the steps that were performed.
    """

    def __str__(self) -> str:
        return (
            f"{super().__str__()}: the state from this server has probably expired;"
            " restart=True begins the call again"
        )


#: The methods of requests that declare the extension: servers judge each by itself.
_OF_TASKS: Final = MAY_BECOME_TASKS | {
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
    "subscriptions/listen",
}


@frozen(kw_only=True)
class Profile:
    """A client, as its requests describe it.

    Attributes:
        capabilities: The questions that it can answer, as MCP capabilities.
        info: Its name and version.
        log_level: The lowest level of log messages to send; `None` for no messages.
        follows_tasks: Whether its calls may become tasks.
        version: The revision that it speaks.
    """

    capabilities: Mapping[str, JSON]
    info: Mapping[str, JSON] = INFO
    log_level: str | None = None
    follows_tasks: bool = True
    version: str = VERSIONS[0]

    def meta(
        self, progress_token: int | None = None, method: str = ""
    ) -> dict[str, JSON]:
        """Return the `_meta` of a request.

        Args:
            progress_token: The progress token, if the client wants to know the progress.
            method: The method of the request. If it is about tasks, or may become a
                task, a client that follows tasks declares so.
        """
        capabilities = dict(self.capabilities)
        if self.follows_tasks and method in _OF_TASKS:
            capabilities["extensions"] = {TASKS: {}}
        meta: dict[str, JSON] = {
            PROTOCOL_VERSION: self.version,
            CLIENT_INFO: dict(self.info),
            CLIENT_CAPABILITIES: capabilities,
        }
        if self.log_level is not None:
            meta[LOG_LEVEL] = self.log_level
        if progress_token is not None:
            meta["progressToken"] = progress_token
        return meta


def request(
    id_: int, method: str, params: Mapping[str, JSON], meta: Mapping[str, JSON]
) -> dict[str, JSON]:
    """Return a request.

    Raises:
        UsageError: If JSON cannot encode its parameters.
    """
    message = {
        "jsonrpc": "2.0",
        "id": id_,
        "method": method,
        "params": {**params, "_meta": dict(meta)},
    }
    try:
        encode(message)
    except (ValueError, TypeError, RecursionError) as exc:
        raise UsageError(_unfit(params) or str(exc), where=method) from None
    return message


def _unfit(params: Mapping[str, JSON]) -> str | None:
    """Return which value JSON cannot encode, and where it is; `None` if not found."""
    try:
        dumps(dict(params))
    except CanonicalError as exc:
        return exc.problem
    return None


def headers_for(
    message: Mapping[str, Any], rules: Sequence[ParamHeader] = ()
) -> dict[str, str]:
    """Return the headers of Streamable HTTP that repeat parts of a request.

    Args:
        message: The request.
        rules: The arguments of the tool that headers repeat.

    Raises:
        UsageError: If the parameter for the header `Mcp-Name` is missing.
        ValueError: If an argument cannot be encoded in a header.
    """
    method, params = message["method"], message["params"]
    headers = {
        "MCP-Protocol-Version": params["_meta"][PROTOCOL_VERSION],
        "Mcp-Method": method,
    }
    row = METHODS.get(method)
    if row is not None and row.name_from is not None:
        name = params.get(row.name_from)
        if not isinstance(name, str):
            raise UsageError(
                f"its params need a string, {row.name_from!r}", where=method
            )
        headers["Mcp-Name"] = encode_value(name)
    for rule in rules:
        value = rule.value_in(params.get("arguments") or {})
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number, and 3.0 is an integer
        # Arguments that are null or absent have no header.
        if isinstance(value, (str, int)):
            headers[rule.header] = encode_value(value)
    return headers


def belonging(response: Mapping[str, Any], id_: JSON) -> Mapping[str, Any]:
    """Return `response`, after checking that it belongs to this request.

    Raises:
        ReplyError: If it belongs to another request.
    """
    came = response.get("id", id_)
    if came is None and "error" in response:
        # The server could not read the id (JSON-RPC, Response object).
        came = id_
    if type(came) is not int or came != id_:
        raise ReplyError("it belongs to another request")
    return response


def result_of(message: Mapping[str, Any], *, has_state: bool) -> JSON:
    """Return the result in a response.

    Args:
        message: The response.
        has_state: Whether its request contained a state.

    Raises:
        StateRejected: If the server rejected that state.
        ProtocolError: If the server responded with another error.
        ReplyError: If the message is not a valid response.
    """
    if "result" in message:
        return message["result"]
    error = error_in(message)
    if has_state and error.code == StateError.CODE and "requestState" in error.message:
        raise StateRejected(error.code, error.message, error.data)
    raise error


def supported_version(error: ProtocolError) -> str | None:
    """Return a revision that both sides support, if `error` is about the revision."""
    data = error.data
    if error.code != UNSUPPORTED_VERSION or not isinstance(data, dict):
        return None
    theirs = data.get("supported")
    if not isinstance(theirs, list):
        return None
    return next((one for one in VERSIONS if one in theirs), None)
