"""Loggers whose records are one line each, and not too many of one kind.

What clients send is logged: names, addresses, the messages of exceptions. A line end in
it would look like another record, and a request that costs its sender nothing must not
fill a disk. So each logger of the package has a filter, which handlers and formatters
of an application do not have to know.
"""

from __future__ import annotations

import logging
import re
from typing import Final

__all__ = [
    "PREFIX",
    "forget_counts",
    "logger_for",
    "message_of",
    "one_line",
    "prefixed",
    "traceback_of",
]

#: Each template may have so many records in a window; the others are counted.
LIMIT: Final = 20

#: Seconds of a window.
WINDOW: Final = 10.0

#: Templates that are counted: more than the package has, with some types of exceptions.
TEMPLATES: Final = 1_000

#: What lines of a traceback begin with, so that no line looks like a record.
PREFIX: Final = "  | "

_SUSPECT: Final = re.compile(r"[^ -~]+")
_formatter: Final = logging.Formatter()


def logger_for(name: str) -> logging.Logger:
    """Return the logger of this name, with the filter of this module."""
    logger = logging.getLogger(name)
    logger.addFilter(_guard)  # once: it is always the same one
    return logger


def forget_counts() -> None:
    """Start new windows, as each test of an application expects."""
    _guard.forget()


class _Window:
    def __init__(self, start: float) -> None:
        self.start = start
        self.count = 0
        self.dropped = 0


class _Guard(logging.Filter):
    """Drop records of a kind that is too frequent, and make the others one line."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, int, str, str], _Window] = {}
        # The lock of a handler: logging makes a new one in a process that was forked,
        # where a lock that another thread held would never be released.
        self._lock = logging.Handler()

    def forget(self) -> None:
        self._windows = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # Records for debugging exist only where an operator wants each of them.
        if record.levelno > logging.DEBUG and not self._admit(record):
            return False
        _make_safe(record)
        return True

    def _admit(self, record: logging.LogRecord) -> bool:
        self._lock.acquire()
        try:
            last, window = self._windows_of(record)
            if window.count == LIMIT:
                window.dropped += 1
                return False
            window.count += 1
        finally:
            self._lock.release()
        if last is not None and last.dropped:
            _add_dropped(record, last)
        return True

    def _windows_of(self, record: logging.LogRecord) -> tuple[_Window | None, _Window]:
        """Return the window of such records, and the one before if it has just ended."""
        kind = record.exc_info[0] if record.exc_info else None
        # With the line, as several places have the template "%s: %s".
        key = record.pathname, record.lineno, _shown(record.msg), repr(kind)
        last = self._windows.get(key)
        # After the clock was set back, another window begins, too.
        if last is not None and 0 <= record.created - last.start < WINDOW:
            return None, last
        self._windows.pop(key, None)
        if len(self._windows) == TEMPLATES:
            del self._windows[next(iter(self._windows))]  # the oldest
        window = self._windows[key] = _Window(record.created)
        return last, window


_guard: Final = _Guard()


def _add_dropped(record: logging.LogRecord, last: _Window) -> None:
    # The template is extended, not formatted: there are tools that group records by it.
    words = " (and %s more like this in %.0f s)"
    about = f"{last.dropped:,}", record.created - last.start
    if record.args and isinstance(record.args, tuple):
        template = f"{_shown(record.msg)}{words}"
        record.msg, record.args = template, (*record.args, *about)
    else:
        record.msg, record.args = f"{message_of(record)}{words % about}", ()


def _make_safe(record: logging.LogRecord) -> None:
    message = message_of(record)
    if message.endswith(_UNSHOWN):
        record.args = ()
    if not record.args:
        record.msg = message
    if not message.isprintable():
        record.msg, record.args = one_line(message), ()
    if record.exc_info:
        record.exc_text = prefixed(traceback_of(record))
    if record.stack_info:
        record.stack_info = prefixed(record.stack_info)


# ---- the parts of a record, which may be of any library ----------------------------

_UNSHOWN: Final = " (its arguments cannot be shown)"


def message_of(record: logging.LogRecord) -> str:
    """Return the message of `record`, also if its arguments do not fit."""
    try:
        return record.getMessage()
    except Exception:  # of an argument's own `__str__`, which must not fail a request
        return f"{_shown(record.msg)}{_UNSHOWN}"


def _shown(template: object) -> str:
    try:
        return str(template)
    except Exception:
        return "a record"


def traceback_of(record: logging.LogRecord) -> str:
    """Return the traceback of the exception in `record`; empty without an exception."""
    if not record.exc_info:
        return record.exc_text or ""
    try:
        return _formatter.formatException(record.exc_info)
    except Exception:
        return "a traceback that cannot be shown"


def prefixed(text: str) -> str:
    """Return lines that do not look like records, each with `PREFIX`."""
    return "\n".join(f"{PREFIX}{one_line(line)}" for line in text.split("\n"))


def one_line(text: str) -> str:
    """Return `text` as one line, with all characters escaped that are not printable."""
    return _SUSPECT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    run = found[0]
    if run.isprintable():
        return run
    # Line ends, terminal escapes, and what reverses the direction of letters.
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii")
        for one in run
    )
