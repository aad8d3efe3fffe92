"""Sessions of the revisions that shake hands: who a client is, and what is under way.

A session is plain values and a few tables; it waits for nothing. Whoever carries its
messages keeps it and shows it with each (`Peer.session`): a pipe has one, a web server
finds its by a header.

    running    a request that is being answered; cancelling it wakes what it asks
    asking     questions that went out together, and the replies so far
    news       which changes the client hears of outside of any request
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import define, field

from ..canonical import JSON
from ..errors import ProtocolError
from ..protocol.jsonrpc import INVALID_REQUEST, Id, Response, notification

if TYPE_CHECKING:
    from ..protocol.legacy import Hello
    from ..protocol.revisions import Revision
    from ..server.changes import Change

__all__ = ["Inquiry", "News", "Running", "Session"]

#: Of questions. A late answer must find no other question, in whatever session.
_IDS = itertools.count(1)

#: Resources that one client may want to hear of.
_MAX_URIS = 1_000


def _nobody() -> None:
    pass


class Inquiry:
    """Questions that went out together.

    Attributes:
        messages: The requests to send, by id.
        replies: What came back, by id.
        is_gone: Whether nobody will answer any more.
        until: When to wait no longer, in seconds since 1970; `None` for never.
    """

    def __init__(
        self,
        messages: Mapping[Id, Mapping[str, JSON]],
        until: float | None = None,
    ) -> None:
        self.messages = messages
        self.until = until
        self.replies: dict[Id, Mapping[str, JSON]] = {}
        self.is_gone = False
        self._wake: Callable[[], None] = _nobody

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.is_gone or len(self.replies) == len(self.messages)

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` once it is over, in whatever thread that happens."""
        self._wake = wake
        if self.is_over:
            wake()

    def take(self, reply: Response) -> None:
        """A reply came in."""
        self.replies.setdefault(reply.id, reply.message)
        if self.is_over:
            self._wake()

    def end(self) -> None:
        """Nobody will answer any more."""
        self.is_gone = True
        self._wake()


@define(eq=False)
class Running:
    """A request that is being answered.

    Attributes:
        id: Its id.
        is_cancelled: Whether nobody wants the answer any more.
        is_flow: Whether it sees to that itself: it performs its cleanup, and ends.
        asking: What it asks at the moment.
    """

    id: Id
    is_cancelled: bool = False
    is_flow: bool = False
    asking: Inquiry | None = None

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self.is_cancelled = True
        if self.asking is not None:
            self.asking.end()


class News:
    """The changes that a session hears of: all lists, and resources it subscribed to.

    Attributes:
        uris: Those resources.
    """

    #: Sent first where a client subscribes by a request; here it does not.
    acknowledgement = None

    def __init__(self) -> None:
        self.uris: frozenset[str] = frozenset()

    def wants(self, change: Change) -> bool:
        """Whether the client hears of `change`."""
        return change.what != "resource" or change.uri in self.uris

    def message(self, change: Change) -> dict[str, JSON]:
        """What to tell the client of `change`."""
        if change.what == "resource":
            return notification("notifications/resources/updated", {"uri": change.uri})
        return notification(f"notifications/{change.what}/list_changed", {})

    def subscribe(self, uri: str) -> None:
        """Hear of a resource.

        Raises:
            ProtocolError: There are too many already.
        """
        if len(self.uris) >= _MAX_URIS:
            raise ProtocolError(
                INVALID_REQUEST,
                f"Invalid request: a session has at most {_MAX_URIS:,} subscriptions",
            )
        self.uris |= {uri}

    def unsubscribe(self, uri: str) -> None:
        """Hear of it no more."""
        self.uris -= {uri}


@define(eq=False)
class Session:
    """What was agreed on with a client, and what is under way.

    Attributes:
        revision: What both speak.
        hello: What the client said of itself.
        principal: Whose it is: nobody else may use it.
        log_level: From which level on it wants log messages.
        most: Requests that may be answered at once.
        is_closed: Whether it has ended.
        news: What it hears of.
    """

    revision: Revision
    hello: Hello
    principal: str | None = None
    log_level: str = "info"
    most: int = 1_000
    is_closed: bool = False
    news: News = field(factory=News, init=False)
    _running: dict[tuple[type, Id], Running] = field(factory=dict, init=False)
    _stops: dict[tuple[type, Id], Callable[[], None]] = field(factory=dict, init=False)
    _asked: dict[tuple[type, Id], Inquiry] = field(factory=dict, init=False)

    def begin(self, id_: Id) -> Running:
        """Note a request that is going to be answered.

        Raises:
            ProtocolError: There is one with this id, there are too many, or there is no
                session any more.
        """
        if self.is_closed:
            raise ProtocolError(INVALID_REQUEST, "Invalid request: the session ended")
        if _key(id_) in self._running:
            raise ProtocolError(
                INVALID_REQUEST, "Invalid request: a request with this id is running"
            )
        if len(self._running) >= self.most:
            raise ProtocolError(
                INVALID_REQUEST, "Invalid request: too many requests are running"
            )
        running = self._running[_key(id_)] = Running(id_)
        return running

    def ended(self, running: Running) -> None:
        """It was answered."""
        self._running.pop(_key(running.id), None)

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._running)

    def ask(
        self,
        running: Running,
        questions: Iterable[Callable[[Id], Mapping[str, JSON]]],
        until: float | None = None,
    ) -> Inquiry:
        """Questions to send, each made with an id of its own.

        Args:
            running: The request that asks.
            questions: Give the message, given the id.
            until: When to wait no longer, in seconds since 1970.
        """
        messages: dict[Id, Mapping[str, JSON]] = {}
        for make in questions:
            id_: Id = next(_IDS)
            messages[id_] = make(id_)
        asking = running.asking = Inquiry(messages, until)
        for id_ in messages:
            self._asked[_key(id_)] = asking
        if running.is_cancelled:
            asking.end()
        return asking

    def asked(self, running: Running) -> None:
        """What it asked was answered, or nobody waits for it any more."""
        asking, running.asking = running.asking, None
        assert asking is not None  # it was `ask` that set it
        for id_ in asking.messages:
            self._asked.pop(_key(id_), None)

    def reply(self, response: Response) -> bool:
        """A response came in. Returns whether it was to a question that is out."""
        asking = self._asked.pop(_key(response.id), None)
        if asking is None:
            return False
        asking.take(response)
        return True

    def stop_with(self, id_: Id, stop: Callable[[], None] | None) -> None:
        """How a loop ends a request that does not see to that itself, while it runs."""
        if stop is None:
            self._stops.pop(_key(id_), None)
        else:
            self._stops[_key(id_)] = stop
            running = self._running.get(_key(id_))
            if running is not None and running.is_cancelled:
                self._give_up(running)  # it was given up before a loop had its turn

    def _give_up(self, running: Running) -> None:
        running.cancel()
        stop = self._stops.get(_key(running.id))
        if stop is not None and not running.is_flow:
            stop()

    def cancel(self, id_: Id) -> bool:
        """The client wants no answer to this request.

        Returns:
            Whether that is seen to. Otherwise it is for the loop to end it.
        """
        running = self._running.get(_key(id_))
        if running is None:
            return False
        self._give_up(running)
        return running.is_flow

    def close(self) -> None:
        """It has ended: nothing is answered any more, and nothing may be asked."""
        self.is_closed = True
        for running in tuple(self._running.values()):
            self._give_up(running)


def _key(id_: Id) -> tuple[type, Id]:
    return type(id_), id_  # 1 and "1" are two ids
