"""Run the subcommand that the arguments name; report errors and the status."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

from .. import __version__
from ..errors import EffectMCPError
from ..log_lines import set_up_logging
from ..logs import logger_for
from . import call, check, keygen, listing, replay, serve, tasks, token, worker
from .guard import guard_terminal
from .log_options import settings_of
from .output import say_error
from .printing import UNWRITTEN

__all__ = ["main"]

logger = logger_for("effectmcp.server")

_COMMANDS: Final = (
    *(serve, worker, tasks),
    *(call, listing, check, replay, token, keygen),
)

#: As in shells: 128 plus the number of SIGINT.
_INTERRUPTED: Final = 130
#: 128 plus the number of SIGPIPE: the reader of the output stopped reading.
_UNREAD: Final = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status.

    Args:
        argv: The arguments, without the command's name; by default the process's own.
    """
    guard_terminal()
    parser = argparse.ArgumentParser(
        prog="effectmcp",
        description="Tools for the Model Context Protocol, written as generators.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(parsers)
    options, more = parser.parse_known_args(argv)
    # argparse ends a list at the first option, and never continues it.
    of: str = getattr(options, "list", "")
    if more and (not of or any(one.startswith("-") for one in more)):
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if of:
        getattr(options, of).extend(more)
    # Log to standard error: standard output is for messages or results.
    settings = settings_of(options)
    set_up_logging(settings)
    try:
        status: int = options.run(options)
        # Flush now: a failure when the process exits could not be reported.
        sys.stdout.flush()
    except EffectMCPError as exc:
        if settings.form == "json":
            logger.error("%s", exc)
        else:
            say_error(str(exc))
        return 2
    except (KeyboardInterrupt, OSError, BaseExceptionGroup) as exc:
        return _status_of(exc)
    return status


def _status_of(exc: BaseException) -> int:
    """Return the status for an end from outside; raise every other exception."""
    if _is_in(exc, KeyboardInterrupt):
        return _INTERRUPTED
    if _is_in(exc, BrokenPipeError):
        _drop_output()
        return _UNREAD
    if isinstance(exc, OSError) and exc.errno == errno.ENOSPC:
        _drop_output()
        say_error(f"the output cannot be written: {exc.strerror}")
        return UNWRITTEN
    raise exc


def _is_in(exc: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(exc, BaseExceptionGroup):
        return exc.subgroup(kind) is not None
    return isinstance(exc, kind)


def _drop_output() -> None:
    # Python writes the remaining output when the process exits, and would fail again.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
