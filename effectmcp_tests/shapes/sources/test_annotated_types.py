"""The limits of annotated-types, on parameters and in classes that check nothing."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, TypeVar

import annotated_types as at
import attrs
import pytest
from typing_extensions import TypeAliasType

from effectmcp import FormError, SchemaError, Title
from effectmcp.forms import Unfit, form_of
from effectmcp.shapes.constraints import FULL, Bound, Options, Other, Rule

from ..reading import problems, read, schema_of

Adult = NewType("Adult", int)
DAY = dt.date(2026, 7, 28)


def problem(annotation: Any, value: Any) -> str:
    (only,) = problems(annotation, value)
    return only.partition(": ")[2]


def is_even(value: int) -> bool:
    return value % 2 == 0


@pytest.mark.parametrize(
    ("annotation", "shown", "good", "bad", "words"),
    [
        (
            Annotated[int, at.Ge(5)],
            {"type": "integer", "minimum": 5},
            5,
            0,
            "must be at least 5",
        ),
        (
            Annotated[float, at.Interval(gt=0, le=1)],
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            1,
            0,
            "must be more than 0",
        ),
        (
            Annotated[int, at.MultipleOf(4), at.MultipleOf(6)],
            {"type": "integer", "multipleOf": 12},
            24,
            8,
            "must be a multiple of 12",
        ),
        (
            Annotated[Decimal, at.Lt(2)],
            None,
            "1.5",
            "2",
            "must be less than 2",
        ),
        (
            Annotated[dt.date, at.Ge(DAY)],
            {
                "type": "string",
                "format": "date",
                "description": "Must be at least 2026-07-28",
            },
            "2026-07-28",
            "2026-07-27",
            "must be at least 2026-07-28",
        ),
        (
            Annotated[list[int], at.Len(1, 2)],
            {
                "type": "array",
                "items": {"type": "integer"},
                "minItems": 1,
                "maxItems": 2,
            },
            [1],
            [],
            "must have at least 1 item",
        ),
        (
            Annotated[dict[str, int], at.MaxLen(0)],
            None,
            {},
            {"a": 1},
            "must have at most 0 entries",
        ),
        (
            Annotated[bytes, at.MinLen(2)],
            None,
            "ffff",
            "ff",
            "must have at least 2 characters",
        ),
        (
            Annotated[int, at.Predicate(is_even)],
            {"type": "integer", "description": "Must pass is_even"},
            2,
            1,
            "must pass is_even",
        ),
        (
            Annotated[int, at.Predicate(lambda value: value > 1)],
            {"type": "integer", "description": "Must pass a check"},
            2,
            1,
            "must pass a check",
        ),
        (
            Annotated[int | None, at.Gt(1)],
            None,
            None,
            1,
            "must be more than 1",
        ),
        (
            list[Annotated[str, at.MinLen(1)]],
            None,
            ["a"],
            [""],
            "must have at least 1 character",
        ),
        (
            Annotated[Adult, at.Ge(18)],
            {"type": "integer", "minimum": 18},
            18,
            17,
            "must be at least 18",
        ),
        (
            Annotated[int, at.Unit("m")],
            {"type": "integer", "description": "in m"},
            1,
            "",
            "must be a whole number",
        ),
    ],
)
def test_limits_are_published_and_kept(
    annotation: Any, shown: Any, good: Any, bad: Any, words: str
) -> None:
    if shown is not None:
        assert schema_of(annotation) == shown
    read(annotation, good)
    assert problem(annotation, bad) == words


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int | float, at.Ge(5)],
        Annotated[Literal[1, 7], at.Predicate(is_even)],
        Annotated[tuple[int, ...], at.MinLen(1)],
    ],
)
def test_limits_that_no_keyword_says_are_kept(annotation: Any) -> None:
    assert problem(annotation, [] if "tuple" in str(annotation) else 1)


class Custom(at.BaseMetadata):
    pass


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (
            Annotated[str, at.Ge(5)],
            r"tool\(x\): Ge\(ge=5\) does not limit values of str",
        ),
        (Annotated[bool, at.Ge(0)], "does not limit values of bool"),
        (Annotated[int | str, at.Ge(5)], "does not limit"),
        (Annotated[dt.date, at.Ge(dt.time())], "bounds are for numbers, and for dates"),
        (Annotated[int, at.MinLen(1)], "lengths are for text, lists and dicts"),
        (Annotated[str, at.MultipleOf(2)], "multiples are of numbers"),
        (Annotated[int, Custom()], "its meaning is unknown here"),
        (list[Annotated[str, at.Gt(1)]], r"tool\(x\), an item: Gt\(gt=1\) does not"),
    ],
)
def test_limits_of_other_types_are_refused(annotation: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        schema_of(annotation)


# ---- in classes ---------------------------------------------------------------------

Age = Annotated[int, at.Ge(18), Title("Age")]
Share = Annotated[float, at.Lt(1)]


@attrs.frozen
class ByAttrs:
    age: Age
    share: Share = 0.5


@dataclasses.dataclass
class ByDataclass:
    age: Age
    share: Share = 0.5


class ByTypedDict(TypedDict, total=False):
    age: Age
    share: Share


class ByNamedTuple(NamedTuple):
    age: Age
    share: Share


@pytest.mark.parametrize("class_", [ByAttrs, ByDataclass, ByTypedDict])
def test_limits_in_a_class(class_: Any) -> None:
    assert schema_of(class_)["properties"]["age"]["minimum"] == 18
    made = read(class_, {"age": 18, "share": 0})
    assert made == class_(age=18, share=0.0)
    assert problem(class_, {"age": 18, "share": 1}) == "must be less than 1"


@pytest.mark.parametrize("class_", [ByAttrs, ByDataclass, ByTypedDict, ByNamedTuple])
def test_limits_in_a_form(class_: Any) -> None:
    made = form_of(class_)
    age, share = made.schema["properties"].values()
    assert age == {"type": "integer", "minimum": 18, "title": "Age"}
    assert share["description"] == "Must be less than 1"
    content = {"age": 18, "share": 0.25}
    assert made.build(made.read(content)) == class_(**content)
    with pytest.raises(Unfit) as caught:
        made.read({"age": 17, "share": 1.0})
    assert caught.value.problems == [
        "age: must be at least 18",
        "share: must be less than 1",
    ]


def test_fields_that_a_client_may_leave_out() -> None:
    made = form_of(ByTypedDict)
    assert "required" not in made.schema
    assert made.build(made.read({"age": 20})) == {"age": 20}
    made = form_of(ByDataclass)
    assert made.schema["required"] == ["age"]
    assert made.build(made.read({"age": 20})) == ByDataclass(20)


def test_default_out_of_bounds() -> None:
    class_ = attrs.make_class("Small", {"x": attrs.field(type=Age, default=3)})
    with pytest.raises(FormError, match="the default 3 must be at least 18"):
        form_of(class_)


def test_one_field() -> None:
    made = form_of(Annotated[float, at.Gt(0), at.Predicate(math.isfinite)])
    assert made.schema["properties"]["value"]["description"] == (
        "Must be more than 0 (must pass isfinite)"
    )
    with pytest.raises(Unfit, match="value: must be more than 0"):
        made.read({"value": 0})


def test_predicate_that_fails_is_a_problem() -> None:
    def fails(value: Any) -> bool:
        raise RuntimeError("no")

    assert problem(Annotated[int, at.Predicate(fails)], 1) == "no"


def test_rule_without_words() -> None:
    says: Callable[[Any, Any], None] = Rule(Other(bool, "must be true")).extra(None)
    says(None, 1)
    with pytest.raises(ValueError, match=r"^None$"):
        says(None, 0)
    assert Bound(">", 1).words({}, FULL) == "must be more than 1"


def test_app_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "annotated_types")
    assert schema_of(Annotated[int, object()]) == {"type": "integer"}


def test_options() -> None:
    assert Options([1], [1]).holds(1)
    assert not Options([1], [1]).holds(2)


@dataclasses.dataclass
class Lower:
    x: Nowhere  # type: ignore[name-defined]  # noqa: F821  # wrong on purpose


@dataclasses.dataclass
class Upper(Lower):
    y: int


def test_name_that_a_base_does_not_find() -> None:
    with pytest.raises(SchemaError, match="Upper: 'Nowhere' in an annotation"):
        schema_of(Upper)


T = TypeVar("T")
Many = TypeAliasType("Many", list[T], type_params=(T,))
Plain = TypeAliasType("Plain", int, type_params=(T,))


def test_generic_aliases() -> None:
    assert read(Many[dt.date], ["2026-07-28"]) == [DAY]
    assert schema_of(Plain[str]) == {"type": "integer"}
