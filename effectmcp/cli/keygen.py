"""`effectmcp keygen`: make a key that seals states, or one for a caller."""

from __future__ import annotations

import argparse
import secrets
import sys
from typing import Any

from ..errors import UsageError

__all__ = ["add"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "keygen",
        help="make a key that seals states, or an API key for a caller",
        description="Print a new key. Give it to every replica, as the last in"
        " EFFECTMCP_STATE_KEYS (comma separated, the oldest first). With --api-key, print"
        " the line of a new key for the file of `effectmcp serve --api-keys`, which has only"
        " its hash, on standard output, and the key itself on standard error.",
    )
    parser.add_argument(
        "--api-key", metavar="NAME", help="make a key for this caller instead"
    )
    parser.add_argument(
        "--scope",
        action="append",
        default=[],
        help="with --api-key: what the caller may do (repeatable)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from ..auth.api_keys import key_line, make_api_key
    from ..state.keys import make_key

    if options.api_key is not None:
        key = make_api_key()
        line = key_line(options.api_key, key, options.scope)
        print(line)
        print(
            f"{options.api_key} sends this key, which is not shown again, as"
            f" Authorization: Bearer {key}",
            file=sys.stderr,
        )
        return 0
    if options.scope:
        raise UsageError("--scope is for --api-key NAME")
    print(make_key(secrets.token_bytes(32)))
    return 0
