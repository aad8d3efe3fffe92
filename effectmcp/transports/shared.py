"""Shared by the connections of one HTTP server: limits, clock, and idle connections."""

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
    """Limits on connections and requests. Times are in seconds.

    Attributes:
        head: The maximum size of a request's head in bytes.
        headers: The maximum number of headers of a request.
        connections: The maximum number of connections. A further connection closes the
            connection idle for longest; if none is idle, it gets status 503.
        head_time: Time for a client to send a head, and, on a new connection, to start.
        body_time: Time for a client to send a body.
        idle: Time between two requests of a connection.
        write: Time for a client to read a response, or one event of a stream.
        quiet: Time of silence after which a waiting client gets a comment.
        linger: Time for a client to disconnect after the last response of a connection.
        grace: Time for running requests to end when the server shuts down.
        retry_after: The `Retry-After` of that status 503.
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
    """The objects that the connections of a server share.

    Args:
        endpoint: The server and its site.
        limits: Limits on connections and requests.
        lookout: Notices clients that disconnect.
        calls: Runs calls that outlive a connection.
    """

    def __init__(
        self, endpoint: Endpoint, limits: Limits, lookout: Lookout, calls: Calls
    ) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self.lookout = lookout
        self.calls = calls
        self.is_closing = False
        #: `trio.current_time`, without its lookups.
        self.now = trio.lowlevel.current_clock().current_time
        #: Idle connections, and when to close them, the longest idle first. The time of
        #: new connections is infinite, as they have a deadline of their own.
        self.idle: dict[Connection, float] = {}
        self._date = (0, b"")

    def date(self) -> bytes:
        """Return the current time, as a value of the HTTP header `Date`."""
        second = int(time.time())
        if second != self._date[0]:
            self._date = second, formatdate(second, usegmt=True).encode()
        return self._date[1]

    def close_idle(self) -> float:
        """Close connections that were idle for too long; return when to check again."""
        now = trio.current_time()
        for connection, due in tuple(self.idle.items()):
            if due <= now:
                connection.leave()
        # Connections that become idle later are due later. A connection that is due but
        # was not closed has received bytes, and its task is about to read them.
        return min([now + self.limits.idle, *self.idle.values()])
