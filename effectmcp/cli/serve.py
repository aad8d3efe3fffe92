"""`effectmcp serve module:app`: over stdio, or over HTTP."""

from __future__ import annotations

import argparse
from typing import Any

from .target import load_app

__all__ = ["add"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "serve",
        help="serve a server",
        description="Serve a server on standard input and output, or over HTTP. States"
        " are sealed with the keys in EFFECTMCP_STATE_KEYS (comma separated, the oldest"
        " first).",
    )
    parser.add_argument("target", help="module:app, or path/file.py:app")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="serve Streamable HTTP there, instead of stdio",
    )
    parser.add_argument("--path", default="/mcp", help="the path that answers (/mcp)")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that serve HTTP"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="a name that clients may call it by (repeatable)",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="an origin whose pages may call it (repeatable)",
    )
    parser.add_argument(
        "--certificate", metavar="FILE", help="serve TLS with this chain"
    )
    parser.add_argument("--key", metavar="FILE", help="the certificate's private key")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    import trio

    if options.http is None:
        from ..transports import stdio

        trio.run(stdio.serve, load_app(options.target))
        return 0
    return _serve_http(options)


def _serve_http(options: argparse.Namespace) -> int:
    raise NotImplementedError
