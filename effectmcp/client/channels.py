"""How a client's messages get to a server and back: in memory, over pipes, over HTTP.

A channel carries one request at a time and any number side by side:

    async with channel:
        response = await channel.exchange(message, headers, hear)

`hear` is awaited with each notification that comes for the request before its response.
Cancelling an exchange cancels the request at the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from ..canonical import JSON
from ..errors import EffectMCPError

__all__ = ["Channel", "ChannelError", "Frame", "Hear"]

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


class Channel(Protocol):
    """What carries messages."""

    @property
    def has_headers(self) -> bool:
        """Whether some arguments of a tool must be in headers, too."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: Any) -> None: ...

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Send a request, and return its response.

        Raises:
            ChannelError: The server is gone, or talks nonsense.
        """
