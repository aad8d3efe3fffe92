"""One request, and the era of its client: how results and errors are adapted to it.

           asks          a client that cannot be asked    results
Modern     by retry      gets the error -32021            with their type and server
Legacy     live          gets an error in words           as its revision defines them
Draft      by retry      gets an error in words           with `result_type` if interim

For clients that cannot be asked, see docs/internals/replay.md#q4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..canonical import JSON
from ..effects.local import CallerInfo
from ..effects.questions import Elicit
from ..engine.effect_table import KINDS, QUESTIONS
from ..errors import ProtocolError, ToolError, Unsupported
from ..protocol import legacy
from ..protocol.drafts import incomplete
from ..protocol.jsonrpc import INTERNAL_ERROR
from ..protocol.modern import (
    can_answer,
    complete_result,
    input_required,
    missing_capability,
)
from ..records import record
from ..server.viewers import Viewer, exists_for
from .scopes import check_scopes
from .task_wires import EXTENSION, REQUESTED, TaskWire

if TYPE_CHECKING:
    from ..protocol.jsonrpc import Request
    from ..protocol.meta import Meta
    from ..protocol.revisions import Revision
    from ..server.app import Server
    from ..server.features import Feature
    from .commands import Peer
    from .ledger import Taken
    from .sessions import Running
    from .telling import Watched

__all__ = [
    "MODERN",
    "Context",
    "Dialect",
    "Draft",
    "Legacy",
    "Modern",
    "caller_of",
    "may_call",
    "seated",
    "trace_of",
    "viewer_of",
]


class Modern:
    """The dialect of revision 2026-07-28.

    Attributes:
        era: The era, as `Caller()` reports it.
        is_live: Whether questions are sent while the request runs.
        tasks: How clients speak of tasks; `None` if they cannot.
    """

    era: Literal["modern", "legacy"] = "modern"
    is_live = False
    tasks: TaskWire | None = EXTENSION

    #: Whether a client can be asked an effect, or an effect of a class.
    can_answer = staticmethod(can_answer)

    def lacking(self, context: Context, what: Iterable[Any]) -> Exception | None:
        """Return the error for a client that cannot be asked all of some effects."""
        capabilities, method = context.meta.capabilities, context.request.method
        return missing_capability(what, capabilities, method)

    def unsupported(self, context: Context, error: Unsupported) -> Exception:
        """Return the error for a question that the client cannot be asked."""
        missing = self.lacking(context, [error.kind])
        return missing or ProtocolError(INTERNAL_ERROR, str(error))

    #: Returns the fields of a result that asks.
    interim = staticmethod(input_required)

    #: Returns the complete result that has some fields.
    result = staticmethod(complete_result)


MODERN = Modern()


class _HandshakeDialect:
    """Base class of the dialects that start with `initialize`, for one request.

    Args:
        revision: The revision that the client speaks.
        obstacle: Why the client cannot be asked at all, in words; `None` if it can.
    """

    era: Literal["modern", "legacy"] = "legacy"

    def __init__(self, revision: Revision, obstacle: str | None = None) -> None:
        self.revision = revision
        self.tasks: TaskWire | None = REQUESTED if revision.tasks else None
        self._obstacle = obstacle
        #: Why an effect could not be asked last, by the name of its class.
        self._reasons: dict[str, str] = {}

    def can_answer(self, capabilities: Mapping[str, JSON], what: Any) -> bool:
        reason = self._missing(what, capabilities)
        if reason is not None:
            self._reasons[type(what).__name__] = reason
        return reason is None

    def lacking(self, context: Context, what: Iterable[Any]) -> Exception | None:
        for one in what:
            reason = self._missing(one, context.meta.capabilities)
            if reason is not None:
                return _told(one.__name__, reason)
        return None

    def unsupported(self, context: Context, error: Unsupported) -> Exception:
        reason = self._reasons.get(error.kind) or self._missing(
            error.kind, context.meta.capabilities
        )
        return _told(error.kind, reason or "it cannot show this")

    def result(
        self, info: Mapping[str, JSON], fields: Mapping[str, JSON]
    ) -> dict[str, JSON]:
        return legacy.fitted(fields, self.revision)

    def _missing(self, what: Any, capabilities: Mapping[str, JSON]) -> str | None:
        if self._obstacle is not None:
            return self._obstacle
        return legacy.missing(what, capabilities, self.revision)


class Legacy(_HandshakeDialect):
    """The dialect of the released legacy revisions: questions are asked live."""

    is_live = True


class Draft(_HandshakeDialect):
    """The dialect of the drafts: a handshake, and questions by retry."""

    is_live = False

    interim = staticmethod(incomplete)


Dialect: TypeAlias = Modern | Legacy | Draft


@record(eq=False)
class Context:
    """One request, with everything that is needed to answer it.

    Attributes:
        app: The server.
        peer: The sender of the request.
        request: The request.
        meta: The client's version, capabilities and wishes.
        dialect: Adapts results and errors to the client's era.
        clock: Returns the seconds since 1970.
        entropy: Returns as many random bytes as it is asked for.
        taken: What the ledger gave to this request: it is for `handle` to give back.
        watched: What observers know of the request; `None` without observers.
        running: The request's entry in its session; `None` without a session.
    """

    app: Server
    peer: Peer
    request: Request
    meta: Meta
    dialect: Dialect
    clock: Callable[[], float]
    entropy: Callable[[int], bytes]
    taken: list[Taken]
    watched: Watched | None = None
    running: Running | None = None


def caller_of(context: Context, flow_id: bytes) -> CallerInfo:
    """Return what a handler may know of its caller (docs/internals/replay.md#l7)."""
    meta, identity = context.meta, context.peer.identity
    known: dict[str, Any] = {}
    if identity is not None:
        known = {
            "issuer": identity.issuer,
            "subject": identity.subject,
            "tenant": identity.tenant,
            "scopes": sorted(identity.scopes),
            "claims": dict(identity.shown_claims),
        }
    return CallerInfo(
        principal=context.peer.principal,
        client=meta.client,
        era=context.dialect.era,
        protocol_version=meta.version,
        progress_token=meta.progress_token,
        flow_id=flow_id.hex(),
        **known,
    )


def viewer_of(context: Context) -> Viewer:
    """Return the sender of a request, for `visible=`."""
    peer = context.peer
    return Viewer(
        principal=peer.principal,
        identity=peer.identity,
        scopes=peer.scopes,
        client=context.meta.client,
        era=context.dialect.era,
        revision=context.meta.version,
    )


def may_call(context: Context, feature: Feature) -> bool:
    """Return whether a feature exists for the sender of a request.

    Raises:
        MissingScope: If it does, and the sender lacks one of its scopes.
    """
    if not exists_for(context.app, feature, viewer_of(context)):
        return False
    check_scopes(context, feature)
    return True


def trace_of(context: Context) -> str | None:
    """Return the trace context that a flow of this request carries."""
    sent, watched = context.meta.trace, context.watched
    return sent if watched is None else watched.trace(sent)


def _told(kind: str, reason: str) -> ToolError:
    # `InputRequest` itself means the most common question.
    asks = KINDS[QUESTIONS.get(kind, Elicit)].asks
    return ToolError(
        f"This needs to ask {asks}, and the connected client cannot be asked: {reason}."
    )


@contextmanager
def seated(context: Context, advice: str) -> Iterator[None]:
    """Take a seat for a request that waits for changes, for as long as the block runs.

    Args:
        context: The request.
        advice: What the client can do instead.

    Raises:
        ProtocolError: If no seat is left for this client.
    """
    seats, party = context.peer.seats, context.peer.party
    if seats is not None and not seats.take(party):
        raise ProtocolError(
            INTERNAL_ERROR,
            f"Too many requests wait on this server. {advice}",
            status=503,
        )
    try:
        yield
    finally:
        if seats is not None:
            seats.give(party)
