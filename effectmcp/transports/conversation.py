"""One HTTP request and its response, without I/O.

    talk = Conversation(endpoint, head)
    step = talk.judge()

A host reads bytes, writes bytes and waits. This module applies the rules of Streamable
HTTP, for every host alike: which clients are allowed, which status a refusal has, when a
response becomes a stream, how a session's request is answered. A host calls a method for
each event, which returns the next step:

    event                           next step
    ------------------------------  --------------------------------------------------
    judge()                         Identify, Receive, Begin, Read, or Send: the response
    identified(found)               Receive, Begin, Read, or Send
    unidentified(error)             Send
    part(data)                      Send: a refusal; or None: read the next part
    body(data)                      Begin, or Send
    waits(id)                       Read: for a session's request that waits
    notify(message), event(data)    Send: a part of a stream
    tick()                          Send: a comment; or None, as it is not quiet enough
    reply(reply), end()             Send: the response, or the end of the stream
    fail()                          Send; or None: the started stream breaks off

The response to a request is one JSON object, unless something has to be sent before it:
a notification, or, after a long silence, a comment that keeps proxies from closing the
connection. Then it becomes a stream of events. A client that disconnects cancels its
request (2026-07-28, Streamable HTTP, Cancellation), unless it has a session: then it may
reconnect and continue to read (2025-11-25, Resumability).

The body of a request is kept here, and counted from its first large part on until its
request is answered: unfinished bodies give way to other clients. A host calls
`close()` at the end.

The limits of a host are fields of `Endpoint`, and nowhere else.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from ..canonical import JSON
from ..drivers.turns import LONG, TURNS
from ..exchange.commands import Incoming, Peer, Reply
from ..exchange.shares import Budget, Holding, Shares, party_of
from ..exchange.telling import tell
from ..logs import logger_for
from ..protocol.authorization import (
    INSUFFICIENT_SCOPE,
    RESOURCE_METADATA,
    challenge,
    resource_metadata_path,
)
from ..protocol.jsonrpc import Id, encode, internal_error, read_message
from ..records import record
from ..server.events import HttpRefused
from ..server.identity import (
    CredentialsError,
    Identity,
    Presented,
    identity_of,
    seconds_of_stream,
)
from .sessions import SESSION_ID, Sessions, Stream
from .web import (
    JSON_TYPE,
    KEEP_ALIVE,
    PIECE,
    SSE_HEADERS,
    Fields,
    Head,
    Readiness,
    Send,
    Site,
    TwiceError,
    check_origin,
    check_request,
    client_address,
    cors,
    cut,
    document,
    joined,
    probe,
    probes_of,
    refusal,
    sse,
)

if TYPE_CHECKING:
    from ..exchange.sessions import Session
    from ..server.app import Server
    from ..server.identity import Gate

__all__ = [
    "Begin",
    "Conversation",
    "Endpoint",
    "Identify",
    "Judged",
    "Next",
    "Read",
    "Receive",
    "judge",
    "tell_refusal",
]

logger = logger_for("effectmcp.server")


def _seats_of(endpoint: Endpoint) -> Shares:
    return Shares(endpoint.site.waiting, endpoint.site.share)


def _places_of(endpoint: Endpoint) -> Shares:
    return Shares(_PLACES, endpoint.site.share)


def _unsent_of(endpoint: Endpoint) -> Budget:
    return Budget(endpoint.site.unsent, endpoint.site.share)


def _documents_of(endpoint: Endpoint) -> Mapping[str, bytes]:
    gate = endpoint.app.gate
    metadata = None if gate is None else gate.metadata()
    if gate is None or gate.resource is None or metadata is None:
        return {}
    shown = {
        **metadata,
        "resource_name": endpoint.app.info.get("title", endpoint.app.name),
    }
    return {resource_metadata_path(gate.resource): encode(shown)}


def _probes_of(endpoint: Endpoint) -> frozenset[str]:
    return probes_of(endpoint.site)


def _bodies_of(endpoint: Endpoint) -> Budget:
    return Budget(endpoint.site.bodies, endpoint.site.share)


#: Requests through trusted proxies that are answered at once.
_PLACES: Final = 1_000


@attrs.frozen(eq=False, kw_only=True)
class Endpoint:
    """One server on HTTP: the settings that all its requests share.

    Attributes:
        app: The server.
        site: Its path, and the hosts, origins and users that are allowed.
        sessions: The sessions of legacy clients; `None` to keep no sessions.
        has_streams: Whether this host can serve a stream to a client that reconnects.
        needs_length: Whether this host cannot find the end of a body without a
            Content-Length.
        quiet: Seconds of silence after which a waiting client gets a comment.
        has_pieces: Whether this host sends a large body in pieces (`Send.more`).
        seats: Seats for requests that wait for changes.
        bodies: The budget of the bodies of requests.
        unsent: The budget of the bytes that clients have not read yet.
        places: Places for requests that come through trusted proxies.
        probes: Paths beside the endpoint that tell a balancer about this server.
        documents: By path: public documents, such as the metadata that names the
            authorization server (RFC 9728).
        readiness: Whether the server will soon stop.
    """

    app: Server
    site: Site
    sessions: Sessions | None = None
    has_streams: bool = True
    needs_length: bool = False
    quiet: float = 15
    has_pieces: bool = False
    seats: Shares = attrs.Factory(_seats_of, takes_self=True)
    bodies: Budget = attrs.Factory(_bodies_of, takes_self=True)
    unsent: Budget = attrs.Factory(_unsent_of, takes_self=True)
    places: Shares = attrs.Factory(_places_of, takes_self=True)
    probes: frozenset[str] = attrs.Factory(_probes_of, takes_self=True)
    documents: Mapping[str, bytes] = attrs.Factory(_documents_of, takes_self=True)
    readiness: Readiness = attrs.Factory(Readiness)

    @property
    def is_open(self) -> bool:
        """Whether requests find what the lifespan of the server provides."""
        return self.app.lifespan is None or self.app.is_running


@record
class Judged:
    """A head that is allowed here, before its user is known.

    Attributes:
        head: The head.
        headers: Its headers, by lower-cased name.
        fields: Headers that are added to every response to it.
    """

    head: Head
    headers: Mapping[str, str] = attrs.field(repr=False)
    fields: Fields


def judge(endpoint: Endpoint, head: Head) -> Judged | Send:
    """Judge `head`, or return its refusal. Only the head matters, not the user or body."""
    judged = _judge(endpoint, head)
    if head.method != "HEAD":
        return judged
    assert isinstance(judged, Send)  # no resource here is read with it
    # Many hosts would send a body, and clients take it for the next response.
    length = ("Content-Length", str(len(judged.data)))
    return Send(judged.status, (*judged.headers, length))


def tell_refusal(endpoint: Endpoint, answer: Send, head: Head | None) -> None:
    """Tell observers of a request that HTTP refuses; probes are not among them.

    Args:
        endpoint: The server.
        answer: The response.
        head: The head of the request; `None` if unknown.
    """
    app, status = endpoint.app, answer.status
    if not app.observers or status is None or status < 400:
        return
    address = None
    if head is not None:
        if head.path in endpoint.probes or head.path in endpoint.documents:
            return
        address = head.peer
        if endpoint.site.proxies:
            address = _behind_proxies(endpoint.site, head)
    tell(app, HttpRefused(status=status, address=address))


def _behind_proxies(site: Site, head: Head) -> str | None:
    headers: dict[str, str] = {}
    if isinstance(head.headers, dict):
        # As in `_judge`, for pyright.
        headers = head.headers  # pyright: ignore[reportAssignmentType]
    else:
        try:
            headers = joined(head.headers)
        except TwiceError:
            pass  # nothing that a proxy says is read then
    return client_address(site, head.peer, headers)


def _judge(endpoint: Endpoint, head: Head) -> Judged | Send:
    # Before the host and the origin: a balancer knows this server by its address.
    if head.path in endpoint.probes:
        return probe(head, endpoint.readiness, is_open=endpoint.is_open)
    if head.path in endpoint.documents:
        return document(head, endpoint.documents[head.path])
    if head.path.startswith(RESOURCE_METADATA):
        # A host that routes these paths here, past what it puts before the endpoint, does
        # so for the documents alone.
        return refusal(404, "this document does not exist")
    site, given = endpoint.site, head.headers
    headers: dict[str, str]
    if isinstance(given, dict):
        # To pyright, a dict whose names are pairs is an iterable of pairs, too.
        headers = given  # pyright: ignore[reportAssignmentType]
    else:
        try:
            headers = joined(given)
        except TwiceError as exc:
            return refusal(400, f"the header {exc} came twice")
    problem = check_origin(site, head, headers)
    if problem is not None:
        return refusal(403, problem)
    fields = cors(headers.get("origin"))
    refused = check_request(
        site, head, headers, has_sessions=endpoint.sessions is not None
    )
    if refused is not None:
        # Pages must be able to read refusals: after a 401 they sign in.
        return Send(refused.status, (*refused.headers, *fields), refused.data)
    return Judged(head, headers, fields)


@record
class Identify:
    """Find the user: call `find`, await its result if that is awaitable, and then call
    `identified` or `unidentified`."""

    find: Callable[[], Any]


@record
class Receive:
    """Read the body: call `part` with each part, and then `body`.

    A refusal that `part` returns is the response; read no more then.
    """


@record
class Begin:
    """Start the exchange of `message`, and report its messages and its reply."""

    message: Incoming
    peer: Peer


@record
class Read:
    """Send the events of a session's stream that follow event `after`; then call `end`.

    After some seconds, `lasts`, the client has to come back with a new token.
    """

    session: Session
    stream: Stream
    after: int
    lasts: float | None = None


def _seconds_of(peer: Peer) -> float | None:
    identity = peer.identity
    return None if identity is None else seconds_of_stream(identity, time.time())


_NO_SCOPES: Final[frozenset[str]] = frozenset()

_WHO: Final = "who are you?"

#: By status, beside 401: the words for a client.
_REFUSED: Final = {
    403: "your token does not allow this",
    503: "authentication is not possible now; come back later",
}


def _challenges(gate: Gate | None, error: CredentialsError) -> Fields:
    if gate is None:
        # The host authenticates, and knows how.
        wanted = " ".join(sorted(error.scopes)) or None
        given = [challenge("Bearer", {"error": error.error, "scope": wanted})]
    else:
        given = list(gate.challenges(error.error, error.scopes))
    return tuple(("WWW-Authenticate", one) for one in given)


Next: TypeAlias = Identify | Receive | Begin | Read | Send

_RECEIVE: Final = Receive()

#: Bytes of a body that are not counted: nearly all requests are smaller.
_FREE: Final = 16 * 1024

_RETRY_AFTER: Final = ("Retry-After", "5")

State: TypeAlias = Literal["head", "body", "begun", "stream", "over"]

#: The states in which a host may call each method.
_LEGAL: Final[Mapping[str, frozenset[State]]] = {
    "judge": frozenset({"head"}),
    "identified": frozenset({"head"}),
    "unidentified": frozenset({"head"}),
    "part": frozenset({"body"}),
    "body": frozenset({"body"}),
    "waits": frozenset({"begun"}),
    "event": frozenset({"begun", "stream"}),
    "tick": frozenset({"begun", "stream", "over"}),
    "reply": frozenset({"begun", "stream"}),
    "end": frozenset({"begun", "stream"}),
    "fail": frozenset({"head", "body", "begun", "stream", "over"}),
}


@attrs.define(eq=False)
class Conversation:
    """One request, and its response.

    Args:
        endpoint: The endpoint that received it.
        head: Its head, or the result of `judge`.
        data: The body, if the host has received all of it with the head.
        clock: Returns seconds from an arbitrary start.
        find: Returns the user, instead of `Server(auth=...)`, where the host has
            authenticated the client already: an `Identity`, a name, or `None` for an
            anonymous client.

    Attributes:
        endpoint: The same.
        quiet_until: When to send a comment to a waiting client, by the clock.
        fields: Headers that are added to every response to this request, even if the
            host creates it.
        holding: Counts the bytes of the body; `None` for a small one.
        place: Counts the request; `None` if the connection counts already.
    """

    endpoint: Endpoint
    _head: Head | Judged | Send
    _data: bytes | None = attrs.field(default=None, kw_only=True, alias="data")
    _clock: Callable[[], float] = attrs.field(
        default=time.monotonic, kw_only=True, alias="clock"
    )
    _find: Callable[[], Any] | None = attrs.field(
        default=None, kw_only=True, alias="find"
    )
    fields: Fields = attrs.field(default=(), init=False)
    quiet_until: float = attrs.field(default=math.inf, init=False)
    holding: Holding | None = attrs.field(default=None, init=False)
    place: Shares | None = attrs.field(default=None, init=False)
    _parts: list[bytes] = attrs.field(factory=list, init=False)
    _size: int = attrs.field(default=0, init=False)
    _judged: Judged | None = attrs.field(default=None, init=False)
    _address: str | None = attrs.field(default=None, init=False)
    _peer: Peer | None = attrs.field(default=None, init=False)
    _state: State = attrs.field(default="head", init=False)

    # ---- the request ----------------------------------------------------------------

    def judge(self) -> Next:
        """Judge the head; return its refusal or the next step. Do not read the body yet."""
        assert self._state in _LEGAL["judge"], self._state
        head, endpoint = self._head, self.endpoint
        judged = judge(endpoint, head) if isinstance(head, Head) else head
        if isinstance(judged, Send):
            # A host that judges heads itself has reported the refusal.
            return self._send(judged) if head is judged else self._refused(judged)
        self._judged, self.fields = judged, judged.fields
        self._address = address = judged.head.peer
        if endpoint.site.proxies:
            self._address = client_address(endpoint.site, address, judged.headers)
        if self._find is not None:
            return Identify(self._find)
        gate = endpoint.app.gate
        if gate is None:
            return self._admitted(None)
        presented = Presented(
            method=judged.head.method, headers=judged.headers, address=self._address
        )
        if not gate.is_quick:
            return Identify(partial(gate.identify, presented))
        try:
            found = gate.identify(presented)
        except CredentialsError as exc:
            return self.unidentified(exc)
        if isinstance(found, Identity):
            return self._admitted(found)
        return Identify(lambda: found)

    def identified(self, found: object) -> Next:
        """Continue with what `Identify.find` has found: an identity, or a name."""
        assert self._state in _LEGAL["identified"], self._state
        try:
            # A host that returns `None` has let an anonymous client in.
            is_anonymous = self._find is not None and found is None
            identity = None if is_anonymous else identity_of(found)
        except Exception as exc:
            return self.unidentified(exc)
        return self._admitted(identity)

    def _admitted(self, identity: Identity | None) -> Next:
        assert self._judged is not None
        head, headers = self._judged.head, self._judged.headers
        endpoint = self.endpoint
        sessions = endpoint.sessions
        peer = Peer(
            principal=None if identity is None else identity.principal,
            identity=identity,
            scopes=_NO_SCOPES if identity is None else identity.scopes,
            headers=headers,
            address=self._address,
            seats=endpoint.seats,
        )
        if sessions is not None and "mcp-session-id" in headers:
            admitted = sessions.admit(peer)
            if isinstance(admitted, Send):
                return self._refused(admitted)
            peer = admitted
        self._peer = peer
        if head.method == "POST":
            self._state = "body"
            length, limit = headers.get("content-length"), endpoint.site.max_body
            # Refuse a body that is too large before the client sends it.
            if length and length.isdecimal() and len(length) <= 18:
                if int(length) > limit:
                    return self._too_large()
                data, self._data = self._data, None
                if data is None:
                    return _RECEIVE
                if len(data) <= _FREE:
                    return self._begin(data)
                return self.body(data)
            return self._expect(length)
        # Other methods need a session; `check_request` has refused them without one.
        assert sessions is not None
        assert peer.session is not None
        if head.method == "DELETE":
            sessions.close(peer.session)
            return self._send(Send(204))
        if not endpoint.has_streams:
            return self._refuse(405, "there are no streams here", ("Allow", "POST"))
        found = sessions.find_stream(peer.session, headers)
        if isinstance(found, Send):
            return self._refused(found)
        lacking = found[0].needs - peer.scopes if peer.scopes is not None else None
        if lacking:
            problem = CredentialsError(
                f"scope: the stream needs {' '.join(sorted(lacking))}",
                error=INSUFFICIENT_SCOPE,
                status=403,
                scopes=found[0].needs,
            )
            return self.unidentified(problem)
        if found[0].is_news:
            # They are for the client that reads them, with this token.
            peer.session.hear_as(endpoint.app, peer)
            peer.session.has_reader = True
        self._state = "begun"
        if endpoint.site.proxies and not self._takes_place():
            return self._busy("the server has too many streams")
        return Read(peer.session, *found, lasts=_seconds_of(peer))

    def unidentified(self, error: Exception) -> Send:
        """Answer a client that the authentication hook refused, or failed on."""
        assert self._state in _LEGAL["unidentified"], self._state
        gate = self.endpoint.app.gate
        # Not one of the system, about a file of this server.
        if isinstance(error, PermissionError) and error.errno is None:
            words = str(error) or _WHO
            error = CredentialsError(words, error=None)
        elif isinstance(error, CredentialsError):
            words = _REFUSED.get(error.status, _WHO)
            if error.scopes:
                words += f"; it needs {' '.join(sorted(error.scopes))}"
        else:
            logger.error("the authentication hook failed", exc_info=error)
            return self._refuse(500, "authentication failed in the server")
        # The client does not learn the reason, as it may be trying tokens (RFC 6750).
        judged = self._judged
        has_tried = judged is not None and "authorization" in judged.headers
        level = logging.INFO if error.error or has_tried else logging.DEBUG
        logger.log(
            level, "%s was refused: %s", self._address or "a client", error.reason
        )
        if error.status == 503:
            return self._refuse(503, words, _RETRY_AFTER)
        return self._refuse(error.status, words, *_challenges(gate, error))

    def _expect(self, length: str | None) -> Receive | Send:
        if not length:
            if self.endpoint.needs_length:
                # Without a length, reading might wait forever for the next request of
                # this connection.
                return self._refuse(411, "send Content-Length")
            return _RECEIVE
        if length.isdecimal():
            return self._too_large()
        return self._refuse(400, "Content-Length is a number")

    def _too_large(self) -> Send:
        self._parts.clear()
        limit = self.endpoint.site.max_body
        return self._refuse(413, f"a request has at most {limit:,} bytes")

    def part(self, data: bytes) -> Send | None:
        """Add a part of the body; return a refusal if there is no room for it."""
        assert self._state in _LEGAL["part"], self._state
        self._size += len(data)
        if self._size > self.endpoint.site.max_body:
            return self._too_large()
        if self._size > _FREE:
            holding = self.holding
            if holding is None:
                assert self._peer is not None
                party = self._peer.party
                holding = self.endpoint.bodies.open(party, self._give_way)
                self.holding = holding
            if not holding.add(self._size - holding.size):
                return self._no_room()
        self._parts.append(data)
        return None

    def _give_way(self) -> None:
        self._parts.clear()

    def _no_room(self) -> Send:
        self._parts.clear()
        return self._busy("the server holds too many large requests")

    def body(self, data: bytes = b"") -> Begin | Send:
        """Continue at the end of the body; `data` is its last part."""
        assert self._state in _LEGAL["body"], self._state
        refused = self.part(data) if data else None
        if refused is not None:
            return refused
        if self.holding is not None and not self.holding.settle():
            return self._no_room()
        parts, self._parts = self._parts, []
        return self._begin(parts[0] if len(parts) == 1 else b"".join(parts))

    def _begin(self, data: bytes) -> Begin | Send:
        assert self._peer is not None
        self._state = "begun"
        if self.endpoint.site.proxies and not self._takes_place():
            return self._busy("the server answers too many requests")
        if self._peer.session is None:
            return Begin(data, self._peer)
        began = time.thread_time()
        message = read_message(data)
        took = time.thread_time() - began
        if took > LONG:
            TURNS.note(self._peer, took)
        return Begin(message, self._peer)

    def _takes_place(self) -> bool:
        """Take a place for a request through a proxy, whose connections have no share."""
        assert self._peer is not None
        if self.endpoint.places.take(self._peer.party):
            self.place = self.endpoint.places
        return self.place is not None

    # ---- the response ---------------------------------------------------------------

    def waits(self, id_: Id) -> Read:
        """Return the stream of a session's request that has to wait.

        The request continues in the background, and writes its messages to a new stream.

        Args:
            id_: The id of the request.
        """
        assert self._state in _LEGAL["waits"], self._state
        sessions = self.endpoint.sessions
        assert sessions is not None
        assert self._peer is not None
        session = self._peer.session
        assert session is not None
        stream = sessions.open_stream(session, id_)
        # The session has not ended: nothing was awaited since the exchange started.
        assert isinstance(stream, Stream)
        return Read(session, stream, 0)

    def notify(self, message: Mapping[str, JSON]) -> Send:
        """Send a message before the response."""
        return self.event(sse(encode(message)))

    def event(self, data: bytes) -> Send:
        """Send events."""
        assert self._state in _LEGAL["event"], self._state
        more = None
        if len(data) > PIECE and self.endpoint.has_pieces:
            data, more = cut(data)
        if self._state == "stream":
            return Send(None, (), data, is_last=False, more=more)
        self._state = "stream"
        headers = (*SSE_HEADERS, *self.fields)
        return Send(200, headers, data, is_last=False, more=more)

    def tick(self) -> Send | None:
        """Send a comment if nothing was sent for a long time; else return `None`.

        This turns the response of a silent call into a stream. Without it, a proxy might
        consider the connection dead.
        """
        assert self._state in _LEGAL["tick"], self._state
        if self._state == "over" or self._clock() < self.quiet_until:
            return None
        return self.event(KEEP_ALIVE)

    def heard(self) -> None:
        """Note that the client has just received something, or starts to wait."""
        self.quiet_until = self._clock() + self.endpoint.quiet

    def reply(self, reply: Reply) -> Send:
        """Send the response, and nothing after it."""
        assert self._state in _LEGAL["reply"], self._state
        if self._state == "stream":
            # A request that its client has cancelled gets no response.
            last = self.event(b"" if reply.body is None else sse(reply.body))
            self._state = "over"
            return attrs.evolve(last, is_last=True)
        sessions = self.endpoint.sessions
        if reply.opened is not None and sessions is not None:
            assert self._peer is not None
            id_ = sessions.keep(reply.opened, self._peer.party)
            if id_ is None:
                return self._busy("the server has too many sessions")
            self.fields = (*self.fields, (SESSION_ID, id_))
        if reply.body is None:
            return self._send(Send(reply.status))
        if reply.status == 503:
            self.fields = (*self.fields, _RETRY_AFTER)
        if reply.needs:
            wanted = " ".join(sorted(reply.needs))
            logger.info("%s lacks %s", self._address or "a client", wanted)
            lacking = CredentialsError("", error=INSUFFICIENT_SCOPE, scopes=reply.needs)
            self.fields = (*self.fields, *_challenges(self.endpoint.app.gate, lacking))
        self._state = "over"
        fields = (("Content-Type", JSON_TYPE), *self.fields)
        data, more = reply.body, None
        if len(data) > PIECE and self.endpoint.has_pieces:
            data, more = cut(data)
        return Send(reply.status, fields, data, more=more)

    def end(self) -> Send:
        """Send the end of a stream."""
        assert self._state in _LEGAL["end"], self._state
        is_stream, self._state = self._state == "stream", "over"
        if is_stream:
            return Send(None)
        return self._send(Send(200, SSE_HEADERS))

    def fail(self) -> Send | None:
        """Answer a failed request with an error; `None` if a response has started."""
        assert self._state in _LEGAL["fail"], self._state
        before, self._state = self._state, "over"
        if before in ("stream", "over"):
            return None
        fields = (("Content-Type", JSON_TYPE), *self.fields)
        return Send(500, fields, encode(internal_error(None)))

    @property
    def party(self) -> str | None:
        """The party of the client: before authentication, its address."""
        if self._peer is not None:
            return self._peer.party
        judged = self._judged
        if judged is None or self.endpoint.site.proxies:
            return None
        return party_of(None, judged.head.peer)

    @contextmanager
    def holding_unsent(
        self, more: deque[bytes], give_way: Callable[[], object] | None = None
    ) -> Iterator[Holding]:
        """Count the pieces of a response that the client has not read yet.

        If they have to give way, they are dropped: break the response off.

        Args:
            more: The pieces. Remove each piece that is sent from the holding, too.
            give_way: Called when they are dropped; other threads may call it.
        """

        def drop() -> None:
            more.clear()
            if give_way is not None:
                give_way()

        holding = self.endpoint.unsent.open(self.party, drop)
        try:
            if not holding.add(sum(map(len, more))):
                holding.close()
                drop()
            yield holding
        finally:
            holding.close()

    def close(self) -> None:
        """Free what is left of the request, once it is answered or given up."""
        self._parts.clear()
        if self.holding is not None:
            self.holding.close()
        if self.place is not None:
            assert self._peer is not None
            self.place.give(self._peer.party)
            self.place = None

    def hand_over(self) -> Holding | None:
        """Return what counts the body; the caller closes it once it needs that no more."""
        holding, self.holding = self.holding, None
        return holding

    def _busy(self, problem: str) -> Send:
        assert self._peer is not None
        # Operators read this: behind a proxy that they did not name, all clients have
        # one address, and one share.
        logger.warning("%s; %s was refused", problem, self._peer.party or "a client")
        return self._refuse(503, f"{problem}; come back later", _RETRY_AFTER)

    def _refuse(self, status: int, problem: str, *fields: tuple[str, str]) -> Send:
        return self._refused(refusal(status, problem, *fields))

    def _refused(self, answer: Send) -> Send:
        """Send an answer that is not from the exchange; tell observers of a refusal."""
        head = self._judged.head if self._judged is not None else self._head
        known = head if isinstance(head, Head) else None
        tell_refusal(self.endpoint, answer, known)
        return self._send(answer)

    def _send(self, answer: Send) -> Send:
        self._state = "over"
        return Send(answer.status, (*answer.headers, *self.fields), answer.data)
