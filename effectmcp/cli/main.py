"""Arguments → the subcommand that they name; errors → one line and a status."""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Sequence
from typing import Final

from .. import __version__
from ..errors import EffectMCPError
from . import call, check, keygen, listing, replay, serve, token

__all__ = ["main"]

#: As shells have it: 128, and the number of SIGINT.
_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status.

    Args:
        argv: The arguments, without the command's name; by default the process's own.
    """
    parser = argparse.ArgumentParser(
        prog="effectmcp",
        description="Tools for the Model Context Protocol, written as generators.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (serve, call, listing, check, replay, token, keygen):
        command.add(parsers)
    options, more = parser.parse_known_args(argv)
    # argparse ends a list at the first option, and does not go on with it.
    of: str = getattr(options, "list", "")
    if more and (not of or any(one.startswith("-") for one in more)):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if of:
        getattr(options, of).extend(more)
    # Whatever a server says can be printed somehow.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # To standard error: standard output is for messages, or for what was asked for.
    logging.basicConfig(
        level=logging.INFO, format="%(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        status: int = options.run(options)
    except EffectMCPError as exc:
        print("effectmcp:", " ".join(str(exc).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        return _INTERRUPTED
    return status
