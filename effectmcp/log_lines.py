"""Standard error of a process that serves: each record as text, or as a JSON object.

    set_up_logging(LogSettings("json", "debug"))

`effectmcp serve`, `effectmcp worker`, `app.run()` and worker processes call this, each
once. The filter of `logs` guards the records of this package only. These formatters
also guard the records of other libraries: no string in a record looks like a record.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen, validators

from .logs import (
    PREFIX,
    logger_for,
    message_of,
    one_line,
    prefixed,
    traceback_of,
)

__all__ = [
    "FORMS",
    "LEVELS",
    "JsonLines",
    "LogForm",
    "LogLevel",
    "LogSettings",
    "TextLines",
    "set_up_logging",
]

LogForm: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

FORMS: Final[tuple[LogForm, ...]] = ("text", "json")
LEVELS: Final[tuple[LogLevel, ...]] = ("debug", "info", "warning", "error")

logger = logger_for("effectmcp.server")


@frozen
class LogSettings:
    """Settings of the records that a process writes.

    Attributes:
        form: What a record becomes: `text` or `json`.
        level: The lowest level of records that are written.
    """

    form: LogForm = field(default="text", validator=validators.in_(FORMS))
    level: LogLevel = field(default="info", validator=validators.in_(LEVELS))


def set_up_logging(
    settings: LogSettings = LogSettings(),
    *,
    names_process: bool = False,
) -> None:
    """Write the records of all libraries to standard error.

    If the program has handlers already, it has decided, and nothing changes.

    Args:
        settings: What to write.
        names_process: Whether lines in the form `text` have the number of the process.
    """
    root = logging.root
    if root.handlers:
        return
    handler = logging.StreamHandler()
    if settings.form == "json":
        handler.setFormatter(JsonLines())
        # So a reader of standard error finds only objects.
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_of_thread
        sys.unraisablehook = _log_unraisable
    else:
        handler.setFormatter(TextLines(names_process=names_process))
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    if settings.level != "debug":
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each request


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logger.error("this process ends", exc_info=(kind, error, trace))


def _log_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        info = args.exc_type, args.exc_value, args.exc_traceback
        logger.error("a thread ends", exc_info=info)


def _log_unraisable(args: sys.UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        info = args.exc_type, args.exc_value, args.exc_traceback
        logger.error("%s", args.err_msg or "an exception was ignored", exc_info=info)


class TextLines(logging.Formatter):
    """`LEVEL logger: message` in one line, and a traceback in lines with a prefix."""

    def __init__(self, *, names_process: bool = False) -> None:
        super().__init__()
        self._names_process = names_process

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        process = f"[{record.process}]" if self._names_process else ""
        first = f"{record.levelname} {record.name}{process}: {message_of(record)}"
        parts = [one_line(first)]
        for text in (traceback_of(record), record.stack_info):
            if text:
                parts.append(text if _is_prefixed(text) else prefixed(text))
        return "\n".join(parts)


def _is_prefixed(text: str) -> bool:
    # By the filter of `logs`, or by itself: then no line of it looks like a record.
    return all(
        line.startswith(PREFIX) and line.isprintable() for line in text.split("\n")
    )


class JsonLines(logging.Formatter):
    """One JSON object in one line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        when = datetime.fromtimestamp(record.created, UTC)
        found: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _text(record.levelname.lower()),
            "logger": _text(record.name),
            "message": _text(message_of(record)),
            "process": record.process,
        }
        if record.exc_info and record.exc_info[0] is not None:
            found["error"] = _text(record.exc_info[0].__name__)
        if trace := traceback_of(record):
            found["traceback"] = _text(trace)
        if record.stack_info:
            found["stack"] = _text(record.stack_info)
        # A terminal might obey the only control character that JSON does not escape.
        return json.dumps(found).replace("\x7f", "\\u007f")


def _text(text: str) -> str:
    # Many parsers refuse the escape of a lone surrogate.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
