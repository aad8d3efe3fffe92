"""`asgi`: the example that has everything, for ASGI hosts."""

from __future__ import annotations

from pathlib import Path

from effectmcp.server.target import load_app
from effectmcp.transports.asgi import application
from effectmcp.transports.sessions import SessionLimits

__all__ = ["asgi"]

asgi = application(
    load_app(str(Path(__file__).parents[2] / "examples" / "everything.py")),
    sessions=SessionLimits(leave=1),
)
