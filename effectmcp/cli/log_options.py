"""The options `--log-format` and `--log-level`, of the commands that run for long."""

from __future__ import annotations

import argparse
from typing import Any

from ..log_lines import FORMS, LEVELS, LogSettings

__all__ = ["add_logging", "settings_of"]


def add_logging(parser: Any) -> None:
    """Add the options."""
    parser.add_argument(
        "--log-format",
        choices=FORMS,
        default="text",
        help="how to write a record to standard error: as text, or as one JSON object on"
        " one line (text)",
    )
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default="info",
        help="the lowest level of records that are written (info)",
    )


def settings_of(options: argparse.Namespace) -> LogSettings:
    """Return the settings that the options choose; the defaults without the options."""
    return LogSettings(
        getattr(options, "log_format", "text"), getattr(options, "log_level", "info")
    )
