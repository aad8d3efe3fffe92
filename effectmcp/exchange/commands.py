"""The commands that an exchange yields to its driver.

    exchange = handle(app, message, peer, clock=time.time, entropy=os.urandom)
    command = next(exchange)
    while True:
        match command:
            case PerformAll(wants): come_of_it = {want.key: perform(want) for want in wants}
            case Invoke():       come_of_it = Done(command.function(**command.kwargs))
            case Notify():       come_of_it = send(command.message)
            case Ask():          come_of_it = ...  # send asking.take_unsent(); until it is over
            case Outlast():      come_of_it = None  # the client's leaving ends nothing now
            case Listen():       come_of_it = ...  # until the server shuts down
        command = exchange.send(come_of_it)

until `StopIteration` carries the `Reply`. When the deadline of a command passes, the
driver throws `Overdue` into the exchange. Any other error that keeps it from executing
a command is thrown in unchanged. When the client disconnects, it closes the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import Factory, field

from ..canonical import JSON
from ..protocol.jsonrpc import Malformed, Notification, Request, Response, encode
from ..records import record
from .shares import party_of

if TYPE_CHECKING:
    from contextvars import Context as Variables

    from ..engine.stops import Want
    from ..server.identity import Identity
    from .sessions import Inquiry, Session
    from .shares import Shares
    from .subscriptions import Subscription

__all__ = [
    "Ask",
    "Command",
    "Exchange",
    "Incoming",
    "Invoke",
    "Listen",
    "Notify",
    "Outlast",
    "Overdue",
    "Peer",
    "PerformAll",
    "Reply",
    "peer_of",
]


class Overdue(Exception):
    """Thrown into an exchange when the deadline of a command has passed.

    It is not a `TimeoutError`: a handler may raise that for a limit of its own.
    """


_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@record(kw_only=True)
class Peer:
    """The sender of a message, as the transport knows it.

    Attributes:
        principal: The authenticated user. A state is bound to one user.
        identity: What else is known about this user; `None` for nothing.
        scopes: What the sender may do; `None` for everything, as for the process that
            started this one.
        headers: The HTTP headers by lower-cased name. `None` if the transport has no
            headers, such as a pipe: then nothing is checked against them.
        address: The client's address, for shares; `None` if many clients have it.
        session: The session that the client opened with `initialize`, if any.
        is_busy: Whether the server already asks as many users live as it can.
        seats: Seats for requests that wait for changes, such as subscriptions; `None`
            for no limit.
        provided: Values of this request for parameters that are `= Provided()`, by name
            or by annotation; they come before the lifespan's values.
    """

    principal: str | None = None
    identity: Identity | None = field(default=None, repr=False)
    scopes: frozenset[str] | None = frozenset()
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    address: str | None = None
    session: Session | None = None
    is_busy: bool = False
    seats: Shares | None = None
    provided: Mapping[Any, Any] = field(default=_NOTHING, eq=False)

    @property
    def party(self) -> str | None:
        """The party whose share of the server's resources this client takes."""
        return party_of(self.principal, self.address)


def peer_of(user: Identity | str | None) -> Peer:
    """Return the sender of messages in this process: a name alone may do everything."""
    if user is None or isinstance(user, str):
        return Peer(principal=user, scopes=None)
    return Peer(principal=user.principal, identity=user, scopes=user.scopes)


@record(eq=False)
class PerformAll:
    """Perform local effects, side by side; send back one outcome for each key.

    Attributes:
        wants: The effects.
        deadline: When to give up, by the exchange's clock.
    """

    wants: tuple[Want, ...]
    deadline: float | None = None


@record(eq=False)
class Invoke:
    """Call a plain or async function; send back `Done` or `Failure`.

    Attributes:
        function: The function to call.
        kwargs: Its arguments.
        provided: The parameters that the lifespan fills in, with their annotations.
        is_async: Whether to await it on the loop. Otherwise it may block, so it needs a
            worker thread.
        deadline: When to give up, by the exchange's clock.
        variables: The context to call it in a copy of; `None` for the driver's.
    """

    function: Callable[..., Any]
    kwargs: Mapping[str, Any]
    provided: Mapping[str, Any] = field(factory=dict)
    is_async: bool = False
    deadline: float | None = None
    variables: Variables | None = None


@record(eq=False)
class Notify:
    """Send a notification on the stream of this request, now."""

    message: Mapping[str, JSON]


@record(eq=False)
class Ask:
    """Send the unsent messages of `asking` on the stream of this request, now, and wait
    until it is over, or until its time is up. Each reply arrives as a separate message."""

    asking: Inquiry


@record(eq=False)
class Outlast:
    """Finish the rest of the exchange even if its client disconnects or cancels it.

    Otherwise a client could have a step performed many times, by leaving while it runs. Only
    the end of the server cuts the exchange off. It is yielded once, and has no
    outcome; a driver that cannot be interrupted has nothing to do.
    """


@record(eq=False)
class Listen:
    """Send the messages of `subscription` for all changes, until the server shuts down.

    Listen to `app.changes` before sending `subscription.acknowledgement`, so that no
    change is missed between the two.
    """

    subscription: Subscription


#: A client's message: a string, or the output of a JSON reader or of `read_message`.
Incoming: TypeAlias = (
    bytes | str | Mapping[str, JSON] | Request | Notification | Response | Malformed
)

Command: TypeAlias = PerformAll | Invoke | Notify | Ask | Outlast | Listen


def _encoded(reply: Reply) -> bytes | None:
    return None if reply.message is None else encode(reply.message)


@record(eq=False)
class Reply:
    """The end of an exchange.

    Attributes:
        message: The response; `None` for a notification, which has none.
        status: The HTTP status.
        opened: The session that this reply opens. Pass it along with each of the
            client's later messages, as `Peer.session`.
        body: The response as a line of UTF-8, without the line end; `None` for a
            notification.
        needs: The scopes that the request needs, if it was refused for lack of one.

    Raises:
        Exception: If JSON cannot express the message.
    """

    message: Mapping[str, JSON] | None
    status: int = 200
    opened: Session | None = None
    body: bytes | None = field(default=Factory(_encoded, takes_self=True), repr=False)
    needs: frozenset[str] = frozenset()


Exchange: TypeAlias = Generator[Command, Any, Reply]
