"""Fixed outcomes of the clock and of random values: the same in every test."""

from __future__ import annotations

from itertools import count
from typing import Final

from ..effects.base import Effect
from ..engine.effect_table import KINDS
from ..engine.stops import Done

__all__ = ["FLOW_ID", "Chance"]

#: As `Caller()` says it, too: see its row in engine/effect_table.py.
FLOW_ID: Final = bytes(16)


class Chance:
    """A clock that advances one second per reading, and fixed "random" values."""

    def __init__(self) -> None:
        self._drawn = count()

    def outcome(self, effect: Effect[object]) -> Done | None:
        """Return the fixed outcome of `effect`; `None` if the test must supply it."""
        kind = KINDS.get(type(effect))
        if kind is None or kind.sample is None:
            return None
        return Done(kind.sample(self._drawn))
