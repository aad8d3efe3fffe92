"""Records of every library, in both forms: no string in a record makes another."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp.log_lines import (
    FORMS,
    LEVELS,
    JsonLines,
    LogLevel,
    LogSettings,
    TextLines,
    set_up_logging,
)
from effectmcp.logs import PREFIX, logger_for

from .test_logs import Unshowable, words


def record(template: Any, *args: object, **more: Any) -> logging.LogRecord:
    """A record of a library that knows nothing of this package."""
    place = more.pop("name", "other.library"), logging.ERROR, "here.py", 1
    failed = more.pop("exc_info", None)
    made = logging.root.makeRecord(*place, template, args, failed, **more)
    made.created = 1_700_000_000.25
    return made


def raised(problem: BaseException) -> Any:
    try:
        raise problem
    except BaseException as exc:
        return type(exc), exc, exc.__traceback__


# ---- JSON ---------------------------------------------------------------------------


def test_record_is_an_object() -> None:
    assert json.loads(JsonLines().format(record("from %s", "Ann"))) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "error",
        "logger": "other.library",
        "message": "from Ann",
        "process": os.getpid(),
    }


def test_exception_and_stack_are_fields() -> None:
    failed = raised(ValueError("two\nlines"))
    found = json.loads(
        JsonLines().format(record("failed", exc_info=failed, sinfo="a\nstack"))
    )
    assert (found["error"], found["stack"]) == ("ValueError", "a\nstack")
    assert found["traceback"].endswith("ValueError: two\nlines")


def test_exception_of_this_package_has_its_own_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The filter prefixes the lines of a traceback; an object has no need of that."""
    logger_for("effectmcp.test").error("failed", exc_info=raised(ValueError("no")))
    (found,) = caplog.records
    assert found.exc_text is not None
    assert found.exc_text.startswith(PREFIX)
    assert PREFIX not in json.loads(JsonLines().format(found))["traceback"]


def test_exception_that_was_sent_as_text() -> None:
    """As by a handler that passes records to another process."""
    made = record("failed")
    made.exc_text = "Traceback"
    found = json.loads(JsonLines().format(made))
    assert found["traceback"] == "Traceback"
    assert "error" not in found


def test_no_exception_has_no_class() -> None:
    made = record("failed", exc_info=(None, None, None))
    assert "error" not in json.loads(JsonLines().format(made))


@given(words, words, words, st.booleans())
@example("\ud800\udc00", "\u2028\x1b[2J\x7f", "\n", True)
def test_object_is_one_line_of_ascii(
    text: str, problem: str, name: str, is_raised: bool
) -> None:
    raising = ValueError(problem, Unshowable()) if text else ValueError(problem)
    made = record(
        "%s failed",
        text,
        name=name or "x",
        exc_info=raised(raising) if is_raised else None,
        sinfo=problem,
    )
    shown = JsonLines().format(made)
    assert re.fullmatch(r"[ -~]+", shown)
    found = json.loads(shown)
    # Parsers that are stricter than Python's refuse lone surrogates.
    json.dumps(found, ensure_ascii=False).encode()
    if text.isprintable():
        assert found["message"] == f"{text} failed"
    assert ("traceback" in found) == is_raised


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=FORMS)
@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (record("%d of %d", 1), "%d of %d (its arguments cannot be shown)"),
        (record("%s", Unshowable()), "%s (its arguments cannot be shown)"),
        (record(Unshowable()), "a record (its arguments cannot be shown)"),
    ],
    ids=["few", "unshowable", "template"],
)
def test_record_that_does_not_format_is_a_line(
    formatter: logging.Formatter, made: logging.LogRecord, shown: str
) -> None:
    line = formatter.format(made)
    assert shown in line
    assert "\n" not in line


def test_template_that_cannot_be_shown_passes_the_filter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger_for("effectmcp.test").warning(Unshowable())
    assert caplog.messages == ["a record (its arguments cannot be shown)"]


# ---- text ---------------------------------------------------------------------------


@pytest.mark.parametrize("names_process", [False, True])
def test_text_has_level_logger_and_message(names_process: bool) -> None:
    shown = TextLines(names_process=names_process).format(record("from %s", "Ann"))
    process = f"[{os.getpid()}]" if names_process else ""
    assert shown == f"ERROR other.library{process}: from Ann"


@given(words, words, words, st.booleans())
@example("\n", "\n  | \n\n", "\r", True)
def test_no_string_of_another_library_makes_a_record(
    text: str, problem: str, name: str, is_raised: bool
) -> None:
    made = record(
        "%s failed",
        text,
        name=name or "x",
        exc_info=raised(ValueError(problem)) if is_raised else None,
        sinfo=problem,
    )
    first, *others = TextLines().format(made).splitlines()
    assert first.startswith("ERROR ")
    assert all(line.startswith(PREFIX) for line in others)


def test_lines_of_the_filter_are_not_prefixed_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger_for("effectmcp.test").error("failed", stack_info=True)
    shown = TextLines().format(caplog.records[0])
    assert f"\n{PREFIX}Stack" in shown
    assert PREFIX * 2 not in shown


# ---- setting it up ------------------------------------------------------------------


@contextmanager
def bare() -> Iterator[logging.Logger]:
    """The root logger, in a process where no code has set up logging.

    It is not a fixture: pytest adds its handlers when the test begins.
    """
    root = logging.root
    before = root.handlers, root.level, sys.excepthook, warnings.showwarning
    hooks = threading.excepthook, sys.unraisablehook
    root.handlers = []
    try:
        yield root
    finally:
        logging.captureWarnings(False)
        root.handlers, level, sys.excepthook, warnings.showwarning = before
        threading.excepthook, sys.unraisablehook = hooks
        root.setLevel(level)
        logging.getLogger("httpx2").setLevel(logging.NOTSET)


@pytest.mark.parametrize("level", LEVELS)
def test_level_is_the_lowest_that_is_written(
    level: LogLevel, capsys: pytest.CaptureFixture[str]
) -> None:
    with bare():
        set_up_logging(LogSettings(level=level))
        for name in LEVELS:
            logging.getLogger("other.library").log(
                getattr(logging, name.upper()), "said"
            )
        is_chatty = logging.getLogger("httpx2").isEnabledFor(logging.INFO)
    shown = capsys.readouterr().err.splitlines()
    expected = LEVELS[LEVELS.index(level) :]
    assert shown == [f"{name.upper()} other.library: said" for name in expected]
    assert is_chatty == (level == "debug")


def test_program_that_has_set_up_logging_keeps_it() -> None:
    with bare() as root:
        own = logging.NullHandler()
        root.addHandler(own)
        root.setLevel(logging.ERROR)
        set_up_logging(LogSettings("json", "debug"))
        assert (root.handlers, root.level) == ([own], logging.ERROR)


def test_json_has_what_python_would_print(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings, and the exception that ends the process."""
    with bare(), warnings.catch_warnings():
        set_up_logging(LogSettings("json"))
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        sys.excepthook(*raised(ValueError("no")))
    warned, ended = map(json.loads, capsys.readouterr().err.splitlines())
    assert (warned["logger"], warned["level"]) == ("py.warnings", "warning")
    assert "old" in warned["message"]
    assert (ended["error"], ended["level"]) == ("ValueError", "error")


class Unraisable:
    def __del__(self) -> None:
        raise ValueError("no")


def test_json_has_the_exceptions_of_threads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The log also has the exceptions that no code can catch."""

    def end() -> None:
        sys.exit(1)

    def fail() -> None:
        raise ValueError("no")

    with bare():
        set_up_logging(LogSettings("json"))
        for target in (end, fail):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        Unraisable()
        gc.collect()
        sys.unraisablehook(SimpleNamespace(exc_value=None))
        threading.excepthook(threading.ExceptHookArgs((ValueError, None, None, None)))
    ended, ignored = map(json.loads, capsys.readouterr().err.splitlines())
    assert (ended["message"], ended["error"]) == ("a thread ends", "ValueError")
    assert ignored["error"] == "ValueError"


@pytest.mark.parametrize("settings", [("xml", "info"), ("json", "trace")])
def test_unknown_settings(settings: Any) -> None:
    with pytest.raises(ValueError, match="must be in"):
        LogSettings(*settings)
