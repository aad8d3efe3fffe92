"""Answer one request of another SDK's server, as a transport does: messages in and out.

    result = await answer(app, asked, "tools/call", {"name": "order", "arguments": {}})

On 2026-07-28 the request becomes one message with its state and answers, and the result may
ask for input. On older revisions a session is opened for the request; its questions go to
the client through the other server, and their replies come back here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
from attrs import frozen

from ..canonical import JSON
from ..drivers.local import check_open
from ..drivers.loops import Loop, running_loop
from ..errors import ProtocolError
from ..exchange.commands import Peer, Reply
from ..logs import logger_for
from ..protocol.jsonrpc import INTERNAL_ERROR
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, SERVER_INFO
from ..protocol.revisions import HANDSHAKES, NEWEST, PROTOCOL_VERSION
from ..transports.default_keys import ensure_keys

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["ForeignClient", "ForeignRequest", "NoClient", "answer"]

logger = logger_for("effectmcp.server")

#: The capabilities that a bridge passes on: all that a flow can ask for.
_ASKABLE: Final = ("elicitation", "sampling", "roots")

#: Identifies the only request of its session.
_ID: Final = 1


class ForeignClient(Protocol):
    """The client of the other server, for one request."""

    async def ask(
        self, method: str, params: Mapping[str, JSON] | None
    ) -> Mapping[str, JSON]:
        """Send a request to the client, and return its result.

        Raises:
            ProtocolError: If the client responds with an error.
        """
        ...

    async def tell(self, method: str, params: Mapping[str, JSON]) -> None:
        """Send a notification to the client."""


class NoClient:
    """The client of a program that calls its own server."""

    async def ask(
        self, method: str, params: Mapping[str, JSON] | None
    ) -> Mapping[str, JSON]:
        """Refuse: such a program has no user."""
        raise ProtocolError(INTERNAL_ERROR, "there is no client")

    async def tell(self, method: str, params: Mapping[str, JSON]) -> None:
        """Drop a notification."""


@frozen(kw_only=True)
class ForeignRequest:
    """A request that the other server has received.

    Attributes:
        client: Its client.
        version: The revision of the protocol.
        capabilities: What the client can do.
        info: The client's name and version, if they are known.
        meta: The `_meta` of the request.
        principal: The user that the other server has authenticated.
        scopes: What that user may do.
        responses: The answers of a retry.
        state: The state of a retry.
        provided: Values for parameters that are `= Provided()`.
    """

    client: ForeignClient
    version: str = NEWEST.version
    capabilities: Mapping[str, JSON] = attrs.field(factory=dict)
    info: Mapping[str, JSON] | None = None
    meta: Mapping[str, JSON] = attrs.field(factory=dict)
    principal: str | None = None
    scopes: frozenset[str] = frozenset()
    responses: Mapping[str, JSON] | None = None
    state: str | None = None
    provided: Mapping[Any, Any] = attrs.field(factory=dict)


async def answer(
    app: Server, asked: ForeignRequest, method: str, params: Mapping[str, JSON]
) -> Mapping[str, JSON]:
    """Answer a request, and return the fields of its result.

    Args:
        app: The server with the flows.
        asked: The request.
        method: Its method.
        params: Its parameters, without `_meta`, answers and state.

    Raises:
        ProtocolError: If the response is an error. Any other error goes to the log.
    """
    loop = running_loop()
    peer = Peer(principal=asked.principal, scopes=asked.scopes, provided=asked.provided)
    way = _live if asked.version < NEWEST.version else _round  # they are dates
    try:
        ensure_keys(app, is_alone=True)
        check_open(app)
        return await way(loop, app, asked, peer, method, params)
    except ProtocolError:
        raise
    except Exception:
        logger.exception("%s failed", method)
        text = "Internal error. The server's log has the reason."
        raise ProtocolError(INTERNAL_ERROR, text) from None


async def _round(
    loop: Loop,
    app: Server,
    asked: ForeignRequest,
    peer: Peer,
    method: str,
    params: Mapping[str, JSON],
) -> Mapping[str, JSON]:
    meta = {
        **asked.meta,
        PROTOCOL_VERSION: NEWEST.version,
        CLIENT_CAPABILITIES: _askable(asked),
        "progressToken": _ID,
    }
    if asked.info is not None:
        meta[CLIENT_INFO] = asked.info
    found: dict[str, JSON] = {**params, "_meta": meta}
    if asked.responses is not None:
        found["inputResponses"] = asked.responses
    if asked.state is not None:
        found["requestState"] = asked.state

    async def send(message: Mapping[str, JSON]) -> None:
        await asked.client.tell(message["method"], message["params"])

    request = {"jsonrpc": "2.0", "id": _ID, "method": method, "params": found}
    result = dict(_result(await loop.handle(app, request, peer, send=send)))
    # `serverInfo` is the other server's.
    meta = {key: one for key, one in result["_meta"].items() if key != SERVER_INFO}
    result["_meta"] = meta
    return result


async def _live(
    loop: Loop,
    app: Server,
    asked: ForeignRequest,
    peer: Peer,
    method: str,
    params: Mapping[str, JSON],
) -> Mapping[str, JSON]:
    version = asked.version if asked.version in HANDSHAKES else min(HANDSHAKES)
    hello = {
        "protocolVersion": version,
        "capabilities": _askable(asked),
        "clientInfo": asked.info or {"name": "unknown", "version": "0"},
    }
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    greeting = await loop.handle(app, message, peer)
    session = greeting.opened
    if session is None:
        return _result(greeting)  # it is an error, and raised
    peer = attrs.evolve(peer, session=session)
    request = {
        "jsonrpc": "2.0",
        "id": _ID,
        "method": method,
        "params": {**params, "_meta": {**asked.meta, "progressToken": _ID}},
    }
    found: Reply | Exception
    try:
        async with loop.crew() as spawn:

            async def send(message: Mapping[str, JSON]) -> None:
                if "id" in message:
                    spawn(partial(_ask, loop, app, peer, asked.client, message))
                else:
                    await asked.client.tell(message["method"], message["params"])

            try:
                found = await loop.handle(app, request, peer, send=send)
            except Exception as exc:
                found = exc  # raised below: on trio it would become a group of one
    except BaseException:
        session.cancel(_ID)
        raise
    finally:
        session.close()
    if isinstance(found, Exception):
        raise found
    return _result(found)


async def _ask(
    loop: Loop,
    app: Server,
    peer: Peer,
    client: ForeignClient,
    question: Mapping[str, JSON],
) -> None:
    response: dict[str, JSON] = {"jsonrpc": "2.0", "id": question["id"]}
    try:
        params = question.get("params")
        response["result"] = await client.ask(question["method"], params)
    except ProtocolError as exc:
        response["error"] = {"code": exc.code, "message": exc.message}
    except Exception:
        logger.exception("asking %s failed", question["method"])
        response["error"] = {"code": INTERNAL_ERROR, "message": "Internal error"}
    await loop.handle(app, response, peer)


def _askable(asked: ForeignRequest) -> dict[str, JSON]:
    return {
        name: asked.capabilities[name]
        for name in _ASKABLE
        if name in asked.capabilities
    }


def _result(reply: Reply) -> Mapping[str, JSON]:
    message = reply.message
    assert message is not None  # requests have responses
    error = message.get("error")
    if error is not None:
        raise ProtocolError(error["code"], error["message"], error.get("data"))
    result: Mapping[str, JSON] = message["result"]
    return result
