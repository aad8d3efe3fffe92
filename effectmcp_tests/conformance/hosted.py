"""`asgi`: the example that has everything, for ASGI hosts."""

from __future__ import annotations

from effectmcp.transports.asgi import application
from examples.everything import app

__all__ = ["asgi"]

asgi = application(app)
