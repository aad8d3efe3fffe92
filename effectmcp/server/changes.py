"""Who hears when a list or a resource changes.

A change may come from any thread: a step, a file watcher, a request. Listeners are
called in that thread and must not wait; a driver's listener wakes its loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Literal, TypeAlias

from attrs import frozen

__all__ = ["Change", "Changes", "Listener"]

logger = logging.getLogger("effectmcp.server")


@frozen
class Change:
    """Something that clients may have asked to hear of.

    Attributes:
        what: Which list changed, or that a resource did; `"end"` when the server shuts
            down, and nobody will hear of anything more.
        uri: Of the resource.
    """

    what: Literal["tools", "prompts", "resources", "resource", "end"]
    uri: str | None = None


Listener: TypeAlias = Callable[[Change], None]


class Changes:
    """Tells every listener of every change.

    Attributes:
        is_over: Whether the end was told. Who listens afterwards is told it at once.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._lock = threading.Lock()
        # Replaced, never changed: who publishes reads it without the lock.
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` from now on. Call what is returned to end that."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
        if self.is_over:
            listener(Change("end"))

        def end() -> None:
            with self._lock:
                self._listeners = tuple(
                    one for one in self._listeners if one is not listener
                )

        return end

    def publish(self, change: Change) -> None:
        """Tell everybody who listens."""
        if change.what == "end":
            self.is_over = True  # before anybody is told, so that nobody falls between
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                logger.exception("a listener failed on %r", change)
