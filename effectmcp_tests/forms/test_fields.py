from __future__ import annotations

import math
from typing import Any

import pytest

from effectmcp.canonical import MAX_SAFE_INTEGER
from effectmcp.errors import FormError
from effectmcp.forms.fields import make_check


def check(schema: dict[str, Any], value: Any) -> Any:
    return make_check(schema, of="Person.age")(value)


def words(schema: dict[str, Any], value: Any) -> str:
    with pytest.raises(ValueError, match="^must |^may ") as caught:
        check(schema, value)
    return str(caught.value)


def refusal(schema: Any) -> str:
    with pytest.raises(FormError) as caught:
        make_check(schema, of="Person.age")
    name, problem = caught.value.problem.split(": ", 1)
    assert name == "Person.age"
    return problem


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
CHOICE = {"type": "string", "enum": ["a", "b"]}
TITLED = {
    "type": "string",
    "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}],
}
CHOICES = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
TITLED_CHOICES = {"type": "array", "items": {"anyOf": TITLED["oneOf"]}}
KINDS = [STRING, INTEGER, NUMBER, BOOLEAN, CHOICE, TITLED, CHOICES, TITLED_CHOICES]


# ---- numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "recorded"), [(1, 1), (1.0, 1), (-0.0, 0), (1e15, 10**15)]
)
def test_integer_is_a_matter_of_value(value: float, recorded: int) -> None:
    """JSON Schema has no floats: 1.0 and -0.0 are integers."""
    assert repr(check(INTEGER, value)) == repr(recorded)


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, "1", None, [1], True, {}])
def test_integer_refused(value: Any) -> None:
    assert words(INTEGER, value) == "must be a whole number"


@pytest.mark.parametrize("value", [2**53, -(2**53), 1e300, 10**30, 2**64, 10**400])
def test_integer_that_javascript_would_round(value: float) -> None:
    assert words(INTEGER, value) == "must be a number of at most 15 digits"


@pytest.mark.parametrize("value", [MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER])
def test_integer_at_the_end_of_the_safe_range(value: int) -> None:
    assert check(INTEGER, value) == value


def test_integer_of_five_thousand_digits() -> None:
    """Python refuses to print it, so no message may try."""
    assert words(INTEGER, 10**5000) == "must be a number of at most 15 digits"
    assert words({**INTEGER, "maximum": 5}, 10**5000) == "must be at most 5"
    assert words(NUMBER, 10**5000) == "must be a number of at most 308 digits"


@pytest.mark.parametrize("value", [1, 1.5, 0, 1e300, 5e-324])
def test_number(value: float) -> None:
    assert repr(check(NUMBER, value)) == repr(value)


@pytest.mark.parametrize("value", [2**53, -(2**53) - 1, 10**30])
def test_number_large_integers_are_recorded_as_javascript_reads_them(
    value: int,
) -> None:
    assert repr(check(NUMBER, value)) == repr(float(value))


@pytest.mark.parametrize("value", [True, "1", None, [1]])
def test_number_refused(value: Any) -> None:
    assert words(NUMBER, value) == "must be a number"


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400])
def test_number_beyond_a_double(value: float) -> None:
    """1e400 is read as inf by the standard library, and NaN too."""
    assert words(NUMBER, value) == "must be a number of at most 308 digits"


@pytest.mark.parametrize("kind", [INTEGER, NUMBER])
def test_bounds(kind: dict[str, Any]) -> None:
    schema = {**kind, "minimum": 18, "maximum": 30}
    assert check(schema, 18) == 18
    assert check(schema, 30) == 30
    assert words(schema, 17) == "must be at least 18"
    assert words(schema, 31) == "must be at most 30"


def test_bounds_of_an_integer_may_be_fractions() -> None:
    schema = {**INTEGER, "minimum": 0.5, "maximum": 1.5}
    assert check(schema, 1) == 1
    assert words(schema, 0) == "must be at least 0.5"
    assert words(schema, 2) == "must be at most 1.5"


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": 1.2, "maximum": 1.8},
        {"minimum": 2**53},
        {"maximum": -(2**53)},
        {"minimum": 1e300},
    ],
)
def test_bounds_that_no_integer_fits(bounds: dict[str, float]) -> None:
    assert refusal({**INTEGER, **bounds}).startswith("no whole number that clients")


@pytest.mark.parametrize("kind", [INTEGER, NUMBER])
def test_bounds_crossed(kind: dict[str, Any]) -> None:
    problem = refusal({**kind, "minimum": 3, "maximum": 2})
    assert problem == "no number is at least 3 and at most 2"


@pytest.mark.parametrize("bound", ["1", True, None, math.nan, math.inf, 10**400])
def test_bounds_must_be_numbers(bound: Any) -> None:
    assert refusal({**INTEGER, "minimum": bound}) == "'minimum' must be a number"
    assert refusal({**NUMBER, "maximum": bound}) == "'maximum' must be a number"


# ---- texts --------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "a", "\x00", "\n", "\u2028", "e\u0301"])
def test_string(value: str) -> None:
    assert check(STRING, value) == value


@pytest.mark.parametrize("value", [1, None, True, ["a"], b"a"])
def test_string_refused(value: Any) -> None:
    assert words(STRING, value) == "must be text"


@pytest.mark.parametrize("value", ["\ud800", "a\udfff"])
def test_string_with_a_lone_surrogate(value: str) -> None:
    """The standard library reads it; everything downstream would fail on it."""
    assert words(STRING, value) == "must be readable text, without lone surrogates"
    assert words({**STRING, "format": "date"}, value).startswith("must be readable")


def test_string_length_counts_code_points() -> None:
    schema = {**STRING, "minLength": 2, "maxLength": 2}
    assert check(schema, "\N{GRINNING FACE}" * 2)
    assert check(schema, "e\u0301")
    assert words(schema, "\u00e9") == "must have at least 2 characters"
    assert words(schema, "abc") == "must have at most 2 characters"


def test_string_length_of_one() -> None:
    assert words({**STRING, "minLength": 1}, "") == "must have at least 1 character"


def test_string_with_a_format() -> None:
    schema = {**STRING, "format": "email", "maxLength": 5}
    assert check(schema, "a@b") == "a@b"
    assert words(schema, "a b").startswith("must be an e-mail address")
    assert words(schema, "ann@b.c") == "must have at most 5 characters"


@pytest.mark.parametrize("format_", ["date", "date-time", "email", "uri"])
def test_string_blank_is_no_value_of_a_format(format_: str) -> None:
    """Clients send "" for a blank field."""
    assert words({**STRING, "format": format_}, "").startswith("must be a")


@pytest.mark.parametrize("format_", ["ipv4", "", 1, ["date"], None])
def test_string_with_an_unknown_format(format_: Any) -> None:
    problem = refusal({**STRING, "format": format_})
    assert problem.endswith("is not one of date, date-time, email, uri")


@pytest.mark.parametrize("length", [-1, 1.0, True, None, "1"])
def test_lengths_must_be_whole_numbers(length: Any) -> None:
    said = "must be a whole number from 0 up"
    assert refusal({**STRING, "minLength": length}) == f"'minLength' {said}"
    assert refusal({**CHOICES, "maxItems": length}) == f"'maxItems' {said}"


def test_lengths_crossed() -> None:
    problem = refusal({**STRING, "minLength": 3, "maxLength": 2})
    assert problem == "minLength 3 is above maxLength 2"


# ---- yes or no ----------------------------------------------------------------------


def test_boolean() -> None:
    assert check(BOOLEAN, True) is True
    assert check(BOOLEAN, False) is False


@pytest.mark.parametrize("value", [0, 1, "true", None, 1.0])
def test_boolean_refused(value: Any) -> None:
    assert words(BOOLEAN, value) == "must be yes or no"


# ---- choices ------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [CHOICE, TITLED])
def test_choice(schema: dict[str, Any]) -> None:
    assert check(schema, "b") == "b"
    others: list[Any] = ["c", "", "A", 1, True, None, ["a"], {}]
    for value in others:
        assert words(schema, value) == "must be one of 'a', 'b'"


@pytest.mark.parametrize("schema", [CHOICES, TITLED_CHOICES])
def test_choices(schema: dict[str, Any]) -> None:
    chosen: list[list[str]] = [["b"], [], ["b", "a"]]
    for value in chosen:
        assert check(schema, value) == value
    no_lists: list[Any] = ["a", None, {"a": 1}, ("a",)]
    for value in no_lists:
        assert words(schema, value) == "must be a list of choices"
    others: list[list[Any]] = [["c"], ["a", ""], [1], [True], [["a"]], [None], [{}]]
    for value in others:
        assert words(schema, value) == "may hold only 'a', 'b'"


def test_choices_may_repeat() -> None:
    """`uniqueItems` is outside the subset, so no client was told otherwise."""
    assert check(CHOICES, ["a", "a"]) == ["a", "a"]


def test_choices_counted() -> None:
    schema = {**CHOICES, "minItems": 1, "maxItems": 2}
    assert words(schema, []) == "must have at least 1 choice"
    assert words(schema, ["a"] * 3) == "must have at most 2 choices"


def test_choice_with_names() -> None:
    """The older protocol's spelling of titles."""
    assert check({**CHOICE, "enumNames": ["A", "B"]}, "a") == "a"
    problem = refusal({**CHOICE, "enumNames": ["A"]})
    assert problem == "'enumNames' must name each choice once"
    assert refusal({**CHOICE, "enumNames": "AB"}) == "titles must be strings"
    assert refusal({**CHOICE, "enumNames": [1, 2]}) == "titles must be strings"
    assert refusal({**TITLED, "enumNames": []}) == "'enumNames' belongs to 'enum'"


def test_choice_either_way() -> None:
    problem = refusal({**CHOICE, "oneOf": []})
    assert problem == "give 'enum' or 'oneOf', not both"


@pytest.mark.parametrize("choices", ["ab", None, ["a", 1], [True], {"a": 1}])
def test_choices_must_be_texts(choices: Any) -> None:
    problem = "choices must be a list of strings"
    assert refusal({"type": "string", "enum": choices}) == problem
    items = {"type": "string", "enum": choices}
    assert refusal({"type": "array", "items": items}) == problem


@pytest.mark.parametrize(
    "choices",
    [
        None,
        ["a"],
        [{"const": "a"}],
        [{"const": 1, "title": "A"}],
        [{"const": "a", "title": "A", "description": "first"}],
    ],
)
def test_titled_choices_must_be_pairs(choices: Any) -> None:
    problem = "titled choices are {'const': text, 'title': text}"
    assert refusal({"type": "string", "oneOf": choices}) == problem
    assert refusal({"type": "array", "items": {"anyOf": choices}}) == problem


def titled(*titles: Any) -> dict[str, Any]:
    pairs = [{"const": str(at), "title": title} for at, title in enumerate(titles)]
    return {"type": "string", "oneOf": pairs}


def test_choices_that_nobody_could_choose_from() -> None:
    assert refusal({"type": "string", "enum": []}) == "the list of choices is empty"
    assert refusal(titled()) == "the list of choices is empty"
    problem = refusal({"type": "string", "enum": ["a", "a"]})
    assert problem == "a choice is listed twice"
    assert refusal(titled("A", "A")).startswith("two choices have one title")
    assert refusal(titled("A", 1)) == "titles must be strings"


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (None, "an array in a form needs 'items' with its choices"),
        (["a"], "an array in a form needs 'items' with its choices"),
        ({}, "'items' must list its choices in 'enum' or 'anyOf'"),
        ({"type": "string"}, "clients do not know 'type' inside 'items'"),
        ({"enum": ["a"]}, "'items' with 'enum' needs the type 'string'"),
        (
            {"type": "string", "enum": ["a"], "title": "A"},
            "clients do not know 'title' inside 'items'",
        ),
    ],
)
def test_array_items(items: Any, words: str) -> None:
    assert refusal({"type": "array", "items": items}) == words


# ---- all of them --------------------------------------------------------------------


@pytest.mark.parametrize("schema", [None, True, "string", []])
def test_schema_must_be_an_object(schema: Any) -> None:
    assert refusal(schema).startswith("a property's schema is an object, not ")


@pytest.mark.parametrize("type_", ["object", "null", None, 1, ["string"], "choice"])
def test_type_that_no_form_shows(type_: Any) -> None:
    assert "cannot be shown as a form. Forms are flat" in refusal({"type": type_})


@pytest.mark.parametrize("schema", KINDS)
@pytest.mark.parametrize(
    "keyword",
    ["pattern", "const", "multipleOf", "exclusiveMinimum", "uniqueItems", "$ref"],
)
def test_keyword_outside_the_subset(schema: dict[str, Any], keyword: str) -> None:
    """Clients ignore it, so it would be a check that only its author believes in."""
    problem = refusal({**schema, keyword: 1})
    assert problem == f"clients do not know {keyword!r} on a property of this kind"


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        (CHOICE, "minLength"),
        (STRING, "minimum"),
        (INTEGER, "format"),
        (TITLED, "anyOf"),
    ],
)
def test_keyword_of_another_kind(schema: dict[str, Any], keyword: str) -> None:
    assert refusal({**schema, keyword: 1}).startswith(
        f"clients do not know {keyword!r}"
    )


@pytest.mark.parametrize("schema", KINDS)
@pytest.mark.parametrize("keyword", ["title", "description"])
def test_labels_must_be_text(schema: dict[str, Any], keyword: str) -> None:
    make_check({**schema, keyword: "A label"}, of="Person.age")
    assert refusal({**schema, keyword: None}) == f"{keyword!r} must be text"


@pytest.mark.parametrize(
    ("schema", "default", "problem"),
    [
        (STRING, None, "the default None must be text"),
        (INTEGER, True, "the default True must be a whole number"),
        (INTEGER, 2**53, f"the default {2**53} must be a number of at most 15 digits"),
        ({**INTEGER, "minimum": 3}, 2, "the default 2 must be at least 3"),
        (CHOICE, "c", "the default 'c' must be one of 'a', 'b'"),
        (CHOICES, ["c"], "the default ['c'] may hold only 'a', 'b'"),
        (BOOLEAN, 0, "the default 0 must be yes or no"),
    ],
)
def test_default_that_does_not_fit(
    schema: dict[str, Any], default: Any, problem: str
) -> None:
    assert refusal({**schema, "default": default}) == problem


def test_default_is_not_applied_here() -> None:
    assert check({**CHOICE, "default": "a"}, "b") == "b"
