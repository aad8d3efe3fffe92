"""The shop, behind each transport: real processes and sockets."""

from __future__ import annotations

import importlib.util
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest

from effectmcp.state import Keys, make_key

from ..conformance.servers import Server, serving

__all__ = ["COMMAND", "ENVIRONMENT", "WAYS", "url_of"]

WAYS: Final = ("stdio", "HTTP", "ASGI", "WSGI")
KEY: Final = make_key(bytes(range(32)))
ROOT: Final = Path(__file__).parents[2]
SHOP: Final = "effectmcp_tests.eras.shop"
COMMAND: Final = ("-m", "effectmcp", "serve", f"{SHOP}:app")
ENVIRONMENT: Final = {
    **os.environ,
    "EFFECTMCP_STATE_KEYS": KEY,
    "PYTHONPATH": str(ROOT),
}

HTTP: Final = Server(
    "effectmcp", ("effectmcp", "serve", f"{SHOP}:app", "--http=127.0.0.1:0")
)
ASGI: Final = Server(
    "uvicorn", ("uvicorn", "--host=127.0.0.1", "--port=0", f"{SHOP}:asgi")
)


@contextmanager
def url_of(way: str) -> Iterator[str | None]:
    """Serve the shop in this way; stdio has no URL, and starts with each client."""
    match way:
        case "stdio":
            yield None
        case "WSGI":
            with _threaded() as url:
                yield url
        case _:
            server = HTTP if way == "HTTP" else ASGI
            if importlib.util.find_spec(server.command[0]) is None:
                pytest.skip(f"{server.command[0]} is not installed: see [dev]")
            with serving(server) as served:
                yield served.url


class _Threaded(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None: ...


@contextmanager
def _threaded() -> Iterator[str]:
    from .shop import app, wsgi

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        # wsgiref does not know that it was given threads.
        return wsgi({**environ, "wsgi.multithread": True}, start)

    app.keys = Keys(KEY)
    server = make_server(
        "127.0.0.1", 0, application, server_class=_Threaded, handler_class=_Silent
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
