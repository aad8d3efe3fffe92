"""What a client of revision 2026-07-28 sends, and how it reads what comes back. Pure.

Every request says anew who asks and what that client can do (Overview, Statelessness);
over HTTP its headers say the method, the name and some arguments again (Streamable HTTP,
Request Metadata).
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
    UNSUPPORTED_VERSION,
)
from ..protocol.methods import METHODS
from ..protocol.revisions import PROTOCOL_VERSION, VERSIONS
from .rounds import ReplyError

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

#: What clients call themselves that say nothing else.
INFO: Final[Mapping[str, JSON]] = {"name": "effectmcp", "version": __version__}


class StateRejected(ProtocolError):
    """The server does not take the state that it gave: it has probably expired.

    Call again with `restart=True`, and the call begins anew; what its steps did stays
    done.
    """

    def __str__(self) -> str:
        return (
            f"{super().__str__()}: the state that this server gave has probably expired;"
            " restart=True begins the call anew"
        )


@frozen(kw_only=True)
class Profile:
    """What every request says of its client.

    Attributes:
        capabilities: What it can be asked.
        info: Its name and version.
        log_level: From which level on it wants log messages; `None` for none.
        version: The revision it speaks.
    """

    capabilities: Mapping[str, JSON]
    info: Mapping[str, JSON] = INFO
    log_level: str | None = None
    version: str = VERSIONS[0]

    def meta(self, progress_token: int | None = None) -> dict[str, JSON]:
        """The `_meta` of a request."""
        meta: dict[str, JSON] = {
            PROTOCOL_VERSION: self.version,
            CLIENT_INFO: dict(self.info),
            CLIENT_CAPABILITIES: dict(self.capabilities),
        }
        if self.log_level is not None:
            meta[LOG_LEVEL] = self.log_level
        if progress_token is not None:
            meta["progressToken"] = progress_token
        return meta


def request(
    id_: int, method: str, params: Mapping[str, JSON], meta: Mapping[str, JSON]
) -> dict[str, JSON]:
    """A request.

    Raises:
        UsageError: JSON cannot carry its parameters.
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
    """What JSON cannot carry, and where it is."""
    try:
        dumps(dict(params))
    except CanonicalError as exc:
        return exc.problem
    return None


def headers_for(
    message: Mapping[str, Any], rules: Sequence[ParamHeader] = ()
) -> dict[str, str]:
    """The headers of Streamable HTTP that say parts of a request again.

    Args:
        message: The request.
        rules: Which arguments of the tool are mirrored.

    Raises:
        UsageError: The parameter is missing by which the server routes it.
        ValueError: An argument is nothing that a header could carry.
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
            raise UsageError(f"its params want a text, {row.name_from!r}", where=method)
        headers["Mcp-Name"] = encode_value(name)
    for rule in rules:
        value = rule.value_in(params.get("arguments") or {})
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number, and 3.0 is an integer
        # Null and absent are no value, and have no header.
        if isinstance(value, (str, int)):
            headers[rule.header] = encode_value(value)
    return headers


def belonging(response: Mapping[str, Any], id_: JSON) -> Mapping[str, Any]:
    """A response, if it is the one to this request.

    Raises:
        ReplyError: It is to another.
    """
    came = response.get("id", id_)
    if came is None and "error" in response:
        # The server did not come to read it (JSON-RPC, Response object).
        came = id_
    if type(came) is not int or came != id_:
        raise ReplyError("it belongs to another request")
    return response


def result_of(message: Mapping[str, Any], *, has_state: bool) -> JSON:
    """The result in a response.

    Args:
        message: The response.
        has_state: Whether its request brought a state.

    Raises:
        StateRejected: The server does not take that state.
        ProtocolError: The server answered with another error.
        ReplyError: It is no response.
    """
    if "result" in message:
        return message["result"]
    error = message.get("error")
    if not isinstance(error, dict):
        raise ReplyError("it has neither a result nor an error")
    code, text = error.get("code"), error.get("message")
    if type(code) is not int or not isinstance(text, str):
        raise ReplyError("its error has no code and message")
    is_of_state = has_state and code == StateError.CODE and "requestState" in text
    class_ = StateRejected if is_of_state else ProtocolError
    raise class_(code, text, error.get("data"))


def supported_version(error: ProtocolError) -> str | None:
    """A version that both speak, if that is what an error is about."""
    data = error.data
    if error.code != UNSUPPORTED_VERSION or not isinstance(data, dict):
        return None
    theirs = data.get("supported")
    if not isinstance(theirs, list):
        return None
    return next((one for one in VERSIONS if one in theirs), None)
