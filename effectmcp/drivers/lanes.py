"""Which blocking call gets a thread next. No threads, and no loop.

    lanes = Lanes()
    ticket = Ticket(function, party, 40)
    lanes.enter(ticket, start)      calls `start` once there is room
    lanes.leave(ticket)             when the thread has ended

A thread cannot be stopped: it continues after its client has left. So each function has
its own lane with a limited number of threads, and one party may use half of them. The
calls of one slow tool delay no other tool, and one client delays no other client.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from types import BuiltinFunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ..exchange.shares import Shares

if TYPE_CHECKING:
    from ..exchange.commands import Peer
    from ..server.app import Server

__all__ = ["Lanes", "Performer", "Ticket"]

#: The part of a lane that one party may take.
_PART: Final = 0.5


def _nothing() -> None:
    """Start nothing."""


@define(eq=False)
class Ticket:
    """A call in a lane.

    Attributes:
        function: The function to call.
        party: The party of the client; `None` for a call without a client.
        each: How many threads the lane has.
        start: Starts the call.
        lane: The lane that it has entered.
        has_thread: Whether it was started.
    """

    function: object
    party: str | None
    each: int
    start: Callable[[], None] = _nothing
    lane: _Lane | None = field(default=None, init=False)
    has_thread: bool = field(default=False, init=False)


@define(eq=False)
class _Lane:
    seats: Shares
    waiting: deque[Ticket] = field(factory=deque)


class Lanes:
    """The lanes of one event loop, one per function: its closures share a lane."""

    def __init__(self) -> None:
        self._lanes: dict[object, _Lane] = {}

    def enter(self, ticket: Ticket, start: Callable[[], None]) -> None:
        """Enter a call; start it now, or as soon as others have left."""
        ticket.start = start
        key = _key_of(ticket.function)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(Shares(ticket.each, _PART))
        ticket.lane = lane
        if lane.seats.take(ticket.party):
            ticket.has_thread = True
            start()
        else:
            lane.waiting.append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Remove a call that has ended, or that waits no longer; start the next ones."""
        lane = ticket.lane
        assert lane is not None  # it has entered
        if not ticket.has_thread:
            lane.waiting.remove(ticket)
            return
        lane.seats.give(ticket.party)
        for one in tuple(lane.waiting):
            if lane.seats.count >= lane.seats.limit:
                break
            if lane.seats.take(one.party):
                lane.waiting.remove(one)
                one.has_thread = True
                one.start()


def _key_of(function: Any) -> object:
    """Return a key that all closures of one function share."""
    # A decorator's wrapper is one function for all that it wraps.
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is not None:
        return code
    if isinstance(function, functools.partial):
        return _key_of(function.func)
    if isinstance(function, MethodType):
        return _key_of(function.__func__)
    # Functions of C have no code; they exist once. Others are objects with `__call__`.
    return function if isinstance(function, BuiltinFunctionType) else type(function)


class Performer:
    """The settings with which a driver performs effects for one client.

    Args:
        app: The server.
        peer: The client; `None` for a task, which has none.

    Attributes:
        provided: The values that the lifespan and the transport provide.
        each: How many threads one function may use at once.
        party: The party of the client.
    """

    def __init__(self, app: Server, peer: Peer | None = None) -> None:
        self.provided = app.provided
        if peer is not None and peer.provided:
            self.provided = {**app.provided, **peer.provided}
        self.each = app.threads
        self.party = None if peer is None else peer.party
