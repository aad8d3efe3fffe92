"""Limits of calls: how many may be started, and how many may wait for answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from ..effects.base import Effect
from ..effects.steps import Step
from ..errors import ToolError, UsageError
from ..logs import logger_for
from ..server.interceptors import Call, InputNeeded, Intercepting, Interceptor
from ..server.listeners import is_plain, takes
from .ports import LimitStore
from .stores import MemoryLimits

__all__ = ["By", "limit_open", "limit_rate", "party_of_call"]

logger = logger_for("effectmcp.server")

#: Returns whose limit a call counts for; `None` if it does not count.
By: TypeAlias = Callable[[Call], str | None]


def party_of_call(call: Call) -> str | None:
    """Return the user of a call or, without authentication, its address.

    Clients without a user and an address count as one.
    """
    return call.party or ""


def limit_rate(
    calls: float,
    *,
    seconds: float = 60,
    rounds: bool = False,
    by: By = party_of_call,
    store: LimitStore | None = None,
    name: str = "rate",
    clock: Callable[[], float] = time.time,
) -> Interceptor:
    """Limit how many calls one party starts: a bucket of tokens.

    Args:
        calls: How many calls it may start at once. A bucket that is empty is full again
            after `seconds`.
        seconds: See `calls`.
        rounds: Whether each round counts, and not only the first of a call.
        by: Returns whose limit a call counts for; `None` if it does not count.
        store: Where to count; by default in this process.
        name: Limits that share a store need different names.
        clock: Returns the seconds since 1970.

    Raises:
        UsageError: If no call would ever be allowed.
    """
    if not 1 <= calls < math.inf or not 0 < seconds < math.inf:
        raise UsageError(
            f"limit_rate({calls!r}, seconds={seconds!r}): give 1 call or more, and more"
            " than 0 seconds; neither is infinite"
        )
    kept, by = _checked_store(store), _checked_by(by)

    def limit_rate(call: Call) -> Intercepting:
        whose = by(call)
        counts = call.is_first or (rounds and not call.is_task)
        if whose is not None and counts:
            wait = yield from _used(
                kept,
                kept.take,
                f"{name}:{whose}",
                tokens=float(calls),
                seconds=float(seconds),
                now=clock(),
            )
            if wait > 0:
                raise ToolError(
                    f"Too many calls: try again in {math.ceil(wait)} seconds."
                )
        result = yield from call
        return result

    return limit_rate


def limit_open(
    most: int,
    *,
    seconds: float = 300,
    by: By = party_of_call,
    store: LimitStore | None = None,
    name: str = "open",
    clock: Callable[[], float] = time.time,
) -> Interceptor:
    """Limit how many calls of one party are open: running, or waiting for answers.

    A call that waits is closed when its state expires, as no answer can come any more.
    The later rounds of a call are never refused.

    Args:
        most: How many may be open.
        seconds: How long the first round may run before the call is taken for lost.
        by: Returns whose limit a call counts for; `None` if it does not count.
        store: Where to count; by default in this process.
        name: Limits that share a store need different names.
        clock: Returns the seconds since 1970.

    Raises:
        UsageError: If no call would ever be allowed.
    """
    if type(most) is not int or most < 1 or not seconds > 0:
        raise UsageError(
            f"limit_open({most!r}, seconds={seconds!r}): give 1 call or more, and more"
            " than 0 seconds"
        )
    kept, by = _checked_store(store), _checked_by(by)

    def limit_open(call: Call) -> Intercepting:
        whose = by(call)
        # Functions that yield no effects ask nothing, and are limited by their threads.
        if whose is None or call.flow_id is None or call.is_task:
            return (yield from call)
        key, flow = f"{name}:{whose}", call.flow_id
        if call.is_first:
            now = clock()
            is_open = yield from _used(
                kept, kept.open, key, flow, most=most, until=now + seconds, now=now
            )
            if not is_open:
                raise ToolError(
                    f"{most} calls are open: answer what they ask, or come back later."
                )
        try:
            result = yield from call
        except Exception:
            yield from _noted(kept, kept.close, key, flow)
            raise
        except BaseException:
            # The client has left, and nothing can be performed now. In a later round, it
            # may come back with its state.
            if call.is_first and not kept.blocks:
                kept.close(key, flow)
            raise
        if isinstance(result, InputNeeded):
            # If a client resumes a call that has ended, it may find no room, and counts
            # no more.
            until, now = result.expires, clock()
            yield from _noted(
                kept, kept.open, key, flow, most=most, until=until, now=now
            )
        else:
            yield from _noted(kept, kept.close, key, flow)
        return result

    return limit_open


def _used(
    store: LimitStore, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Generator[Effect[Any], Any, Any]:
    """Call a function of a store: at once, or as a step if it blocks."""
    if not store.blocks:
        return function(*args, **kwargs)
    return (yield from Step(function, *args, **kwargs))


def _noted(
    store: LimitStore, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Generator[Effect[Any], Any, None]:
    """Note the end of a round. If that fails, the call does not: its work is done."""
    try:
        yield from _used(store, function, *args, **kwargs)
    except Exception:
        logger.exception("a limit could not note the end of a round")


def _checked_by(by: By) -> By:
    given: object = by
    if not callable(given) or not is_plain(given) or not takes(given, 1):
        raise UsageError(f"by={by!r}: give a plain function of the call")

    def whose(call: Call) -> str | None:
        found: object = by(call)
        if found is None or isinstance(found, str):
            return found
        raise UsageError(f"by={by!r} returned {found!r}; it returns a string, or None")

    return whose


def _checked_store(store: LimitStore | None) -> LimitStore:
    if store is None:
        return MemoryLimits()
    functions = [getattr(store, name, None) for name in ("take", "open", "close")]
    if not all(map(callable, functions)) or not hasattr(store, "blocks"):
        raise UsageError(
            f"store={store!r}: it needs take(), open(), close() and blocks; see LimitStore"
        )
    if not store.blocks and not all(map(is_plain, functions)):
        raise UsageError(f"store={store!r} has async functions: set blocks = True")
    return store
