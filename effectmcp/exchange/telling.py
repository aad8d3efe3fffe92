"""Tell observers of events, and taps of messages. Nothing happens without them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define

from ..canonical import JSON
from ..engine.stops import Want
from ..errors import ArgumentsError
from ..logs import logger_for
from ..protocol.methods import methods_of
from ..server.events import TRACE, RequestBegan, RequestEnded
from ..server.taps import TappedMessage
from .commands import Ask, Listen, Notify

if TYPE_CHECKING:
    from ..protocol.jsonrpc import Request
    from ..protocol.meta import Meta
    from ..protocol.revisions import Revision
    from ..server.app import Server
    from ..server.events import Event
    from .commands import Command, Peer, Reply

__all__ = [
    "Watched",
    "begin_watching",
    "end_watching",
    "tap",
    "tapped",
    "target_of",
    "tell",
    "with_own_context",
]

logger = logger_for("effectmcp.server")

#: Numbers of requests, for observers.
_numbers: Final = itertools.count(1)

#: The parameters that name what a request is about.
_NAMES: Final = ("name", "uri", "taskId")

#: Characters of such a name that observers receive.
_LONGEST: Final = 1_000


def tell(app: Server, event: Event) -> None:
    """Call each observer of `app` with an event. What one raises changes nothing."""
    for observer in app.observers:
        try:
            observer(event)
        except (Exception, SystemExit):
            logger.exception("an observer failed on %s", type(event).__name__)


@define(eq=False)
class Watched:
    """A request that has observers.

    Attributes:
        number: Its number.
        began: When it began, by the exchange's clock.
        variables: The context whose copies its handler and steps run in.
        error: The error that made its result a failure.
    """

    number: int
    began: float
    variables: Variables
    error: BaseException | None = None

    def trace(self, sent: str | None) -> str | None:
        """Return the trace context that a new flow carries.

        Args:
            sent: The trace context that the client sent.
        """
        return self.variables.get(TRACE) or sent


def begin_watching(
    app: Server,
    request: Request,
    peer: Peer,
    revision: Revision,
    meta: Meta | None,
    clock: Callable[[], float],
) -> Watched:
    """Tell observers that a request begins."""
    watched = Watched(next(_numbers), clock(), copy_context())
    session = peer.session
    client = None if meta is None else meta.client
    if client is None and session is not None:
        client = session.hello.client
    sent = request.params.get("_meta")
    target = target_of(request.params)
    tell(
        app,
        RequestBegan(
            number=watched.number,
            method=request.method,
            is_offered=request.method
            in (
                methods_of(revision, app.capabilities)
                if revision.has_handshake
                else app.methods
            ),
            target=target,
            feature=_feature_of(app, request.method, target),
            revision=revision.version,
            era="legacy" if revision.has_handshake else "modern",
            principal=peer.principal,
            address=peer.address,
            client=client,
            session=None if session is None else session.number,
            id=request.id,
            size=request.size,
            is_http=peer.headers is not None,
            arguments=request.params.get("arguments"),
            meta=sent if isinstance(sent, dict) else {},
            context=watched.variables,
        ),
    )
    return watched


def with_own_context(want: Want) -> Want:
    """Return a want with a context of its own: what observers set there is for it alone."""
    return Want(want.key, want.effect, want.context.copy(), want.begun)


def end_watching(
    app: Server,
    request: Request,
    peer: Peer,
    watched: Watched,
    reply: Reply | None,
    clock: Callable[[], float],
) -> None:
    """Tell observers that a request ended."""
    body = None if reply is None else reply.body
    message = None if reply is None else reply.message
    outcome = _outcome_of(message)
    failure = message["error"] if outcome == "error" and message is not None else {}
    error = watched.error if outcome in ("failed", "error") else None
    tell(
        app,
        RequestEnded(
            number=watched.number,
            method=request.method,
            target=target_of(request.params),
            principal=peer.principal,
            seconds=clock() - watched.began,
            outcome=outcome,
            error=None if error is None else _class_of(error),
            code=failure.get("code"),
            message=failure.get("message"),
            size=0 if body is None else len(body),
        ),
    )


def tap(
    app: Server,
    peer: Peer,
    direction: Literal["in", "out"],
    message: Mapping[str, JSON],
) -> None:
    """Call each tap of `app` with a message. What one raises changes nothing."""
    session = peer.session
    seen = TappedMessage(
        direction=direction,
        message=message,
        principal=peer.principal,
        session=None if session is None else session.number,
    )
    for one in app.taps:
        try:
            one(seen)
        except (Exception, SystemExit):
            logger.exception("a tap failed on a message that goes %s", direction)


def tapped(
    app: Server, peer: Peer, answering: Generator[Command, Any, Reply]
) -> Generator[Command, Any, Reply]:
    """Run an exchange; show taps what its commands send."""
    out = partial(tap, app, peer, "out")
    try:
        command = next(answering)
        while True:
            match command:
                case Notify(message):
                    out(message)
                case Ask(asking):
                    for message in asking.unsent:
                        out(message)
                case Listen(subscription):
                    subscription.tap = out
                    out(subscription.acknowledgement)
                case _:
                    pass
            try:
                outcome = yield command
            except Exception as exc:
                command = answering.throw(exc)
            else:
                command = answering.send(outcome)
    except StopIteration as end:
        reply: Reply = end.value
        return reply
    finally:
        answering.close()


def _class_of(error: BaseException) -> str:
    # What a client sent is read by a class of our own.
    return (
        "ArgumentsError" if isinstance(error, ArgumentsError) else type(error).__name__
    )


def target_of(params: Mapping[str, JSON]) -> str | None:
    """Return what a request is about, in the words of the client."""
    for name in _NAMES:
        found = params.get(name)
        if isinstance(found, str):
            return found[:_LONGEST]
    return None


#: Where the features are that a method names.
_FEATURES: Final = {
    "tools/call": "tools",
    "prompts/get": "prompts",
    "resources/read": "resources",
}


def _feature_of(app: Server, method: str, target: str | None) -> str | None:
    where = _FEATURES.get(method)
    if where is None or target is None:
        return None
    return target if target in getattr(app, where) else None


def _outcome_of(
    message: Mapping[str, JSON] | None,
) -> Literal["result", "asked", "task", "failed", "error", "dropped"]:
    if message is None:  # also of a request that was cancelled
        return "dropped"
    if "error" in message:
        return "error"
    result = message["result"]
    if result.get("isError") is True:
        return "failed"
    type_ = result.get("resultType", result.get("result_type"))
    if type_ in ("input_required", "incomplete"):
        return "asked"
    # Older revisions announce a task by a field (2025-11-25, Tasks).
    if type_ == "task" or isinstance(result.get("task"), dict):
        return "task"
    return "result"
