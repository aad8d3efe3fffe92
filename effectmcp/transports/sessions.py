"""Sessions of the legacy era over HTTP: who they are, and what their streams carried. Pure.

    sessions = Sessions()
    id_ = sessions.keep(session)           what `Mcp-Session-Id` names from now on
    admitted = sessions.admit(peer)        the peer with its session, or a refusal
    stream = sessions.open_stream(session) what a request's messages go into

A request of this era does not end with its connection: a client that is gone may come
back and read on from the last event that it saw (2025-11-25, Resumability). So messages
go into a `Stream`, and whoever has a connection reads it. What nobody reads is kept as
long as the session, and bounded.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs
from attrs import define, field, frozen, validators

from ..drivers.local import Mailbox
from ..protocol.jsonrpc import encode
from .web import Send, refusal, session_named

if TYPE_CHECKING:
    from ..exchange.commands import Peer
    from ..exchange.sessions import Session
    from ..server.app import Server

__all__ = ["SESSION_ID", "Reader", "SessionLimits", "Sessions", "Stream"]

logger = logging.getLogger("effectmcp.server")

SESSION_ID: Final = "Mcp-Session-Id"


@frozen(kw_only=True)
class SessionLimits:
    """What sessions may take up. Times are in seconds.

    Attributes:
        sessions: How many there are at once. One more ends the one that was quiet for
            longest.
        idle: How long one lasts in which nothing is sent, and no stream is open.
        requests: Requests of one session that are answered at once. They go on when
            their client hangs up, so this bounds what it can leave behind.
        streams: Streams of one session that are over and may still be read again.
        kept: Bytes of one stream that may be read again; what is older is dropped, but
            for questions and for what is still being read.
        leave: After how long a stream's connection is closed, for its client to come
            back and read on, as proxies put up with connections for so long. Only for
            clients that know of that (2025-11-25); `None` for never.
        retry: How long clients are told to wait before they come back.
    """

    sessions: int = field(default=1_000, validator=validators.ge(1))
    idle: float = field(default=1800, validator=validators.gt(0))
    requests: int = field(default=100, validator=validators.ge(1))
    streams: int = field(default=4, validator=validators.ge(0))
    kept: int = field(default=1024 * 1024, validator=validators.ge(0))
    leave: float | None = field(
        default=None, validator=validators.optional(validators.gt(0))
    )
    retry: float = field(default=1, validator=validators.ge(0))


# ---- streams ------------------------------------------------------------------------


class Stream:
    """What was sent in a row, to be read by one client at a time.

    Args:
        name: What its events' ids begin with.
        kept: Bytes that are kept to be read again.
    """

    def __init__(self, name: str, kept: int) -> None:
        self.name = name
        self.is_over = False
        #: The response, if nothing came before it.
        self.only: bytes | None = None
        self._kept = kept
        #: Messages, and whether they are questions.
        self._events: deque[tuple[bytes, bool]] = deque()
        self._size = 0
        #: The number of the first event that is kept.
        self._first = 1
        self._reader: Reader | None = None

    def add(self, message: bytes, *, is_question: bool = False) -> None:
        """Send a message, one line; to nobody, if it has ended with its session."""
        if self.is_over:
            return
        self._events.append((message, is_question))
        self._size += len(message)
        # The last one is what all wait for.
        while self._size > self._kept and len(self._events) > 1 and self._is_old():
            self._size -= len(self._events.popleft()[0])
            self._first += 1
        self.wake()

    def _is_old(self) -> bool:
        """Whether the first event that is kept need not be."""
        if self._reader is not None:
            return self._reader.has_taken(self._first)
        # Nobody reads it now. Who comes back can do without news of what went on, and
        # not without a question.
        return not self._events[0][1]

    def end(self, response: bytes | None = None) -> None:
        """Nothing more will come, but for the response if there is one."""
        if response is not None and not self.is_over:
            if not self.last:
                self.only = response
            self.add(response)
        self.is_over = True
        self.wake()

    def wake(self) -> None:
        """Have the reader look."""
        if self._reader is not None:
            self._reader.wake()

    def read(self, after: int, wake: Callable[[], None]) -> Reader:
        """Read on after an event; whoever read so far is to stop."""
        before, self._reader = self._reader, Reader(self, after, wake)
        if before is not None:
            before.wake()
        return self._reader

    @property
    def last(self) -> int:
        """The number of the event that came last."""
        return self._first + len(self._events) - 1

    def after(self, number: int) -> tuple[int, bytes] | None:
        """The next event that is kept, with its number."""
        place = max(number + 1, self._first)
        if place > self.last:
            return None
        return place, self._events[place - self._first][0]

    def is_read_by(self, reader: Reader) -> bool:
        """Whether this reader is the one."""
        return self._reader is reader

    def left(self, reader: Reader) -> None:
        """A reader stops."""
        if self._reader is reader:
            self._reader = None


class Reader:
    """Whoever has a connection."""

    def __init__(self, stream: Stream, after: int, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._stream = stream
        self._after = after

    def take(self) -> Iterator[bytes]:
        """What came, as events; what is not taken from it is left to whoever reads on."""
        name = self._stream.name.encode()
        while self._stream.is_read_by(self):
            found = self._stream.after(self._after)
            if found is None:
                return
            self._after, message = found
            yield b"id: %s-%d\ndata: %s\n\n" % (name, self._after, message)

    def has_taken(self, number: int) -> bool:
        """Whether it got this event."""
        return number <= self._after

    @property
    def is_over(self) -> bool:
        """Whether it has nothing to wait for: all came, or another reads."""
        return self._stream.is_over or not self._stream.is_read_by(self)

    def first(self, retry: float) -> bytes:
        """The event that says where to go on from, before there is anything."""
        place = f"{self._stream.name}-{self._after}"
        return f"id: {place}\nretry: {int(retry * 1000)}\ndata: \n\n".encode()

    def leave(self) -> None:
        """Read no more."""
        self._stream.left(self)


# ---- sessions -----------------------------------------------------------------------


@define(eq=False)
class _Kept:
    """A session, and what came of it."""

    id: str
    session: Session
    mailbox: Mailbox
    unlisten: Callable[[], None]
    news: Stream
    seen: float
    #: Those that are being read, or will be.
    open: int = 0
    count: int = 0
    streams: OrderedDict[str, Stream] = field(factory=OrderedDict)


class Sessions:
    """The sessions of one server, in one process.

    Args:
        app: The server.
        limits: What they may take up.
        clock: Seconds, from anywhere on.
    """

    def __init__(
        self,
        app: Server,
        limits: SessionLimits = SessionLimits(),  # frozen
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._app = app
        self._clock = clock
        #: The one that was quiet for longest first.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._by_session: dict[Session, _Kept] = {}
        # A WSGI host has threads.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, session: Session) -> str:
        """Keep a session that was opened, and return what it is called."""
        self.sweep()
        session.most = self.limits.requests
        id_ = secrets.token_urlsafe(24)
        news = Stream("news", self.limits.kept)
        mailbox = Mailbox(session.news, news.wake)
        unlisten = self._app.changes.listen(mailbox.hear)
        kept = _Kept(id_, session, mailbox, unlisten, news, self._clock())
        with self._lock:
            while len(self._kept) >= self.limits.sessions:
                self._close(self._quietest(), "there are too many")
            self._kept[id_] = self._by_session[session] = kept
        return id_

    def admit(self, peer: Peer) -> Peer | Send:
        """The peer with the session that its header names, if it does.

        Returns:
            That, or the answer that there is no such session: it is to shake hands again.
        """
        id_ = session_named(peer.headers or {})
        if id_ is None:
            return peer
        self.sweep()
        with self._lock:
            kept = self._kept.get(id_)
            if kept is None or kept.session.principal != peer.principal:
                return _no_session()
            self._touch(kept)
        return attrs.evolve(peer, session=kept.session)

    def close(self, session: Session) -> None:
        """Its client ends it."""
        with self._lock:
            kept = self._by_session.get(session)
            if kept is not None:
                self._close(kept, "its client ended it")

    def close_all(self) -> None:
        """The server stops."""
        with self._lock:
            for kept in tuple(self._kept.values()):
                self._close(kept, "the server stops")

    def sweep(self) -> float:
        """End what was quiet for too long.

        Returns:
            When there may be more to end, in seconds from now.
        """
        now = self._clock()
        with self._lock:
            while self._kept:
                kept = next(iter(self._kept.values()))
                left = kept.seen + self.limits.idle - now
                if left > 0:
                    return left
                if kept.open:
                    self._touch(kept)  # whoever reads a stream is there
                else:
                    self._close(kept, "it was quiet for too long")
        return self.limits.idle

    def _quietest(self) -> _Kept:
        for kept in self._kept.values():
            if not kept.open and not kept.session.is_busy:
                return kept
        return next(iter(self._kept.values()))  # each of them reads a stream

    def _touch(self, kept: _Kept) -> None:
        kept.seen = self._clock()
        self._kept.move_to_end(kept.id)

    def _close(self, kept: _Kept, reason: str) -> None:
        logger.debug("session %.8s ends: %s", kept.id, reason)
        del self._kept[kept.id], self._by_session[kept.session]
        kept.unlisten()
        kept.session.close()
        for stream in (kept.news, *kept.streams.values()):
            stream.end()

    # ---- streams ----

    def open_stream(self, session: Session) -> Stream | Send:
        """What the messages of a request go into.

        Returns:
            That, or the answer that the session has ended meanwhile.
        """
        kept = self._by_session.get(session)
        if kept is None:
            return _no_session()
        over = [name for name, one in kept.streams.items() if one.is_over]
        for name in over[: max(0, len(over) - self.limits.streams)]:
            del kept.streams[name]
        kept.count += 1
        name = str(kept.count)
        stream = kept.streams[name] = Stream(name, self.limits.kept)
        return stream

    def find_stream(
        self, session: Session, headers: Mapping[str, str]
    ) -> tuple[Stream, int] | Send:
        """What a GET reads, and after which event.

        Returns:
            The stream of `Last-Event-ID`, or that of news if there is no such header; or
            the answer that it is forgotten.
        """
        kept = self._by_session.get(session)
        if kept is None:
            return _no_session()
        last = headers.get("last-event-id")
        if last is None:
            return kept.news, kept.news.last
        name, _, number = last.rpartition("-")
        stream = kept.news if name == kept.news.name else kept.streams.get(name)
        if (
            stream is None
            or not number.isdecimal()
            or len(number) > 9
            or int(number) > stream.last
        ):
            # Not 404, at which a client has to give up its session (Session Management).
            return refusal(400, "there is no such event, or not any more")
        return stream, int(number)

    def reading(self, session: Session, by: int) -> None:
        """One more connection reads a stream of this session, or one less."""
        with self._lock:
            kept = self._by_session.get(session)
            if kept is not None:
                kept.open += by
                self._touch(kept)

    def collect(self, session: Session, stream: Stream) -> None:
        """Put what changed meanwhile into the stream of news, if that is what is read."""
        kept = self._by_session.get(session)
        if kept is None or stream is not kept.news:
            return
        is_over = (
            kept.mailbox.is_over
        )  # before the last look, so that nothing is missed
        for message in kept.mailbox.take():
            stream.add(encode(message))
        if is_over:
            stream.end()


def _no_session() -> Send:
    return refusal(404, "there is no such session; initialize again")
