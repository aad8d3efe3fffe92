"""The results that a client may reuse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from effectmcp.client import cache as caching
from effectmcp.client.cache import Cache
from effectmcp.client.limits import memory_of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(now=0.0)
    found.monotonic = lambda: found.now
    monkeypatch.setattr(caching, "time", found)
    return found


def result(text: str = "", ttl: Any = 1_000) -> dict[str, Any]:
    return {"text": text, "ttlMs": ttl}


def test_result_is_fresh_until_its_time_is_over(clock: SimpleNamespace) -> None:
    cache = Cache()
    cache.keep("m", None, result())
    clock.now = 0.9
    assert cache.fresh("m", None) == result()
    assert cache.fresh("m", "other") is None
    clock.now = 1.0
    assert cache.fresh("m", None) is None
    assert cache._size == 0


@pytest.mark.parametrize("ttl", [None, 0, -1, "1", float("nan")])
def test_result_without_a_time_is_not_kept(ttl: Any) -> None:
    cache = Cache()
    cache.keep("m", None, result(ttl=ttl))
    assert cache.fresh("m", None) is None


def test_time_of_400_digits_is_a_year(clock: SimpleNamespace) -> None:
    cache = Cache()
    cache.keep("m", None, result(ttl=10**400))
    clock.now = 364 * 24 * 3600
    assert cache.fresh("m", None) is not None


def test_older_results_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    size = memory_of(result("x" * 1_000))
    monkeypatch.setattr(caching, "LARGEST", 2 * size)
    cache = Cache()
    for key in "abc":
        cache.keep("m", key, result(key * 1_000))
    assert cache.fresh("m", "a") is None
    assert cache.fresh("m", "b") is not None
    assert cache.fresh("m", "c") is not None
    cache.keep("m", "b", result("x" * 10_000))
    assert cache.fresh("m", "b") == result(
        "b" * 1_000
    )  # it does not fit: nothing changes
    cache.keep("m", "b", result("B" * 1_000))
    assert cache._size == 2 * size
    cache.clear()
    assert cache.fresh("m", "c") is None
    assert cache._size == 0
