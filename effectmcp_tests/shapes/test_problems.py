from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectmcp.canonical import MAX_DEPTH
from effectmcp.shapes import problems
from effectmcp.shapes.problems import MAX_PROBLEMS, put_below, rendered, unreadable
from effectmcp.shapes.words import path_step


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
        ([1.5] * 2_000 + [float("nan")], "[2000]"),
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


# ---- containers of many items -------------------------------------------------------

_ODD = (
    st.sampled_from(
        ["\ud800", "ä", "", 1.5, math.inf, math.nan, -1, 0, 2**64, True, None]
    )
    | st.builds(pow, st.just(10), st.just(5000))
    | st.sampled_from([b"bytes", (), {1}, object])
)

_ANY = st.recursive(
    _ODD | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=2) | st.sampled_from([1, None]), inner)
    ),
    max_leaves=20,
)


@given(_ANY, st.integers(0, 4))
def test_look_at_many_items_finds_what_a_look_at_each_finds(
    value: Any, room: int
) -> None:
    """A look at each item is the oracle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problems, "MAX_DEPTH", room)
        patch.setattr(problems, "_MANY", math.inf)
        each = unreadable(value)
        patch.setattr(problems, "_MANY", -1)
        assert (unreadable(value) == each) is True  # not shown: it may be unwritable


@pytest.mark.parametrize(
    "item", [{}, [], {"a": 0}, [[[1.5]]], "text", 7, None, {"a": [{"b": "c"}]}]
)
def test_many_plain_items_are_looked_at_as_a_whole(
    item: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = [item] * 2_000
    monkeypatch.setattr(problems, "put_below", None)
    assert problems._is_plain(value, 10)
    assert unreadable({"a": value}) == []
