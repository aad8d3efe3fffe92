"""Effects that this process performs or computes, other than steps.

recorded     Now  Uuid  Random  ClientSupports  Caller  Sleep
computed     IdempotencyKey
sent         Progress  Log  Status
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Literal

from attrs import asdict, field, frozen

from ..canonical import JSON
from ..errors import UsageError
from . import base
from .base import Effect, InputRequest, assign, check_number, check_type

__all__ = [
    "LOG_LEVELS",
    "Caller",
    "CallerInfo",
    "ClientSupports",
    "IdempotencyKey",
    "Log",
    "Now",
    "Progress",
    "Random",
    "Sleep",
    "Status",
    "Uuid",
]

#: The levels of syslog (RFC 5424), the least important first.
LOG_LEVELS: Final = (
    *("debug", "info", "notice", "warning"),
    *("error", "critical", "alert", "emergency"),
)


@frozen(eq=False, repr=False)
class Now(Effect[dt.datetime]):
    """The time, recorded: an aware `datetime` in UTC, the same in every round."""


@frozen(eq=False, repr=False)
class Uuid(Effect[uuid.UUID]):
    """A random UUID, recorded."""


@frozen(eq=False, repr=False)
class Random(Effect[float]):
    """A random float from 0 up to 1, recorded."""


@frozen(init=False, eq=False, repr=False)
class IdempotencyKey(Effect[str]):
    """A string that stays the same in every replay, for one action such as a charge.

        key = yield from IdempotencyKey("charge", order, amount)

    Pass a name for the action, and the values that it depends on. If a user goes back
    and answers differently, the amount changes, and so does the key. Without the amount
    in it, a payment service would repeat its first reply to the known key, and the user
    would get 100 items for the price of 10. Do not pass values that differ from try to
    try, such as the current time.

    The same name and values a second time in the same sequence give another key. Before
    the first question, every retry of the first call gets a new key, because nothing
    links the calls yet.

    Args:
        name: The name of the action.
        *about: The values that the action depends on: plain data.
    """

    name: str
    about: tuple[Any, ...]

    def __init__(self, name: str, *about: Any) -> None:
        check_type(self, "name", name, "a text", str)
        assign(self, "name", name)
        assign(self, "about", about)
        self.__attrs_post_init__()


@frozen(eq=False, repr=False)
class ClientSupports(Effect[bool]):
    """Whether the client can be asked a question: `ClientSupports(Sample)`. Recorded.

    Pass a class of questions, or an effect if its details matter, such as the fields of
    a form.
    """

    what: type[InputRequest[Any]] | InputRequest[Any]

    def __attrs_post_init__(self) -> None:
        what = self.what
        is_class = isinstance(what, type) and issubclass(what, InputRequest)
        if not is_class and not isinstance(what, InputRequest):
            raise UsageError(
                "ClientSupports() takes a kind of question, such as Elicit or Sample,"
                f" not {what!r}"
            )
        if base.on_built is not None:
            base.on_built(self)


def _in_order(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(texts)


@frozen(kw_only=True)
class CallerInfo:
    """The caller, as the first round of the flow saw it.

    Attributes:
        principal: The authenticated user, if the transport knows one.
        issuer: Who vouches for the user, such as an authorization server.
        subject: The user's id at the issuer.
        tenant: The organization in whose name it calls.
        scopes: What it was allowed to do, in alphabetical order.
        claims: The claims that the server shows to handlers (`shown_claims`).
        client: The client's name and version.
        era: `"modern"`, `"legacy"` (also for the drafts), or `"local"` outside of MCP.
        protocol_version: The protocol revision that the client speaks.
        progress_token: The progress token, if the client sent one.
        flow_id: This flow's id, in hex.
    """

    principal: str | None = None
    client: str | None = None
    era: str = "local"
    protocol_version: str | None = None
    progress_token: str | int | None = None
    flow_id: str = ""
    issuer: str | None = None
    subject: str | None = None
    tenant: str | None = None
    scopes: tuple[str, ...] = field(default=(), converter=_in_order)
    claims: Mapping[str, JSON] = field(factory=dict, hash=False)

    def to_json(self) -> dict[str, JSON]:
        """Return the fields as JSON: what is newer only where there is something."""
        found = asdict(self)
        found["scopes"] = list(self.scopes)
        newer = ("issuer", "subject", "tenant", "scopes", "claims")
        return {key: one for key, one in found.items() if one or key not in newer}


@frozen(eq=False, repr=False)
class Caller(Effect[CallerInfo]):
    """The caller, as `CallerInfo`. Recorded, so it is the same in every round."""


@frozen(eq=False, repr=False)
class Sleep(Effect[None]):
    """Wait for some seconds. Use it after `Detach()`, or in a task."""

    may_lose: ClassVar[bool] = True
    seconds: float

    def __attrs_post_init__(self) -> None:
        check_number(self, "seconds", self.seconds)
        if base.on_built is not None:
            base.on_built(self)


@frozen(eq=False, repr=False)
class Progress(Effect[None]):
    """Report progress to a waiting client. Not recorded, and not sent by replays."""

    done: float
    total: float | None = None
    message: str | None = None

    def __attrs_post_init__(self) -> None:
        check_number(self, "done", self.done)
        if self.total is not None:
            check_number(self, "total", self.total)
        if self.message is not None:
            check_type(self, "message", self.message, "a text", str)
        if base.on_built is not None:
            base.on_built(self)


@frozen(eq=False, repr=False)
class Log(Effect[None]):
    """Send the client a log message. Not recorded, and not sent by replays.

    Deprecated in the protocol since 2026-07-28.
    """

    level: Literal[
        "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
    ]
    data: Any
    logger: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.level not in LOG_LEVELS:
            known = ", ".join(LOG_LEVELS)
            raise UsageError(f"Log({self.level!r}, ...): the level is one of {known}")
        if self.logger is not None:
            check_type(self, "logger", self.logger, "a text", str)
        if base.on_built is not None:
            base.on_built(self)


@frozen(eq=False, repr=False)
class Status(Effect[None]):
    """Describe what a task is doing, for users and models.

    Use it after `Detach()`, or in a task. Inline it becomes a log message.
    """

    message: str
