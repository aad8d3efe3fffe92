"""The data that all generations of a flow share, in one process, and its fingerprints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from functools import lru_cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import define, field

from ..canonical import JSON, dumps
from ..effects.base import Effect
from ..errors import UsageError
from .names import name_of
from .rules import Rules

if TYPE_CHECKING:
    from .answers import Read
    from .development import Watch

__all__ = [
    "RENDERS",
    "SHAPES",
    "SOON",
    "ExhaustedError",
    "Fingerprints",
    "FlowState",
    "HandlerCall",
    "shape_head",
]

#: A handler, its positional and its keyword arguments.
HandlerCall: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]

#: Factor on the budget of yields in a replay: `Log` and the like are not in the
#: journal, so a replay yields them again for each earlier round.
REPLAYED = 10


#: The value of `cancelled` in a flow to cancel as soon as possible.
SOON: Final = -1


class ExhaustedError(Exception):
    """Raised when the budget of yields is spent. Ends the run; never in a handler."""


@define(eq=False)
class FlowState:
    """One flow, in one process: its arguments, and its counts.

    Attributes:
        call: The first handler of the flow, and its arguments.
        prints: The fingerprints of this flow.
        rules: The current rules. `Detach` changes them.
        detached_rules: The rules after a `Detach` that returned True.
        supports: Returns whether the client can be asked a question.
        emit: Receives `Progress`, `Log` and `Status`.
        resolve: Finds handlers by name.
        read: Reads `Unread` answers.
        clock: Returns the seconds since 1970; `None` without a clock.
        consented: Called when the answer to a question with `once=True` is taken.
        name: The handler's name in reports.
        version: Its declared version.
        watch: Notes each effect that is performed, in development mode.
        rounds: Interim results so far.
        state_rounds: Interim results so far without a question.
        limit: The limit on rounds that this round passed; `None` if it did not.
        detached: The value of `Detach`, if the flow passed one.
        muted: Whether `Progress`, `Log` and `Status` are suppressed, as in a replay.
        spent: Yields without a journal entry since the flow last waited.
        context: The context whose copies the flow runs in, also after a `Restart`.
    """

    call: HandlerCall
    prints: Fingerprints
    rules: Rules
    detached_rules: Rules
    supports: Callable[[Any], bool]
    emit: Callable[[Effect[Any]], None]
    resolve: Callable[[str], Callable[..., Any] | None]
    read: Read
    clock: Callable[[], float] | None
    consented: Callable[[], None]
    name: str
    version: str | None
    watch: Watch | None
    rounds: int
    state_rounds: int
    detached: bool | None
    muted: bool
    limit: int | None = None
    spent: int = 0
    context: Context = field(factory=copy_context)

    def find(self, name: str) -> Callable[..., Any] | None:
        """Return the handler with this name, for `Restart`."""
        handler, _, _ = self.call
        return handler if name == name_of(handler) else self.resolve(name)

    def spend(self) -> None:
        """Count a yield without a journal entry (docs/internals/replay.md#l5).

        Raises:
            ExhaustedError: If the budget of yields is spent.
        """
        self.spent += 1
        if self.spent > self.rules.yields * (REPLAYED if self.muted else 1):
            raise ExhaustedError

    def unmute(self) -> None:
        """End the replay: later effects are emitted and have their own budget.

        See docs/internals/replay.md#v5.
        """
        if self.muted:
            self.muted = False
            self.spent = 0

    def detach(self, *, gave: bool) -> None:
        """Note the value of `Detach`; if it is True, switch to the rules after it."""
        self.detached = gave
        if gave:
            self.rules = self.detached_rules

    def now(self) -> float:
        """Return the time.

        Raises:
            UsageError: If the embedder gave no clock.
        """
        if self.clock is None:
            raise UsageError("this flow waits for a time: give Run(clock=time.time)")
        return self.clock()


# ---- fingerprints -------------------------------------------------------------------


# The same in every round of every flow.
@lru_cache(maxsize=1024)
def shape_head(kind: str, key: str | None) -> bytes:
    """Return the bytes of a kind and an explicit key, which start what a shape digests."""
    return dumps([kind, key])


#: Make the keyed hashers of a flow.
RENDERS: Final = partial(blake2b, digest_size=8, person=b"render")
SHAPES: Final = partial(blake2b, digest_size=4, person=b"shape")


@define(eq=False)
class Fingerprints:
    """The digests of one flow: each is one pass of a copied hasher, which has the key.

    Attributes:
        renderer: Its copies digest a message with its parameters.
        shaper: Its copies digest a kind, an explicit key and an answer schema.
        shapes: The computed shapes, by these three: there are few.
    """

    _flow_id: bytes
    renderer: blake2b
    shaper: blake2b
    shapes: dict[tuple[str, str | None, bytes], bytes]

    def shape(self, kind: str, key: str | None, schema: bytes) -> bytes:
        """Return the shape of a kind, explicit key and answer schema."""
        found = self.shapes.get((kind, key, schema))
        if found is None:
            hasher = self.shaper.copy()
            hasher.update(shape_head(kind, key) + schema)
            found = self.shapes[kind, key, schema] = hasher.digest()
        return found

    def render(self, content: bytes) -> bytes:
        """Return the render of a message with its parameters."""
        hasher = self.renderer.copy()
        hasher.update(content)
        return hasher.digest()

    def idempotency_key(
        self, generation: int, path: str, name: str, about: list[JSON], nth: int
    ) -> str:
        """Return the stable string that `IdempotencyKey(name, *about)` returns."""
        # Without `about`, the digest is unchanged: a flow keeps its keys through an
        # upgrade (docs/internals/replay.md#s4).
        more = [about] if about else []
        return blake2b(
            dumps([generation, path, name, *more, nth]),
            key=self._flow_id,
            digest_size=16,
            person=b"idempotency",
        ).hexdigest()
