"""Interceptors that servers need often: limits, caching, sizes of results.

    app.intercept(limit_open(most=3))                    unanswered calls of one user
    app.intercept(limit_rate(30, seconds=60))            calls that one user starts
    app.intercept(cache_results(ttl=60), tag="slow")     results of plain functions
    app.intercept(limit_size(1_000_000))                 bytes of a result

They have no more access to a call than other interceptors.
"""

from __future__ import annotations

from .caching import cache_results
from .limits import limit_open, limit_rate
from .ports import LimitStore
from .sizes import limit_size
from .stores import MemoryLimits

__all__ = [
    "LimitStore",
    "MemoryLimits",
    "cache_results",
    "limit_open",
    "limit_rate",
    "limit_size",
]
