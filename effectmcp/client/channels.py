"""How a client's messages get to a server and back: in memory, over pipes, over HTTP.

A channel carries one request at a time and any number side by side:

    async with channel:
        response = await channel.exchange(message, headers, hear)

`hear` is awaited with each notification that comes for the request before its response,
and, of a server that shook hands, with each of its questions. Cancelling an exchange
cancels the request at the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from ..canonical import JSON
from ..errors import EffectMCPError

__all__ = [
    "Channel",
    "ChannelError",
    "Frame",
    "Hear",
    "Line",
    "Refusal",
    "SessionEnded",
]

Frame: TypeAlias = Mapping[str, JSON]
Hear: TypeAlias = Callable[[Frame], Awaitable[None]]


class ChannelError(EffectMCPError):
    """The server cannot be reached, or what it sends is no message.

    Attributes:
        problem: What went wrong.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class Refusal(ChannelError):
    """The server refuses the request in a way that no server of this revision would.

    Attributes:
        frame: What it said, if that was a message.
    """

    def __init__(self, problem: str, frame: Frame | None = None) -> None:
        super().__init__(problem)
        self.frame = frame


class SessionEnded(ChannelError):
    """The server does not know the session any more."""


class Line(Protocol):
    """What carries requests of this revision: a channel, or what stands before one."""

    @property
    def has_headers(self) -> bool:
        """Whether some arguments of a tool must be in headers, too."""

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Send a request, and return its response.

        Raises:
            ChannelError: The server is gone, or talks nonsense.
        """


class Channel(Line, Protocol):
    """What carries messages to a server and back, of whatever revision."""

    @property
    def probes(self) -> bool:
        """Whether to ask first which era the server is of, as it would not say so itself."""

    @property
    def origin(self) -> str | None:
        """What the server is known by that was reached before; `None` if it is new."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: Any) -> None: ...

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Send a notification or a response.

        Raises:
            ChannelError: The server is gone, or does not take it.
        """

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Hear what belongs to no request, of a server that shook hands.

        Args:
            hear: Awaited with each message.
            headers: As for `exchange`.
            ready: Called when nothing is missed any more.
        """
