"""The legacy era: `initialize`, methods that need a session, and the shared methods.

initialize              opens a session: `Reply.opened`, for the transport to keep
shared by all eras      answered by `answers`, in the dialect of the session's revision
replies of the client   wake the request that asked
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from ..canonical import JSON
from ..effects.local import LOG_LEVELS
from ..errors import MissingScope, ProtocolError
from ..protocol.drafts import retry_params
from ..protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Notification,
    Request,
    Response,
    error_message,
    id_of,
    result_message,
)
from ..protocol.legacy import Hello, read_hello
from ..protocol.meta import CLIENT_CAPABILITIES, Meta, read_call_meta
from ..protocol.methods import methods_of
from ..protocol.revisions import Revision, negotiate
from ..server.events import SessionEnded, SessionOpened
from .commands import Peer, Reply
from .context import Context, Draft, Legacy
from .lists import capabilities_of
from .sessions import Dropped, Session
from .tasks import task_capability
from .telling import tap, tell

if TYPE_CHECKING:
    from ..server.app import Server
    from .answers import Answering
    from .ledger import Taken
    from .telling import Watched

__all__ = ["answer_legacy", "hear_notification", "hear_response"]


def answer_legacy(
    app: Server,
    request: Request,
    peer: Peer,
    clock: Callable[[], float],
    entropy: Callable[[int], bytes],
    revision: Revision,
    taken: list[Taken],
    watched: Watched | None,
    answers: Mapping[str, Callable[[Context], Answering]],
) -> Answering:
    """Answer a request of a revision with the `initialize` handshake.

    Raises:
        ProtocolError: If the request is invalid, or its method is not offered.
    """
    if request.method not in methods_of(revision, app.capabilities):
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found")
    own = _OWN.get(request.method)
    if own is not None:
        if own is _initialize and watched is not None:
            return _told_of(_initialize(app, request, peer), app, clock)
        return own(app, request, peer)
    session = peer.session
    if (
        session is not None
        and not session.has_reader
        and (session.scopes != peer.scopes or session.identity is not peer.identity)
    ):
        session.hear_as(app, peer)  # the client has another token now
    dialect: Legacy | Draft
    if revision.retries:
        dialect = Draft(revision)  # asks by retry, so it needs no session and no room
        request = Request(request.id, request.method, retry_params(request))
    else:
        dialect = Legacy(revision, _obstacle(peer))
    running = None if session is None else session.begin(request.id)
    try:
        context = Context(
            app=app,
            peer=peer,
            request=request,
            meta=_meta(request, session, revision),
            dialect=dialect,
            clock=clock,
            entropy=entropy,
            taken=taken,
            watched=watched,
            running=running,
        )
        reply = yield from answers[request.method](context)
    except Dropped:
        return _UNSAID
    finally:
        if session is not None and running is not None:
            session.ended(running)
    if running is not None and running.is_cancelled:
        return _UNSAID
    return reply


#: For a request that was cancelled: no response is sent.
_UNSAID: Final = Reply(None, 202)


def _obstacle(peer: Peer) -> str | None:
    if peer.session is None:
        return "it has no session, which questions would need"
    if peer.is_busy:
        return "as many users as the server can ask at once are being asked already"
    return None


_STRANGER: Final = Hello("", {}, None)


def _meta(request: Request, session: Session | None, revision: Revision) -> Meta:
    hello = _STRANGER if session is None else session.hello
    meta = request.params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    declared = meta.get(CLIENT_CAPABILITIES)
    token, trace = read_call_meta(meta)
    return Meta(
        version=revision.version,
        # A client that was written between the eras may declare its capabilities with
        # each request.
        capabilities=declared if isinstance(declared, dict) else hello.capabilities,
        client=hello.client,
        log_level=None if session is None else session.log_level,
        progress_token=token,
        trace=trace,
    )


# ---- methods of this era only -------------------------------------------------------


def _initialize(app: Server, request: Request, peer: Peer) -> Reply:
    if peer.session is not None and peer.headers is not None:
        # Requests that still run in the session would ask one client, and their answers
        # would come from another.
        words = "Invalid request: the session has started; initialize without its id"
        raise ProtocolError(INVALID_REQUEST, words)
    hello = read_hello(request.params)
    revision = negotiate(hello.version, drafts=app.drafts)
    session = Session(revision, hello, peer.principal)
    session.hear_as(app, peer)
    if app.taps:
        session.news.tap = partial(tap, app, attrs.evolve(peer, session=session), "out")
    info = {
        key: value
        for key, value in app.info.items()
        if key in ("name", "version")
        or (key == "title" and revision.titles)
        or (key in ("icons", "websiteUrl", "description") and revision.icons)
    }
    capabilities = capabilities_of(app)
    tasks = task_capability(app, peer.principal) if revision.tasks else None
    if tasks is not None:
        capabilities["tasks"] = tasks
    result: dict[str, JSON] = {
        "protocolVersion": revision.version,
        "capabilities": capabilities,
        "serverInfo": info,
    }
    if app.instructions is not None:
        result["instructions"] = app.instructions
    return Reply(result_message(request.id, result), opened=session)


def _told_of(reply: Reply, app: Server, clock: Callable[[], float]) -> Reply:
    """Tell observers of the session that a reply opens, now and when it ends."""
    session = reply.opened
    assert session is not None  # from `_initialize`
    began = clock()
    session.when_closed = lambda: tell(
        app, SessionEnded(session=session.number, seconds=clock() - began)
    )
    tell(
        app,
        SessionOpened(
            session=session.number,
            revision=session.revision.version,
            principal=session.principal,
            client=session.hello.client,
        ),
    )
    return reply


def _ping(app: Server, request: Request, peer: Peer) -> Reply:
    return Reply(result_message(request.id, {}))


def _set_level(app: Server, request: Request, peer: Peer) -> Reply:
    level = request.params.get("level")
    if level not in LOG_LEVELS:
        words = f"Invalid params: level is one of {', '.join(LOG_LEVELS)}"
        raise ProtocolError(INVALID_PARAMS, words)
    if peer.session is not None:
        peer.session.log_level = level
    return Reply(result_message(request.id, {}))


#: Characters of a URI, which is kept as long as the session.
_LONGEST_URI: Final = 4_096


def _subscribe(app: Server, request: Request, peer: Peer) -> Reply:
    uri = request.params.get("uri")
    if not isinstance(uri, str) or len(uri) > _LONGEST_URI:
        words = f"uri is required, and has at most {_LONGEST_URI:,} characters"
        raise ProtocolError(INVALID_PARAMS, f"Invalid params: {words}")
    session = peer.session
    if session is None:
        words = "Invalid request: without a session there is nowhere to report changes"
        raise ProtocolError(INVALID_REQUEST, words)
    if request.method == "resources/subscribe":
        session.news.subscribe(uri)
    else:
        session.news.unsubscribe(uri)
    return Reply(result_message(request.id, {}))


_OWN: Final[Mapping[str, Callable[[Server, Request, Peer], Reply]]] = {
    "initialize": _initialize,
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _subscribe,
}


# ---- messages without a response ----------------------------------------------------


def hear_notification(told: Notification, peer: Peer) -> Reply:
    """Handle a notification of a client: cancel the request that it names.

    Transports handle notifications, too: a pipe cancels the running request itself.
    Stateless clients send no notification that needs handling.
    """
    if told.method == "notifications/cancelled" and peer.session is not None:
        id_ = id_of({"id": told.params.get("requestId")})
        if id_ is not None:
            peer.session.cancel(id_)
    return Reply(None, 202)


def hear_response(came: Response, peer: Peer) -> Reply:
    """Pass a client's reply to the request that asked the question."""
    if peer.session is None:
        words = "Invalid request: a client without a session is asked nothing"
        error = ProtocolError(INVALID_REQUEST, words)
        return Reply(error_message(None, error), 400)
    # A reply without an outstanding question is ignored: it may be late, or sent twice.
    try:
        peer.session.reply(came, peer.scopes)
    except MissingScope as exc:
        return Reply(error_message(None, exc), exc.status, needs=exc.scopes)
    return Reply(None, 202)
