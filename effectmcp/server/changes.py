"""Notify listeners when a list or a resource changes.

A change may be published from any thread: by a step, a file watcher, a request.
Listeners are called in that thread and must not wait; the listeners of drivers wake
their loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from attrs import field, frozen

__all__ = ["Change", "Changes", "Listener"]

from ..logs import logger_for

if TYPE_CHECKING:
    from .features import Feature

logger = logger_for("effectmcp.server")


@frozen
class Change:
    """A change that clients may have subscribed to.

    Attributes:
        what: The list that changed, `"resource"` or `"task"`; `"end"` when the server shuts down
            and no further changes follow.
        uri: The URI of the resource that changed, or the id of the task.
        feature: The feature that was added to a list or removed. Clients that may not see
            it are not notified.
    """

    what: Literal["tools", "prompts", "resources", "resource", "task", "end"]
    uri: str | None = None
    feature: Feature | None = field(default=None, eq=False, repr=False)


Listener: TypeAlias = Callable[[Change], None]


class Changes:
    """Notifies every listener of every change.

    Attributes:
        is_over: Whether the end was published. Later listeners receive it at once.
    """

    def __init__(self) -> None:
        self.is_over = False
        # Threads share it without a lock: each access is one operation of the dict.
        self._listeners: dict[object, Listener] = {}

    @property
    def has_listeners(self) -> bool:
        """Whether a change has listeners."""
        return bool(self._listeners)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each change; return a function that stops this."""
        key = object()
        self._listeners[key] = listener
        if self.is_over:
            listener(Change("end"))

        def end() -> None:
            self._listeners.pop(key, None)

        return end

    def publish(self, change: Change) -> None:
        """Call all listeners with `change`."""
        if change.what == "end":
            self.is_over = True  # set first, so that no new listener can miss the end
        for listener in self._listeners.copy().values():
            try:
                listener(change)
            except Exception:
                logger.exception("a listener failed on %r", change)
