from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs
import pytest

from effectmcp.schema.written import written
from effectmcp.shapes.choices import is_by_value


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Place(enum.Enum):
    HERE = (1, 2)


class Odd(enum.Enum):
    ENDLESS = float("inf")


class Unequal(enum.Enum):
    NAN = float("nan")


@attrs.frozen
class Guest:
    name: str
    _age: int = 3
    seen: int = attrs.field(init=False, default=0)


@dataclasses.dataclass
class Point:
    x: float
    y: float = dataclasses.field(init=False, default=0.0)


class Row(NamedTuple):
    n: int
    s: str


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        (Text("x"), "x"),
        (Whole(3), 3),
        (Real(1.5), 1.5),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (Place.HERE, "HERE"),
        (Odd.ENDLESS, "ENDLESS"),
        (Unequal.NAN, "NAN"),
        (dt.date(2026, 7, 28), "2026-07-28"),
        (dt.datetime(2026, 7, 28, tzinfo=dt.UTC), "2026-07-28T00:00:00+00:00"),
        (dt.time(9, 30), "09:30:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (b"\x00\xff", "00ff"),
        ((1, [2]), [1, [2]]),
        (Row(1, "x"), [1, "x"]),
        ({3, 1, 2}, [1, 2, 3]),
        ({"b": {"c": (1,)}}, {"b": {"c": [1]}}),
        (MappingProxyType({Colour.RED: dt.date(2026, 1, 1)}), {"red": "2026-01-01"}),
        (Guest("Ann", 4), {"name": "Ann", "age": 4}),
        (Point(1.0), {"x": 1.0}),
    ],
)
def test_written(value: Any, json: Any) -> None:
    made, problems = written(value)
    assert problems == []
    assert made == json
    assert type(made) is type(json)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), ""),
        (Point, ""),
        ([1, {"a": object()}], "[1].a"),
        ({"a": {1: 2}}, ".a"),
        (Guest(object()), ".name"),  # type: ignore[arg-type]
    ],
)
def test_written_names_what_json_cannot_say(value: Any, path: str) -> None:
    _, problems = written(value)
    assert [found for found, _ in problems] == [path]


def test_written_of_what_holds_itself() -> None:
    """2⁶⁴ places, if only the depth were looked at."""
    value: list[Any] = []
    value += [value, [value]]
    _, problems = written(value)
    assert [path for path, _ in problems] == ["[0]", "[1][0]"]
    assert "is the object that contains it" in problems[0][1]


def test_written_of_what_is_nested_too_deeply() -> None:
    value: list[Any] = []
    for _ in range(64):
        value = [value]
    _, ((path, words),) = written(value)
    assert path == "[0]" * 64
    assert "nested" in words


@pytest.mark.parametrize(
    "value", [[b"".join] * 1000, {str(i): iter for i in range(999)}]
)
def test_written_stops_when_enough_is_wrong(value: Any) -> None:
    _, problems = written(value)
    assert len(problems) == 101


def test_written_set_of_what_has_no_order() -> None:
    """The check that follows reports the problems inside."""
    made, problems = written({float("nan"), 1.0})
    assert len(made) == 2
    assert problems == []


def test_enums_travel_by_value_where_json_has_it() -> None:
    assert is_by_value(Colour)
    assert is_by_value(Level)
    assert not is_by_value(Place)
    assert not is_by_value(Odd)
    assert not is_by_value(Unequal)
