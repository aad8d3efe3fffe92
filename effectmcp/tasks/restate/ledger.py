"""Requests that count once, on Restate: what a server does, with one thread.

The thread shows that the requests of this process still run, and does what must not wait:
it leaves slots, and keeps replies that could not be kept at once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from attrs import define

from ...errors import TaskLimitError, TaskStoreError
from ...exchange.ledger import BUSY, SPENT, Kept, Taken, Taking, Use
from ...logs import logger_for
from .attempts import owner_tag
from .engine import Engine
from .uses import FULL, KEEP, TAKE, Seen, keep_request, read_taking, take_request

__all__ = ["RestateLedger"]

logger = logger_for("effectmcp.tasks")

#: Seconds between two beats of a request that runs, and those after which one without a
#: beat may be taken over: several beats may be lost, or late.
_BEAT: Final = 3.0
_DEAD: Final = 12.0
#: The most requests of others whose beats are remembered.
_SEEN: Final = 10_000


@define(eq=False)
class _Held:
    """A slot that this process has, or has to write.

    Attributes:
        reply: A reply that could not be kept yet.
        is_left: Whether nothing runs the request any more.
    """

    reply: bytes | None = None
    is_left: bool = False


class RestateLedger:
    """A `Ledger` on an engine.

    Args:
        engine: The engine.
        service: The name of the service.
        count: Returns how many flows have slots, by the tag of their owner.
        limit: The most flows that may have slots at once.
        share: The most of them of one owner.
        clock: Returns seconds, from an arbitrary start.
    """

    is_shared = True

    def __init__(
        self,
        engine: Engine,
        service: str,
        count: Callable[[], Counter[str]],
        *,
        limit: int,
        share: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._service = service
        self._count = count
        self._limit = limit
        self._share = share
        self._held: dict[Taken, _Held] = {}
        #: What others run, and since when it has had that beat.
        self._seen: dict[tuple[str, str], tuple[Seen, float]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- a `Ledger` -----------------------------------------------------------------

    def take(self, use: Use) -> Taking:
        """Take the slots of a request, durably."""
        place = use.flow, use.slots[0][0]
        found = self._take(use, self._dead(place))
        if isinstance(found, Seen):
            with self._lock:
                if self._seen.get(place, (None, 0.0))[0] != found:
                    self._seen[place] = found, self._clock()
                    while len(self._seen) > _SEEN:
                        del self._seen[next(iter(self._seen))]
            return BUSY
        if found is None:
            return SPENT
        with self._lock:
            self._seen.pop(place, None)
        if isinstance(found, bytes):
            return Kept(found)
        with self._lock:
            # An execution takes its state again, together with the flow's line.
            for earlier in [one for one in self._held if (one.flow, one.slot) == place]:
                del self._held[earlier]
        self._note(found, _Held())
        return found

    def keep(self, taken: Taken, reply: bytes) -> None:
        """Store the reply of a request durably; if that fails, store it later."""
        try:
            self._keep(taken, keep_request(taken, reply))
        except _TakenAgainError:
            self._drop(taken)
            raise
        except TaskStoreError:
            self._note(taken, _Held(reply))
            raise
        self._drop(taken)

    def leave(self, taken: Taken) -> None:
        """Note that a request was cut off. Do not wait."""
        with self._lock:
            held = self._held.get(taken)
        if held is not None and held.reply is not None:
            return  # its reply is kept later
        self._note(taken, _Held(is_left=True))
        self._wake.set()

    # ---- inside ---------------------------------------------------------------------

    def _dead(self, place: tuple[str, str]) -> Seen | None:
        with self._lock:
            seen, since = self._seen.get(place, (None, 0.0))
        return seen if self._clock() - since >= _DEAD else None

    def _take(self, use: Use, over: Seen | None) -> Taken | Seen | bytes | None:
        counted = self._count()
        problem = None
        if counted[owner_tag(use.owner).decode()] >= self._share:
            problem = "you have too many calls that count once; come back later"
        elif counted.total() >= self._limit:
            problem = "there are too many calls that count once; come back later"
        request = take_request(use, over, is_full=problem is not None)
        answer = self._ask(TAKE, use.flow, request)
        if answer == FULL:
            raise TaskLimitError(
                problem or "this call has too many states that count once"
            )
        return read_taking(answer, use)

    def _keep(self, taken: Taken, request: bytes) -> None:
        answer = self._ask(KEEP, taken.flow, request)
        if answer != {"kept": True}:
            raise _TakenAgainError(
                f"slot {taken.slot} of {taken.flow} was taken again by the same request"
            )

    def _ask(self, handler: str, flow: str, body: bytes) -> Any:
        return self._engine.call(self._service, handler, flow, body)

    def _drop(self, taken: Taken) -> None:
        with self._lock:
            self._held.pop(taken, None)

    def _note(self, taken: Taken, held: _Held) -> None:
        with self._lock:
            self._held[taken] = held
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._beat, name="effectmcp-ledger", daemon=True
                )
                self._thread.start()

    def _beat(self) -> None:
        """Write for the slots of this process, until it has none."""
        problem = ""
        while True:
            self._wake.wait(_BEAT)
            self._wake.clear()
            with self._lock:
                if not self._held:
                    self._thread = None
                    return
                held = list(self._held.items())
            # Signs of life first: what fails or takes long must not hold them up.
            held.sort(key=lambda one: one[1].reply is not None)
            failed = ""
            for taken, one in held:
                try:
                    self._write(taken, one)
                except Exception as exc:
                    failed = f"{exc}"
            if failed and failed != problem:
                logger.warning("requests that count once are kept later: %s", failed)
            problem = failed

    def _write(self, taken: Taken, one: _Held) -> None:
        with self._lock:
            if self._held.get(taken) is not one:
                return  # it has ended meanwhile
        try:
            self._keep(taken, keep_request(taken, one.reply, is_left=one.is_left))
        except _TakenAgainError:
            # Nothing more can be written: another execution has the slot.
            if one.reply is not None or one.is_left:
                self._drop(taken)
            return
        if one.reply is not None or one.is_left:
            with self._lock:
                if self._held.get(taken) is one:
                    del self._held[taken]


class _TakenAgainError(TaskStoreError):
    """Raised when another execution of the request has the slot now."""
