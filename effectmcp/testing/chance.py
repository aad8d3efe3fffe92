"""Fixed outcomes of the clock and of random values: the same in every test."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from typing import Final

from ..effects.base import Effect
from ..effects.control import Detach
from ..effects.local import (
    Caller,
    CallerInfo,
    Now,
    Random,
    Sleep,
    Uuid,
)
from ..engine.stops import Done

__all__ = ["EPOCH", "FLOW_ID", "Chance"]

FLOW_ID: Final = bytes(16)
EPOCH: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Chance:
    """A clock that advances one second per reading, and fixed "random" values."""

    def __init__(self) -> None:
        self._drawn = 0

    def outcome(self, effect: Effect[object]) -> Done | None:
        """Return the fixed outcome of `effect`; `None` if the test must supply it."""
        match effect:
            case Now():
                self._drawn += 1
                return Done(EPOCH + dt.timedelta(seconds=self._drawn - 1))
            case Uuid():
                self._drawn += 1
                drawn = hashlib.sha256(str(self._drawn).encode()).digest()
                return Done(uuid.UUID(bytes=drawn[:16], version=4))
            case Random():
                return Done(0.5)
            case Caller():
                return Done(CallerInfo(flow_id=FLOW_ID.hex()))
            case Detach():
                return Done(False)
            case Sleep():
                return Done(None)
            case _:
                return None
