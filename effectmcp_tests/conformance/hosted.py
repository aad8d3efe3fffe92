"""`asgi`: the example that has everything, for ASGI hosts, with its tasks in a file."""

from __future__ import annotations

import os
from pathlib import Path

from effectmcp.server.target import load_app
from effectmcp.tasks import SqliteTasks
from effectmcp.transports.asgi import application
from effectmcp.transports.sessions import SessionLimits

__all__ = ["asgi"]

app = load_app(str(Path(__file__).parents[2] / "examples" / "everything.py"))
app.tasks = SqliteTasks(os.environ["EFFECTMCP_TASKS_FILE"])

asgi = application(app, sessions=SessionLimits(leave=1))
