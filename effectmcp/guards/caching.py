"""Cached results of functions that ask nothing."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from attrs import define, field

from ..canonical import JSON, dumps
from ..errors import CanonicalError, UsageError
from ..protocol.jsonrpc import encode
from ..server.interceptors import Call, Finished, Intercepting, Interceptor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..server.features import Feature

__all__ = ["cache_results"]


def cache_results(
    ttl: float,
    *,
    shared: bool = False,
    memory: int = 16 * 1024 * 1024,
    most: int = 10_000,
    clock: Callable[[], float] = time.monotonic,
) -> Interceptor:
    """Cache the results of plain and async functions, in this process.

    A result is kept for one user, with the same scopes and shown claims, and the same
    arguments. Functions that yield effects
    pass through: their results may depend on answers. So do results that are errors.

    Args:
        ttl: Seconds that a result is used.
        shared: Whether all users get the same results.
        memory: Bytes of all kept results; beyond them, those go first that were used
            least recently. A result with more than an eighth of them is not kept.
        most: How many results are kept.
        clock: Returns seconds.

    Raises:
        UsageError: If nothing would be cached.
    """
    if not ttl > 0 or type(memory) is not int or memory < 1:
        raise UsageError(
            f"cache_results({ttl!r}, memory={memory!r}): give more than 0 seconds, and"
            " more than 0 bytes"
        )
    kept = _Kept(memory, most)

    def cache_results(call: Call) -> Intercepting:
        if call.flow_id is not None:
            return (yield from call)
        key = _key_of(call, shared=shared)
        if key is None:
            return (yield from call)
        found = kept.get(key, call.feature, clock())
        if found is not None:
            return Finished(found)
        result = yield from call
        if isinstance(result, Finished) and not result.is_error:
            kept.put(key, call.feature, result.fields, clock() + ttl)
        return result

    return cache_results


def _key_of(call: Call, *, shared: bool) -> bytes | None:
    """Return the digest of a call; `None` for arguments that no digest can have."""
    # Results may differ between eras, as a function may ask who calls.
    whose = None if shared else [call.principal, call.client, _known_of(call)]
    try:
        arguments = None if call.arguments is None else dict(call.arguments)
        text = dumps([call.kind, call.name, arguments, call.revision, whose])
    except CanonicalError:
        return None
    return blake2b(text, digest_size=32).digest()


def _known_of(call: Call) -> JSON:
    """Return what a handler can read of the caller: a token may have changed it."""
    identity = call.identity
    if identity is None:
        return None
    claims = dict(identity.shown_claims)
    scopes: JSON = sorted(identity.scopes)
    return [identity.issuer, identity.tenant, scopes, claims]


@define
class _Result:
    #: As JSON: a caller that changes the result does not change the cache.
    fields: bytes
    until: float
    #: Another feature may have the same name: later, or on another server.
    of: Feature


@define(eq=False)
class _Kept:
    """Results by key, the least recently used first."""

    _memory: int
    _most: int
    _size: int = 0
    _results: OrderedDict[bytes, _Result] = field(factory=OrderedDict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def get(self, key: bytes, of: Feature, now: float) -> Mapping[str, JSON] | None:
        with self._lock:
            found = self._results.get(key)
            if found is None:
                return None
            if found.until <= now or found.of is not of:
                self._drop(key)
                return None
            self._results.move_to_end(key)
            text = found.fields
        fields: Mapping[str, JSON] = json.loads(text)
        return fields

    def put(
        self, key: bytes, of: Feature, fields: Mapping[str, JSON], until: float
    ) -> None:
        text = encode(fields)
        if len(text) > self._memory // 8:
            return
        with self._lock:
            self._drop(key)
            self._results[key] = _Result(text, until, of)
            self._size += len(text)
            while self._size > self._memory or len(self._results) > self._most:
                self._drop(next(iter(self._results)))

    def _drop(self, key: bytes) -> None:
        found = self._results.pop(key, None)
        if found is not None:
            self._size -= len(found.fields)
