"""Shared by both bridges: FastMCP is built on the Python SDK, and exposes its session."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import mcp_types as types
from attrs import frozen
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ConfigDict, ValidationError

from ..canonical import JSON, dumps
from ..errors import ProtocolError, UsageError
from ..logs import logger_for
from ..server.app import Server
from ..server.features import Feature
from .answering import ForeignRequest

__all__ = [
    "FlowServers",
    "SessionClient",
    "asked_of",
    "asking_in",
    "content_of",
    "error_of",
    "icons_of",
    "model_of",
    "output_of",
    "scopes_of",
    "seen_by_all",
    "user_of",
    "wire",
]

M = TypeVar("M", bound=BaseModel)
S = TypeVar("S")
G = TypeVar("G", bound=Feature)

logger = logger_for("effectmcp.server")


class _Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


def wire(model: BaseModel) -> dict[str, JSON]:
    """Return a model as it was on the wire."""
    found: dict[str, JSON] = model.model_dump(
        by_alias=True, mode="json", exclude_unset=True
    )
    return found


def asked_of(
    session: ServerSession,
    token: AccessToken | None,
    *,
    request_id: str | int,
    **request: Any,
) -> ForeignRequest:
    """Return a request that a session's client has sent.

    Args:
        session: The session.
        token: The token that the server has verified, if any.
        request_id: The request's id.
        **request: Further fields; see `ForeignRequest`.
    """
    capabilities, params = session.client_capabilities, session.client_params
    return ForeignRequest(
        client=SessionClient(session, request_id),
        capabilities={} if capabilities is None else wire(capabilities),
        info=None if params is None else wire(params.client_info),
        principal=user_of(token),
        scopes=scopes_of(token),
        **request,
    )


def user_of(token: AccessToken | None) -> str | None:
    """Return the principal of a token; the SDK's seal uses the same three values."""
    if token is None:
        return None
    return dumps(list(principal_components(token))).decode()


def scopes_of(token: AccessToken | None) -> frozenset[str]:
    """Return what a token allows; without one, nothing that needs a scope."""
    return frozenset() if token is None else frozenset(token.scopes)


class FlowServers(Generic[S]):
    """The server of flows in each server of an SDK.

    Args:
        kind: The class of the SDK's servers.
    """

    def __init__(self, kind: Callable[..., S]) -> None:
        self._kind: Any = kind
        self._servers: WeakKeyDictionary[Any, Server] = WeakKeyDictionary()

    def of(self, mcp: S) -> Server:
        """Return the server of flows in `mcp`, which is made if it is missing.

        Raises:
            UsageError: If `mcp` is not a server of this kind.
        """
        if not isinstance(mcp, self._kind):
            raise UsageError(
                f"{mcp!r} is not a {self._kind.__name__}: write @flow_tool(mcp), with the"
                " server"
            )
        found = self._servers.get(mcp)
        if found is None:
            theirs: Any = mcp
            found = Server(theirs.name, version=theirs.version or "0")
            self._servers[mcp] = found
        return found

    def adopt(self, mcp: S, app: Server) -> None:
        """Make `app` the server of flows in `mcp`; log what no bridge passes on.

        Raises:
            UsageError: If `mcp` has flows already, or `app` hides features or
                authenticates.
        """
        known = self.of(mcp)
        if app.is_filtered:
            raise UsageError(f"{app!r} has visible=, and {_LISTS}")
        if app.auth is not None:
            raise UsageError(
                f"{app!r} has auth=, and the server of another SDK authenticates its"
                " callers: set authentication up there, and leave auth= out"
            )
        if any((known.tools, known.prompts, known.resources, known.templates)):
            raise UsageError(f"{mcp!r} has flows already: call include() before them")
        rest = {"completions": app.completions, "instructions": app.instructions}
        left = " and ".join(name for name, one in rest.items() if one)
        if left:
            logger.warning("a bridge does not pass on the %s of %r", left, app)
        app.keys = app.keys or known.keys
        self._servers[mcp] = app


#: Why a feature cannot be hidden in a bridge.
_LISTS: Final = (
    "the server of another SDK makes its own lists: hide features there, such as by tags"
    " or scopes"
)


def seen_by_all(feature: G) -> G:
    """Return a feature that all users may see.

    Raises:
        UsageError: If it is hidden from some users.
    """
    if feature.visible is not None:
        raise UsageError(f"{feature.name} has visible=, and {_LISTS}")
    return feature


def asking_in(result: Mapping[str, JSON]) -> types.InputRequiredResult | None:
    """Return a result that asks for input; `None` for any other result."""
    if result.get("resultType") != "input_required":
        return None
    return types.InputRequiredResult.model_validate(result)


def content_of(contents: Mapping[str, JSON]) -> str | bytes:
    """Return one of a resource's contents."""
    if "text" in contents:
        text: str = contents["text"]
        return text
    return base64.b64decode(contents["blob"])


def icons_of(listing: Mapping[str, JSON]) -> list[types.Icon] | None:
    """Return the icons of a feature, as it is listed."""
    found = [types.Icon.model_validate(one) for one in listing.get("icons", ())]
    return found or None


def output_of(listing: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """Return a tool's schema of results, if older revisions admit it, too.

    The other servers have one list for all revisions, and those before 2026-07-28 know
    only objects: one other schema would make the whole list invalid.
    """
    found: dict[str, JSON] | None = listing.get("outputSchema")
    return found if found is not None and found.get("type") == "object" else None


def model_of(class_: type[M], value: JSON) -> M | None:
    """Return a part of a feature's listing as a model of the SDK."""
    return None if value is None else class_.model_validate(value)


def error_of(exc: ProtocolError) -> MCPError:
    """Return an error of the protocol as the SDK raises it."""
    return MCPError(code=exc.code, message=exc.message, data=exc.data)


@frozen
class SessionClient:
    """The client of a session.

    Attributes:
        session: The session.
        request_id: The request that is being answered; all messages belong to it.
    """

    session: ServerSession
    request_id: str | int | None

    async def ask(
        self, method: str, params: Mapping[str, JSON] | None
    ) -> Mapping[str, JSON]:
        """Send a request to the client, and return its result.

        Raises:
            ProtocolError: If the client responds with an error, or with an invalid result.
        """
        # Their own classes would drop fields that they do not know.
        request: Any = types.Request[Any, str](
            method=method, params=None if params is None else dict(params)
        )
        belongs = ServerMessageMetadata(related_request_id=self.request_id)
        try:
            reply = await self.session.send_request(
                request, _Anything, metadata=belongs
            )
        except MCPError as exc:
            raise ProtocolError(exc.code, exc.message, exc.data) from exc
        except ValidationError as exc:
            raise ProtocolError(-32603, f"an invalid response to {method}") from exc
        return wire(reply)

    async def tell(self, method: str, params: Mapping[str, JSON]) -> None:
        """Send a notification of progress or a log message, if the client asked for it."""
        if method == "notifications/progress":
            await self.session.report_progress(
                params["progress"], params.get("total"), params.get("message")
            )
        elif method == "notifications/message":
            with warnings.catch_warnings():
                # Logging is deprecated in the protocol, and still wanted by the handler.
                warnings.simplefilter("ignore")
                await self.session.send_log_message(
                    params["level"],
                    "null" if params["data"] is None else params["data"],
                    params.get("logger"),
                    related_request_id=self.request_id,
                )
