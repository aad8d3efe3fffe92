"""The words of complaints."""

from __future__ import annotations

import pytest

from effectmcp.shapes.words import complaint, count, is_finite, one_of


@pytest.mark.parametrize(
    ("exc", "words"),
    [
        (ValueError("'age' must be even"), "must be even"),
        (ValueError("'name' must be even"), "'name' must be even"),
        (TypeError("'age' must be even", "evidence"), "must be even"),
        (ValueError(), "ValueError"),
        (ValueError(""), "ValueError"),
        (ValueError(3), "3"),
    ],
)
def test_complaint(exc: Exception, words: str) -> None:
    assert complaint(exc, "age") == words


def test_one_of_shows_strings_in_quotes() -> None:
    assert one_of(["a", 1]) == "must be one of 'a', 1"


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 choices"), (1, "1 choice"), (2, "2 choices")]
)
def test_count(number: int, words: str) -> None:
    assert count(number, "choice") == words


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, True), (1e308, True), (10**400, False), (float("inf"), False)],
)
def test_is_finite(value: float, expected: bool) -> None:
    assert is_finite(value) is expected
