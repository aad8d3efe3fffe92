from __future__ import annotations

import datetime as dt
import enum
import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

import attrs
import pytest
from attrs.validators import (
    and_,
    deep_iterable,
    ge,
    gt,
    in_,
    instance_of,
    le,
    lt,
    matches_re,
    max_len,
    min_len,
    not_,
    optional,
    or_,
)

from effectmcp.errors import FormError
from effectmcp.forms.fields import Field
from effectmcp.forms.types import make_field
from effectmcp.shapes.sources import source_of

Size = Literal["s", "m", "l"]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Container:
    def __contains__(self, item: object) -> bool:
        return item == 3


def field(annotation: Any, validator: Any, **options: Any) -> Field:
    made = attrs.field(validator=validator, **options)
    source = source_of(attrs.make_class("Person", {"age": made}))
    assert source is not None
    (part,) = source.parts
    return make_field("age", annotation, of="Person.age", part=part)


def schema(annotation: Any, validator: Any, **options: Any) -> dict[str, Any]:
    return dict(field(annotation, validator, **options).schema)


def rest(annotation: Any, validator: Any, **options: Any) -> Callable[[Any], str]:
    """Return a function that returns the extras' complaint about a value, or ""."""
    extras = field(annotation, validator, **options).extras
    assert extras, "everything is said in the schema"

    def said(value: Any) -> str:
        for extra in extras:
            try:
                extra(None, value)
            except ValueError as exc:
                return str(exc)
        return ""

    return said


def refusal(annotation: Any, validator: Any, **options: Any) -> str:
    with pytest.raises(FormError) as caught:
        field(annotation, validator, **options)
    name, problem = caught.value.problem.split(": ", 1)
    assert name == "Person.age"
    return problem


def test_attrs_names() -> None:
    """attrs keeps these classes private, so only this test would show a change."""
    validators: dict[str, Any] = {
        "_AndValidator": and_(ge(1), le(2)),
        "_OptionalValidator": optional(ge(1)),
        "_NumberValidator": ge(1),
        "_MinLengthValidator": min_len(1),
        "_MaxLengthValidator": max_len(1),
        "_InValidator": in_([1]),
        "_MatchesReValidator": matches_re("a"),
        "_InstanceOfValidator": instance_of(int),
    }
    for name, validator in validators.items():
        assert type(validator).__name__ == name
        assert type(validator).__module__ in ("attr.validators", "attr._make")
    assert len(validators["_AndValidator"]._validators) == 2
    assert validators["_OptionalValidator"].validator == ge(1)
    assert validators["_NumberValidator"].compare_op == ">="
    assert validators["_NumberValidator"].bound == 1
    assert validators["_MinLengthValidator"].min_length == 1
    assert validators["_MaxLengthValidator"].max_length == 1
    assert validators["_InValidator"].options == (1,)
    assert validators["_InValidator"]._original_options == [1]
    assert validators["_MatchesReValidator"].pattern == re.compile("a")
    operators = [validator(1).compare_op for validator in (gt, ge, lt, le)]  # type: ignore[attr-defined]
    assert operators == [">", ">=", "<", "<="]


# ---- bounds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("validator", "shown"),
    [
        (ge(18), {"minimum": 18}),
        (gt(18), {"minimum": 19}),
        (le(18), {"maximum": 18}),
        (lt(18), {"maximum": 17}),
        (ge(1.5), {"minimum": 2}),
        (gt(1.5), {"minimum": 2}),
        (le(1.5), {"maximum": 1}),
        (lt(1.5), {"maximum": 1}),
        (gt(-1.5), {"minimum": -1}),
        (lt(-1.5), {"maximum": -2}),
        (gt(2.0), {"minimum": 3}),
        ([ge(1), ge(3), le(9), lt(8)], {"minimum": 3, "maximum": 7}),
        (optional([ge(1), le(3)]), {"minimum": 1, "maximum": 3}),
    ],
)
def test_bound_on_an_integer(validator: Any, shown: dict[str, int]) -> None:
    """Bounds are rounded inwards, so schema and validator admit the same integers."""
    made = field(int, validator)
    assert made.schema == {"type": "integer", **shown}
    assert made.extras == ()
    assert all(type(bound) is int for bound in shown.values())


def test_bound_on_a_number() -> None:
    made = field(float, [ge(0.5), ge(0.25), le(2)])
    assert made.schema == {"type": "number", "minimum": 0.5, "maximum": 2}
    assert made.extras == ()


@pytest.mark.parametrize(
    ("validator", "words", "inside", "outside"),
    [
        (gt(0), "must be more than 0", 5e-324, 0.0),
        (lt(1.5), "must be less than 1.5", 1.4999, 1.5),
        (ge(Decimal("1.5")), "must be at least 1.5", 1.5, 1.4999),
        (le(Fraction(3, 2)), "must be at most 3/2", 1.5, 1.6),
        (ge(-math.inf), "must be at least -inf", 0.0, math.nan),
    ],
)
def test_bound_that_the_schema_cannot_say(
    validator: Any, words: str, inside: float, outside: float
) -> None:
    """`exclusiveMinimum` is outside the form subset."""
    described = words[0].upper() + words[1:]
    assert schema(float, validator) == {"type": "number", "description": described}
    said = rest(float, validator)
    assert said(inside) == ""
    assert said(outside) == words


def test_bound_on_a_date() -> None:
    said = rest(dt.date, ge(dt.date(2026, 7, 28)))
    assert said(dt.date(2026, 7, 28)) == ""
    assert said(dt.date(2026, 7, 27)) == "must be at least 2026-07-28"
    shown = schema(dt.date, ge(dt.date(2026, 7, 28)))
    assert shown["description"] == "Must be at least 2026-07-28"


def test_bounds_that_nothing_fits() -> None:
    assert refusal(float, [ge(3), le(2)]) == "no number is at least 3 and at most 2"
    assert refusal(int, [gt(2), lt(3)]).startswith("no number is at least 3 and at")


# ---- lengths ------------------------------------------------------------------------


def test_length_of_a_string() -> None:
    made = field(str, [min_len(1), min_len(2), max_len(9), max_len(8)])
    assert made.schema == {"type": "string", "minLength": 2, "maxLength": 8}
    assert made.extras == ()


def test_length_of_a_list() -> None:
    made = field(list[Size], [min_len(1), max_len(2)])
    assert (made.schema["minItems"], made.schema["maxItems"]) == (1, 2)
    assert made.extras == ()


def test_length_of_a_choice() -> None:
    """`minLength` is not a keyword of choices."""
    shown = schema(Literal["a", "bb"], [min_len(2), max_len(3)])
    words = "Must have at least 2 characters (must have at most 3 characters)"
    assert shown["description"] == words
    said = rest(Literal["a", "bb"], min_len(2))
    assert said("bb") == ""
    assert said("a") == "must have at least 2 characters"


def test_length_that_is_negative() -> None:
    assert "admits no value" in refusal(str, min_len(-1))


# ---- choices ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "options", "choices"),
    [
        (str, ["b", "a"], ["b", "a"]),
        (str, ("b", "a", "b"), ["b", "a"]),
        (str, {"b": 1, "a": 2}, ["b", "a"]),
        (str, {"b", "a", "c"}, ["a", "b", "c"]),
        (str, frozenset({"b", "a", "c"}), ["a", "b", "c"]),
        (Annotated[str, "Which"], ["b", "a"], ["b", "a"]),
        (Size, ["l", "s", "xl"], ["s", "l"]),
        (Colour, [Colour.GREEN], ["green"]),
        (Colour, Colour, ["red", "green"]),
    ],
)
def test_in_as_choices(annotation: Any, options: Any, choices: list[str]) -> None:
    """The order of a set differs from process to process, so it gets another."""
    made = field(annotation, in_(options))
    assert made.schema["enum"] == choices
    assert made.extras == ()


@pytest.mark.parametrize(
    ("annotation", "options", "words", "inside", "outside"),
    [
        (int, [3, 1], "must be one of 3, 1", 1, 2),
        (int, {30, 1, 4}, "must be one of 1, 4, 30", 1, 2),
        (int, range(10), "must be in range(0, 10)", 1, 10),
        (str, "abc", "must be in 'abc'", "bc", "ac"),
        (str, ["a", 1], "must be one of 'a', 1", "a", "b"),
        (str, {1, "a"}, "must be one of 'a', 1", "a", "b"),
        (float, [0.5], "must be one of 0.5", 0.5, 1.0),
        (dt.date, [dt.date.min], "must be one of 0001-01-01", dt.date.min, dt.date.max),
    ],
)
def test_in_that_the_schema_cannot_say(
    annotation: Any, options: Any, words: str, inside: Any, outside: Any
) -> None:
    shown = schema(annotation, in_(options))
    assert shown["description"] == words[0].upper() + words[1:]
    assert "enum" not in shown
    said = rest(annotation, in_(options))
    assert said(inside) == ""
    assert said(outside) == words


def test_in_beside_other_keywords() -> None:
    """A choice has no length, so beside a length the choices are shown in words."""
    shown = schema(str, [min_len(2), in_(["aa", "bb"])])
    assert shown["minLength"] == 2
    assert shown["description"] == "Must be one of 'aa', 'bb'"


def test_in_a_container_of_unknown_kind() -> None:
    """The repr may hold an address, but a question is the same in every process."""
    assert schema(int, in_(Container())) == {"type": "integer"}
    said = rest(int, in_(Container()))
    assert said(3) == ""
    assert said(4).startswith("must be in <")


def test_in_nothing() -> None:
    assert refusal(Size, in_(["xl"])) == "the list of choices is empty"


# ---- the rest -----------------------------------------------------------------------


def test_matches_re() -> None:
    r"""`\d` and `$` mean other things to a client, so it is shown no pattern."""
    annotation = Annotated[str, "Your code"]
    shown = schema(annotation, matches_re(r"[A-Z]\d$"))
    assert shown == {
        "type": "string",
        "description": r"Your code (must match [A-Z]\d$)",
    }
    said = rest(annotation, matches_re(r"[A-Z]\d$"))
    assert said("A\u0661") == ""
    assert said("a1") == r"must match [A-Z]\d$"


def test_matches_re_keeps_its_case_in_the_description() -> None:
    assert schema(str, matches_re("[A-Z]"))["description"] == "Must match [A-Z]"


@pytest.mark.parametrize(
    ("validator", "value", "words"),
    [
        (instance_of(str), 1, "must be <class 'str'> (got 1 that is a <class 'int'>)."),
        (not_(in_([1])), 1, "not_ validator child"),
        (or_(ge(5), le(0)), 3, "None of (<Validator for x >= 5>"),
    ],
)
def test_others_speak_for_themselves(validator: Any, value: Any, words: str) -> None:
    assert schema(int, validator) == {"type": "integer"}
    assert rest(int, validator)(value).startswith(words)


def test_members_of_a_list() -> None:
    said = rest(list[Size], deep_iterable(in_(["s", "m"]), min_len(1)))
    assert said(["s"]) == ""
    assert said(["l"]) == "must be in ['s', 'm'] (got 'l')"


def test_validator_of_ones_own() -> None:
    def even(instance: Any, attribute: attrs.Attribute[Any], value: int) -> None:
        if value % 2:
            raise ValueError(f"must be even; {attribute.name} is {value}")

    said = rest(int, [ge(0), even])
    assert said(2) == ""
    assert said(3) == "must be even; age is 3"
    assert schema(int, [ge(0), even]) == {"type": "integer", "minimum": 0}


def test_validator_of_ones_own_with_a_name_of_attrs() -> None:
    class _NumberValidator:
        def __call__(self, instance: Any, attribute: Any, value: Any) -> None:
            raise ValueError("never")

    assert schema(int, _NumberValidator()) == {"type": "integer"}
    assert rest(int, _NumberValidator())(1) == "never"


def test_validator_that_misses_something_on_the_instance() -> None:
    def after(instance: Any, attribute: Any, value: int) -> None:
        assert value > instance.start

    (extra,) = field(int, after).extras
    with pytest.raises(AttributeError):
        extra(None, 3)


# ---- defaults -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "validator", "default", "words"),
    [
        (int, ge(18), 3, "the default 3 must be at least 18"),
        (float, gt(0), 0.0, "the default 0.0 must be more than 0"),
        (str, min_len(1), "", "the default '' must have at least 1 character"),
        (str, in_(["a", "b"]), "c", "the default 'c' must be one of 'a', 'b'"),
        (int, in_([1, 2]), 3, "the default 3 must be one of 1, 2"),
        (str, matches_re("a"), "b", "the default 'b' must match a"),
        (int, instance_of(str), 3, "the default 3 must be <class 'str'> (got 3"),
    ],
)
def test_default_that_the_class_would_refuse(
    annotation: Any, validator: Any, default: Any, words: str
) -> None:
    assert refusal(annotation, validator, default=default).startswith(words)


@pytest.mark.parametrize("options", [{"default": None}, {}])
@pytest.mark.parametrize(
    ("annotation", "validator", "words"),
    [
        (int, ge(18), "must be at least 18"),
        (str, min_len(1), "must have at least 1 character"),
        (str, in_(["a"]), "must be one of 'a'"),
        (int, instance_of(int), "must be <class 'int'> (got None that is a"),
    ],
)
def test_default_of_none_needs_optional(
    annotation: Any, validator: Any, words: str, options: dict[str, Any]
) -> None:
    """Otherwise a user who leaves the field out would see the author's mistake."""
    problem = refusal(annotation | None, validator, **options)
    assert problem.startswith(f"the default None {words}")
    assert problem.endswith("; wrap the validator in optional(...)")
    assert not field(annotation | None, optional(validator), **options).required


def test_default_is_not_shown_to_validators_of_ones_own() -> None:
    """Such validators may need the instance, a clock or a database."""

    def never(instance: Any, attribute: Any, value: Any) -> None:
        raise AssertionError("run out of turn")

    assert field(int, never, default=3).schema["default"] == 3


# ---- converters ---------------------------------------------------------------------


def test_converter_keeps_validators_out_of_the_schema() -> None:
    """Validators check the converter's result: here, a fraction for a percentage."""
    made = field(float, le(1), converter=lambda value: value / 100)
    assert made.schema == {"type": "number"}
    assert rest(float, le(1), converter=float)(1.5) == "must be at most 1"


def test_converter_that_makes_none() -> None:
    said = rest(str, optional(min_len(2)), converter=lambda value: value or None)
    assert said(None) == ""
    assert said("a") == "must have at least 2 characters"


def test_converter_may_fix_the_default() -> None:
    made = field(str, min_len(1), default="", converter=lambda value: value or "none")
    assert made.schema == {"type": "string", "default": ""}
