"""What a driver is asked to do.

    exchange = handle(app, message, peer, clock=time.time, entropy=os.urandom)
    command = next(exchange)
    while True:
        match command:
            case PerformAll(wants): come_of_it = {want.key: perform(want) for want in wants}
            case Invoke():       come_of_it = Done(command.function(**command.kwargs))
            case Notify():       come_of_it = send(command.message)
            case Ask():          come_of_it = ...  # send asking.messages; until it is over
            case Listen():       come_of_it = ...  # until the server shuts down
        command = exchange.send(come_of_it)

until `StopIteration` brings the `Reply`. A driver that runs into a command's deadline
throws `Overdue` into the exchange, and whatever else keeps it from performing a command
as itself; one whose client is gone closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field

from ..canonical import JSON
from ..protocol.jsonrpc import Malformed, Notification, Request, Response, encode
from ..records import record

if TYPE_CHECKING:
    from ..engine.stops import Want
    from .sessions import Inquiry, Session
    from .subscriptions import Subscription

__all__ = [
    "Ask",
    "Command",
    "Exchange",
    "Incoming",
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


@record(kw_only=True)
class Peer:
    """What a transport knows of who is asking.

    Attributes:
        principal: The authenticated user. A state belongs to one of them.
        headers: The HTTP headers by lower-cased name; `None` where there are none, over
            a pipe say, and nothing is then checked against them.
        address: Where the request came from, for logs.
        session: What was agreed on with this client by a handshake, if there was one.
        is_busy: Whether there is no room to ask it while its request runs.
    """

    principal: str | None = None
    headers: Mapping[str, str] | None = None
    address: str | None = None
    session: Session | None = None
    is_busy: bool = False


@record(eq=False)
class PerformAll:
    """Perform local effects, side by side; answer with one outcome for each key.

    Attributes:
        wants: The effects.
        deadline: When to give up, by the exchange's clock.
    """

    wants: tuple[Want, ...]
    deadline: float | None = None


@record(eq=False)
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


@record(eq=False)
class Notify:
    """Send a notification on the stream of this request, now."""

    message: Mapping[str, JSON]


@record(eq=False)
class Ask:
    """Send the messages of `asking` on the stream of this request, now, and wait until
    it is over, or its time is up. The replies come in as messages of their own."""

    asking: Inquiry


@record(eq=False)
class Listen:
    """Send what `subscription` makes of every change, until the server shuts down.

    Listen to `app.changes` first and send `subscription.acknowledgement` then, so that
    no change falls between the two.
    """

    subscription: Subscription


#: What a client sends: its text, what a JSON reader made of it, or what `read_message` did.
Incoming: TypeAlias = (
    bytes | str | Mapping[str, JSON] | Request | Notification | Response | Malformed
)

Command: TypeAlias = PerformAll | Invoke | Notify | Ask | Listen


@record(eq=False)
class Reply:
    """The end of an exchange.

    Attributes:
        message: The response; `None` for a notification, which has none.
        status: The HTTP status.
        opened: The session that begins with it. Show it with all that follows.
        body: The response as a line of UTF-8, without its end; `None` if there is none.

    Raises:
        Exception: It is nothing that JSON can say.
    """

    message: Mapping[str, JSON] | None
    status: int = 200
    opened: Session | None = None
    body: bytes | None = field(init=False, repr=False)

    @body.default
    def _encode(self) -> bytes | None:
        return None if self.message is None else encode(self.message)


Exchange: TypeAlias = Generator[Command, Any, Reply]
