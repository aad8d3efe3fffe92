"""Taps: functions that are called with every JSON-RPC message, for recording and counting.

A tap sees messages as they are on the wire: states, answers and results, and so secrets.
It is called in the middle of a request, so it must be quick. It changes nothing; what
refuses or changes calls is an interceptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from attrs import field, frozen

from ..canonical import JSON

__all__ = ["Tap", "TappedMessage"]


@frozen(kw_only=True)
class TappedMessage:
    """A message that a client has sent, or that is sent to it.

    Attributes:
        direction: `"in"` from the client, or `"out"` to it.
        message: The message.
        principal: The authenticated user, if the transport knows one.
        session: The number of the client's session in this process; `None` without one.
    """

    direction: Literal["in", "out"]
    message: Mapping[str, JSON] = field(repr=False)
    principal: str | None
    session: int | None


Tap: TypeAlias = Callable[[TappedMessage], None]
