"""Daemon worker threads, like trio's: an abandoned call does not keep the process alive.

The standard library's pools wait at exit for every call. A call that was abandoned, when
its client left or it timed out, may never return.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias, TypeVar

__all__ = ["call_in_thread"]

T = TypeVar("T")
_Calls: TypeAlias = "SimpleQueue[Callable[[], None]]"

#: Seconds that a thread waits for its next call.
_IDLE: Final = 10.0

#: The queues of the threads that wait. One operation of the list takes or adds one.
_waiting: Final[list[_Calls]] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting.clear)  # threads are not copied


def call_in_thread(call: Callable[[], T]) -> Future[T]:
    """Call a function in a thread, now; return the future of its outcome."""
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            value = call()
        except BaseException as exc:
            outcome.set_exception(exc)
        else:
            outcome.set_result(value)

    outcome.set_running_or_notify_cancel()
    try:
        calls = _waiting.pop()
    except IndexError:
        calls = SimpleQueue()
        thread = threading.Thread(
            target=_work, args=(calls,), name="effectmcp", daemon=True
        )
        thread.start()
    calls.put(work)
    return outcome


def _work(calls: _Calls) -> None:
    while True:
        try:
            call = calls.get(timeout=_IDLE)
        except Empty:
            try:
                _waiting.remove(calls)
            except ValueError:
                continue  # a call was just given to this thread
            return
        call()
        del call  # it may refer to a large request
        _waiting.append(calls)
