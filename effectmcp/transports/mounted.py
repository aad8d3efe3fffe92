"""Shared by `asgi` and `wsgi`: checks for a server in a host's process. No I/O.

The host accepts the connections, and may serve from several processes. Some hosts do not
report when they start and stop, so every request checks that the lifespan is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..logs import logger_for
from .default_keys import VARIABLE, ensure_keys
from .stores import ensure_tasks
from .web import Site

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["EVERY_PATH", "prepare"]

logger = logger_for("effectmcp.server")

#: A host has routed the request already, so every path is accepted.
EVERY_PATH: Final = Site(path=None)


def prepare(app: Server) -> None:
    """Set the keys of `app` from the environment; log an error if none are set there.

    A random key would not work: the next round may reach another process of the host.

    Raises:
        KeysError: If the keys are invalid; see `ensure_keys`.
    """
    ensure_keys(app, is_alone=False)
    ensure_tasks(app, is_alone=False)
    if app.keys is None:
        logger.error(
            "%r has no keys, so its handlers cannot ask. Make one with `effectmcp"
            " keygen` and give it to every process, as %s or Server(keys=Keys(...))",
            app,
            VARIABLE,
        )
