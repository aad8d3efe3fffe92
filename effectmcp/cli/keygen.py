"""`effectmcp keygen`: make a key that seals states."""

from __future__ import annotations

import argparse
import secrets
from typing import Any

__all__ = ["add"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "keygen",
        help="make a key that seals states",
        description="Print a new key. Give it to every replica, as the last in"
        " EFFECTMCP_STATE_KEYS (comma separated, the oldest first).",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from ..state.keys import make_key

    print(make_key(secrets.token_bytes(32)))
    return 0
