"""Notify listeners when a list or a resource changes.

A change may be published from any thread: by a step, a file watcher, a request.
Listeners are called in that thread and must not wait; those of drivers wake their loop.
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
    """A change that clients may have subscribed to.

    Attributes:
        what: The list that changed, or `"resource"`; `"end"` when the server shuts down
            and no further changes follow.
        uri: The URI of the resource that changed.
    """

    what: Literal["tools", "prompts", "resources", "resource", "end"]
    uri: str | None = None


Listener: TypeAlias = Callable[[Change], None]


class Changes:
    """Notifies every listener of every change.

    Attributes:
        is_over: Whether the end was published. Later listeners receive it at once.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._lock = threading.Lock()
        # Replaced, never changed: `publish` reads it without the lock.
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each change; return a function that stops this."""
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
        """Call all listeners with `change`."""
        if change.what == "end":
            self.is_over = True  # set first, so that no new listener can miss the end
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                logger.exception("a listener failed on %r", change)
