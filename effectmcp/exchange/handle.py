"""Where a message goes: which era it speaks, and whether its envelope is right.

    2026-07-28        by its `_meta`, or by its header; each request stands alone
    handshakes        by `initialize`, the header of a legacy revision, or a session

The checks of an envelope stand in the order in which the protocol needs them: what a
message is, then its `_meta`, then whether the headers say the same, then whether there
is such a method, and only then what it wants. Whatever goes wrong on the way is one
`ProtocolError`, and this module is the one place that turns it into a response.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from ..errors import ProtocolError
from ..protocol.envelopes import judge
from ..protocol.headers import HeaderMismatch, check_method, check_name, check_version
from ..protocol.jsonrpc import (
    METHOD_NOT_FOUND,
    Malformed,
    Notification,
    Request,
    Response,
    error_message,
    internal_error,
    read_message,
)
from ..protocol.meta import Meta, check_supported, read_meta
from ..protocol.methods import Method, find_method
from ..protocol.revisions import NEWEST, Revision, revision_of
from ..server.events import RequestBegan, RequestEnded
from .answers import ANSWERS, Answering, mismatch
from .calls import Context
from .commands import Exchange, Incoming, Peer, Reply
from .dialects import MODERN
from .handshakes import answer_legacy, hear_notification, hear_response
from .lists import offers
from .telling import tell

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["handle"]

logger = logging.getLogger("effectmcp.server")

_NOBODY = Peer()


def handle(
    app: Server,
    message: Incoming,
    peer: Peer | None = None,
    *,
    clock: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> Exchange:
    """What to do about one message of a client.

    Args:
        app: The server.
        message: Its text, what a JSON reader of yours made of it, or what
            `read_message` did.
        peer: Who sent it.
        clock: Seconds since 1970.
        entropy: Random bytes, as many as asked for.

    Returns:
        A generator of commands, which ends with the `Reply`.
    """
    peer = peer or _NOBODY
    read = (
        message
        if isinstance(message, (Request, Notification, Response, Malformed))
        else read_message(message)
    )
    match read:
        case Request():
            pass
        case Malformed(error, id_):
            return Reply(error_message(id_, error), error.status)
        case Notification():
            return hear_notification(read, peer)
        case _:
            return hear_response(read, peer)
    revision, session = NEWEST, peer.session
    if app.legacy:
        revision = revision_of(
            read.method,
            read.params,
            peer.headers,
            None if session is None else session.revision,
            drafts=app.drafts,
        )
    began = _begin(app, read, peer, revision, clock) if app.observers else None
    reply: Reply | None = None
    try:
        if revision.shakes:
            answering = answer_legacy(app, read, peer, clock, entropy, revision)
        else:
            answering = _answer_modern(app, read, peer, clock, entropy)
        reply = yield from answering
    except ProtocolError as exc:
        # The legacy revisions know the status of a message, and not of what it says.
        status = 200 if revision.shakes else exc.status
        reply = Reply(error_message(read.id, exc), status)
    except Exception:
        logger.exception("%s failed", read.method)
        reply = Reply(internal_error(read.id), 500)
    finally:
        if began is not None:
            _end(app, read, began, reply, clock)
    return reply


#: Numbers of requests, for observers.
_numbers: Final = itertools.count(1)


def _begin(
    app: Server,
    request: Request,
    peer: Peer,
    revision: Revision,
    clock: Callable[[], float],
) -> tuple[int, float]:
    number, began = next(_numbers), clock()
    tell(
        app,
        RequestBegan(
            number=number,
            method=request.method,
            revision=revision.version,
            principal=peer.principal,
        ),
    )
    return number, began


def _end(
    app: Server,
    request: Request,
    began: tuple[int, float],
    reply: Reply | None,
    clock: Callable[[], float],
) -> None:
    number, at = began
    tell(
        app,
        RequestEnded(
            number=number,
            method=request.method,
            seconds=clock() - at,
            outcome=_outcome_of(reply),
        ),
    )


def _outcome_of(
    reply: Reply | None,
) -> Literal["result", "failed", "error", "dropped"]:
    # A request that was cancelled has a reply without a message.
    message = None if reply is None else reply.message
    if message is None:
        return "dropped"
    if "error" in message:
        return "error"
    return "failed" if message["result"].get("isError") is True else "result"


def _answer_modern(
    app: Server,
    request: Request,
    peer: Peer,
    clock: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> Answering:
    context = Context(
        app=app,
        peer=peer,
        request=request,
        meta=_admit(app, request, peer.headers),
        dialect=MODERN,
        clock=clock,
        entropy=entropy,
    )
    return ANSWERS[request.method](context)


def _admit(app: Server, request: Request, headers: Mapping[str, str] | None) -> Meta:
    """Return what the envelope says.

    Raises:
        ProtocolError: It is not what the protocol says, or not what is offered here.
    """
    method = find_method(request.method, NEWEST)
    if method is not None:
        found = judge(method, request, headers)
        if found is not None and _is_offered(app, method):
            return found
    # Something is wrong: find out what.
    meta = read_meta(request.params)
    try:
        if headers is not None:
            check_version(headers, meta.version)
        check_supported(meta.version)
        if headers is not None:
            check_method(headers, request.method)
        if method is None or not _is_offered(app, method):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", status=404)
        if headers is not None and method.name_from is not None:
            name = request.params.get(method.name_from)
            if isinstance(name, str):
                check_name(headers, name)
    except HeaderMismatch as exc:
        raise mismatch(exc) from None
    return meta


def _is_offered(app: Server, method: Method) -> bool:
    return method.capability is None or offers(app, method.capability)
