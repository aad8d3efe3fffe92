"""What `asgi` and `wsgi` share: a server inside of somebody else's process. Pure.

There the host listens, and may serve from several processes. It may also never say when
it begins and ends, so whether the lifespan is open is looked at with every request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ..errors import UsageError
from .keys import VARIABLE, ensure_keys
from .web import Site

if TYPE_CHECKING:
    from ..server.app import Server

__all__ = ["EVERY_PATH", "check_open", "prepare"]

logger = logging.getLogger("effectmcp.server")

#: A host has routed already, so whatever comes here is meant.
EVERY_PATH: Final = Site(path=None)


def prepare(app: Server) -> None:
    """Give `app` the keys of the environment, and say so where there are none.

    A random key would not do: the next round may come to another of the host's
    processes.
    """
    ensure_keys(app, is_alone=False)
    if app.keys is None:
        logger.error(
            "%r has no keys, so its handlers cannot ask. Make one with `effectmcp"
            " keygen` and give it to every process, as %s or Server(keys=Keys(...))",
            app,
            VARIABLE,
        )


def check_open(app: Server) -> None:
    """Hold the host to opening the lifespan.

    Raises:
        UsageError: It has not, and what to write.
    """
    if app.lifespan is not None and not app.is_running:
        raise UsageError(
            f"nobody opened the lifespan of {app!r}: applications that are mounted do"
            " not hear when their host begins and ends. In the host's own lifespan"
            " write `async with effectmcp.drivers.local.running(app): yield`"
        )
