"""`effectmcp check module:app`: find mistakes in its handlers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..server.target import load_app

__all__ = ["add"]


def add(parsers: Any) -> None:
    """Add the subcommand."""
    parser = parsers.add_parser(
        "check",
        help="find mistakes in handlers",
        description="Have conversations with the handlers of a server, and find mistakes"
        " in them. Steps are performed only by the functions in --with. Exits with 1 if"
        " it finds a mistake.",
    )
    parser.add_argument("target", help="module:app, or path/file.py:app")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these handlers")
    parser.add_argument(
        "--conversations",
        type=int,
        default=100,
        metavar="N",
        help="the number of conversations with each handler (100)",
    )
    parser.add_argument(
        "--with",
        dest="options",
        metavar="TARGET",
        help="module:name of a dict with steps, answers, arguments and perform, as"
        " check() takes them",
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FOLDER",
        help="a folder for transcripts of the conversations that show a mistake",
    )
    parser.set_defaults(run=_run, list="names")


def _run(options: argparse.Namespace) -> int:
    try:
        from ..testing.checking import check, options_at
    except ModuleNotFoundError as exc:
        if exc.name != "hypothesis":
            raise
        raise UsageError(
            "check draws conversations with hypothesis, which is not installed: pip"
            " install 'effectmcp[testing]'"
        ) from None
    if options.conversations < 1:
        raise UsageError("--conversations: give 1 or more")
    app = load_app(options.target)
    checked = check(
        app,
        raises=False,
        conversations=options.conversations,
        only=options.names or None,
        **options_at(options.options),
    )
    print(checked)
    if options.save is not None:
        for finding in checked.findings:
            if finding.transcript is not None:
                print(f"saved as {finding.transcript.save(options.save)}")
    return 1 if checked.findings else 0
