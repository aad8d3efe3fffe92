"""Remembered judgements: the same results, and a bounded number of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.transports.caching import LONGEST, TEXTS, cached


class Judge:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> int:
        self.asked.append(text)
        return len(text) // (text != "bad")


@given(st.lists(st.text(max_size=3) | st.just("x" * (LONGEST + 1))))
def test_remembering_changes_no_judgement(texts: list[str]) -> None:
    asked = cached(len)
    assert [asked(text) for text in texts] == [len(text) for text in texts]


def test_short_strings_are_judged_once() -> None:
    judge = Judge()
    asked = cached(judge)
    for _ in range(3):
        assert asked("x" * LONGEST) == LONGEST
    assert len(judge.asked) == 1


def test_long_strings_are_not_kept() -> None:
    judge = Judge()
    asked = cached(judge)
    for _ in range(3):
        assert asked("x" * (LONGEST + 1)) == LONGEST + 1
    assert len(judge.asked) == 3


def test_raised_errors_are_not_kept() -> None:
    judge = Judge()
    asked = cached(judge)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            asked("bad")
    assert len(judge.asked) == 2


def test_few_of_many_strings_are_kept() -> None:
    judge = Judge()
    asked = cached(judge)
    for number in range(TEXTS + 1):
        asked(str(number))
    asked("0")  # forgotten, with all strings that were there when it was full
    asked(str(TEXTS))
    assert len(judge.asked) == TEXTS + 2
