"""Which files are an author's, and the line that an error came through."""

from __future__ import annotations

import json
import os

import pytest

import effectmcp
from effectmcp.author_files import authors_line, is_authors


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (__file__, True),
        (effectmcp.__file__, False),
        (json.__file__, False),
        (pytest.__file__, False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_is_authors(file: str, expected: bool) -> None:
    assert is_authors(file) is expected


def error_of(code: str, file: str) -> Exception:
    """Return the error of code that is compiled as if it were in a file."""
    try:
        exec(compile(code, file, "exec"), {"json": json})
    except Exception as exc:
        exc.__traceback__ = exc.__traceback__.tb_next if exc.__traceback__ else None
        return exc
    raise AssertionError("it raises nothing")


def test_innermost_line_of_an_author() -> None:
    error = error_of("\n\njson.loads('[')", "/home/ann/shop.py")
    assert authors_line(error) == "/home/ann/shop.py:3"


def test_installed_code_gets_its_outermost_line() -> None:
    file = os.path.join(os.sep, "x", "site-packages", "shop.py")
    assert authors_line(error_of("\njson.loads('[')", file)) == f"{file}:2"


def test_error_that_came_through_no_line() -> None:
    assert authors_line(ValueError("never raised")) is None
