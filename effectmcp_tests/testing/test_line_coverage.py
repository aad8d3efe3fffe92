"""Which of the watched lines run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from effectmcp.testing.line_coverage import LineWatcher, Range


def chooses(name: str) -> str:
    if name:
        return name
    return "nobody"


def pauses() -> Iterator[str]:
    yield "first"
    yield "last"


def at(function: Callable[..., object], first: int, last: int | None = None) -> Range:
    """Lines of a function, counted from its `def`."""
    begin = function.__code__.co_firstlineno
    return __file__, begin + first, begin + (first if last is None else last)


def test_the_lines_that_run() -> None:
    wanted = at(chooses, 1), at(chooses, 2), at(chooses, 3), at(chooses, 2, 3)
    lines = LineWatcher(wanted)
    with lines.watching():
        chooses("Ann")
    assert lines.seen == {wanted[0], wanted[1], wanted[3]}
    with lines.watching():
        chooses("")
    assert lines.seen == set(wanted)


def test_a_resumed_line_does_not_run_again() -> None:
    generator = pauses()
    next(generator)
    lines = LineWatcher([at(pauses, 1), at(pauses, 2)])
    with lines.watching():
        next(generator)
    assert lines.seen == {at(pauses, 2)}


def test_other_files_are_left_alone() -> None:
    _, first, last = at(chooses, 0, 3)
    lines = LineWatcher([("another.py", first, last)])
    with lines.watching():
        chooses("Ann")
    assert lines.seen == set()


def test_the_tracer_before_is_back_afterwards() -> None:
    before = sys.gettrace()
    nothing, something = LineWatcher([]), LineWatcher([at(chooses, 1)])
    with nothing.watching():
        assert sys.gettrace() is before
    with something.watching():
        assert sys.gettrace() is not before
    assert sys.gettrace() is before
