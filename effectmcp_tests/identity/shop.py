"""The server that clients log in to."""

from __future__ import annotations

import os
import time
from pathlib import Path

from effectmcp import Caller, Elicit, Flow, Server
from effectmcp.auth import IntrospectionAuth, JWTAuth

__all__ = ["app"]


def clock() -> float:
    """Return the seconds since 1970, plus the seconds that a test has set."""
    return time.time() + float(Path(os.environ["SHOP_CLOCK"]).read_text())


def auth() -> object:
    """Return how the server knows its callers; `None` if the command line says it."""
    issuer, resource = os.environ.get("SHOP_ISSUER"), os.environ.get("SHOP_RESOURCE")
    kind, scopes = os.environ.get("SHOP_AUTH"), ["orders:read"]
    if kind is None or issuer is None or resource is None:
        return None
    if kind == "introspection":
        return IntrospectionAuth(
            issuer=issuer,
            resource=resource,
            endpoint=f"{issuer}/token/introspection",
            client_id="shop",
            client_secret="shop secret",
            scopes=scopes,
            cache=300,
            clock=clock,
        )
    return JWTAuth(
        issuer=issuer,
        resource=resource,
        scopes=scopes,
        proofs="required" if kind == "proofs" else "accepted",
        clock=clock,
    )


app = Server("shop", auth=auth())


@app.tool
def whoami() -> Flow[str]:
    """Return who calls, and what for."""
    caller = yield from Caller()
    return " ".join([str(caller.subject), *caller.scopes])


@app.tool
def survey() -> Flow[str]:
    """Ask the user."""
    color = yield from Elicit("Which color?", str)
    return f"{color} it is"


@app.tool(scopes=["orders:write"])
def order(title: str) -> str:
    """Order a book."""
    return f"Ordered {title}"
