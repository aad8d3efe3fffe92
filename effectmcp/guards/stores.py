"""Counts in this process's memory, of a bounded size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from attrs import define, field

from ..errors import UsageError

__all__ = ["MemoryLimits"]


@define
class _Bucket:
    tokens: float
    at: float


def _check_most(store: object, attribute: object, most: int) -> None:
    if type(most) is not int or most < 1:
        raise UsageError(f"MemoryLimits(most={most!r}): give 1 or more")


@define(eq=False)
class MemoryLimits:
    """A `LimitStore` in memory.

    It is not shared: with several processes, each counts for itself.

    Args:
        most: The most keys of each sort. Beyond them, the key that was used least
            recently is forgotten, so a stranger with many addresses takes no more memory.
    """

    _most: int = field(default=100_000, validator=_check_most)
    #: Its functions wait for nothing.
    blocks: bool = field(default=False, init=False)
    _buckets: OrderedDict[str, _Bucket] = field(factory=OrderedDict, init=False)
    _open: OrderedDict[str, dict[str, float]] = field(factory=OrderedDict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def take(self, key: str, *, tokens: float, seconds: float, now: float) -> float:
        """Take one token of a bucket; see `LimitStore`."""
        with self._lock:
            return self._take(key, tokens, seconds, now)

    def _take(self, key: str, tokens: float, seconds: float, now: float) -> float:
        bucket = self._buckets.pop(key, None) or _Bucket(tokens, now)
        # A clock that was set back adds no tokens.
        passed = max(0.0, now - bucket.at)
        bucket.tokens = min(tokens, bucket.tokens + passed * tokens / seconds)
        # Otherwise a clock that was ahead would keep a user waiting.
        bucket.at = now
        wait = 0.0
        if bucket.tokens >= 1:
            bucket.tokens -= 1
        else:
            wait = (1 - bucket.tokens) * seconds / tokens
        self._buckets[key] = bucket
        self._forget(self._buckets)
        return wait

    def open(self, key: str, flow: str, *, most: int, until: float, now: float) -> bool:
        """Note that a flow is open; see `LimitStore`."""
        with self._lock:
            flows = self._open.pop(key, {})
            flows = {one: end for one, end in flows.items() if end > now}
            is_open = flow in flows or len(flows) < most
            if is_open:
                flows[flow] = until
            if flows:
                self._open[key] = flows
                self._forget(self._open)
            return is_open

    def close(self, key: str, flow: str) -> None:
        """Note that a flow is not open any more."""
        with self._lock:
            flows = self._open.get(key, {})
            flows.pop(flow, None)
            if not flows:
                self._open.pop(key, None)

    def _forget(self, kept: OrderedDict[str, Any]) -> None:
        while len(kept) > self._most:
            kept.popitem(last=False)
