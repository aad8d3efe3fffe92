from __future__ import annotations

import time
from typing import Any

import pytest

from effectmcp.schema.checks import (
    Check,
    check_choice,
    check_number,
    check_simple,
    check_string,
    has_equals,
    has_twins,
    type_of,
)
from effectmcp.shapes.plain import PATTERNS

TIME, DECIMAL, BYTES = PATTERNS


def words(check: Check, value: Any) -> list[str]:
    return [said for _, said in check.find(value)[1]]


def test_simple() -> None:
    check = check_simple("null", lambda value: value is None)
    assert words(check, None) == []
    assert words(check, 0) == ["must be null"]


def test_integers() -> None:
    check = check_number({"minimum": 1, "exclusiveMaximum": 3}, is_integer=True)
    assert check.find(2.0) == (2, [])
    assert type(check.find(2.0)[0]) is int
    assert words(check, True) == words(check, "2") == words(check, 1.5)
    assert words(check, 0) == ["must be at least 1"]
    assert words(check, 3) == ["must be less than 3"]


def test_numbers() -> None:
    check = check_number({"maximum": 1, "exclusiveMinimum": 0}, is_integer=False)
    assert words(check, 1) == words(check, 0.5) == []
    assert words(check, False) == ["must be a number"]
    assert words(check, 0) == ["must be more than 0"]
    assert words(check, 2) == ["must be at most 1"]
    assert "must be a number of at most 308 digits" in words(check, 10**400)


def test_strings() -> None:
    check = check_string({"minLength": 2, "maxLength": 3})
    assert words(check, "ab") == []
    assert words(check, 3) == ["must be text"]
    assert words(check, "a") == ["must have at least 2 characters"]
    assert words(check, "abcd") == ["must have at most 3 characters"]


def test_strings_with_a_format() -> None:
    assert words(check_string({"format": "date"}), "2026-02-30") == [
        "must be a date that is in the calendar"
    ]
    check = check_string({"format": "uuid"})
    assert words(check, "6ba7b810-9dad-11d1-80b4-00C04FD430C8") == []
    assert len(words(check, "6ba7b8109dad11d180b400c04fd430c8")) == 1


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (
            TIME,
            ["09:30:00", "23:59:59.123456Z", "00:00:00-02:00"],
            ["9:30:00", "24:00:00"],
        ),
        (TIME, [], ["09:30", "09:30:60", "09:30:00\n", "09:30:00.1234567", "٠٩:30:00"]),
        (
            DECIMAL,
            ["0", "-1.50", "1E+2", "00"],
            ["", ".5", "1.", "NaN", "+1", "1e12345", "1\n"],
        ),
        (BYTES, ["", "00fF"], ["0", "0g", "00 ff", "00\n"]),
    ],
)
def test_strings_with_a_pattern(pattern: str, good: list[str], bad: list[str]) -> None:
    check = check_string({"pattern": pattern})
    assert [words(check, text) for text in good] == [[]] * len(good)
    assert [words(check, text) for text in bad] == [
        [f"must be {PATTERNS[pattern]}"]
    ] * len(bad)


def test_choices_are_compared_as_json_does() -> None:
    check = check_choice([1, "1", None])
    assert type(check.find(1.0)[0]) is int
    assert words(check, True) == ["must be one of 1, '1', null"]
    assert words(check, []) == words(check, {"a": 1}) == words(check, True)
    assert words(check_choice([True]), 1) == ["must be one of true"]


def test_twins() -> None:
    assert has_twins([1, 1.0])
    assert has_twins([{"a": [1]}, {"a": [1.0]}])
    assert not has_twins([1, True, "1", [1], {"a": 1}, None])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (None, "null"),
        (True, "boolean"),
        (1, "integer"),
        (1.0, "integer"),
        (1.5, "number"),
        ("", "string"),
        ([], "array"),
        ({}, "object"),
    ],
)
def test_types_of_values(value: Any, type_: str) -> None:
    assert type_of(value) == type_


def test_numbers_made_for_one_hash_take_no_quadratic_time() -> None:
    """Ten seconds, for half a megabyte, when they were put into a set."""
    many = [(2**61 - 1) * one for one in range(20_000)]
    started = time.perf_counter()
    assert has_equals(many)
    assert time.perf_counter() - started < 1


def test_a_few_of_one_hash_are_accepted() -> None:
    few = [(2**61 - 1) * one for one in range(10)]
    assert not has_equals(few)
    assert has_equals([*few, few[3]])
