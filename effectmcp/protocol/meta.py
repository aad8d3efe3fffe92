"""`_meta` of a request: the client, its version and capabilities, and its wishes.

Every request carries all of this, and nothing is inferred from earlier requests
(2026-07-28, Overview, Statelessness).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..canonical import JSON
from ..effects.local import LOG_LEVELS
from ..errors import ProtocolError
from ..records import record
from .jsonrpc import INVALID_PARAMS
from .revisions import PROTOCOL_VERSION, VERSIONS

__all__ = [
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "RELATED_TASK",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "TASKS",
    "UNSUPPORTED_VERSION",
    "Meta",
    "check_supported",
    "read_call_meta",
    "read_meta",
]

UNSUPPORTED_VERSION: Final = -32022

_PREFIX: Final = "io.modelcontextprotocol/"
CLIENT_INFO: Final = _PREFIX + "clientInfo"
CLIENT_CAPABILITIES: Final = _PREFIX + "clientCapabilities"
LOG_LEVEL: Final = _PREFIX + "logLevel"
SERVER_INFO: Final = _PREFIX + "serverInfo"
SUBSCRIPTION_ID: Final = _PREFIX + "subscriptionId"
#: The extension for calls that become tasks, in the capabilities of both sides.
TASKS: Final = _PREFIX + "tasks"
#: The task to which a message belongs, in 2025-11-25.
RELATED_TASK: Final = _PREFIX + "related-task"


@record
class Meta:
    """The contents of a request's `_meta`.

    Attributes:
        version: The revision that the request is written in.
        capabilities: The client's capabilities.
        client: The client's name and version, for logs and `Caller()`.
        log_level: The lowest level of log messages to send; `None` to send none.
        progress_token: The progress token; `None` to send no progress.
        trace: The W3C trace context.
    """

    version: str
    capabilities: Mapping[str, JSON]
    client: str | None = None
    log_level: str | None = None
    progress_token: str | int | None = None
    trace: str | None = None


_OBJECTS: Final = frozenset({dict})


def read_meta(params: Mapping[str, JSON]) -> Meta:
    """Read the `_meta` in `params`.

    Raises:
        ProtocolError: If a required key is missing, or a value is invalid.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        raise _invalid("params._meta is required, and is an object")
    version = meta.get(PROTOCOL_VERSION)
    if not isinstance(version, str):
        raise _invalid(
            f"params._meta[{PROTOCOL_VERSION!r}] is required and must be a string"
        )
    capabilities = meta.get(CLIENT_CAPABILITIES)
    if not isinstance(capabilities, dict) or not _OBJECTS.issuperset(
        map(type, capabilities.values())
    ):
        raise _invalid(
            f"params._meta[{CLIENT_CAPABILITIES!r}] is required, and is an object of"
            " objects"
        )
    token, trace = read_call_meta(meta)
    level = meta.get(LOG_LEVEL)
    if level is not None and level not in LOG_LEVELS:
        raise _invalid(f"params._meta[{LOG_LEVEL!r}] is one of {', '.join(LOG_LEVELS)}")
    return Meta(
        version=version,
        capabilities=capabilities,
        client=_client(meta.get(CLIENT_INFO)),
        log_level=level,
        progress_token=token,
        trace=trace,
    )


def read_call_meta(meta: Mapping[str, JSON]) -> tuple[str | int | None, str | None]:
    """Return the progress token and the trace in a `_meta` of any era.

    Raises:
        ProtocolError: If the progress token is neither a string nor an integer.
    """
    token = meta.get("progressToken")
    if token is not None and type(token) not in (str, int):
        raise _invalid("params._meta.progressToken must be a string or an integer")
    trace = meta.get("traceparent")
    fits = isinstance(trace, str) and len(trace) <= 64
    return token, trace if fits else None


def _client(info: JSON) -> str | None:
    if info is None:
        return None
    name = info.get("name") if isinstance(info, dict) else None
    version = info.get("version") if isinstance(info, dict) else None
    if not isinstance(name, str) or not isinstance(version, str):
        raise _invalid(f"params._meta[{CLIENT_INFO!r}] has a name and a version")
    # Recorded by Caller(), so it travels in the state of every later round.
    return f"{name} {version}"[:200]


def check_supported(version: str) -> None:
    """Refuse an unsupported revision (Versioning, Protocol Version Negotiation).

    Raises:
        ProtocolError: If `version` is not supported; its data lists what is.
    """
    if version not in VERSIONS:
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": list(VERSIONS), "requested": version},
            status=400,
        )


def _invalid(problem: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {problem}", status=400)
