"""`asgi`: the example that has everything, for ASGI hosts, with tasks that are shared."""

from __future__ import annotations

import os
from pathlib import Path

from effectmcp.server.target import load_app
from effectmcp.transports.asgi import application
from effectmcp.transports.sessions import SessionLimits
from effectmcp.transports.stores import keep_tasks

__all__ = ["asgi"]

app = load_app(str(Path(__file__).parents[2] / "examples" / "everything.py"))
keep_tasks(app, os.environ["EFFECTMCP_TASKS_PLACE"])

asgi = application(app, sessions=SessionLimits(leave=1))
