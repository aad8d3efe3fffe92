"""Fixed outcomes of the clock and of random values: the same in every test."""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from typing import Final

from .. import effects as fx
from ..effects import CallerInfo, Effect
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
            case fx.Now():
                self._drawn += 1
                return Done(EPOCH + dt.timedelta(seconds=self._drawn - 1))
            case fx.Uuid():
                self._drawn += 1
                drawn = hashlib.sha256(str(self._drawn).encode()).digest()
                return Done(uuid.UUID(bytes=drawn[:16], version=4))
            case fx.Random():
                return Done(0.5)
            case fx.Caller():
                return Done(CallerInfo(flow_id=FLOW_ID.hex()))
            case fx.Detach():
                return Done(False)
            case fx.Sleep():
                return Done(None)
            case _:
                return None
