"""The attacked server, on every host.

    python -m effectmcp_tests.siege.server HOST FORM

It logs its address to standard error, as `effectmcp serve` does.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import trio

from effectmcp import Elicit, Flow, Progress, Server
from effectmcp.transports.http import Limits
from effectmcp.transports.sessions import SessionLimits

from ..transports.shop import KEYS

if TYPE_CHECKING:
    from effectmcp.transports.wsgi import WSGIApplication

__all__ = ["LIMITS", "Form", "Planned", "app", "wsgi"]

#: How large an attack is: full, small enough for every push, or one of many in a mix.
Form: TypeAlias = Literal["long", "short", "soak"]

#: Keyword arguments for the three ways to serve: `http.run`, `asgi.application` and
#: `wsgi.application`. The full attacks meet the defaults; smaller ones need smaller limits
#: to reach any.
LIMITS: Final[Mapping[Form, Mapping[str, Mapping[str, Any]]]] = {
    # The default of two questions is for hosts with few threads.
    "long": {"http": {}, "asgi": {}, "wsgi": {"questions": 40}},
    "short": {
        "http": {
            "limits": Limits(connections=100),
            "sessions": SessionLimits(sessions=50),
        },
        "asgi": {"sessions": SessionLimits(sessions=50)},
        "wsgi": {"sessions": SessionLimits(sessions=50), "questions": 40},
    },
    "soak": {
        "http": {"sessions": SessionLimits(sessions=200, idle=20)},
        "asgi": {"sessions": SessionLimits(sessions=200, idle=20)},
        "wsgi": {"sessions": SessionLimits(sessions=200, idle=20), "questions": 40},
    },
}


class Planned(Exception):
    """An exception that a client can cause."""


app = Server("besieged", version="1", keys=KEYS)


@app.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@app.tool
def length(text: str) -> int:
    """Return the length of a long text."""
    return len(text)


@app.tool
def ask(title: str) -> Flow[str]:
    """Ask who the book is for."""
    name = yield from Elicit("Who is it for?", str)
    return f"{title} for {name}"


@app.tool
def big(size: int) -> str:
    """Return a large result."""
    return "x" * size


@app.tool
def noted(size: int) -> Flow[str]:
    """Report progress, so that the response is a stream, and return a large result."""
    yield from Progress(1)
    return "x" * size


@app.tool
def slow(seconds: float) -> str:
    """Occupy a thread."""
    time.sleep(seconds)
    return "done"


@app.tool
def fails(text: str) -> str:
    """Raise an exception with this message."""
    raise Planned(text)


@app.tool
def opens() -> int:
    """Open a file."""
    with open(os.devnull, "rb") as file:
        return len(file.read())


def wsgi(form: Form) -> WSGIApplication:
    """Return an application for hosts of WSGI."""
    from effectmcp.transports.wsgi import application

    return application(app, **LIMITS[form]["wsgi"])


# ---- the hosts ----------------------------------------------------------------------


def _own(form: Form) -> None:
    from effectmcp.transports import http

    trio.run(partial(http.run, app, "127.0.0.1", 0, **LIMITS[form]["http"]))


def _uvicorn(form: Form) -> None:
    import uvicorn

    from effectmcp.transports.asgi import application

    uvicorn.run(
        application(app, **LIMITS[form]["asgi"]),
        port=0,
        loop="asyncio",
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )


def _hypercorn(form: Form, *, on: str) -> None:
    import hypercorn

    from effectmcp.transports.asgi import application

    asgi = application(app, **LIMITS[form]["asgi"])
    config = hypercorn.Config()
    config.bind = ["127.0.0.1:0"]
    config.backlog = 1_024
    config.graceful_timeout = 0.2
    if on == "trio":
        from hypercorn.trio import serve

        trio.run(partial(serve, asgi, config, mode="asgi"))  # type: ignore[arg-type]  # its own type of an application
    else:
        import asyncio

        from hypercorn.asyncio import serve as serve_asyncio

        asyncio.run(serve_asyncio(asgi, config, mode="asgi"))  # type: ignore[arg-type]  # its own type of an application


def _wsgiref(form: Form) -> None:
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    inner = wsgi(form)

    class Threaded(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        request_queue_size = 1_024

    class Silent(WSGIRequestHandler):
        def log_message(self, *args: Any) -> None: ...

    def threaded(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        # wsgiref does not know that it has threads.
        return inner({**environ, "wsgi.multithread": True}, start)

    with make_server(
        "127.0.0.1", 0, threaded, server_class=Threaded, handler_class=Silent
    ) as server:
        logging.info("served at http://127.0.0.1:%d", server.server_port)
        server.serve_forever()


_HOSTS: Final[Mapping[str, Callable[[Form], None]]] = {
    "own": _own,
    "uvicorn": _uvicorn,
    "hypercorn-trio": partial(_hypercorn, on="trio"),
    "hypercorn-asyncio": partial(_hypercorn, on="asyncio"),
    "wsgiref": _wsgiref,
}


def main(host: str, form: Form) -> None:
    """Serve until terminated."""
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
    )
    _HOSTS[host](form)


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]  # a form
