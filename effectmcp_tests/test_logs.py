from __future__ import annotations

import logging
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effectmcp import logs
from effectmcp.logs import LIMIT, PREFIX, TEMPLATES, WINDOW, logger_for

BOTH = "%(levelname)s %(name)s: %(message)s"
logger = logger_for("effectmcp.test")


class Recorded(logging.Handler):
    """A handler that keeps what a formatter makes of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(BOTH))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def recorded() -> Any:
    handler = Recorded()
    logger.addHandler(handler)
    logger.propagate = False
    yield handler.lines
    logger.propagate = True
    logger.removeHandler(handler)


def log_at(when: float, template: str, *args: object, **more: Any) -> None:
    record = logger.makeRecord(
        logger.name, logging.WARNING, "here.py", 1, template, args, None, **more
    )
    record.created = when
    logger.handle(record)


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


# ---- one line -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nERROR root: b", r"a\nERROR root: b"),
        ("a\r\x1b[2Jb", r"a\r\x1b[2Jb"),
        ("a\x85\u2028\u202eb", r"a\x85\u2028\u202eb"),
        ("\ud800", r"\ud800"),
        ("grün \N{GRINNING FACE}", "grün \N{GRINNING FACE}"),
        ("100 %", "100 %"),
    ],
)
def test_message_is_one_line(recorded: list[str], text: str, shown: str) -> None:
    logger.warning("from %s: %d", text, 5)
    logger.warning(text)
    assert recorded == [
        f"WARNING effectmcp.test: from {shown}: 5",
        f"WARNING effectmcp.test: {shown}",
    ]


def test_record_that_is_fine_keeps_its_arguments(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Tools such as Sentry group records by their template."""
    logger.warning("from %s", "Ann")
    (record,) = caplog.records
    assert (record.msg, record.args) == ("from %s", ("Ann",))


def test_exception_is_part_of_its_record(recorded: list[str]) -> None:
    try:
        raise ValueError("a\nERROR root: forged\r\x1b[2Jb")
    except ValueError:
        logger.exception("failed")
    first, *others = recorded[0].split("\n")
    assert first == "ERROR effectmcp.test: failed"
    assert all(line.startswith(PREFIX) for line in others)
    assert others[-1] == f"{PREFIX}ERROR root: forged\\r\\x1b[2Jb"


def test_exception_stays_in_its_record(caplog: pytest.LogCaptureFixture) -> None:
    problem = ValueError("a\nb")
    logger.error("failed", exc_info=problem)
    assert caplog.records[0].exc_info == (ValueError, problem, None)


def test_stack_is_part_of_its_record(recorded: list[str]) -> None:
    logger.warning("here", stack_info=True)
    assert all(line.startswith(PREFIX) for line in recorded[0].split("\n")[1:])


def test_record_that_cannot_be_shown_fails_nothing(
    recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger.warning("it is %s", Unshowable())
    monkeypatch.setattr(logs, "_formatter", None)
    logger.error("failed", exc_info=ValueError())
    assert recorded == [
        "WARNING effectmcp.test: it is %s (its arguments cannot be shown)",
        f"ERROR effectmcp.test: failed\n{PREFIX}a traceback that cannot be shown",
    ]


words = st.text(st.characters(), max_size=30) | st.text("\r\n\x1b\u2028| a", max_size=9)


@given(words, words, st.booleans())
@example("\n", "\n  | \n\n", True)
def test_no_string_makes_another_record(
    text: str, problem: str, is_raised: bool
) -> None:
    """Every line but the first begins with the prefix, for each kind of line end."""
    logs.forget_counts()
    handler = Recorded()
    logger.addHandler(handler)
    try:
        raised = ValueError(problem, Unshowable()) if text else ValueError(problem)
        raised.add_note(text)
        logger.error("%s failed", text, exc_info=raised if is_raised else None)
    finally:
        logger.removeHandler(handler)
    (shown,) = handler.lines
    first, *others = shown.splitlines()
    assert first.startswith("ERROR effectmcp.test: ")
    assert all(line.startswith(PREFIX) for line in others)
    assert bool(others) == is_raised


# ---- not too many -------------------------------------------------------------------


def test_too_many_of_one_template_are_counted(recorded: list[str]) -> None:
    for at in range(5 * LIMIT):
        log_at(100 + at * WINDOW / 1000, "refused %s", at)
    log_at(100, "accepted %s", 0)
    assert len(recorded) == LIMIT + 1
    log_at(100 + WINDOW, "refused %s", "the last")
    log_at(101 + WINDOW, "refused %s", "again")
    assert recorded[LIMIT + 1 :] == [
        "WARNING effectmcp.test: refused the last (and 80 more like this in 10 s)",
        "WARNING effectmcp.test: refused again",
    ]


@pytest.mark.parametrize(
    ("template", "args", "shown"),
    [
        ("100 %", (), "100 %"),
        ("%(name)s", ({"name": "Ann"},), "Ann"),
        ("%s\n", ("Ann",), r"Ann\n"),
    ],
)
def test_count_is_added_to_each_kind_of_template(
    recorded: list[str], template: str, args: tuple[Any, ...], shown: str
) -> None:
    for _ in range(LIMIT + 1_234):
        log_at(0, template, *args)
    log_at(WINDOW + 2.4, template, *args)
    assert recorded[-1] == (
        f"WARNING effectmcp.test: {shown} (and 1,234 more like this in 12 s)"
    )


def test_places_with_one_template_are_counted_alone(recorded: list[str]) -> None:
    for _ in range(2 * LIMIT):
        logger.warning("%s: %s", "the first", "refused")
    logger.warning("%s: %s", "the second", "refused")
    assert len(recorded) == LIMIT + 1


def test_exceptions_of_each_type_are_counted_alone(recorded: list[str]) -> None:
    for _ in range(2 * LIMIT):
        for problem in (ValueError(), KeyError()):
            logger.error("failed", exc_info=problem)
    assert len(recorded) == 2 * LIMIT


def test_clock_that_is_set_back_begins_a_window(recorded: list[str]) -> None:
    """Otherwise nothing would be logged until it is as late again."""
    for _ in range(LIMIT + 1):
        log_at(10_000, "refused")
    log_at(6_400, "refused")
    assert len(recorded) == LIMIT + 1


def test_templates_are_bounded(recorded: list[str]) -> None:
    for at in range(3 * TEMPLATES):
        log_at(0, f"template {at}")
    assert len(logs._guard._windows) == TEMPLATES


def test_records_for_debugging_are_not_counted(recorded: list[str]) -> None:
    logger.setLevel(logging.DEBUG)
    try:
        for _ in range(2 * LIMIT):
            logger.debug("a\nb")
    finally:
        logger.setLevel(logging.NOTSET)
    assert recorded == ["DEBUG effectmcp.test: a\\nb"] * 2 * LIMIT


def test_threads_count_together(recorded: list[str]) -> None:
    def work() -> None:
        for _ in range(500):
            log_at(0, "from a thread")

    threads = [threading.Thread(target=work) for _ in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(recorded) == LIMIT
    log_at(WINDOW, "from a thread")
    assert recorded[-1].endswith(f"(and {8 * 500 - LIMIT:,} more like this in 10 s)")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_fork_while_a_thread_logs_leaves_a_logger() -> None:
    """The child's lock is a new one."""
    logs._guard._lock.acquire()
    try:
        child = os.fork()
        if not child:
            logger.warning("in the child")
            os._exit(7)
    finally:
        logs._guard._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_logger_has_the_filter_once() -> None:
    assert logger_for("effectmcp.test") is logger
    assert logger.filters == [logs._guard]


def test_every_logger_of_the_package_has_the_filter() -> None:
    """A module that calls `logging.getLogger` itself would log without it."""
    package = Path(logs.__file__).parent
    own = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"getLogger\((?!\"httpx2\")", file.read_text("utf-8"))
    }
    assert own == {"logs.py"}
