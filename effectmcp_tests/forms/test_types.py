from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NewType, Optional, TypeVar, Union

import attrs
import pytest
from typing_extensions import TypeAliasType

from effectmcp.errors import FormError
from effectmcp.forms import Choices, Format, Title
from effectmcp.forms.fields import Field
from effectmcp.forms.types import make_field

T = TypeVar("T")
Size = Literal["s", "l"]
Name = NewType("Name", str)
Sized = TypeAliasType("Sized", Literal["s", "l"])


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"
    CRIMSON = "red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    ALL = 3


class Tagged(str):
    __slots__ = ()


class Mixed(enum.Enum):
    TEXT = "text"
    NUMBER = 1


class Empty(enum.Enum):
    pass


@attrs.frozen
class Person:
    name: str


@dataclasses.dataclass
class Data:
    name: str


def field(annotation: Any) -> Field:
    return make_field("value", annotation, of="this form")


def schema(annotation: Any) -> Any:
    return field(annotation).schema


def built(annotation: Any, wire: Any) -> Any:
    made = field(annotation)
    recorded = made.check(wire)
    return recorded if made.build is None else made.build(recorded)


def refusal(annotation: Any) -> str:
    with pytest.raises(FormError) as caught:
        field(annotation)
    name, problem = caught.value.problem.split(": ", 1)
    assert name == "this form"
    return problem


# ---- types --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (Size, {"type": "string", "enum": ["s", "l"]}),
        (Colour, {"type": "string", "enum": ["red", "green"]}),
        (
            list[Size],
            {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}},
        ),
    ],
)
def test_schema(annotation: Any, expected: dict[str, Any]) -> None:
    assert schema(annotation) == expected
    assert list(schema(annotation)) == list(expected)


@pytest.mark.parametrize(
    ("annotation", "wire", "value"),
    [
        (str, "a", "a"),
        (int, 1.0, 1),
        (float, 1, 1.0),
        (float, 2**60, float(2**60)),
        (bool, True, True),
        (dt.date, "2026-07-28", dt.date(2026, 7, 28)),
        (
            dt.datetime,
            "2026-07-28t09:30:00z",
            dt.datetime(2026, 7, 28, 9, 30, tzinfo=dt.UTC),
        ),
        (Size, "s", "s"),
        (Colour, "red", Colour.RED),
        (Level, "LOW", Level.LOW),
        (list[Size], ["l", "l"], ["l", "l"]),
        (list[Colour], ["red"], [Colour.CRIMSON]),
    ],
)
def test_build(annotation: Any, wire: Any, value: Any) -> None:
    assert repr(built(annotation, wire)) == repr(value)


def test_build_makes_a_new_list_each_time() -> None:
    made = field(list[Size])
    assert made.build is not None
    recorded = ["s"]
    assert made.build(recorded) is not recorded


def test_enum_of_strings_is_sent_by_value() -> None:
    """Aliases collapse, as they do everywhere in Python."""
    assert schema(Colour)["enum"] == ["red", "green"]


@pytest.mark.parametrize(
    ("annotation", "names"),
    [
        (Level, ["LOW", "HIGH"]),
        (Access, ["READ", "WRITE"]),
        (Mixed, ["TEXT", "NUMBER"]),
        (enum.Enum("Tags", {"A": Tagged("a")}), ["A"]),
    ],
)
def test_enum_of_anything_else_travels_by_name(
    annotation: Any, names: list[str]
) -> None:
    """Numbers mean nothing to a person choosing."""
    assert schema(annotation)["enum"] == names


def test_enum_without_members() -> None:
    assert refusal(Empty) == "the Enum Empty has no members"
    assert refusal(list[Empty]) == "the Enum Empty has no members"


# ---- what is around a type ----------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        int | None,
        Optional[int],  # noqa: UP045 (another object than `int | None`)
        Union[None, int],  # noqa: UP007
        Annotated[int, Title("Age")] | None,
        Annotated[int | None, Title("Age")],
        Annotated[Annotated[int | None, "x"] | None, Title("Age")],
        Final[Annotated[int | None, Title("Age")]],
    ],
)
def test_optional_is_not_required(annotation: Any) -> None:
    made = field(annotation)
    assert not made.required
    assert made.schema["type"] == "integer"
    assert made.schema.get("title", "Age") == "Age"


@pytest.mark.parametrize(
    ("annotation", "bare"),
    [
        (Name, str),
        (Sized, Size),
        (Annotated[Sized, object()], Size),
        (Final[int], int),
        (typing.List[Size], list[Size]),  # noqa: UP006 (what older code says)
        (list[Sized], list[Size]),
    ],
)
def test_names_for_types_are_seen_through(annotation: Any, bare: Any) -> None:
    assert schema(annotation) == schema(bare)
    assert field(annotation).required


def test_metadata() -> None:
    annotation = Annotated[str, "Where we write to", Format("email"), Title("E-mail")]
    assert schema(annotation) == {
        "type": "string",
        "format": "email",
        "title": "E-mail",
        "description": "Where we write to",
    }


def test_metadata_outside_has_the_last_word() -> None:
    """A shared alias may get another description where it is used."""
    inner = Annotated[int, "A number", Title("N")]
    assert schema(Annotated[inner | None, "Your age"]) == {
        "type": "integer",
        "title": "N",
        "description": "Your age",
    }


def test_metadata_of_other_libraries_is_let_be() -> None:
    assert schema(Annotated[int, object(), {"gt": 3}]) == {"type": "integer"}


def test_title_from_outside() -> None:
    made = make_field("value", Annotated[int, Title("N")], of="this form", title="Age")
    assert made.schema["title"] == "Age"


def test_choices_title_a_literal() -> None:
    annotation = Annotated[Size, Choices(l="Large", s="Small")]
    pairs = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
    assert schema(annotation) == {"type": "string", "oneOf": pairs}
    assert built(annotation, "l") == "l"


def test_choices_title_an_enum() -> None:
    annotation = Annotated[Colour, Choices({"red": "Rot", "green": "Grün"})]
    titles = [pair["title"] for pair in schema(annotation)["oneOf"]]
    assert titles == ["Rot", "Grün"]
    assert built(annotation, "red") is Colour.RED


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[list[Size], Choices(s="Small", l="Large")],
        list[Annotated[Size, Choices(s="Small", l="Large")]],
    ],
)
def test_choices_title_a_list(annotation: Any) -> None:
    pairs = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
    assert schema(annotation) == {"type": "array", "items": {"anyOf": pairs}}
    assert built(annotation, ["l"]) == ["l"]


# ---- what no form shows -------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (list, "name its items: list[Literal['a', 'b']] or a list of an Enum"),
        (list[str], "a list in a form is a choice of several, list[Literal['a'"),
        (list[Size | None], "a list in a form is a choice of several, list[Lit"),
        (list[list[Size]], "a list in a form is a choice of several, list[Lite"),
        (int | str, "a form cannot offer a choice of types, int | str. Ask for te"),
        (int | str | None, "a form cannot offer a choice of types, int | str | None"),
        (
            Literal[1, 2],
            "the choices of a form are strings, and (1, 2) are not; use an",
        ),
        (Literal["a", None], "the choices of a form are strings, and ('a', None) are"),
        (
            Literal[Level.LOW],
            "the choices of a form are strings, and (<Level.LOW: 1>,)",
        ),
        (Person, "forms are flat, so the class Person cannot stand inside one"),
        (list[Person], "a list in a form is a choice of several"),
        (list[Data], "a list in a form is a choice of several"),
        ("Persom", "the annotation 'Persom' could not be resolved; define it first"),
        (T, "~T is open; name its type, as in Box[int]"),
        (bytes, "bytes cannot be shown as a form field. Fields are str"),
        (dict[str, int], "dict[str, int] cannot be shown as a form field."),
        (Sequence[Size], "Sequence[Literal['s', 'l']] cannot"),
        (tuple[Size], "tuple[Literal['s', 'l']] cannot be shown as a form"),
        (dt.time, "time cannot be shown as a form field."),
        (None, "None cannot be shown as a form field."),
        (Any, "Any cannot be shown as a form field."),
        (5, "5 cannot be shown as a form field."),
        ([], "[] is not a type"),
    ],
)
def test_refused(annotation: Any, words: str) -> None:
    assert refusal(annotation).startswith(words)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, Format("email")],
        Annotated[Size, Format("email")],
        Annotated[dt.date, Format("email")],
        Annotated[str, Format("date"), Format("email")],
        Annotated[list[Size], Format("email")],
    ],
)
def test_format_belongs_to_text(annotation: Any) -> None:
    assert refusal(annotation) == "Format() belongs to str, and once"


def test_format_unknown() -> None:
    problem = refusal(Annotated[str, Format("phone")])
    assert problem == "the format 'phone' is not one of date, date-time, email, uri"


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, Choices(a="A")],
        Annotated[int, Choices(a="A")],
        Annotated[Size, Choices(s="S", l="L"), Choices(s="S", l="L")],
    ],
)
def test_choices_belong_to_choices(annotation: Any) -> None:
    assert refusal(annotation).startswith("Choices() belongs to a Literal, an Enum or")


@pytest.mark.parametrize("titles", [{}, {"s": "S"}, {"s": "S", "l": "L", "x": "X"}])
def test_choices_title_each_choice_once(titles: dict[str, str]) -> None:
    problem = refusal(Annotated[Size, Choices(titles)])
    said = f"it titles {list(titles)} where the choices are ['s', 'l']"
    assert problem == f"Choices() must title each choice once; {said}"


def test_choices_with_one_title() -> None:
    problem = refusal(Annotated[Size, Choices(s="S", l="S")])
    assert problem == "two choices have one title; users could not tell them"


def test_labels_must_be_strings() -> None:
    assert refusal(Annotated[int, Title(3)]) == "'title' must be text"  # type: ignore[arg-type]


@pytest.mark.parametrize("annotation", [list[Annotated[Size, Title("x")]]])
def test_labels_inside_a_list(annotation: Any) -> None:
    assert refusal(annotation) == "clients do not know 'title' inside 'items'"
    titles = Choices(s="S", l="L")
    problem = refusal(list[Annotated[Size, Title("x"), titles]])
    assert problem == "clients do not know 'title' inside 'items'"


def test_metadata_is_a_value() -> None:
    """An annotation can be the key of a cache."""
    assert Choices(a="A") == Choices({"a": "A"}) != Choices(a="B")
    assert hash(Choices(a="A")) == hash(Choices({"a": "A"}))
    assert hash(Title("a")) == hash(Title("a"))
    assert Format("email") == Format("email")


class _Endless:
    """`type X = X`, which Python before 3.12 cannot say."""

    @property
    def __value__(self) -> _Endless:
        return self

    def __repr__(self) -> str:
        return "X"


def test_alias_of_nothing_but_itself_is_refused() -> None:
    """Unwrapping must end."""
    assert refusal(_Endless()) == "the type X is made of nothing but itself"
