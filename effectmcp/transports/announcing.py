"""The lines of the log at the start: a server, its address, its clients and its keys.

They show the result of the options, the environment and the author's code. The process
that binds the address logs them: with several workers, their supervisor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..logs import logger_for
from ..tasks.sqlite import SqliteTasks
from .default_keys import RANDOM
from .web import is_local

if TYPE_CHECKING:
    from ..exchange.task_rows import TaskHost
    from ..server.app import Server
    from .web import Site

__all__ = ["PARENT", "announce", "at", "clients_of", "place_of", "warn_if_open"]

logger = logger_for("effectmcp.server")

#: The clients of standard input and output.
PARENT: Final = "the process that started this one"

#: The user and the password in a URL.
_PASSWORD: Final = re.compile(r"//[^/@]*@")


def announce(
    app: Server,
    where: str,
    clients: str,
    *,
    loop: str,
    tasks: TaskHost | None = None,
) -> None:
    """Log the server, its address, its clients, its keys and its tasks.

    Args:
        app: The server, with its keys.
        where: Where it is served; see `at`.
        clients: Who may use it; see `clients_of`.
        loop: The name of the event loop.
        tasks: The store of tasks; `None` if none are kept.
    """
    offered = ", ".join(
        f"{len(features)} {noun}{'' if len(features) == 1 else 's'}"
        for noun, features in (
            ("tool", app.tools),
            ("prompt", app.prompts),
            ("resource", app.resources),
            ("template", app.templates),
        )
    )
    logger.info("%s (version %s) on %s: %s", app.name, app.version, loop, offered)
    logger.info("%s is served %s", app.name, where)
    logger.info("its clients: %s", clients)
    if app.gate is None and clients != PARENT:
        scoped = sorted(
            one.name
            for features in (app.tools, app.prompts, app.resources, app.templates)
            for one in features.values()
            if one.scopes
        )
        if scoped:
            logger.warning(
                "%s cannot be used: they need scopes, and without --auth, --api-keys or"
                " Server(auth=...) no client has one",
                ", ".join(scoped),
            )
    logger.info("its keys: %s", _keys_of(app))
    if tasks is not None:
        logger.info("its tasks: kept in %s", place_of(tasks))
    elif any(one.handler.kind == "flow" for one in app.tools.values()):
        logger.info("its tasks: none are kept, so Detach() returns False")


def at(urls: Iterable[str]) -> str:
    """Return in words where HTTP is served."""
    return f"at {' and '.join(urls)}"


def warn_if_open(app: Server, host: str, port: int) -> None:
    """Log a warning if other machines can reach a server without authentication."""
    if app.gate is None and not is_local(host):
        logger.warning(
            "%s:%s can be reached from other machines, and there is no authentication:"
            " any client may call any tool. Say who may with --auth or --api-keys, or"
            " Server(auth=...), or listen on 127.0.0.1, behind a proxy that authenticates",
            host,
            port,
        )


def clients_of(app: Server, site: Site, addresses: Iterable[str | None]) -> str:
    """Return in words which clients of HTTP are allowed.

    Args:
        app: The server.
        site: The site.
        addresses: The addresses that listen; `None` for a Unix socket.
    """
    if site.hosts is not None:
        hosts = f"under the names {_listed(site.hosts)}"
    elif all(one is not None and is_local(one) for one in addresses):
        hosts = "of this machine only"
    else:
        hosts = "under any host name"
    pages = f"; pages of {_listed(site.origins)}" if site.origins else ""
    proxies = f"; proxies at {_listed(site.proxies)}" if site.proxies else ""
    users = "anonymous" if app.gate is None else f"authenticated by {app.gate}"
    return f"{users}, {hosts}{pages}{proxies}"


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(sorted(texts)) or "(none)"


def _keys_of(app: Server) -> str:
    keys = app.keys
    if keys is None:
        return "none, so no handler may ask"
    if keys.source == RANDOM:
        return "a random one of this process: states do not outlive it"
    *older, sealing = keys.names
    opens = f", and {_listed(older)} to open older states" if older else ""
    form = "; clients can read their states" if keys.readable else ""
    return f"{sealing}{opens}, from {keys.source or 'Server(keys=)'}{form}"


def place_of(tasks: TaskHost) -> str:
    """Return in words where tasks are kept, without the password of an engine's URL."""
    if isinstance(tasks, SqliteTasks) and tasks.path is None:
        return "the memory of this process"
    return _PASSWORD.sub("//***@", repr(tasks))
