"""Sessions of the legacy era over HTTP, and the streams of their messages. No I/O.

    sessions = Sessions(app)
    id_ = sessions.keep(session)           the id to send as `Mcp-Session-Id`
    admitted = sessions.admit(peer)        the peer with its session, or a refusal
    stream = sessions.open_stream(session) the stream for a request's messages

A request of this era does not end with its connection: a client that has disconnected may
reconnect and continue after the last event that it received (2025-11-25, Resumability).
So messages go into a `Stream`, and a `StreamReader` sends them on a connection. Unread
messages are kept for as long as the session, up to a limit.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
from attrs import define, field, frozen, validators

from ..drivers.local import Mailbox
from ..exchange.shares import Budget, Holding, Shares
from ..logs import logger_for
from ..protocol.jsonrpc import encode
from .web import Send, refusal, session_named

if TYPE_CHECKING:
    from ..exchange.commands import Peer
    from ..exchange.sessions import Running, Session
    from ..protocol.jsonrpc import Id
    from ..server.app import Server

__all__ = ["SESSION_ID", "SessionLimits", "Sessions", "Stream", "StreamReader"]

logger = logger_for("effectmcp.server")

SESSION_ID: Final = "Mcp-Session-Id"


@frozen(kw_only=True)
class SessionLimits:
    """Limits on sessions. Times are in seconds.

    Attributes:
        sessions: The maximum number of sessions. For a new one beyond that, the session
            ends whose client has been gone for longest. Without one, the new one gets
            the status 503.
        idle: How long a session lasts without a request or an open stream.
        resume: How long a client may be gone until its session may end for a new one.
        requests: The maximum number of requests of one session that run at once. They
            continue when their client disconnects, so this limits the work that a client
            can leave behind.
        running: The maximum number of such requests of all sessions.
        streams: The number of ended streams of one session that can still be read again,
            for as long as `resume`.
        kept: Bytes of one stream that can be read again. Older messages are dropped,
            except questions and messages that are still being read.
        held: Bytes of the streams of all sessions. Beyond it the oldest stream of the
            user or address with the most bytes ends, and its messages are lost.
        leave: How long a stream's connection stays open before the server closes it, and
            the client reconnects: set it if a proxy limits the time of connections.
            Applies only to clients that support this (2025-11-25); `None` for no limit.
        retry: How long clients are asked to wait before they reconnect.
    """

    sessions: int = field(default=1_000, validator=validators.ge(1))
    idle: float = field(default=1800, validator=validators.gt(0))
    resume: float = field(default=60, validator=validators.ge(0))
    requests: int = field(default=100, validator=validators.ge(1))
    running: int = field(default=1_000, validator=validators.ge(1))
    streams: int = field(default=4, validator=validators.ge(0))
    kept: int = field(default=1024 * 1024, validator=validators.ge(0))
    held: int = field(default=64 * 1024 * 1024, validator=validators.ge(0))
    leave: float | None = field(
        default=None, validator=validators.optional(validators.gt(0))
    )
    retry: float = field(default=1, validator=validators.ge(0))


# ---- streams ------------------------------------------------------------------------


OpenHolding: TypeAlias = Callable[[Callable[[], None]], Holding]


class Stream:
    """A sequence of messages, read by one reader at a time.

    Args:
        name: The prefix of the ids of its events.
        kept: The number of bytes that are kept to be read again.
        hold: Opens a holding for its bytes, given a function that frees them; `None` if
            they are not counted.
        rests: Called each time when the stream is over and has no reader.
        running: The request whose messages they are; `None` for none.

    Attributes:
        is_over: Whether no more messages follow.
        is_lost: Whether messages were dropped before a client had read them.
        is_written: Whether a reader has written all messages, with the last one.
        only: The response, if no message was sent before it.
        is_news: Whether it belongs to no request.
    """

    def __init__(
        self,
        name: str,
        kept: int,
        hold: OpenHolding | None = None,
        rests: Callable[[Stream], None] | None = None,
        running: Running | None = None,
    ) -> None:
        self.name = name
        self.is_news = rests is None
        self._running = running
        self.is_over = self.is_lost = self.is_written = False
        self.only: bytes | None = None
        self._kept = kept
        self._rests = rests
        #: Messages, and whether they are questions.
        self._events: deque[tuple[bytes, bool]] = deque()
        self._size = 0
        self._holding = None if hold is None else hold(self.lose)
        #: The number of the first event that is kept.
        self._first = 1
        self._reader: StreamReader | None = None

    @property
    def needs(self) -> frozenset[str]:
        """The scopes that a client needs to read it: the scopes of its feature."""
        return frozenset() if self._running is None else self._running.needs

    def add(self, message: bytes, *, is_question: bool = False) -> None:
        """Add a message, which is one line; drop it if the stream is over."""
        if self.is_over:
            return
        self._events.append((message, is_question))
        self._size += len(message)
        # Keep the last one: it may be the response.
        while self._size > self._kept and len(self._events) > 1 and self._is_old():
            self._size -= len(self._events.popleft()[0])
            self._first += 1
        self._count()
        self.wake()

    def _count(self) -> None:
        holding = self._holding
        if holding is None:
            return
        more = self._size - holding.size
        if more < 0:
            holding.remove(-more)
        elif more and not holding.add(more):
            self.lose()

    def _is_old(self) -> bool:
        """Return whether the oldest kept event may be dropped."""
        if self._reader is not None:
            return self._reader.has_taken(self._first)
        # There is no reader now. A client that reconnects can miss notifications, but
        # not a question.
        return not self._events[0][1]

    def end(self, response: bytes | None = None) -> None:
        """Add the response, if there is one, and end the stream."""
        if self.is_over:
            return
        if response is not None:
            if not self.last:
                self.only = response
            self.add(response)
        self.is_over = True
        self.wake()
        self._rest()

    def lose(self) -> None:
        """End the stream, and drop its messages: other clients need the bytes."""
        self.is_lost = True
        self.drop()

    def drop(self) -> None:
        """End the stream, and free the bytes of its messages."""
        self.is_over = True
        self.only = None
        self._first += len(self._events)
        self._events.clear()
        self._size = 0
        if self._holding is not None:
            self._holding.close()
        self.wake()

    @property
    def is_small(self) -> bool:
        """Whether all messages can be kept to be read again."""
        return self._size <= self._kept

    @property
    def is_read(self) -> bool:
        """Whether it has a reader."""
        return self._reader is not None

    def _rest(self) -> None:
        if self._rests is not None and self.is_over and self._reader is None:
            self._rests(self)

    def wake(self) -> None:
        """Wake the reader."""
        if self._reader is not None:
            self._reader.wake()

    def read(self, after: int, wake: Callable[[], None]) -> StreamReader:
        """Return a new reader of the events that follow `after`; stop the previous one."""
        before, self._reader = self._reader, StreamReader(self, after, wake)
        if before is not None:
            before.wake()
        return self._reader

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._first + len(self._events) - 1

    def after(self, number: int) -> tuple[int, bytes] | None:
        """Return the next kept event after `number`, with its own number."""
        place = max(number + 1, self._first)
        if place > self.last:
            return None
        return place, self._events[place - self._first][0]

    def is_read_by(self, reader: StreamReader) -> bool:
        """Return whether `reader` is the current reader."""
        return self._reader is reader

    def left(self, reader: StreamReader, *, is_done: bool) -> None:
        """Note that `reader` has stopped, and whether it had written all messages."""
        if self._reader is reader:
            self._reader = None
            self.is_written = self.is_written or (is_done and self.is_over)
            if self.is_written and self._holding is not None:
                self._holding.go_first()
            self._rest()


class StreamReader:
    """Reads a stream for one connection."""

    def __init__(self, stream: Stream, after: int, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._stream = stream
        self._after = after

    def take(self) -> Iterator[bytes]:
        """Yield new messages as events; those not yielded are left to the next reader."""
        name = self._stream.name.encode()
        while self._stream.is_read_by(self):
            found = self._stream.after(self._after)
            if found is None:
                return
            self._after, message = found
            event = [b"id: %s-%d\ndata: %s\n\n" % (name, self._after, message)]
            # A client may take a minute to read it, while the stream drops it.
            del found, message
            yield event.pop()

    def has_taken(self, number: int) -> bool:
        """Return whether this reader has taken the event with this number."""
        return number <= self._after

    @property
    def is_over(self) -> bool:
        """Whether no more events will come: the stream is over, or has a new reader."""
        return self._stream.is_over or not self._stream.is_read_by(self)

    def first(self, retry: float) -> bytes:
        """Return an empty first event, whose id tells the client where to resume."""
        place = f"{self._stream.name}-{self._after}"
        return f"id: {place}\nretry: {int(retry * 1000)}\ndata: \n\n".encode()

    def leave(self, *, is_done: bool = False) -> None:
        """Stop reading.

        Args:
            is_done: Whether everything that was taken is written.
        """
        self._stream.left(self, is_done=is_done)


# ---- sessions -----------------------------------------------------------------------


@define(eq=False)
class _Kept:
    """A session with its streams, and when it was last used."""

    id: str
    session: Session
    mailbox: Mailbox
    unlisten: Callable[[], None]
    news: Stream
    seen: float
    party: str | None = None
    #: The number of connections that read one of its streams.
    open: int = 0
    count: int = 0
    streams: OrderedDict[str, Stream] = field(factory=OrderedDict)


_NO_LOCK: Final = nullcontext()


class Sessions:
    """The sessions of one server, in one process.

    Args:
        app: The server.
        limits: Limits on sessions.
        share: The part of each limit that one user or address may take.
        clock: Returns seconds from an arbitrary start.
        lock: A reentrant lock, if several threads call this.
    """

    def __init__(
        self,
        app: Server,
        limits: SessionLimits = SessionLimits(),  # frozen
        *,
        share: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        lock: AbstractContextManager[object] = _NO_LOCK,
    ) -> None:
        self.limits = limits
        self._app = app
        self._clock = clock
        #: Ordered by last use: the session that was quiet for longest is the first.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._by_session: dict[Session, _Kept] = {}
        self._lock = lock
        self._count = Shares(limits.sessions, share, lock)
        self._running = Shares(limits.running, share, lock)
        self._budget = Budget(limits.held, share, lock)
        #: Streams that are over, and when to look at them again; the next one first.
        self._resting: deque[tuple[float, _Kept, Stream]] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, session: Session, party: str | None = None) -> str | None:
        """Keep a session that was opened.

        Args:
            session: The session.
            party: The party of its client.

        Returns:
            Its id; `None` if there are too many, and none of them may end for it.
        """
        self.sweep()
        with self._lock:
            while not self._count.take(party):
                gone = self._longest_gone(
                    party if self._count.is_spent(party) else None
                )
                if gone is None:
                    return None
                self._close(gone, "there are too many")
            session.most = self.limits.requests
            session.enter = partial(self._running.take, party)
            session.leave = partial(self._running.give, party)
            id_ = secrets.token_urlsafe(24)
            news = Stream("news", self.limits.kept)
            mailbox = Mailbox(session.news, news.wake)
            unlisten = self._app.changes.listen(mailbox.hear)
            kept = _Kept(id_, session, mailbox, unlisten, news, self._clock(), party)
            self._kept[id_] = self._by_session[session] = kept
        return id_

    def admit(self, peer: Peer) -> Peer | Send:
        """Return the peer with the session that its header names, if there is a header.

        Returns:
            The peer; or the response that there is no such session, after which a client
            must send `initialize` again.
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
        """End a session at the request of its client."""
        with self._lock:
            kept = self._by_session.get(session)
            if kept is not None:
                self._close(kept, "its client ended it")

    def close_all(self) -> None:
        """End all sessions, because the server shuts down."""
        with self._lock:
            for kept in tuple(self._kept.values()):
                self._close(kept, "the server stops")

    def sweep(self) -> float:
        """End the sessions that were quiet for too long.

        Returns:
            Seconds until the next session may have to be ended.
        """
        now = self._clock()
        with self._lock:
            while self._resting and self._resting[0][0] <= now:
                _, kept, stream = self._resting.popleft()
                if not stream.is_read and (stream.is_written or not stream.is_small):
                    self._forget(kept, stream)
            while self._kept:
                kept = next(iter(self._kept.values()))
                left = kept.seen + self.limits.idle - now
                if left > 0:
                    return min(left, self._until_rested(now))
                if kept.open:
                    self._touch(kept)  # its client is reading a stream
                else:
                    self._close(kept, "it was quiet for too long")
        return self.limits.idle

    def _until_rested(self, now: float) -> float:
        return self._resting[0][0] - now if self._resting else math.inf

    def _longest_gone(self, party: str | None) -> _Kept | None:
        """Return the session whose client has been gone for longest.

        Args:
            party: The party whose sessions may end; `None` for all.

        Returns:
            The session; `None` if each client is here, or may still resume.
        """
        before = self._clock() - self.limits.resume
        for kept in self._kept.values():
            if kept.seen > before:
                break
            if not kept.open and party in (None, kept.party):
                return kept
        return None

    def _touch(self, kept: _Kept) -> None:
        kept.seen = self._clock()
        self._kept.move_to_end(kept.id)

    def _close(self, kept: _Kept, reason: str) -> None:
        logger.debug("session %.8s ends: %s", kept.id, reason)
        del self._kept[kept.id], self._by_session[kept.session]
        self._count.give(kept.party)
        kept.unlisten()
        kept.session.close()
        for stream in (kept.news, *kept.streams.values()):
            if stream.is_read:
                stream.end()
            else:
                stream.drop()

    # ---- streams ----

    def open_stream(self, session: Session, id_: Id | None = None) -> Stream | Send:
        """Create a stream for the messages of a request.

        Args:
            session: The session.
            id_: The id of the request, if it is running.

        Returns:
            The stream, or the response that the session has ended meanwhile.
        """
        kept = self._by_session.get(session)
        if kept is None:
            return _no_session()
        over = [one for one in kept.streams.values() if one.is_over]
        for one in over[: max(0, len(over) - self.limits.streams)]:
            self._forget(kept, one)
        kept.count += 1
        name = str(kept.count)
        stream = kept.streams[name] = Stream(
            name,
            self.limits.kept,
            partial(self._budget.open, kept.party),
            partial(self._rests, kept),
            None if id_ is None else session.running(id_),
        )
        return stream

    def answered(self, session: Session, stream: Stream) -> None:
        """Drop a stream whose only message, the response, was not sent as an event."""
        kept = self._by_session.get(session)
        if kept is not None:
            self._forget(kept, stream)

    def _rests(self, kept: _Kept, stream: Stream) -> None:
        if kept.id not in self._kept:
            stream.drop()
        elif stream.is_written and not stream.is_small:
            self._forget(kept, stream)
        else:
            # A client whose connection broke may have received less than was written.
            self._resting.append((self._clock() + self.limits.resume, kept, stream))

    def _forget(self, kept: _Kept, stream: Stream) -> None:
        kept.streams.pop(stream.name, None)
        stream.drop()

    def find_stream(
        self, session: Session, headers: Mapping[str, str]
    ) -> tuple[Stream, int] | Send:
        """Find the stream that a GET reads, and the event after which it continues.

        Returns:
            The stream of `Last-Event-ID`, or the stream of news if there is no such header; or
            the response that the event is unknown or no longer kept.
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
            or stream.is_lost
            or not number.isdecimal()
            or len(number) > 9
            or int(number) > stream.last
        ):
            # Not 404, after which a client must give up its session (Session Management).
            return refusal(400, "there is no such event, or not any more")
        return stream, int(number)

    def reading(self, session: Session, by: int) -> None:
        """Note that one more connection reads a stream of this session, or one less."""
        with self._lock:
            kept = self._by_session.get(session)
            if kept is not None:
                kept.open += by
                self._touch(kept)

    def collect(self, session: Session, stream: Stream) -> None:
        """Move the changes since the last call into `stream`, if that is the news."""
        kept = self._by_session.get(session)
        if kept is None or stream is not kept.news:
            return
        is_over = (
            kept.mailbox.is_over
        )  # read before `take()`, so that nothing is missed
        for message in kept.mailbox.take():
            stream.add(encode(message))
        if is_over:
            stream.end()


def _no_session() -> Send:
    return refusal(404, "there is no such session; initialize again")
