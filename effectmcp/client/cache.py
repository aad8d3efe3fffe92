"""The results that a server allows its client to reuse. No I/O but the clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from ..canonical import JSON
from .limits import LARGEST, memory_of

__all__ = ["Cache"]

#: A year, in milliseconds. A server may send an overlong number, of 400 digits say, which
#: cannot become a float.
_LONGEST_TTL: Final = 365 * 24 * 3600 * 1000


@frozen
class _Cached:
    result: Mapping[str, JSON]
    until: float
    size: int


class Cache:
    """Results, each for as long as its server allows; of limited size in memory."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str | None], _Cached] = {}
        self._size = 0

    def fresh(self, method: str, key: str | None) -> Mapping[str, JSON] | None:
        """Return the result that was kept, if it may still be used."""
        cached = self._kept.get((method, key))
        if cached is None:
            return None
        if time.monotonic() >= cached.until:
            self._drop(method, key)
            return None
        return cached.result

    def keep(self, method: str, key: str | None, result: Mapping[str, JSON]) -> None:
        """Keep a result, if its server allows it. If it does not fit, drop older ones."""
        ttl = result.get("ttlMs")
        if not isinstance(ttl, (int, float)) or not ttl > 0:
            return
        size = memory_of(dict(result))
        if size > LARGEST:
            return
        self._drop(method, key)
        while self._size + size > LARGEST:
            self._drop(*next(iter(self._kept)))
        until = time.monotonic() + min(ttl, _LONGEST_TTL) / 1000
        self._kept[method, key] = _Cached(result, until, size)
        self._size += size

    def clear(self) -> None:
        """Drop all results."""
        self._kept.clear()
        self._size = 0

    def _drop(self, method: str, key: str | None) -> None:
        cached = self._kept.pop((method, key), None)
        if cached is not None:
            self._size -= cached.size
