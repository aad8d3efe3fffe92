"""Requests that count once: the ledger that lets them run, and keeps their replies.

A `requestState` may be sent any number of times, as a server keeps nothing of a round.
"Servers for which a given requestState must be consumed at most once MUST enforce that
invariant server-side" (2026-07-28, Multi Round-Trip Requests, Server Requirements, 5). A
`Ledger` is where they do. It has a few *slots* for each flow, and a request must have all
slots that it names:

    a digest    the state: of a tool with `single_use=True`, and of any other flow from the
                first state on that asks a question with `once=True`
    a number    the round of a tool with `single_use=True`
    line        the flow, named with the first answer to such a question. After it, the flow
                has one line of states: forks from an earlier state never get the slot

    slot                                     a request that names it
    free                                     gets it, and runs
    of another request                       is refused: `StateError("used")`
    of this one, with its reply              gets that reply, and does not run
    of this one, without a reply, running    waits
    of this one, without a reply, cut off    gets it again, with a higher *fence*, and runs

A reply is sent when it is kept, and never before. The rule is in
docs/internals/replay.md#s7, its reasons in docs/internals/state.md#one-use.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextvars import copy_context
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from ..effects.local import Sleep
from ..engine.stops import Failure, Want
from ..errors import ProtocolError, StateError, TaskLimitError, TaskStoreError
from ..logs import logger_for
from ..protocol.jsonrpc import INTERNAL_ERROR, Id, encode
from ..records import record
from .commands import Command, Invoke, Outlast, PerformAll, Reply

if TYPE_CHECKING:
    from ..state.codec import Claims
    from ..state.seal import Sealer
    from .context import Context

__all__ = [
    "BUSY",
    "SPENT",
    "Answered",
    "Held",
    "Kept",
    "Ledger",
    "Taken",
    "Taking",
    "Use",
    "judge",
    "keep_reply",
    "read_reply",
    "take",
    "use_of",
]

logger = logger_for("effectmcp.server")

#: The slot of a flow, beside the slots of its rounds.
LINE: Final = "line"
#: The most bytes of a reply that is kept. A larger one is sent, and not repeated.
LARGEST: Final = 2**20
#: Seconds between two looks whether another request with the same content has ended: the
#: first pause, and the longest.
_PAUSE: Final = 0.01
_LONGEST: Final = 0.32
#: Seconds to look, if the request has no time limit of its own.
_PATIENCE: Final = 30.0


# ---- for hosts ----------------------------------------------------------------------


@record(kw_only=True)
class Use:
    """A request that counts once.

    Attributes:
        flow: A name for the flow, which reveals nothing of it: hexadecimal digits.
        slots: The slots that it needs, each with the time until which it is kept, in
            seconds since 1970. The first one is the state's, and gets the reply.
        request: A digest of what the client sent: two requests with the same one are the
            same request, sent twice.
        owner: The party whose share it takes; `None` for a client without a share.
        by: A name for this execution of the request, never used for another one.
    """

    flow: str
    slots: tuple[tuple[str, float], ...]
    request: str
    owner: str | None
    by: str


@record
class Held:
    """A slot that is not free.

    Attributes:
        request: The digest of the request that has it.
        fence: How often it was taken.
        holder: What runs the request now; `None` if nothing does.
        reply: The reply; `None` before it is kept.
    """

    request: str
    fence: int
    holder: str | None = None
    reply: bytes | None = None


@record
class Taken:
    """The request has its slots, and may run.

    Attributes:
        flow: The name of its flow.
        slot: The slot of its state.
        fence: The number that its reply must show.
    """

    flow: str
    slot: str
    fence: int


@record
class Kept:
    """The request has run before, and this is its reply."""

    reply: bytes


#: The request runs elsewhere: ask again in a moment. Another request has a slot.
BUSY: Final = "busy"
SPENT: Final = "spent"

Taking: TypeAlias = Taken | Kept | Literal["busy", "spent"]


def judge(use: Use, held: Sequence[Held | None]) -> Taking:
    """Return the result of `Ledger.take`.

    Args:
        use: The request.
        held: What the ledger has in its slots, in their order; `None` for a free one. The
            holder of a slot whose process has died is `None`.
    """
    if any(one is not None and one.request != use.request for one in held):
        return SPENT
    first = held[0]
    if first is None:
        return Taken(use.flow, use.slots[0][0], 1)
    if first.reply is not None:
        return Kept(first.reply)
    if first.holder not in (None, use.by):
        return BUSY
    return Taken(use.flow, use.slots[0][0], first.fence + 1)


class Ledger(Protocol):
    """Interface of what remembers the requests that count once.

    Every method may be called from any thread.
    """

    @property
    def is_shared(self) -> bool:
        """Whether the processes of a server share it; otherwise each has its own."""
        ...

    def take(self, use: Use) -> Taking:
        """Take the slots of a request, all or none, durably and in one transaction.

        It does not wait for a request that runs. `judge` decides.

        Raises:
            TaskLimitError: If there are too many slots, or too many of this owner.
            TaskStoreError: If it could not be stored.
        """
        ...

    def keep(self, taken: Taken, reply: bytes) -> None:
        """Store the reply of a request durably.

        If this fails, the ledger holds the reply in memory, and stores it as soon as it
        can. Until then the request counts as running.

        Raises:
            TaskStoreError: If it could not be stored, or another execution has taken the
                slot since.
        """
        ...

    def leave(self, taken: Taken) -> None:
        """Note that a request was cut off, so that the same one may run again.

        Do not wait, and raise nothing.
        """
        ...


# ---- for a request ------------------------------------------------------------------


class Answered(BaseException):
    """Raised in a request whose reply the ledger has kept.

    Attributes:
        reply: The reply, as `keep_reply` wrote it.
    """

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply)
        self.reply = reply


def use_of(
    context: Context,
    claims: Claims,
    token: str,
    sealer: Sealer,
    *,
    by: str,
    by_round: bool,
    is_consent: bool,
) -> Use:
    """Return the use that a request makes of its state.

    Args:
        context: The request.
        claims: Its state.
        token: The same, as the client sent it.
        sealer: The server's sealer.
        by: A name for this execution.
        by_round: Whether the round has one slot, too: then the state has no forks.
        is_consent: Whether this is where the flow gets its one line.
    """
    answers = context.request.params.get("inputResponses")
    journal, key = claims.journal, claims.flow_id
    state = blake2b(token.encode(), key=key, digest_size=8, person=b"state").hexdigest()
    expires = sealer.last_use(token)
    slots = [(state, expires)]
    if by_round:
        slots.append((str(journal.rounds + journal.state_rounds), expires))
    if is_consent:
        slots.append((LINE, sealer.last_round(claims)))
    # Not canonical JSON, which refuses what a client may send beside its answers.
    sent = json.dumps([token, answers], sort_keys=True).encode()
    return Use(
        flow=blake2b(key=key, digest_size=16, person=b"ledger").hexdigest(),
        slots=tuple(slots),
        request=blake2b(sent, key=key, digest_size=16, person=b"use").hexdigest(),
        owner=context.peer.party,
        by=by,
    )


def take(
    context: Context, ledger: Ledger, use: Use, seconds: float | None
) -> Generator[Command, Any, None]:
    """Have the ledger count a request; return when it may run.

    Args:
        context: The request. Its `taken` gets the taken slots.
        ledger: The ledger.
        use: The use.
        seconds: The time limit of the request.

    Raises:
        Answered: If it has run before.
        StateError: If another request has the state.
        ProtocolError: If the ledger is away or full, or the request still runs elsewhere.
    """
    pause = _PAUSE
    until = context.clock() + (_PATIENCE if seconds is None else seconds)
    while True:
        attempt = _Attempt(ledger, use)
        try:
            outcome = yield Invoke(attempt.run, {})
        except BaseException:
            attempt.give_up()
            raise
        if isinstance(outcome, Failure):
            raise _refusal(outcome.error)
        taking: Taking = outcome.value
        if isinstance(taking, Taken):
            context.taken[:] = [taking]
            yield Outlast()
            return
        if isinstance(taking, Kept):
            context.taken.clear()  # another execution has the slots, and has ended
            raise Answered(taking.reply)
        if taking == SPENT:
            raise StateError("used")
        if context.clock() + pause > until:
            raise ProtocolError(
                INTERNAL_ERROR,
                "The same request is still being answered. Send it again later.",
            )
        yield PerformAll((Want("ledger", Sleep(pause), copy_context()),))
        pause = min(2 * pause, _LONGEST)


class _Attempt:
    """One `take`, in a thread that continues even if its request was cut off."""

    def __init__(self, ledger: Ledger, use: Use) -> None:
        self._ledger = ledger
        self._use = use
        self._taken: Taken | None = None
        self._is_over = False

    def run(self) -> Taking:
        taking = self._ledger.take(self._use)
        if isinstance(taking, Taken):
            self._taken = taking
            if self._is_over:
                self._ledger.leave(taking)
        return taking

    def give_up(self) -> None:
        """Leave the taken slots, now or later: one of the two threads sees the other."""
        self._is_over = True
        if self._taken is not None:
            self._ledger.leave(self._taken)


def _refusal(error: Exception) -> Exception:
    if isinstance(error, TaskLimitError):
        return ProtocolError(INTERNAL_ERROR, str(error))
    if not isinstance(error, TaskStoreError):
        return error
    logger.error("a request that counts once was refused: %s", error)
    return ProtocolError(
        INTERNAL_ERROR,
        "This request counts once, and cannot be counted now, so nothing was done. Send"
        " the same request again later.",
    )


def keep_reply(
    ledger: Ledger, taken: list[Taken], reply: Reply
) -> Generator[Command, Any, Reply]:
    """Have the ledger keep the reply to a request; return it, as it may be sent now.

    Args:
        ledger: The ledger.
        taken: The slots of the request. The list is emptied: the ledger has the reply.
        reply: The reply.

    Raises:
        ProtocolError: If it could not be kept. Then it is not sent either: the same
            request would get another one.
    """
    outcome = yield Invoke(ledger.keep, {"taken": taken[0], "reply": _written(reply)})
    taken.clear()
    if not isinstance(outcome, Failure):
        return reply
    logger.error("the reply to a request that counts once: %s", outcome.error)
    raise ProtocolError(
        INTERNAL_ERROR,
        "This request was performed, and its result could not be recorded. Send the same"
        " request again to get it.",
    )


def _written(reply: Reply) -> bytes:
    message = reply.message
    assert message is not None  # the caller has checked it
    rest = {key: one for key, one in message.items() if key not in _ENVELOPE}
    written = encode({"status": reply.status, **rest})
    if len(written) <= LARGEST:
        return written
    error = {"code": INTERNAL_ERROR, "message": _TOO_LARGE}
    return encode({"status": reply.status, "error": error})


_ENVELOPE: Final = ("jsonrpc", "id")
_TOO_LARGE: Final = (
    "This request was performed before, and its result was too large to be kept."
)


def read_reply(id_: Id, kept: bytes) -> Reply:
    """Return the reply that was kept, as the reply to a request with this id."""
    read: dict[str, Any] = json.loads(kept)
    status = read.pop("status")
    return Reply({"jsonrpc": "2.0", "id": id_, **read}, status)
