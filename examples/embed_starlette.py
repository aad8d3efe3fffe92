"""Serve inside a Starlette application, beside its own pages. FastAPI works, too.

    pip install starlette uvicorn
    export EFFECTMCP_STATE_KEYS=$(effectmcp keygen)
    python examples/embed_starlette.py [PORT]

Any number of processes may serve it, as long as they share that key.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import uvicorn
from bookshop import app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from effectmcp.drivers.local import running
from effectmcp.transports.asgi import application, mount

USERS = {"Bearer ann's token": "ann", "Bearer bob's token": "bob"}


def authenticate(headers: Mapping[str, str]) -> str:
    """Return the user of a token. `effectmcp.auth` checks the tokens of real servers."""
    user = USERS.get(headers.get("authorization", ""))
    if user is None:
        raise PermissionError("sign in first")
    return user


@asynccontextmanager
async def lifespan(host: Starlette) -> AsyncIterator[None]:
    # A mounted application receives no lifespan events from its host.
    async with running(app):
        yield


async def home(request: Request) -> PlainTextResponse:
    return PlainTextResponse("A bookshop. Its tools are at /mcp.\n")


host = Starlette(routes=[Route("/", home)], lifespan=lifespan)
app.auth = authenticate
# Serves /mcp and /mcp/; `host.mount` alone would redirect /mcp to /mcp/.
mount(host, "/mcp", application(app))

if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    # Without a limit, uvicorn would wait for endless streams before it exits.
    uvicorn.run(host, port=port, timeout_graceful_shutdown=5)
