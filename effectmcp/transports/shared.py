"""What the connections of one HTTP server share: its limits, its clock, who is idle."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import TYPE_CHECKING

import trio
from attrs import field, frozen, validators

if TYPE_CHECKING:
    from .connection import Connection
    from .conversation import Endpoint
    from .lookout import Lookout
    from .reading import Calls

__all__ = ["Limits", "Shared"]


@frozen(kw_only=True)
class Limits:
    """What clients may take up. Times are in seconds.

    Attributes:
        head: Bytes that a request's head may have.
        headers: Headers that it may have.
        connections: Connections at once. Where one more comes, the one that has been idle
            for longest is closed; where none is idle, the new one is told to come back.
        head_time: For sending a head, and for sending the first one.
        body_time: For sending a body.
        idle: Between two requests of a connection.
        write: For reading an answer, or one event of a stream.
        quiet: How long a client that waits hears nothing: a comment is sent then.
        linger: For a client to hang up after the last answer of a connection.
        grace: For what is running when the server is to stop.
        retry_after: What clients are told to wait that find no room.
    """

    head: int = field(default=64 * 1024, validator=validators.ge(1_024))
    headers: int = field(default=100, validator=validators.ge(10))
    connections: int = field(default=1_000, validator=validators.ge(1))
    head_time: float = field(default=10, validator=validators.gt(0))
    body_time: float = field(default=60, validator=validators.gt(0))
    idle: float = field(default=75, validator=validators.gt(0))
    write: float = field(default=60, validator=validators.gt(0))
    quiet: float = field(default=15, validator=validators.gt(0))
    linger: float = field(default=2, validator=validators.ge(0))
    grace: float = field(default=20, validator=validators.ge(0))
    retry_after: int = field(default=5, validator=validators.ge(0))


class Shared:
    """What the connections of a server share.

    Args:
        endpoint: The server, and whom it answers.
        limits: What clients may take up.
        lookout: Looks out for clients that leave.
        calls: For what outlives a connection.
    """

    def __init__(
        self, endpoint: Endpoint, limits: Limits, lookout: Lookout, calls: Calls
    ) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self.lookout = lookout
        self.calls = calls
        self.is_closing = False
        #: `trio.current_time`, by a shorter way.
        self.now = trio.lowlevel.current_clock().current_time
        #: Those that wait for a request, the one that has waited longest first, and
        #: when they have waited long enough. New ones have a deadline of their own.
        self.idle: dict[Connection, float] = {}
        self._date = (0, b"")

    def date(self) -> bytes:
        """Now, as HTTP writes it."""
        second = int(time.time())
        if second != self._date[0]:
            self._date = second, formatdate(second, usegmt=True).encode()
        return self._date[1]

    def close_idle(self) -> float:
        """Close what has been idle for too long; returns when to look again."""
        now = trio.current_time()
        for connection, due in tuple(self.idle.items()):
            if due <= now:
                connection.leave()
        # What is idle from now on will not be due earlier than that. One that is due and
        # was not closed has something to read, and is about to.
        return min([now + self.limits.idle, *self.idle.values()])
