from __future__ import annotations

import enum
from typing import Annotated, Any, Literal, NamedTuple

import attrs
import pytest
from attrs.validators import ge
from hypothesis import given
from hypothesis import strategies as st

from effectmcp import ArgumentsError, Format, Provided, SchemaError, Title
from effectmcp.schema import Arguments, input_of


class Colour(enum.Enum):
    RED = "red"


def no_robots(instance: Any, attribute: Any, value: str) -> None:
    if value == "R2":
        raise ValueError("must be a person")


@attrs.frozen
class Guest:
    name: str = attrs.field(validator=no_robots)
    age: int = attrs.field(validator=ge(0))


def invite(  # type: ignore[no-untyped-def]  # `whatever` has no annotation
    guests: list[Guest],
    title: Annotated[str, Title("Title")],
    colour: Colour = Colour.RED,
    note: Annotated[str | None, "Anything else"] = None,
    *,
    shop: Any = Provided(),
    whatever=[1],  # noqa: B006
) -> None:
    """Invite people.

    All of them.

    Args:
        guests: Who comes.
        note: Not used: the annotation has the last word.
    """


def problems(arguments: Arguments, value: Any) -> tuple[str, ...]:
    with pytest.raises(ArgumentsError) as caught:
        arguments.read(value)
    return caught.value.problems


def test_schema_of_a_function() -> None:
    made = input_of(invite)
    assert made.description == "Invite people."
    assert made.schema == {
        "type": "object",
        "properties": {
            "guests": {
                "type": "array",
                "items": {
                    "type": "object",
                    "title": "Guest",
                    "properties": {
                        "name": {"type": "string"},
                        "age": {"type": "integer", "minimum": 0},
                    },
                    "required": ["name", "age"],
                    "additionalProperties": False,
                },
                "description": "Who comes.",
            },
            "title": {"type": "string", "title": "Title"},
            "colour": {"type": "string", "enum": ["red"], "default": "red"},
            "note": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "description": "Anything else",
                "default": None,
            },
            "whatever": {"default": [1]},
        },
        "required": ["guests", "title"],
        "additionalProperties": False,
    }


def test_schema_of_a_function_without_arguments() -> None:
    """As the protocol recommends (2026-07-28, server/tools, "Tool")."""
    assert input_of(lambda: None).schema == {
        "type": "object",
        "additionalProperties": False,
    }


def test_skipped_parameters_are_not_shown() -> None:
    assert input_of(invite, skip=["guests"]).schema["required"] == ["title"]


def test_read_gives_keyword_arguments() -> None:
    value = {"guests": [{"name": "Ann", "age": 30.0}], "title": "x", "colour": "red"}
    assert input_of(invite).read(value) == {
        "guests": [Guest("Ann", 30)],
        "title": "x",
        "colour": Colour.RED,
    }


def test_read_names_every_problem_at_once() -> None:
    value = {
        "guests": [{"name": "Ann", "age": True}, {"name": "R2", "age": "3"}],
        "color": "red",
        "note": 3,
    }
    assert problems(input_of(invite), value) == (
        "title: is required",
        "guests[0].age: must be a whole number",
        "guests[1].age: must be a whole number",
        "color: is not known here; did you mean colour?",
        "note: must be text or null",
    )


def test_read_runs_validators_of_arguments_that_fit() -> None:
    def tool(a: Guest, ab: int, b: Guest) -> None: ...

    guest = {"name": "R2", "age": 1}
    assert problems(
        input_of(tool), {"a": guest, "ab": "x", "b": {**guest, "age": -1}}
    ) == (
        "ab: must be a whole number",
        "b.age: must be at least 0",
        "a.name: must be a person",
    )


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_read_of_values_other_than_objects(value: Any) -> None:
    assert problems(input_of(invite), value) == ("the arguments: must be an object",)


def test_read_of_too_deep_a_value() -> None:
    value: Any = 1
    for _ in range(100):
        value = [value]
    (problem,) = problems(input_of(invite), {"whatever": value})
    assert problem.endswith("must not be nested deeper than 64 levels")


def test_read_of_a_lone_surrogate() -> None:
    assert problems(input_of(invite), {"title": "\ud800"}) == (
        "title: must be readable text, without lone surrogates",
    )


def test_read_twice_shares_nothing() -> None:
    made = input_of(invite)
    value = {"guests": [], "title": "x"}
    made.read(value)["guests"].append(1)
    assert made.read(value)["guests"] == []


def first(a: int, /) -> None: ...
def many(*a: int) -> None: ...
def named(**a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (first, r"first\(a\) is positional only.*remove the /"),
        (many, r"many\(a\) takes any number .*a: list\[str\]"),
        (named, r"named\(a\) takes arguments of any name.*a: dict\[str, str\]"),
    ],
)
def test_parameters_without_a_name_are_refused(function: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        input_of(function)


def test_refusal_names_the_function_and_the_parameter() -> None:
    def tool(a: list[complex]) -> None: ...

    with pytest.raises(SchemaError, match=r"tool\(a\), an item: complex has no schema"):
        input_of(tool)


def plain(
    text: str,
    count: int,
    ratio: float = 0.5,
    sure: bool = False,
    titled: Annotated[str, "What it says", Title("Title")] = "",
) -> None: ...


def bounded(
    text: Annotated[str, Format("email")], size: Literal["s", "m"], note: str | None
) -> None: ...


numbers = st.sampled_from([0, -1, 1.0, 0.5, True, 2**64, -(2**64), 10**4200, 1e300])
anything: st.SearchStrategy[Any] = (
    numbers
    | st.sampled_from(["", "x", "é", "\ud800", "s", "a@b.de", None, [], {}])
    | st.sampled_from([float("nan"), float("inf"), float("-inf")])
)
names = st.sampled_from(
    ["text", "count", "ratio", "sure", "titled", "size", "note", "\ud800", "other"]
)


@given(
    st.sampled_from([plain, bounded]),
    st.dictionaries(names, anything)
    | st.fixed_dictionaries(
        {"text": anything, "count": numbers},
        optional={"ratio": numbers, "sure": st.booleans(), "titled": anything},
    )
    | anything,
)
def test_read_judges_as_it_explains(function: Any, value: Any) -> None:
    """The quick check of plain types agrees with the full check."""
    quick = input_of(function)
    close = attrs.evolve(quick, plain={})

    def outcome(arguments: Arguments) -> Any:
        try:
            return {name: (type(x), x) for name, x in arguments.read(value).items()}
        except ArgumentsError as exc:
            return exc.problems

    assert outcome(quick) == outcome(close)


@pytest.mark.parametrize("value", [{"text": "é", "count": 5, "ratio": 1.5}])
def test_read_of_plain_arguments_takes_no_closer_look(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = input_of(plain)
    monkeypatch.setattr("effectmcp.schema.arguments.unreadable", None)
    kwargs = arguments.read(value)
    assert kwargs == value
    assert kwargs is not value


def test_unchecked_values_are_not_built() -> None:
    """Classes received unchecked values: "p: 'int' object has no attribute 'items'"."""

    def meet(name: str, guest: Guest, when: int | str) -> None: ...

    arguments = input_of(meet)
    value = {"name": "\ud800", "guest": 5, "when": []}
    said = "name: must be readable text, without lone surrogates"
    assert problems(arguments, value) == (said,)


@pytest.mark.parametrize(
    "default",
    [float("nan"), [float("inf")], "\ud800", {"\ud800": 1}, 10**5000],
    ids=["nan", "inf", "text", "key", "digits"],
)
def test_defaults_that_json_cannot_express_are_left_out(default: Any) -> None:
    """A page of tools with one of them could not be sent."""

    def meet(name: Any = default) -> None: ...

    assert input_of(meet).schema["properties"] == {"name": {}}


def test_words_that_json_cannot_say_are_refused() -> None:
    def meet(name: Annotated[str, "\ud800"]) -> None: ...

    with pytest.raises(SchemaError, match="meet: in its schema, at /properties/name"):
        input_of(meet)


def test_arguments_are_in_the_order_of_the_signature() -> None:
    """A question made of `**kwargs` must be the same in each round."""

    def book(guests: int, room: int) -> None: ...

    takes = input_of(book)
    assert list(takes.read({"room": 2, "guests": 1})) == ["guests", "room"]


def test_key_of_a_class_of_strings_is_refused() -> None:
    class Key(str):
        pass

    def book(room: str) -> None: ...

    with pytest.raises(ArgumentsError, match="only strings as keys"):
        input_of(book).read({Key("room"): "a"})


class Wrong(NamedTuple):
    at: complex


class Holder(NamedTuple):
    wrong: list[Wrong]


def test_refusal_names_the_way_to_a_field() -> None:
    def tool(a: dict[str, Holder]) -> None: ...

    with pytest.raises(
        SchemaError, match=r"tool\(a\), a value, Wrong\.at: complex has no schema"
    ):
        input_of(tool)
