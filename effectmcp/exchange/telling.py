"""Tell observers of an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..server.app import Server
    from ..server.events import Event

__all__ = ["tell"]

from ..logs import logger_for

logger = logger_for("effectmcp.server")


def tell(app: Server, event: Event) -> None:
    """Call each observer of `app` with an event. What one raises changes nothing."""
    for observer in app.observers:
        try:
            observer(event)
        except Exception:
            logger.exception("an observer failed on %r", event)
