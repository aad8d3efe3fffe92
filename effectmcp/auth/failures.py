"""A budget of bad tokens for each client. No I/O, no clock."""

from __future__ import annotations

import threading
from collections import OrderedDict

from attrs import define, field

__all__ = ["Failures"]

#: Parties that are remembered; the oldest one is forgotten first.
_MOST: int = 10_000


@define(eq=False)
class Failures:
    """Counts the failures of each party, such as an address, in a window of time.

    Attributes:
        most: How many a party may have in one window.
        seconds: The length of a window.
    """

    most: int = 30
    seconds: float = 60.0
    _counts: OrderedDict[str | None, tuple[float, int]] = field(factory=OrderedDict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def may_try(self, party: str | None, now: float) -> bool:
        """Return whether a party may cause another request."""
        began, count = self._counts.get(party, (now, 0))
        return count < self.most or now - began >= self.seconds

    def add(self, party: str | None, now: float) -> None:
        """Count a failure."""
        with self._lock:
            began, count = self._counts.pop(party, (now, 0))
            if now - began >= self.seconds:
                began, count = now, 0
            self._counts[party] = (began, count + 1)
            while len(self._counts) > _MOST:
                self._counts.popitem(last=False)
