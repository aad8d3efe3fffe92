"""Find the era of a message, check its envelope, and dispatch it.

    2026-07-28        by its `_meta`, or by its header; each request is self-contained
    handshakes        by `initialize`, the header of a legacy revision, or a session

The envelope is checked in the order that the protocol needs: the kind of message, then
its `_meta`, then whether the headers match, then whether the method exists, and its
parameters last. Each failure is a `ProtocolError`, and only this module turns one into
a response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import MissingScope, ProtocolError
from ..logs import logger_for
from ..protocol.headers import HeaderMismatch, check_method, check_name, check_version
from ..protocol.jsonrpc import (
    METHOD_NOT_FOUND,
    Malformed,
    Notification,
    Request,
    Response,
    error_message,
    internal_error,
    notification,
    read_message,
)
from ..protocol.meta import Meta, check_supported, read_meta
from ..protocol.methods import Method
from ..protocol.modern import read_envelope
from ..protocol.revisions import NEWEST, Revision, revision_of
from ..server.events import MessageRefused
from .answers import ANSWERS, mismatch
from .commands import Exchange, Incoming, Peer, Reply
from .context import MODERN, Context
from .handshakes import answer_legacy, hear_notification, hear_response
from .ledger import Answered, keep_reply, read_reply
from .telling import begin_watching, end_watching, tap, tapped, tell

if TYPE_CHECKING:
    from ..server.app import Server
    from .ledger import Taken

__all__ = ["handle"]

logger = logger_for("effectmcp.server")

_NOBODY = Peer()


def handle(
    app: Server,
    message: Incoming,
    peer: Peer | None = None,
    *,
    clock: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> Exchange:
    """Yield the commands that answer one message; return the `Reply`.

    Args:
        app: The server.
        message: The message: a string, or the output of your own JSON reader or of
            `read_message`.
        peer: The sender; `None` if nothing is known about it.
        clock: Returns the seconds since 1970.
        entropy: Returns as many random bytes as it is asked for.

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
            if app.taps:
                tap(app, peer, "in", read.envelope)
        case Malformed(error, id_):
            if app.observers:
                _tell_refused(app, peer, error)
            refusal = error_message(id_, error)
            if app.taps:
                tap(app, peer, "out", refusal)
            return Reply(refusal, error.status)
        case Notification():
            if app.taps:
                tap(app, peer, "in", notification(read.method, read.params))
            return hear_notification(read, peer)
        case _:
            if app.taps:
                tap(app, peer, "in", read.message)
            heard = hear_response(read, peer)
            if app.taps and heard.message is not None:
                tap(app, peer, "out", heard.message)
            return heard
    revision, meta = NEWEST, read_envelope(read, peer.headers, app.methods)
    if meta is None and app.legacy:
        session = peer.session
        revision = revision_of(
            read.method,
            read.params,
            peer.headers,
            None if session is None else session.revision,
            drafts=app.drafts,
        )
    watched = (
        begin_watching(app, read, peer, revision, meta, clock)
        if app.observers and app.is_watched
        else None
    )
    reply: Reply | None = None
    taken: list[Taken] = []
    try:
        try:
            if revision.has_handshake:
                answering = answer_legacy(
                    app, read, peer, clock, entropy, revision, taken, watched, ANSWERS
                )
            else:
                meta = meta or _explain(read, peer.headers, app.methods)
                context = Context(
                    app, peer, read, meta, MODERN, clock, entropy, taken, watched
                )
                answering = ANSWERS[read.method](context)
            if app.taps:
                answering = tapped(app, peer, answering)
            reply = yield from answering
        except ProtocolError as exc:
            if watched is not None and watched.error is None:
                watched.error = exc
            reply = _failed(read, revision, exc)
        except Answered as exc:
            reply = read_reply(read.id, exc.reply)
        except Exception as exc:
            logger.exception("%s failed", read.method)
            if watched is not None:
                watched.error = exc
            reply = Reply(internal_error(read.id), 500)
        if taken and reply.message is not None:
            try:
                assert app.ledger is not None  # the slots are from there
                reply = yield from keep_reply(app.ledger, taken, reply)
            except ProtocolError as exc:
                if watched is not None:
                    watched.error = exc
                reply = _failed(read, revision, exc)
        if app.taps and reply.message is not None:
            tap(app, peer, "out", reply.message)
    finally:
        for one in taken:  # the request was cut off
            assert app.ledger is not None  # the slots are from there
            app.ledger.leave(one)
        if watched is not None:
            end_watching(app, read, peer, watched, reply, clock)
    assert reply is not None  # pyright forgets it, as `finally` reads the variable
    return reply


def _failed(request: Request, revision: Revision, error: ProtocolError) -> Reply:
    # In legacy revisions, the HTTP status is only about the transport of a message: a
    # JSON-RPC error travels with 200.
    status = 200 if revision.has_handshake else error.status
    message = error_message(request.id, error)
    if isinstance(error, MissingScope):
        # Clients of every revision read the scopes from the headers of this status.
        return Reply(message, error.status, needs=error.scopes)
    return Reply(message, status)


def _tell_refused(app: Server, peer: Peer, error: ProtocolError) -> None:
    problem = error.message
    event = MessageRefused(principal=peer.principal, code=error.code, problem=problem)
    tell(app, event)


def _explain(
    request: Request,
    headers: Mapping[str, str] | None,
    methods: Mapping[str, Method],
) -> Meta:
    """Check an envelope, and return its `_meta`.

    Args:
        request: The request.
        headers: The HTTP headers, by lower-cased name; `None` without HTTP.
        methods: The methods that the server offers.

    Raises:
        ProtocolError: If the envelope breaks the protocol, or this server does not
            offer the version or the method.
    """
    meta = read_meta(request.params)
    try:
        if headers is not None:
            check_version(headers, meta.version)
        check_supported(meta.version)
        if headers is not None:
            check_method(headers, request.method)
        method = methods.get(request.method)
        if method is None:
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", status=404)
        if headers is not None and method.name_from is not None:
            name = request.params.get(method.name_from)
            if isinstance(name, str):
                check_name(headers, name)
    except HeaderMismatch as exc:
        raise mismatch(exc) from None
    return meta
