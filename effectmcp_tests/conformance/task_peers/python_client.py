"""A client on the Python SDK, which does what the lines of its input say: see `peers`."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

import anyio

# Its tasks are deprecated since they became an extension.
warnings.simplefilter("ignore")

import mcp.types as t  # type: ignore[import-not-found]  # noqa: E402
from mcp import (  # type: ignore[import-not-found]  # noqa: E402
    ClientSession,
    McpError,
    StdioServerParameters,
    stdio_client,
)
from mcp.client.experimental.task_handlers import (  # type: ignore[import-not-found]  # noqa: E402
    ExperimentalTaskHandlers,
)
