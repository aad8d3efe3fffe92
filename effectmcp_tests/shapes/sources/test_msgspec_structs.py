"""Structs of msgspec, and `Meta`."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from effectmcp import SchemaError
from effectmcp.forms import Unfit, form_of
from effectmcp.schema import output_of

from ..reading import problems, read, schema_of

Positive = Annotated[int, Meta(gt=0, title="A number", description="How many.")]


class Stay(Struct, rename="camel"):
    """A stay."""

    first_night: dt.date
    nights: Positive = 1
    tags: list[str] = []
    note: str | UnsetType = UNSET


class Circle(Struct, tag="circle"):
    radius: float


class Square(Struct, tag="square"):
    side: float


class Pair(Struct, array_like=True):
    a: int
    b: str


class Optional(Struct, array_like=True):
    a: int
    b: str = ""


class Even(Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("n must be even")


def written(annotation: Any, value: Any) -> Any:
    output = output_of(annotation)
    assert output is not None
    return output.write(value)


def test_schema() -> None:
    assert schema_of(Stay) == {
        "type": "object",
        "title": "Stay",
        "description": "A stay.",
        "properties": {
            "firstNight": {"type": "string", "format": "date"},
            "nights": {
                "type": "integer",
                "exclusiveMinimum": 0,
                "title": "A number",
                "description": "How many.",
                "default": 1,
            },
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string"},
        },
        "required": ["firstNight"],
        "additionalProperties": False,
    }


def test_structs_are_made_and_written() -> None:
    made = read(Stay, {"firstNight": "2026-07-28", "nights": 2})
    assert made == Stay(dt.date(2026, 7, 28), 2)
    assert made.note is UNSET
    assert problems(Stay, {"firstNight": "x", "nights": 0}) == [
        "x.firstNight: must be a date such as 2026-07-28",
        "x.nights: must be more than 0",
    ]
    output = output_of(list[Even])
    assert output is not None
    assert output.write([Even(2)]) == [{"n": 2}]


def test_tags_choose_the_struct() -> None:
    assert read(Circle | Square, {"type": "square", "side": 2}) == Square(2.0)
    assert written(list[Circle], [Circle(1.0)]) == [{"type": "circle", "radius": 1.0}]
    assert problems(Circle, {"radius": 1}) == ["x.type: is required"]


def test_structs_that_are_lists() -> None:
    assert read(Pair, [1, "b"]) == Pair(1, "b")
    assert written(list[Pair], [Pair(1, "b")]) == [[1, "b"]]
    with pytest.raises(SchemaError, match="Optional: array_like with defaults"):
        schema_of(Optional)


class First(Struct, tag=True, array_like=True):
    a: int


class Noted(Struct):
    note: str | None | UnsetType = UNSET


def test_tag_of_a_list_comes_first() -> None:
    assert read(First, ["First", 1]) == First(1)
    assert written(list[First], [First(1)]) == [["First", 1]]


def test_null_is_not_unset() -> None:
    assert written(list[Noted], [Noted(), Noted(None)]) == [{}, {"note": None}]
    assert read(Noted, {"note": None}) == Noted(None)


def test_what_a_constructor_says() -> None:
    assert problems(list[Even], [{"n": 2}, {"n": 1}]) == ["x[1]: n must be even"]


@pytest.mark.parametrize(
    ("annotation", "good", "bad", "words"),
    [
        (Annotated[int, Meta(ge=1, le=3)], 3, 4, "must be at most 3"),
        (Annotated[int, Meta(lt=3)], 2, 3, "must be less than 3"),
        (Annotated[int, Meta(multiple_of=3)], 3, 4, "must be a multiple of 3"),
        (Annotated[str, Meta(min_length=2, max_length=3)], "ab", "a", "at least 2"),
        (Annotated[str, Meta(pattern="b$")], "ab", "a", "must match b$"),
        (
            Annotated[dt.time, Meta(tz=False)],
            "09:30:00",
            "09:30:00Z",
            "must have no time zone",
        ),
    ],
)
def test_limits_are_kept(annotation: Any, good: Any, bad: Any, words: str) -> None:
    read(annotation, good)
    (problem,) = problems(annotation, bad)
    assert words in problem


def test_schema_without_a_check_is_refused() -> None:
    annotation = Annotated[int, Meta(extra_json_schema={"maximum": 3})]
    with pytest.raises(SchemaError, match="write maximum as arguments of Meta"):
        schema_of(annotation)


def test_form() -> None:
    made = form_of(Even)
    assert made.build(made.read({"n": 2})) == Even(2)
    with pytest.raises(Unfit, match="n must be even"):
        made.read({"n": 1})
    assert msgspec.structs.astuple(made.build({"n": 4})) == (4,)


class Unresolved(Struct):
    x: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037  # wrong on purpose


def test_name_that_is_not_there() -> None:
    with pytest.raises(SchemaError, match=r"Unresolved\.x: 'Nowhere' in an annotation"):
        schema_of(Unresolved)


def test_error_of_msgspec_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(class_: Any) -> Any:
        raise TypeError("no")

    class Fresh(Struct):
        x: int

    monkeypatch.setattr(msgspec.structs, "fields", fails)
    with pytest.raises(TypeError, match="no"):
        schema_of(Fresh)


def test_set_of_structs_without_a_hash() -> None:
    with pytest.raises(SchemaError, match="a set cannot hold"):
        schema_of(set[Even])


class Bounded(Struct):
    note: Annotated[str | UnsetType, Meta(min_length=1)] = UNSET


def test_limit_around_unset() -> None:
    assert read(Bounded, {}) == Bounded()
    assert problems(Bounded, {"note": ""}) == ["x.note: must have at least 1 character"]


def test_time_zone_of_another_type() -> None:
    with pytest.raises(SchemaError, match="it is for datetime and time"):
        schema_of(Annotated[str, Meta(tz=True)])
