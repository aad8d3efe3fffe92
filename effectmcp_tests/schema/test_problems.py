from __future__ import annotations

from typing import Any

import pytest

from effectmcp.canonical import MAX_DEPTH
from effectmcp.schema.problems import (
    MAX_PROBLEMS,
    path_step,
    put_below,
    rendered,
    unreadable,
)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("age", ".age"),
        ("größe", ".größe"),
        ("two words", '["two words"]'),
        ("", '[""]'),
        ('"', '["\\""]'),
        ("\ud800", '["\\ud800"]'),
        (3, "[3]"),
        ("x" * 100, f'["{"x" * 80}…"]'),
    ],
)
def test_step_of_a_path(key: str | int, shown: str) -> None:
    assert path_step(key) == shown


def test_problems_are_put_below() -> None:
    problems = [("", "a"), (".x", "b"), ("", "c")]
    put_below(problems, 1, "y")
    put_below(problems, 3, "z")
    assert problems == [("", "a"), (".y.x", "b"), (".y", "c")]


def test_problems_are_rendered_once_each() -> None:
    problems = [("", "a"), (".x[0]", "b"), (".x[0]", "b")]
    assert rendered(problems, root="it") == ["it: a", "x[0]: b"]


def test_problems_are_not_rendered_without_end() -> None:
    texts = rendered([(f"[{i}]", "no") for i in range(1000)], root="it")
    assert len(texts) == MAX_PROBLEMS + 1
    assert texts[-1] == "there may be more: these are the first"


@pytest.mark.parametrize(
    "value", [None, True, 1, 10**400, 1.5, "é", [], {}, {"a": [1, {"b": "c"}]}]
)
def test_readable_values(value: Any) -> None:
    assert unreadable(value) == []


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("\ud800", ""),
        ({"a": ["x", "\ud800"]}, ".a[1]"),
        ({"\ud800": 1}, '["\\ud800"]'),
        ([float("nan")], "[0]"),
        ({"a": float("inf")}, ".a"),
        ({1: "x"}, ""),
        ((1,), ""),
        ([object()], "[0]"),
    ],
)
def test_unreadable_values(value: Any, path: str) -> None:
    assert [found for found, _ in unreadable(value)] == [path]


def test_unreadable_values_are_all_named() -> None:
    assert len(unreadable({"a": "\ud800", "b": [float("nan")]})) == 2


def test_unreadable_stops_somewhere() -> None:
    assert len(unreadable([object()] * 100_000)) == MAX_PROBLEMS + 1


def test_depth_is_bounded() -> None:
    value: Any = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert unreadable(value) == []
    ((path, words),) = unreadable([value])
    assert path == "[0]" * MAX_DEPTH
    assert "nested" in words


def test_depth_of_an_attack() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    assert len(unreadable(value)) == 1
    while value:  # or else Python frees it by recursion
        value = value[0]


def test_numbers_that_python_does_not_write_are_unreadable() -> None:
    assert unreadable([10**3999, -(10**3999)]) == []
    assert unreadable([10**5000]) == [
        ("[0]", "must be a number of at most 4,000 digits")
    ]
