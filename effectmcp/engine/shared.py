"""What all generations of a flow share, in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define

from ..effects import Effect
from ..errors import UsageError
from .journal import Fingerprints
from .names import name_of
from .rules import Rules

if TYPE_CHECKING:
    from .answers import Read
    from .development import Watch

__all__ = ["ExhaustedError", "Shared"]

Arguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]

#: How many rounds' worth of `Log` and the like a replay may repeat: they are in no
#: journal, so a replay yields all of them again.
REPLAYED = 10


class ExhaustedError(Exception):
    """The budget of yields is spent. Ends the run; never reaches a handler."""


@define(eq=False)
class Shared:
    """One flow, in one process: what it was given, and what it counts.

    Attributes:
        handler: The handler that the flow began with.
        call: Its arguments.
        prints: The fingerprints of this flow.
        rules: What holds now. `Detach` changes it.
        detached_rules: What holds after a `Detach` that gave True.
        supports: Whether the client can be asked something.
        emit: Hears of `Progress`, `Log` and `Status`.
        resolve: Finds handlers by name.
        read: Reads answers that came unread.
        clock: Seconds since 1970, where there is a clock.
        name: The handler's name in reports.
        version: Its declared version.
        watch: Hears of each effect that is performed, in development mode.
        rounds: Interim results so far.
        state_rounds: Those of them that asked nothing.
        limit: The limit on rounds that this round passed, if it did.
        detached: What `Detach` gave, if the flow passed one.
        muted: Whether `Progress` and `Log` are held back, as in a replay.
        spent: Yields that no journal entry fed, since the flow last waited.
    """

    handler: Callable[..., Any]
    call: Arguments
    prints: Fingerprints
    rules: Rules
    detached_rules: Rules
    supports: Callable[[Any], bool]
    emit: Callable[[Effect[Any]], None]
    resolve: Callable[[str], Callable[..., Any] | None]
    read: Read
    clock: Callable[[], float] | None
    name: str
    version: str | None
    watch: Watch | None
    rounds: int
    state_rounds: int
    detached: bool | None
    muted: bool
    limit: int | None = None
    spent: int = 0

    def __attrs_post_init__(self) -> None:
        if self.detached:
            self.rules = self.detached_rules

    def find(self, name: str) -> Callable[..., Any] | None:
        """Return the handler that is called `name`, for `Restart`."""
        return self.handler if name == name_of(self.handler) else self.resolve(name)

    def spend(self) -> None:
        """Count one yield that no journal entry feeds (docs/internals/replay.md#l5).

        Raises:
            ExhaustedError: This was one too many.
        """
        self.spent += 1
        if self.spent > self.rules.yields * (REPLAYED if self.muted else 1):
            raise ExhaustedError

    def unmute(self) -> None:
        """Note that what comes now is new: it is heard, and has a budget of its own.

        See docs/internals/replay.md#v5.
        """
        if self.muted:
            self.muted = False
            self.spent = 0

    def detach(self, *, gave: bool) -> None:
        """Go on under the rules that hold after `Detach`."""
        self.detached = gave
        if gave:
            self.rules = self.detached_rules

    def now(self) -> float:
        """Return the time.

        Raises:
            UsageError: The embedder gave no clock.
        """
        if self.clock is None:
            raise UsageError("this flow waits for a time: give Run(clock=time.time)")
        return self.clock()
