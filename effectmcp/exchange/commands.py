"""What a driver is asked to do.

    exchange = handle(app, message, peer, clock=time.time, entropy=os.urandom)
    command = next(exchange)
    while True:
        match command:
            case PerformAll(wants): come_of_it = {want.key: perform(want) for want in wants}
            case Invoke():       come_of_it = Done(command.function(**command.kwargs))
            case Notify():       come_of_it = send(command.message)
            case Listen():       come_of_it = ...  # until the server shuts down
        command = exchange.send(come_of_it)

until `StopIteration` brings the `Reply`. A driver that runs into a command's deadline
throws `Overdue` into the exchange, and whatever else keeps it from performing a command
as itself; one whose client is gone closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

from attrs import field, frozen

from ..canonical import JSON
from ..engine import Want
from ..protocol.jsonrpc import encode
from .subscriptions import Subscription

__all__ = [
    "Command",
    "Exchange",
    "Invoke",
    "Listen",
    "Notify",
    "Overdue",
    "Peer",
    "PerformAll",
    "Reply",
]


class Overdue(Exception):
    """The deadline of a command has passed. Not a `TimeoutError`: a handler may raise
    one of its own, which says something else."""


@frozen(kw_only=True)
class Peer:
    """What a transport knows of who is asking.

    Attributes:
        principal: The authenticated user. A state belongs to one of them.
        headers: The HTTP headers by lower-cased name; `None` where there are none, over
            a pipe say, and nothing is then checked against them.
        address: Where the request came from, for logs.
    """

    principal: str | None = None
    headers: Mapping[str, str] | None = None
    address: str | None = None


@frozen(eq=False)
class PerformAll:
    """Perform local effects, side by side; answer with one outcome for each key.

    Attributes:
        wants: The effects.
        deadline: When to give up, by the exchange's clock.
    """

    wants: tuple[Want, ...]
    deadline: float | None = None


@frozen(eq=False)
class Invoke:
    """Call a plain function; answer with `Done` or `Failure`.

    Attributes:
        function: What to call, with `kwargs`.
        kwargs: The arguments.
        provided: The parameters that the lifespan fills in, with their annotations.
        is_async: Whether to await it on the loop. Otherwise it may block, and belongs
            into a worker thread.
        deadline: When to give up, by the exchange's clock.
    """

    function: Callable[..., Any]
    kwargs: Mapping[str, Any]
    provided: Mapping[str, Any] = field(factory=dict)
    is_async: bool = False
    deadline: float | None = None


@frozen(eq=False)
class Notify:
    """Send a notification on the stream of this request, now."""

    message: Mapping[str, JSON]


@frozen(eq=False)
class Listen:
    """Send what `subscription` makes of every change, until the server shuts down.

    Listen to `app.changes` first and send `subscription.acknowledgement` then, so that
    no change falls between the two.
    """

    subscription: Subscription


Command: TypeAlias = PerformAll | Invoke | Notify | Listen


@frozen(eq=False)
class Reply:
    """The end of an exchange.

    Attributes:
        message: The response; `None` for a notification, which has none.
        status: The HTTP status.
        body: The response as a line of UTF-8, without its end; `None` if there is none.

    Raises:
        Exception: It is nothing that JSON can say.
    """

    message: Mapping[str, JSON] | None
    status: int = 200
    body: bytes | None = field(init=False, repr=False)

    @body.default
    def _encode(self) -> bytes | None:
        return None if self.message is None else encode(self.message)


Exchange: TypeAlias = Generator[Command, Any, Reply]
