"""The interface of channels, which carry messages: in memory, over pipes, over HTTP.

A channel sends a request and returns its response. It allows concurrent requests:

    async with channel:
        response = await channel.exchange(message, headers, hear)

`hear` is awaited with each notification for the request that arrives before its response
and, with a legacy server, also with each question. Cancelling `exchange` cancels the
request on the server.
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
    "LoginFailed",
    "Refusal",
    "SessionEnded",
]

Frame: TypeAlias = Mapping[str, JSON]
Hear: TypeAlias = Callable[[Frame], Awaitable[None]]


class ChannelError(EffectMCPError):
    """Raised when the server cannot be reached, or sends an invalid message.

    Attributes:
        problem: The description of the error.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class Refusal(ChannelError):
    """Raised for an HTTP refusal that only a server of an earlier revision sends.

    Attributes:
        frame: The message in the refusal; `None` if there was no valid one.
    """

    def __init__(self, problem: str, frame: Frame | None = None) -> None:
        super().__init__(problem)
        self.frame = frame


class LoginFailed(ChannelError):
    """Raised when the server requires a login, and the client has no token.

    Attributes:
        code: The error code of the authorization server, such as `access_denied`; `None`
            if it sent none.
    """

    def __init__(self, problem: str, code: str | None = None) -> None:
        super().__init__(problem)
        self.code = code


class SessionEnded(ChannelError):
    """Raised when the server no longer knows the session."""


class Line(Protocol):
    """Interface for 2026-07-28 requests: a channel, or an adapter around a channel."""

    @property
    def has_headers(self) -> bool:
        """Whether headers must repeat some arguments of tools."""
        ...

    async def exchange(
        self, message: Frame, headers: Mapping[str, str], hear: Hear
    ) -> Frame:
        """Send a request, and return its response.

        Raises:
            ChannelError: If the server cannot be reached, or sends an invalid message.
        """
        ...


class Channel(Line, Protocol):
    """Interface of channels, which carry messages of every revision.

    A channel that logs in also has `token_version`, a number that changes with its tokens:
    the client's cache belongs to these, and subscriptions are opened again.
    """

    @property
    def probes(self) -> bool:
        """Whether to probe for the server's era first, as no refusal would reveal it."""
        ...

    @property
    def origin(self) -> str | None:
        """Key to remember the server's era by; `None` if it is a new server each time."""
        ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: Any) -> None: ...

    async def tell(self, message: Frame, headers: Mapping[str, str]) -> None:
        """Send a notification or a response.

        Raises:
            ChannelError: If the server cannot be reached, or refuses the message.
        """
        ...

    async def attend(
        self, hear: Hear, headers: Mapping[str, str], ready: Callable[[], None]
    ) -> None:
        """Receive the messages of a legacy server that belong to no request.

        Args:
            hear: Awaited with each message.
            headers: As for `exchange`.
            ready: Called as soon as no more messages can be missed.
        """
        ...
