"""Sessions of the revisions with a handshake: the client, and its running requests.

A session is plain values and a few tables; it waits for nothing. The transport keeps it
and passes it along with each message (`Peer.session`): a pipe has one session, a web
server finds the session by a header.

    running    a request that is being answered; cancelling it ends what it asks
    asking     questions sent in one batch, and the replies so far
    news       the changes that the client is notified of outside of any request
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from ..canonical import JSON
from ..errors import MissingScope, ProtocolError
from ..protocol.jsonrpc import INVALID_REQUEST, Id, Response, notification
from ..server.viewers import Viewer, may_hear

if TYPE_CHECKING:
    from ..protocol.legacy import Hello
    from ..protocol.revisions import Revision
    from ..server.app import Server
    from ..server.changes import Change
    from ..server.identity import Identity
    from .commands import Peer

__all__ = ["Dropped", "Inquiry", "News", "Running", "Session", "TaskInquiry"]

#: Ids of questions, unique in this process: a late reply must not match another
#: question in any session.
_IDS = itertools.count(1)
#: Numbers of sessions, for observers.
_NUMBERS = itertools.count(1)

#: Resources that one session may subscribe to.
_MAX_URIS = 1_000
#: Bytes of their URIs: any client can open a session, and keep them there.
_MAX_BYTES = 128 * 1024
#: The most tasks of one session whose status is reported: the latest ones.
_MAX_TASKS = 1_000

_NO_RACES: Mapping[Id, str] = {}


def _nobody() -> None:
    pass


def _always() -> bool:
    return True


class Dropped(BaseException):
    """Raised when a request has ended for which no client waits: no response is sent."""


class Inquiry:
    """Questions sent to the client in one batch, and its replies.

    Attributes:
        messages: The requests to send, by id.
        replies: The client's replies, by id.
        is_gone: Whether no further replies can arrive.
        until: When to stop waiting, in seconds since 1970; `None` for no limit.
        races: Names for sets of questions, by id: one reply to such a set is enough.
        needs: The scopes of the feature that asks, which a client needs to reply.
    """

    def __init__(
        self,
        messages: Mapping[Id, Mapping[str, JSON]],
        until: float | None = None,
        races: Mapping[Id, str] = _NO_RACES,
    ) -> None:
        self.messages = messages
        self.until = until
        self.races = races
        self.replies: dict[Id, Mapping[str, JSON]] = {}
        self.is_gone = False
        self.needs: frozenset[str] = frozenset()
        self._unsent = list(messages.values())
        self._wake: Callable[[], None] = _nobody

    @property
    def is_over(self) -> bool:
        """Whether every reply that is needed is in, or none can come any more."""
        if self.is_gone or len(self.replies) == len(self.messages):
            return True
        if not self.races:
            return False
        replied = set(self.replies)  # other threads add replies
        decided = {self.races.get(id_) for id_ in replied} - {None}
        return all(
            id_ in replied or self.races.get(id_) in decided for id_ in self.messages
        )

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` once this is over, in the thread where that happens."""
        self._wake = wake
        if self.is_over:
            wake()

    @property
    def unsent(self) -> tuple[Mapping[str, JSON], ...]:
        """The messages that `take_unsent` returns next."""
        return tuple(self._unsent)

    def take_unsent(self) -> list[Mapping[str, JSON]]:
        """Return the messages that must be sent now; a driver calls this once."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def take(self, reply: Response) -> None:
        """Record a reply; only the first to each question counts."""
        self.replies.setdefault(reply.id, reply.message)
        if self.is_over:
            self._wake()

    def end(self) -> None:
        """Stop waiting: no further replies can arrive."""
        self.is_gone = True
        self._wake()


class TaskInquiry(Inquiry):
    """Questions of a task, and a wait for its changes: each one ends the wait, too.

    It is waited for several times, and questions may be added and withdrawn meanwhile.
    """

    def __init__(self) -> None:
        self._open: dict[Id, Mapping[str, JSON]] = {}
        super().__init__(self._open)
        self.is_changed = False

    @property
    def is_over(self) -> bool:
        """Whether something has happened: a reply, a change, or the client is gone."""
        return self.is_gone or self.is_changed or bool(self.replies)

    def add(self, id_: Id, message: Mapping[str, JSON]) -> None:
        """Add a question."""
        self._open[id_] = message
        self._unsent.append(message)

    def remove(self, id_: Id) -> None:
        """Remove a question."""
        self._open.pop(id_, None)

    def change(self) -> None:
        """Note that the task has changed. Any thread may call this."""
        self.is_changed = True
        self._wake()


@define(eq=False)
class Running:
    """A request that is being answered.

    Attributes:
        id: The id of the request.
        is_cancelled: Whether the client no longer waits for the response.
        is_flow: Whether this is a live flow, which ends by itself once it is cancelled:
            it performs its cleanup first.
        asking: The questions that are outstanding, if any.
        needs: The scopes of the feature that it is for.
    """

    id: Id
    is_cancelled: bool = False
    is_flow: bool = False
    asking: Inquiry | None = None
    needs: frozenset[str] = frozenset()

    def wait_for(self, asking: Inquiry) -> None:
        """Note what the request waits for: a cancel ends it, also an earlier one."""
        self.asking = asking
        asking.needs = self.needs
        if self.is_cancelled:
            asking.end()

    def cancel(self) -> None:
        """Mark the request as cancelled, and stop waiting for its questions."""
        self.is_cancelled = True
        if self.asking is not None:
            self.asking.end()


class News:
    """The changes that a session is notified of: all lists, and subscribed resources.

    Attributes:
        uris: The resources that the client subscribed to.
        may_hear: Returns whether its client may know of a change; `None`: of each.
        tap: Called with each message.
    """

    #: The first message of a `Subscription`; a session has no such message.
    acknowledgement = None
    #: Changes that a `Subscription` reports at once. A session has none.
    first: tuple[Change, ...] = ()
    #: Its streams end with the token; a session does not.
    identity: Identity | None = None

    def __init__(self) -> None:
        self.uris: frozenset[str] = frozenset()
        self.may_hear: Callable[[Change], bool] | None = None
        self.tap: Callable[[Mapping[str, JSON]], None] | None = None
        self._size = 0
        #: Whether `message` reads a store.
        self.is_read = False
        self._tasks: dict[str, Callable[[], dict[str, JSON] | None]] = {}
        self._told: dict[str, dict[str, JSON]] = {}

    def wants(self, change: Change) -> bool:
        """Return whether the client is notified of `change`."""
        if change.what == "task":
            return change.uri in self._tasks
        if change.what == "resource" and change.uri not in self.uris:
            return False
        return self.may_hear is None or self.may_hear(change)

    def follow(self, id_: str, read: Callable[[], dict[str, JSON] | None]) -> None:
        """Notify the client of a task's status: it has asked for this task.

        Args:
            id_: The id of the task.
            read: Returns its fields; `None` if it was removed. It may block.
        """
        self._tasks[id_] = read
        self.is_read = True
        # Other threads may leave some meanwhile.
        for old in list(self._tasks)[:-_MAX_TASKS]:
            self.leave(old)

    def leave(self, id_: str) -> None:
        """Report nothing more of a task."""
        self._tasks.pop(id_, None)
        self._told.pop(id_, None)

    def _of_task(self, id_: str) -> dict[str, JSON] | None:
        read = self._tasks.get(id_)
        fields = None if read is None else read()
        if fields is None:
            self.leave(id_)
            return None
        # A task is saved more often than its status changes.
        told = {key: fields.get(key) for key in ("status", "statusMessage")}
        if self._told.get(id_) == told:
            return None
        if id_ in self._tasks:
            self._told[id_] = told
        return notification("notifications/tasks/status", fields)

    def message(self, change: Change) -> dict[str, JSON] | None:
        """Return the notification of `change`; `None` if the client needs no notification.

        Raises:
            TaskStoreError: If the task that changed cannot be read.
        """
        if change.what == "task":
            return self._of_task(change.uri or "")
        if change.what == "resource":
            return notification("notifications/resources/updated", {"uri": change.uri})
        return notification(f"notifications/{change.what}/list_changed", {})

    def subscribe(self, uri: str) -> None:
        """Start to notify the client of changes to a resource.

        Raises:
            ProtocolError: If the session has too many subscriptions already.
        """
        if len(self.uris) >= _MAX_URIS:
            raise ProtocolError(
                INVALID_REQUEST,
                f"Invalid request: a session has at most {_MAX_URIS:,} subscriptions",
            )
        size = len(uri.encode("utf-8", "replace"))
        if self._size + size > _MAX_BYTES:
            raise ProtocolError(
                INVALID_REQUEST,
                "Invalid request: the subscriptions of a session have at most"
                f" {_MAX_BYTES:,} bytes",
            )
        if uri not in self.uris:
            self._size += size
        self.uris |= {uri}

    def unsubscribe(self, uri: str) -> None:
        """Stop notifying the client of changes to a resource."""
        if uri in self.uris:
            self._size -= len(uri.encode("utf-8", "replace"))
        self.uris -= {uri}


@define(eq=False)
class Session:
    """The session of one client: what `initialize` agreed on, and its running requests.

    Attributes:
        revision: The revision that both sides speak.
        hello: The client's own `initialize` parameters.
        principal: The user who opened the session; no other user may use it.
        identity: This user, as the latest token describes it.
        scopes: What this user may do, by the same token.
        has_reader: Whether a stream decides what the notifications may tell.
        log_level: The lowest level of log messages to send.
        most: Limit of requests that run at the same time.
        enter: Takes one of the places for requests of all sessions; returns whether it was
            free.
        leave: Gives it back.
        is_closed: Whether the session has ended.
        when_closed: Called once when it ends.
        number: Its number in this process.
        news: The changes that the client is notified of.
    """

    revision: Revision
    hello: Hello
    principal: str | None = None
    identity: Identity | None = None
    scopes: frozenset[str] | None = frozenset()
    has_reader: bool = False
    log_level: str = "info"
    most: int = 1_000
    enter: Callable[[], bool] = _always
    leave: Callable[[], None] = _nobody
    is_closed: bool = False
    when_closed: Callable[[], None] = _nobody
    number: int = field(factory=_NUMBERS.__next__, init=False)
    news: News = field(factory=News, init=False)
    _running: dict[tuple[type, Id], Running] = field(factory=dict, init=False)
    _stops: dict[tuple[type, Id], Callable[[], None]] = field(factory=dict, init=False)
    _asked: dict[tuple[type, Id], Inquiry] = field(factory=dict, init=False)

    def begin(self, id_: Id) -> Running:
        """Register a request that will be answered.

        Raises:
            ProtocolError: If a request with this id is running, too many requests are
                running, or the session has ended.
        """
        if self.is_closed:
            raise ProtocolError(INVALID_REQUEST, "Invalid request: the session ended")
        if _key(id_) in self._running:
            raise ProtocolError(
                INVALID_REQUEST, "Invalid request: a request with this id is running"
            )
        if len(self._running) >= self.most or not self.enter():
            raise ProtocolError(
                INVALID_REQUEST, "Invalid request: too many requests are running"
            )
        running = self._running[_key(id_)] = Running(id_)
        return running

    def running(self, id_: Id) -> Running | None:
        """Return a request that is being answered."""
        return self._running.get(_key(id_))

    def hear_as(self, app: Server, peer: Peer) -> None:
        """Let the notifications follow what the sender of a request may do."""
        viewer = Viewer(
            principal=peer.principal,
            identity=peer.identity,
            scopes=peer.scopes,
            client=self.hello.client,
            era="legacy",
            revision=self.revision.version,
        )
        self.identity, self.scopes = peer.identity, peer.scopes
        self.news.may_hear = partial(may_hear, app, viewer)

    def ended(self, running: Running) -> None:
        """Remove a request that was answered or has failed."""
        if self._running.pop(_key(running.id), None) is not None:
            self.leave()

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._running)

    def ask(
        self,
        running: Running,
        questions: Iterable[tuple[Callable[[Id], Mapping[str, JSON]], str | None]],
        until: float | None = None,
    ) -> Inquiry:
        """Register questions, each with a new id; return the messages to send.

        Args:
            running: The request that asks.
            questions: Functions that return a question's message, given its id; each
                with the race that the question is in, if any.
            until: When to stop waiting, in seconds since 1970.
        """
        messages: dict[Id, Mapping[str, JSON]] = {}
        races: dict[Id, str] = {}
        for make, race in questions:
            id_: Id = next(_IDS)
            messages[id_] = make(id_)
            if race is not None:
                races[id_] = race
        asking = Inquiry(messages, until, races)
        for id_ in messages:
            self._asked[_key(id_)] = asking
        running.wait_for(asking)
        return asking

    def ask_more(
        self, asking: TaskInquiry, make: Callable[[Id], Mapping[str, JSON]]
    ) -> Id:
        """Ask one more question of a task; return the id of the request."""
        id_: Id = next(_IDS)
        asking.add(id_, make(id_))
        self._asked[_key(id_)] = asking
        return id_

    def withdraw(self, asking: TaskInquiry, id_: Id) -> None:
        """Stop waiting for the reply to a question of a task."""
        asking.remove(id_)
        self._asked.pop(_key(id_), None)

    def new_id(self) -> Id:
        """Return an id for a request whose reply does not matter."""
        return next(_IDS)

    def asked(self, running: Running) -> None:
        """Remove the questions of a request: they were answered, or are given up."""
        asking, running.asking = running.asking, None
        assert asking is not None  # it was `ask` that set it
        for id_ in asking.messages:
            self._asked.pop(_key(id_), None)

    def reply(self, response: Response, scopes: frozenset[str] | None = None) -> bool:
        """Take a client's response; return whether its question was outstanding.

        Args:
            response: The response.
            scopes: What the client may do; `None` for everything.

        Raises:
            MissingScope: If it may not use the feature that asks; the question stays.
        """
        asking = self._asked.get(_key(response.id))
        if asking is None:
            return False
        if scopes is not None and not asking.needs <= scopes:
            raise MissingScope(INVALID_REQUEST, asking.needs)
        if self._asked.pop(_key(response.id), None) is None:
            return False  # another thread was faster
        asking.take(response)
        return True

    def stop_with(self, id_: Id, stop: Callable[[], None] | None) -> None:
        """Set how an event loop cancels a request, for as long as it runs there.

        A live flow is not cancelled so: it ends by itself. `None` removes the function.
        """
        if stop is None:
            self._stops.pop(_key(id_), None)
        else:
            self._stops[_key(id_)] = stop
            running = self._running.get(_key(id_))
            if running is not None and running.is_cancelled:
                self._give_up(running)  # cancelled before the event loop called this

    def _give_up(self, running: Running) -> None:
        running.cancel()
        stop = self._stops.get(_key(running.id))
        if stop is not None and not running.is_flow:
            stop()

    def cancel(self, id_: Id) -> bool:
        """Cancel a request that the client no longer waits for.

        Returns:
            Whether the request ends by itself. Otherwise the caller must end it.
        """
        running = self._running.get(_key(id_))
        if running is None:
            return False
        self._give_up(running)
        return running.is_flow

    def close(self) -> None:
        """End the session: cancel its requests, and accept no further ones."""
        if not self.is_closed:
            self.when_closed()
        self.is_closed = True
        for running in tuple(self._running.values()):
            self._give_up(running)


def _key(id_: Id) -> tuple[type, Id]:
    return type(id_), id_  # 1 and "1" are two ids
