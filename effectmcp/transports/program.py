"""Whole programs that serve one server, on the loop that it needs.

    serve_stdio(app)                    standard input and output
    serve_http(app, "127.0.0.1", 8000)  HTTP: on trio by this library, on asyncio by uvicorn

`effectmcp serve` and `app.run()` are these two.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from ..drivers.loops import run
from ..drivers.wrong_loops import running_name
from ..errors import UsageError
from ..log_lines import set_up_logging
from . import stdio
from .announcing import warn_if_open
from .malloc import give_back_large_blocks
from .sockets import BindError, bind, not_bound, tls_context
from .web import parse_address

if TYPE_CHECKING:
    from ..server.app import Server
    from .connection import Limits
    from .sessions import SessionLimits
    from .web import Site

__all__ = ["run_server", "serve_http", "serve_stdio"]


def run_server(app: Server, http: str | None = None) -> None:
    """Serve `app` until the process ends; see `Server.run`."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("app.run() is for the main thread, which receives signals")
    if (name := running_name()) is not None:
        raise UsageError(
            f"app.run() starts a loop, and {name} runs here already: await stdio.run(app),"
            " or mount an application (docs/embedding.md)"
        )
    set_up_logging()
    if http is None:
        serve_stdio(app)
    else:
        serve_http(app, *parse_address(http))


def serve_stdio(app: Server, streams: stdio.Streams | None = None) -> None:
    """Serve `app` on standard input and output until the input ends.

    Args:
        app: The server.
        streams: The result of `set_aside`, if that was called before.

    Raises:
        UsageError: If standard input or output is closed.
        KeysError: If the keys are invalid.
    """
    kept = stdio.set_aside() if streams is None else streams
    run(app.loop, partial(stdio.run, app, streams=kept))


def serve_http(
    app: Server,
    host: str,
    port: int,
    *,
    site: Site | None = None,
    sessions: SessionLimits | None = None,
    limits: Limits | None = None,
    certificate: str | None = None,
    key: str | None = None,
) -> None:
    """Serve `app` over HTTP until SIGTERM or Ctrl-C.

    Args:
        app: The server.
        host: The address to bind to.
        port: The port; 0 for any free port.
        site: Its path, and the hosts and origins that are allowed.
        sessions: Limits on the sessions of legacy clients.
        limits: Limits on connections and requests.
        certificate: A file with the certificate chain, to serve TLS.
        key: A file with the certificate's private key.

    Raises:
        UsageError: If the address or the certificate cannot be used.
        KeysError: If the keys are invalid.
    """
    warn_if_open(app, host, port)
    give_back_large_blocks()
    options: dict[str, Any] = {"site": site}
    if sessions is not None:
        options["sessions"] = sessions
    if limits is not None:
        options["limits"] = limits
    context = tls_context(certificate, key)  # checked before anything runs
    if app.loop == "asyncio":
        from . import on_uvicorn

        files = {"certificate": certificate, "key": key}
        try:
            sockets = bind(host, port, shared=False)
        except BindError as exc:
            raise not_bound(host, port, exc) from None
        run("asyncio", partial(on_uvicorn.run, app, sockets, **options, **files))
    else:
        run("trio", partial(_on_trio, app, host, port, ssl_context=context, **options))


async def _on_trio(app: Server, host: str, port: int, **options: Any) -> None:
    from . import http

    try:
        listeners = await http.open_listeners(host, port)
    except OSError as exc:
        raise not_bound(host, port, exc) from None
    await http.run(app, listeners=listeners, **options)
