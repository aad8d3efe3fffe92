"""One HTTP request and its answer, without I/O.

    talk = Conversation(endpoint, head)
    step = talk.judge()

A host reads bytes, writes bytes and waits. What all of that means under Streamable HTTP
is decided here, once for every host: who may ask, what is refused with which status, when
an answer becomes a stream, what a session's request is answered with. A host tells what
happened, and gets what to do next:

    told                            what comes next
    ------------------------------  --------------------------------------------------
    judge()                         Identify, Receive, Read, or Send: the answer
    identified(principal)           Receive, Read, or Send
    unidentified(error)             Send
    body(data)                      Begin
    too_large()                     Send
    waits()                         Read: for a session's request that waits
    notify(message), event(data)    Send: a part of a stream
    tick()                          Send: a comment; or None, as it is not quiet enough
    reply(reply), end()             Send: the answer, or the end of the stream
    fail()                          Send; or None: the stream that has begun breaks off

The response to a request is one JSON object. It becomes a stream of events with the first
thing to say before the response: a notification, or, where a call has been quiet for
long, a comment that keeps proxies from closing the connection. A client that leaves
cancels what it asked for (2026-07-28, Streamable HTTP, Cancellation), unless it has a
session: then it may come back and read on (2025-11-25, Resumability).

What hosts cannot do is in `Endpoint`, as fields, and nowhere else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import attrs

from ..canonical import JSON
from ..exchange.commands import Incoming, Peer, Reply
from ..exchange.sessions import Session
from ..protocol.jsonrpc import encode, internal_error, read_message
from ..records import record
from ..server import Server
from .sessions import SESSION_ID, Sessions, Stream
from .web import (
    JSON_TYPE,
    KEEP_ALIVE,
    SSE_HEADERS,
    Fields,
    Head,
    Send,
    Site,
    TwiceError,
    check_origin,
    check_request,
    cors,
    joined,
    refusal,
    sse,
    whole,
)

__all__ = [
    "Begin",
    "Conversation",
    "Endpoint",
    "Identify",
    "Next",
    "Read",
    "Receive",
]

logger = logging.getLogger("effectmcp.server")


@attrs.frozen(eq=False, kw_only=True)
class Endpoint:
    """One server, as HTTP shows it: what is the same for all its requests.

    Attributes:
        app: The server.
        site: Where it answers, and whom.
        sessions: The sessions of clients that shook hands; `None` where none are kept.
        has_streams: Whether this host can serve a stream to which a client comes back.
        needs_length: Whether this host cannot tell where a body ends that does not say
            how long it is.
        quiet: Seconds after which a client that waits gets a comment.
    """

    app: Server
    site: Site
    sessions: Sessions | None = None
    has_streams: bool = True
    needs_length: bool = False
    quiet: float = 15


@record
class Identify:
    """Find out who asks: call `find`, await what it gives if that can be awaited, and
    tell `identified` or `unidentified`."""

    find: Callable[[], Any]


@record
class Receive:
    """Read the body, of at most `limit` bytes, and tell `body` or `too_large`."""

    limit: int


@record
class Begin:
    """Begin the exchange of `message`, and tell what comes of it."""

    message: Incoming
    peer: Peer


@record
class Read:
    """Send the events of a session's stream, from the one after `after` on, then `end`."""

    session: Session
    stream: Stream
    after: int


Next: TypeAlias = Identify | Receive | Begin | Read | Send

State: TypeAlias = Literal["head", "body", "begun", "stream", "over"]

#: In which states a host may tell what.
_LEGAL: Final[Mapping[str, frozenset[State]]] = {
    "judge": frozenset({"head"}),
    "identified": frozenset({"head"}),
    "unidentified": frozenset({"head"}),
    "body": frozenset({"body"}),
    "too_large": frozenset({"body"}),
    "waits": frozenset({"begun"}),
    "event": frozenset({"begun", "stream"}),
    "tick": frozenset({"begun", "stream", "over"}),
    "reply": frozenset({"begun", "stream"}),
    "end": frozenset({"begun", "stream"}),
    "fail": frozenset({"head", "body", "begun", "stream", "over"}),
}


class Conversation:
    """One request, and its answer.

    Args:
        endpoint: Where it came.
        head: Its head.
        clock: Seconds, from anywhere on.
        find: Finds who asks, instead of `Site.authenticate`: a host that has asked
            already knows.

    Attributes:
        quiet_until: When a client that waits has heard nothing for too long.
        fields: What every answer to this request says beside its own headers, also one
            that a host gives by itself.
    """

    __slots__ = (
        "_clock",
        "_endpoint",
        "_find",
        "_head",
        "_headers",
        "_peer",
        "_state",
        "fields",
        "quiet_until",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        head: Head,
        *,
        clock: Callable[[], float] = time.monotonic,
        find: Callable[[], Any] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._head = head
        self._clock = clock
        self._find = find
        self._headers: Mapping[str, str] = {}
        self._peer: Peer | None = None
        self._state: State = "head"
        self.fields: Fields = ()
        self.quiet_until = 0.0

    @property
    def app(self) -> Server:
        """The server that is asked."""
        return self._endpoint.app

    @property
    def sessions(self) -> Sessions | None:
        """The sessions of its clients."""
        return self._endpoint.sessions

    # ---- the request ----------------------------------------------------------------

    def judge(self) -> Identify | Receive | Read | Send:
        """Say whether this may be asked here; its body is read only then."""
        self._check("judge")
        head, endpoint = self._head, self._endpoint
        site, headers = endpoint.site, head.headers
        if not isinstance(headers, dict):
            try:
                headers = joined(headers)
            except TwiceError as exc:
                return self._refuse(400, f"the header {exc} came twice")
        problem = check_origin(site, head, headers)
        if problem is not None:
            return self._refuse(403, problem)
        # From here on: pages read refusals, too. They sign in where they are told 401.
        self.fields = cors(headers.get("origin"))
        refused = check_request(
            site, head, headers, has_sessions=endpoint.sessions is not None
        )
        if refused is not None:
            return self._send(refused)
        self._headers = headers
        find = self._find
        if find is None and site.authenticate is not None:
            find = partial(site.authenticate, headers)
        return self.identified(None) if find is None else Identify(find)

    def identified(self, principal: str | None) -> Receive | Read | Send:
        """Go on with the user who asks, or with nobody."""
        self._check("identified")
        head, endpoint = self._head, self._endpoint
        sessions = endpoint.sessions
        peer = Peer(principal=principal, headers=self._headers, address=head.peer)
        if sessions is not None:
            admitted = sessions.admit(peer)
            if isinstance(admitted, Send):
                return self._send(admitted)
            peer = admitted
        self._peer = peer
        if head.method == "POST":
            return self._expect(self._headers.get("content-length"))
        # Only sessions are asked with another method, as `check_request` has seen to.
        assert sessions is not None
        assert peer.session is not None
        if head.method == "DELETE":
            sessions.close(peer.session)
            return self._send(Send(204))
        if not endpoint.has_streams:
            return self._refuse(405, "there are no streams here", ("Allow", "POST"))
        found = sessions.find_stream(peer.session, self._headers)
        if isinstance(found, Send):
            return self._send(found)
        self._begin()
        return Read(peer.session, *found)

    def unidentified(self, error: Exception) -> Send:
        """Answer somebody whom the hook could not tell, or did not want."""
        self._check("unidentified")
        if isinstance(error, PermissionError):
            challenge = ("WWW-Authenticate", "Bearer")
            return self._refuse(401, str(error) or "who are you?", challenge)
        logger.error("finding out who asks failed", exc_info=error)
        return self._refuse(500, "it cannot be told whether you may ask")

    def _expect(self, length: str | None) -> Receive | Send:
        self._state = "body"
        limit = self._endpoint.site.max_body
        if not length and self._endpoint.needs_length:
            # Reading might wait for ever, for the next request of this connection.
            return self._refuse(411, "send Content-Length")
        if length:
            if not length.isdecimal():
                return self._refuse(400, "Content-Length is a number")
            # Said beforehand, so nobody has to send it.
            if len(length) > 18 or int(length) > limit:
                return self.too_large()
        return Receive(limit)

    def too_large(self) -> Send:
        """Answer a request whose body has more bytes than the site takes."""
        self._check("too_large")
        limit = self._endpoint.site.max_body
        return self._refuse(413, f"a request has at most {limit:,} bytes")

    def body(self, data: bytes) -> Begin:
        """Go on with the whole body."""
        self._check("body")
        assert self._peer is not None
        self._begin()
        if self._peer.session is None:
            return Begin(data, self._peer)
        return Begin(read_message(data), self._peer)

    def _begin(self) -> None:
        self._state = "begun"
        self.heard()

    # ---- the answer -----------------------------------------------------------------

    def waits(self) -> Read:
        """Answer a session's request that did not end at once.

        It goes on beside the connection, and its messages go into a stream of its own.
        """
        self._check("waits")
        sessions = self.sessions
        assert sessions is not None
        assert self._peer is not None
        session = self._peer.session
        assert session is not None
        stream = sessions.open_stream(session)
        # It did not end: nothing was waited for since the exchange began.
        assert isinstance(stream, Stream)
        return Read(session, stream, 0)

    def notify(self, message: Mapping[str, JSON]) -> Send:
        """Send a message before the response."""
        return self.event(sse(encode(message)))

    def event(self, data: bytes) -> Send:
        """Send events."""
        self._check("event")
        if self._state == "stream":
            return Send(None, (), data, is_last=False)
        self._state = "stream"
        return Send(200, (*SSE_HEADERS, *self.fields), data, is_last=False)

    def tick(self) -> Send | None:
        """Send a comment if nothing was sent for long.

        Of a call that tells nothing it makes a stream: what is between us and the client
        would think the connection dead.
        """
        self._check("tick")
        if self._state == "over" or self._clock() < self.quiet_until:
            return None
        return self.event(KEEP_ALIVE)

    def heard(self) -> None:
        """Note that the client has heard something just now."""
        self.quiet_until = self._clock() + self._endpoint.quiet

    def reply(self, reply: Reply) -> Send:
        """Send the response, and nothing after it."""
        self._check("reply")
        if self._state == "stream":
            self._state = "over"
            # Nothing is said to a request that its client has cancelled.
            return Send(None, (), sse(reply.body) if reply.body is not None else b"")
        sessions = self._endpoint.sessions
        if reply.opened is not None and sessions is not None:
            self.fields = (*self.fields, (SESSION_ID, sessions.keep(reply.opened)))
        return self.respond(reply.body, reply.status)

    def respond(self, body: bytes | None, status: int = 200) -> Send:
        """Send a response that is one JSON object, or nothing."""
        if body is None:
            return self._send(Send(status))
        return self._send(Send(status, (("Content-Type", JSON_TYPE),), body))

    def end(self) -> Send:
        """Send nothing more."""
        self._check("end")
        is_stream, self._state = self._state == "stream", "over"
        if is_stream:
            return Send(None)
        return self._send(Send(200, SSE_HEADERS))

    def fail(self) -> Send | None:
        """Answer a request that could not be answered, while there is a place for it."""
        self._check("fail")
        if self._state in ("stream", "over"):
            self._state = "over"
            return None
        return self.respond(encode(internal_error(None)), 500)

    def _refuse(self, status: int, problem: str, *fields: tuple[str, str]) -> Send:
        return self._send(refusal(status, problem, *fields))

    def _send(self, answer: Send) -> Send:
        self._state = "over"
        answer = whole(answer, self.fields)
        if self._head.method == "HEAD":
            # Many hosts would send it, and the client take it for the next answer.
            return Send(answer.status, answer.headers)
        return answer

    def _check(self, told: str) -> None:
        assert self._state in _LEGAL[told], (told, self._state)
