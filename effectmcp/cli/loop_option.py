"""The option `--loop`, of all commands that run a server."""

from __future__ import annotations

from typing import Any

from ..server.loop_name import LOOPS

__all__ = ["add_loop"]


def add_loop(parser: Any) -> None:
    """Add the option."""
    parser.add_argument(
        "--loop",
        choices=LOOPS,
        help="the event loop to run the server on; the default is the loop that the server"
        " names, Server(loop=...), or else trio",
    )
