from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import MutableSet, Set
from decimal import Decimal
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import pytest
from attrs.validators import ge, instance_of, matches_re

from effectmcp.schema.build import make_build
from effectmcp.schema.checks import Picked

T = TypeVar("T")


class Place(enum.Enum):
    HERE = (1, 2)


class Colour(enum.Enum):
    RED = "red"


class Entry(TypedDict):
    a: dt.date
    b: NotRequired[int | None]


class Row(NamedTuple):
    when: dt.date
    n: int


@attrs.frozen
class Box(Generic[T]):
    _what: T


@dataclasses.dataclass
class Half:
    x: int

    def __post_init__(self) -> None:
        if self.x > 1:
            raise ValueError("x must be at most 1")


def halves(value: int) -> int:
    return 2 // value


@attrs.frozen
class Range:
    low: int = attrs.field(validator=ge(0))
    high: int = attrs.field()
    code: str = attrs.field(default="a", validator=matches_re("[a-z]"))
    twice: int = attrs.field(default=1, converter=halves)
    plain: int = 0
    inner: Half | None = None

    @high.validator
    def _above(self, attribute: Any, value: int) -> None:
        if value < self.low:
            raise ValueError(f"must be at least {self.low}")


@attrs.frozen
class Strict:
    x: Any = attrs.field(validator=instance_of(int))
    y: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        raise ValueError("never")


def asks(instance: Any, attribute: Any, value: int) -> None:
    if value != instance.later:
        raise ValueError("never")


@attrs.frozen
class Asking:
    a: int = attrs.field(validator=asks)
    b: int = attrs.field(validator=ge(1))
    later: int = attrs.field(init=False)

    def __attrs_pre_init__(self) -> None:
        object.__setattr__(self, "later", 1)


class Alias:
    def __init__(self, value: Any) -> None:
        self.__value__ = value


def run(annotation: Any, value: Any) -> tuple[Any, list[tuple[str, str]]]:
    found: list[tuple[str, str]] = []
    build = make_build(annotation)
    return (value if build is None else build(value, found)), found


def built(annotation: Any, value: Any) -> Any:
    made, problems = run(annotation, value)
    assert problems == []
    return made


def problems(annotation: Any, value: Any) -> Any:
    return run(annotation, value)[1]


DAY = dt.date(2026, 7, 28)


@pytest.mark.parametrize(
    ("annotation", "value", "made"),
    [
        (Any, [1], [1]),
        (object, [1], [1]),
        (dt.date, "2026-07-28", DAY),
        (dt.datetime, "2026-07-28t00:00:00z", dt.datetime(2026, 7, 28, tzinfo=dt.UTC)),
        (dt.time, "09:30:00Z", dt.time(9, 30, tzinfo=dt.UTC)),
        (uuid.UUID, "0" * 32, uuid.UUID(int=0)),
        (Decimal, "1.50", Decimal("1.50")),
        (bytes, "00fF", b"\x00\xff"),
        (float, 1, 1.0),
        (Place, "HERE", Place.HERE),
        (Colour, "red", Colour.RED),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, ...], [1, 2], (1, 2)),
        (int | dt.date, Picked(1, "2026-07-28"), DAY),
        (list[int | None], [Picked(1, None), Picked(0, 3)], [None, 3]),
        (Alias(dt.date), "2026-07-28", DAY),
        (Entry, {"a": "2026-07-28", "b": Picked(1, None)}, {"a": DAY, "b": None}),
        (Row, ["2026-07-28", 1], Row(DAY, 1)),
        (Box[dt.date], {"what": "2026-07-28"}, Box(DAY)),
        (Half, {"x": 1}, Half(1)),
        (list[dt.date | str], [Picked(0, "2026-07-28")], [DAY]),
        (list[str | dt.date], [Picked(0, "2026-07-28")], [DAY]),
        (Range, {"low": 1, "high": 2}, Range(1, 2)),
    ],
)
def test_build(annotation: Any, value: Any, made: Any) -> None:
    assert built(annotation, value) == made


def test_build_keeps_types() -> None:
    assert type(built(float, 1)) is float
    assert type(built(Row, ["2026-07-28", 1])) is Row


# ---- what Python says ----


def test_every_validator_is_heard() -> None:
    value = {"low": -1, "high": -2, "code": "1", "twice": 0}
    found = dict(problems(Range, value))
    assert found.keys() == {".low", ".high", ".code", ".twice"}
    assert found[".high"] == "must be at least -1"


def test_validators_inside_are_heard_with_their_path() -> None:
    value = {"a": {"low": 3, "high": 1}}
    assert problems(dict[str, list[Range]], {"x y": [value["a"]]}) == [
        ('["x y"][0].high', "must be at least 3")
    ]


def test_problems_inside_are_reported_before_problems_of_the_whole() -> None:
    value = {"low": 3, "high": 1, "inner": Picked(0, {"x": 2})}
    assert problems(Range, value) == [(".inner", "x must be at most 1")]


def test_what_a_constructor_says() -> None:
    assert problems(Half, {"x": 2}) == [("", "x must be at most 1")]
    assert problems(Strict, {"x": 1}) == [("", "never")]


def test_validator_that_asks_for_what_is_not_there() -> None:
    """The constructor runs this validator; the others run before."""
    value = {"a": 1, "b": 0}
    assert problems(Asking, value) == [(".b", "must be at least 1")]


class Dated(TypedDict):
    a: dt.date
    b: dt.date


def test_typeddicts_are_heard_whole() -> None:
    found = problems(list[Dated], [{"a": "x", "b": "y"}])
    assert [path for path, _ in found] == ["[0].a", "[0].b"]


@attrs.frozen
class Holding:
    items: list[int]


def test_what_a_set_says() -> None:
    ((path, words),) = problems(set[Holding], [{"items": [1]}])
    assert (path, words) == ("", "unhashable type: 'list'")


ID = "0000000a-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("annotation", "made"),
    [
        (set[int], {1, 2}),
        (frozenset[int], frozenset({1, 2})),
        (MutableSet[int], {1, 2}),
        (Set[int], frozenset({1, 2})),
    ],
)
def test_sets(annotation: Any, made: Any) -> None:
    built = run(annotation, [1, 2])
    assert built == (made, [])
    assert type(built[0]) is type(made)


def test_keys_are_built_and_so_are_their_values() -> None:
    type_ = dict[uuid.UUID, list[dt.date]]
    assert run(type_, {ID: ["2026-07-28"]}) == (
        {uuid.UUID(ID): [dt.date(2026, 7, 28)]},
        [],
    )
    assert problems(dict[Colour, Half], {"red": {"x": 2}}) == [
        (".red", "x must be at most 1")
    ]


def test_what_is_equal_in_python_only_is_not_lost_silently() -> None:
    """A UUID has two spellings, and the last of them won."""
    said = [("", "must not have the same item twice")]
    assert problems(set[uuid.UUID], [ID, ID.upper()]) == said
    said = [("", "must not have the same key twice")]
    assert problems(dict[uuid.UUID, int], {ID: 1, ID.upper(): 2}) == said


@attrs.frozen
class Bound:
    at: int | None = attrs.field(validator=ge(3))


def test_null_that_a_validator_is_not_made_for() -> None:
    null = Picked(1, None)
    assert problems(Bound, {"at": null}) == [(".at", "must be at least 3")]
