"""Models, dataclasses, types and `Annotated` of pydantic."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import inspect
import pathlib
from datetime import datetime as datetime_of
from decimal import Decimal
from fractions import Fraction
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Required,
    TypeVar,
)

import annotated_types
import attrs
import msgspec
import pydantic
import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    PlainSerializer,
    PositiveInt,
    RootModel,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.dataclasses import dataclass
from typing_extensions import TypeAliasType, TypedDict

from effectmcp import Choices, Format, FormError, OutputError, SchemaError, Title
from effectmcp.forms import Unfit, form_of
from effectmcp.schema import input_of, output_of
from effectmcp.shapes.sources.pydantic_notes import leaf_of

from ..reading import problems, read, schema_of

T = TypeVar("T")


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Stay(BaseModel):
    """A stay.

    Attributes:
        nights: How many.
    """

    nights: int = Field(ge=1, le=30)
    start: dt.date
    colour: Colour = Colour.RED
    note: str = Field(default="", max_length=5, title="A note", description="Short.")

    @field_validator("nights")
    @classmethod
    def odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("must be odd")
        return value

    @model_validator(mode="after")
    def not_blue_for_long(self) -> Stay:
        if self.colour is Colour.BLUE and self.nights > 5:
            raise ValueError("blue is for short stays")
        return self


class Guest(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str = Field(alias="fullName", min_length=1)
    stays: list[Stay] = Field(default_factory=list)


def book(guest: Guest) -> None: ...


STAY = {"nights": 3, "start": "2026-07-28"}


def test_schema() -> None:
    assert schema_of(Stay) == {
        "type": "object",
        "title": "Stay",
        "description": "A stay.",
        "properties": {
            "nights": {
                "type": "integer",
                "minimum": 1,
                "maximum": 30,
                "description": "How many.",
            },
            "start": {"type": "string", "format": "date"},
            "colour": {"type": "integer", "enum": [1, 2], "default": 1},
            "note": {
                "type": "string",
                "maxLength": 5,
                "title": "A note",
                "description": "Short.",
                "default": "",
            },
        },
        "required": ["nights", "start"],
        "additionalProperties": False,
    }


def test_arguments_are_models() -> None:
    made = read(Guest, {"fullName": "Ann", "stays": [{**STAY, "colour": 2}]})
    stay = Stay(nights=3, start=dt.date(2026, 7, 28), colour=Colour.BLUE)
    assert made == Guest(fullName="Ann", stays=[stay])


def test_every_problem_has_its_path() -> None:
    long = {"nights": 7, "start": "2026-07-28", "colour": 2}
    stays = [{**STAY, "nights": 2}, {**STAY, "nights": 0}, long]
    assert problems(Guest, {"fullName": "", "stays": stays}) == [
        "x.fullName: must have at least 1 character",
        "x.stays[1].nights: must be at least 1",
    ]
    assert problems(Guest, {"fullName": "Ann", "stays": [stays[0], long]}) == [
        "x.stays[0].nights: must be odd",
        "x.stays[1]: blue is for short stays",
    ]


def test_what_the_schema_refuses_is_refused() -> None:
    """pydantic would read "3" as a number, and ignore what it does not know."""
    assert problems(Stay, {**STAY, "nights": "3"}) == [
        "x.nights: must be a whole number"
    ]
    assert "is not known here" in problems(Stay, {**STAY, "night": 3})[0]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    n: int


def test_extra_fields_that_a_model_allows() -> None:
    assert schema_of(Open).get("additionalProperties", True) is True
    made = read(Open, {"n": 1, "more": [2]})
    assert made.model_extra == {"more": [2]}
    output = output_of(Open)
    assert output is not None
    assert output.write(made) == {"n": 1, "more": [2]}


class Aliased(BaseModel):
    a: int = Field(validation_alias=AliasChoices("first", "second"))
    b: int = Field(serialization_alias="out", default=2)


def test_aliases() -> None:
    assert list(schema_of(Aliased)["properties"]) == ["first", "b"]
    made = read(Aliased, {"first": 1})
    output = output_of(Aliased)
    assert output is not None
    assert output.write(made) == {"a": 1, "out": 2}
    assert output.schema["required"] == ["a", "out"]


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)

    a: int = Field(alias="A")


def test_models_that_are_filled_by_name() -> None:
    assert read(ByName, {"a": 1}) == ByName.model_validate({"a": 1})


def test_path_as_an_alias_is_refused() -> None:
    class Deep(BaseModel):
        a: int = Field(validation_alias=AliasPath("b", 0))

    with pytest.raises(SchemaError, match=r"Deep\.a: an AliasPath reaches into"):
        schema_of(Deep)


class Box(BaseModel, Generic[T]):
    what: list[T]


class Tree(BaseModel):
    left: Tree | None = None
    value: int = 0


Tree.model_rebuild()


class Shifted(BaseModel):
    day: dt.date = Field(ge=dt.date(2026, 1, 1))

    @field_validator("day", mode="before")
    @classmethod
    def later(cls, value: dt.date) -> dt.date:
        return value + dt.timedelta(days=365)


def test_model_checks_its_limits_after_its_first_validators() -> None:
    assert read(Shifted, {"day": "2025-06-01"}).day == dt.date(2026, 6, 1)
    assert (
        "must be greater than or equal" in problems(Shifted, {"day": "2024-06-01"})[0]
    )


class Extended(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [], "minProperties": 1})


def test_schema_of_a_model_that_is_not_checked_is_refused() -> None:
    with pytest.raises(SchemaError, match="json_schema_extra with minProperties"):
        schema_of(Extended)


def test_generic_and_recursive_models() -> None:
    assert read(Box[dt.date], {"what": ["2026-07-28"]}).what == [dt.date(2026, 7, 28)]
    made = read(Tree, {"left": {"left": None, "value": 2}})
    assert made.left.value == 2
    assert problems(Tree, {"left": {"left": {"value": "x"}}}) == [
        "x.left.left.value: must be a whole number"
    ]


class Names(RootModel[list[str]]):
    @field_validator("root")
    @classmethod
    def some(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("must name somebody")
        return value


def test_root_models() -> None:
    assert schema_of(Names)["type"] == "array"
    assert read(Names, ["a"]) == Names(["a"])
    assert problems(Names, []) == ["x: must name somebody"]
    output = output_of(list[Names])
    assert output is not None
    assert output.write([Names(["a"])]) == [["a"]]


@dataclass
class Point:
    x: int = Field(ge=0)
    y: Annotated[int, Field(ge=0)] = 0


def test_dataclasses_of_pydantic() -> None:
    assert schema_of(Point)["properties"]["x"] == {"type": "integer", "minimum": 0}
    assert read(Point, {"x": 1}) == Point(1)
    assert problems(Point, {"x": -1}) == ["x.x: must be at least 0"]


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Annotated[int, Field(ge=5)], {"type": "integer", "minimum": 5}),
        (PositiveInt, {"type": "integer", "exclusiveMinimum": 0}),
        (
            Annotated[str, Field(min_length=2, description="D", title="T")],
            {"type": "string", "minLength": 2, "description": "D", "title": "T"},
        ),
        (
            Annotated[str, StringConstraints(max_length=3, strip_whitespace=True)],
            {"type": "string", "maxLength": 3},
        ),
        (Annotated[int, AfterValidator(even)], {"type": "integer"}),
        (Annotated[int, Field(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
        (HttpUrl, {"type": "string", "format": "uri"}),
        (SecretStr, {"type": "string"}),
    ],
)
def test_limits_of_a_parameter(annotation: Any, schema: Any) -> None:
    assert schema_of(annotation) == schema


@pytest.mark.parametrize(
    ("annotation", "bad", "words"),
    [
        (Annotated[int, Field(ge=5)], 4, "must be at least 5"),
        (Annotated[int, Field(multiple_of=5)], 4, "must be a multiple of 5"),
        (Annotated[int, AfterValidator(even)], 3, "must be even"),
        (Annotated[str, Field(pattern="^a")], "b", "must match '^a'"),
        (Annotated[str, StringConstraints(pattern="^a")], "b", "must match"),
        (Annotated[list[int], Field(max_length=1)], [1, 2], "must have at most 1 item"),
        (Annotated[int | None, Field(gt=5)], 5, "must be more than 5"),
        (Annotated[float, Field(multiple_of=0.5)], 0.7, "must be a multiple of 0.5"),
        (HttpUrl, "ftp://example.com", "must be 'http' or 'https'"),
    ],
)
def test_limits_of_a_parameter_are_kept(annotation: Any, bad: Any, words: str) -> None:
    (problem,) = problems(annotation, bad)
    assert words in problem


def test_functions_change_values() -> None:
    upper = Annotated[str, StringConstraints(strip_whitespace=True, to_upper=True)]
    assert read(upper, " a ") == "A"
    doubled = Annotated[int, BeforeValidator(lambda value: 2 * value)]
    assert read(list[doubled], [1, 2]) == [2, 4]
    assert read(SecretStr, "x").get_secret_value() == "x"


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[int, Field(alias="y")], "rename the parameter"),
        (Annotated[int, Field(default=3)], "write the default behind the ="),
        (Annotated[str, Field(ge=3)], "does not limit values of str; bounds are for"),
        (Annotated[int, Field(max_length=3)], "does not limit values of int; lengths"),
        (
            Annotated[int, Field(json_schema_extra={"maximum": 3})],
            "json_schema_extra with maximum makes a promise that is not kept",
        ),
        (pydantic.ByteSize, "ByteSize has no schema"),
    ],
)
def test_limits_without_a_check_are_refused(annotation: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        schema_of(annotation)


# ---- results ------------------------------------------------------------------------


class Receipt(BaseModel):
    number: int
    secret: str = Field(default="x", exclude=True)
    seen: set[int] = Field(default_factory=set)
    raw: bytes = b""

    @computed_field(description="Twice.")  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def double(self) -> int:
        return 2 * self.number


def test_results() -> None:
    output = output_of(Receipt)
    assert output is not None
    assert list(output.schema["properties"]) == ["number", "seen", "raw", "double"]
    assert output.schema["properties"]["double"]["description"] == "Twice."
    assert output.write(Receipt(number=3, seen={2, 1}, raw=b"\xff")) == {
        "number": 3,
        "seen": [1, 2],
        "raw": "ff",
        "double": 6,
    }


class Written(BaseModel):
    when: dt.date

    @field_serializer("when", when_used="json")
    def year(self, value: dt.date) -> int:
        return value.year


def test_serializers() -> None:
    output = output_of(Written)
    assert output is not None
    assert output.schema["properties"]["when"] == {"type": "integer"}
    assert output.write(Written(when=dt.date(2026, 7, 28))) == {"when": 2026}


class Whole(BaseModel):
    n: int

    @model_serializer
    def only(self) -> str:
        return str(self.n)


def test_serializer_of_the_whole_is_refused_as_a_result() -> None:
    assert read(Whole, {"n": 1}) == Whole(n=1)
    with pytest.raises(SchemaError, match="Whole has a serializer"):
        output_of(Whole)


# ---- forms --------------------------------------------------------------------------


class Person(BaseModel):
    """A person."""

    name: str = Field(alias="fullName", min_length=1, title="Full name")
    age: int | None = None
    size: Literal["s", "l"] = "s"
    born: Annotated[dt.date, Field(lt=dt.date(2020, 1, 1))]

    @field_validator("name")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "Bob":
            raise ValueError("must not be Bob")
        return value

    @model_validator(mode="after")
    def grown(self) -> Person:
        if self.age is not None and self.age < 18 and self.size == "l":
            raise ValueError("l is for adults")
        return self


def unfit(annotation: Any, content: Any) -> list[str]:
    with pytest.raises(Unfit) as caught:
        form_of(annotation).read(content)
    return caught.value.problems


def test_form() -> None:
    made = form_of(Person)
    assert made.schema == {
        "type": "object",
        "properties": {
            "fullName": {"type": "string", "minLength": 1, "title": "Full name"},
            "age": {"type": "integer"},
            "size": {"type": "string", "enum": ["s", "l"], "default": "s"},
            "born": {
                "type": "string",
                "format": "date",
                "description": "Must be less than 2020-01-01",
            },
        },
        "required": ["fullName", "born"],
    }
    recorded = made.read({"fullName": "Ann", "born": "2000-01-01"})
    built = made.build(recorded)
    assert built == Person(fullName="Ann", born=dt.date(2000, 1, 1))


def test_answers_that_a_model_refuses() -> None:
    assert unfit(Person, {"fullName": "Bob", "born": "2021-01-01", "age": "x"}) == [
        "fullName: must not be Bob",
        "age: must be a whole number",
        "born: must be less than 2020-01-01",
    ]
    young = {"fullName": "Ann", "born": "2000-01-01", "age": 3, "size": "l"}
    assert unfit(Person, young) == ["l is for adults"]


def test_secrets_do_not_belong_in_a_form() -> None:
    class Login(BaseModel):
        password: SecretStr

    with pytest.raises(FormError, match=r"Login\.password: .*ElicitUrl"):
        form_of(Login)
    with pytest.raises(FormError, match="ElicitUrl"):
        form_of(SecretStr)


def test_limits_of_one_field() -> None:
    assert unfit(Annotated[float, Field(gt=0)], {"value": 0}) == [
        "value: must be more than 0"
    ]
    code = Annotated[str, StringConstraints(to_upper=True), AfterValidator(str.strip)]
    made = form_of(code)
    assert made.build(made.read({"value": " a"})) == "A"
    assert unfit(Annotated[int, AfterValidator(even)], {"value": 3}) == [
        "value: must be even"
    ]


# ---- findings of a review -------------------------------------------------------------


class Labelled(BaseModel):
    mail: Annotated[str, Format("email"), "Where to."]
    size: Annotated[Literal["s", "l"], Choices(s="Small", l="Large")] = "s"
    n: Annotated[int, Title("How many?")] = 1


def test_labels_in_a_model() -> None:
    for properties in (
        schema_of(Labelled)["properties"],
        form_of(Labelled).schema["properties"],
    ):
        mail, size, n = properties.values()
        assert mail == {"type": "string", "format": "email", "description": "Where to."}
        assert size["oneOf"][0] == {"const": "s", "title": "Small"}
        assert n["title"] == "How many?"


class Coded(BaseModel):
    code: str = Field(pattern="^a")
    price: Decimal = Field(default=Decimal(1), max_digits=3, decimal_places=1)


def test_limits_of_pydantic_alone_are_described() -> None:
    code, price = schema_of(Coded)["properties"].values()
    assert code["description"] == "Must match ^a"
    assert "(must have at most 1 decimals)" in price["description"]
    assert schema_of(Annotated[str, Field(pattern="^a")]) == {
        "type": "string",
        "description": "Must match ^a",
    }
    assert problems(Coded, {"code": "b", "price": "1.55"}) == [
        "x.code: must match '^a'",
        "x.price: must have no more than 1 decimal place",
    ]


@pytest.mark.parametrize(
    "default",
    [
        Field(5, ge=1),
        Field(ge=1),
        attrs.field(default=5),
        msgspec.field(default=5),
        dataclasses.field(default=5),
    ],
)
def test_field_as_a_default_is_refused(default: Any) -> None:
    """The limits of the field were ignored, and the function got the field."""

    def tool(x: int = default) -> None: ...

    with pytest.raises(SchemaError, match=r"tool\(x\): .* is not a default; write"):
        input_of(tool)


def test_field_as_a_default_in_a_plain_dataclass_is_refused() -> None:
    @dataclasses.dataclass
    class Some:
        x: int = Field(3, ge=1)

    with pytest.raises(SchemaError, match=r"Some\.x: .* is not a default"):
        schema_of(Some)


def evenly(value: int) -> int:
    return even(value) + 2


Even = TypeAliasType("Even", Annotated[int, AfterValidator(evenly)])


class Inside(BaseModel):
    n: Even


@dataclasses.dataclass
class Outside:
    inside: Inside
    n: Even


def test_alias_keeps_its_limits_beside_a_model() -> None:
    """The build of the model was taken for the other field, too."""
    made = read(Outside, {"inside": {"n": 2}, "n": 2})
    assert (made.inside.n, made.n) == (4, 4)
    assert problems(Outside, {"inside": {"n": 2}, "n": 3}) == ["x.n: must be even"]


def bang(value: str) -> str:
    return value + "!"


Banged = Annotated[str, AfterValidator(bang)]


class Pair(NamedTuple):
    a: Banged


class Entry(TypedDict):
    a: Annotated[Required[Banged], "A word."]


class Holder(BaseModel):
    pair: Pair
    entry: Entry


def test_functions_run_once() -> None:
    made = read(Holder, {"pair": ["a"], "entry": {"a": "b"}})
    assert made.pair == Pair("a!")
    assert made.entry == {"a": "b!"}
    assert read(Annotated[list[Banged], AfterValidator(list)], ["a"]) == ["a!"]


def test_functions_run_one_after_another() -> None:
    annotation = Annotated[str, AfterValidator(len), AfterValidator(lambda n: n + 1)]
    assert read(annotation, "abc") == 4
    with pytest.raises(SchemaError, match="follows a function"):
        schema_of(Annotated[str, AfterValidator(str.strip), Field(min_length=1)])


class Base64(BaseModel):
    x: pydantic.Base64Bytes


class Counted(BaseModel):
    x: Annotated[int, msgspec.Meta(ge=3)]


class Own(annotated_types.BaseMetadata):
    pass


class Owned(BaseModel):
    x: Annotated[int, Own()]


def dog_or_cat(value: Any) -> str:
    return str(value["kind"])


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Base64, "write bytes, which are hexadecimal digits here"),
        (Counted, "pydantic does not know it; write Field"),
        (Owned, "its meaning is unknown here"),
        (pydantic.Json[list[int]], "write the type that the JSON holds"),
        (Annotated[int, Field], r"call it: Field\(...\)"),
        (Annotated[int, annotated_types.Ge], "call it: Ge"),
        (Annotated[int, attrs.validators.ge(3)], "validators of attrs belong to"),
        (Annotated[int, Field(pattern="a")], r"Field\(pattern='a'\) does not limit"),
        (Annotated[str, Field(max_digits=3)], "it is for Decimal"),
        (Annotated[str, Field(pattern="(")], "unclosed group"),
        (Annotated[int, pydantic.Discriminator(dog_or_cat)], "a function sees made"),
        (pydantic.AwareDatetime, "write datetime, which always has an offset here"),
        (dict[SecretStr, int], "a secret is shown where it is a key"),
    ],
)
def test_misused_parts_of_pydantic(annotation: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        schema_of(annotation)


class Aliases(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)

    a: int = Field(1, alias="A")


def test_name_in_the_code_does_not_evade_the_check() -> None:
    assert read(Aliases, {"A": 2}).a == 2
    assert problems(Aliases, {"a": "5"}) == [
        "x.a: is not known here; it is the name of a field in the code"
    ]


class Same(BaseModel):
    a: int = Field(alias="x")
    b: int = Field(alias="x")


class SameOut(BaseModel):
    a: int = Field(serialization_alias="x")
    b: int = Field(serialization_alias="x")


def test_two_fields_of_one_name() -> None:
    with pytest.raises(SchemaError, match="Same: two fields have the alias 'x'"):
        schema_of(Same)
    with pytest.raises(SchemaError, match="SameOut has two fields with the name 'x'"):
        output_of(SameOut)


class Linked(BaseModel):
    url: HttpUrl


def test_addresses_in_results() -> None:
    for annotation, value in (
        (HttpUrl, HttpUrl("https://example.com")),
        (Linked, Linked(url=HttpUrl("https://example.com"))),
    ):
        output = output_of(annotation)
        assert output is not None
        assert "https://example.com/" in str(output.write(value))


class Login(BaseModel):
    password: SecretStr


def test_secrets_in_results_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"Login\.password: a result must not hold"):
        output_of(Login)


class Mixed(BaseModel):
    raw: bytes
    n: Annotated[int, PlainSerializer(str, return_type=str)]
    words: set[str]
    colour: Colour
    m: int | None

    @field_serializer("m", when_used="unless-none")
    def shown(self, value: int) -> str:
        return str(value)


def test_one_serializer_changes_one_field() -> None:
    output = output_of(Mixed)
    assert output is not None
    made = Mixed(raw=b"\xff", n=3, words={"b", "a"}, colour=Colour.BLUE, m=None)
    assert output.write(made) == {
        "raw": "ff",
        "n": "3",
        "words": ["a", "b"],
        "colour": 2,
        "m": None,
    }


class Raising(BaseModel):
    n: int

    @field_serializer("n")
    def never(self, value: int) -> str:
        raise RuntimeError("no")


def test_serializer_that_raises() -> None:
    output = output_of(list[Raising])
    assert output is not None
    with pytest.raises(OutputError, match=r"\[0\]: cannot be written: .*no"):
        output.write([Raising(n=1)])


def test_most_specific_member_of_a_union() -> None:
    assert read(str | SecretStr, "x") == SecretStr("x")
    assert read(HttpUrl | str, "no address") == "no address"


class Deep(BaseModel):
    tags: list[Annotated[str, AfterValidator(str.strip)]]
    either: Annotated[int, AfterValidator(even)] | list[int]
    age: int

    @field_validator("age")
    @classmethod
    def fails(cls, value: int) -> int:
        raise AssertionError


def test_paths_have_no_names_of_pydantic() -> None:
    value = {"tags": [], "either": 3, "age": 0}
    assert problems(Deep, value) == [
        "x.either: must be even",
        "x.either: must be a valid list",
        "x.age: is not valid",
    ]


def test_form_reports_a_problem_below_a_field() -> None:
    class Form(BaseModel):
        sizes: list[Literal["s", "l"]]
        age: int

        @field_validator("sizes", mode="wrap")
        @classmethod
        def inside(cls, value: Any, handler: Any) -> Any:
            TypeAdapter(dict[int, int]).validate_python({"x": 1})

        @field_validator("age")
        @classmethod
        def fails(cls, value: int) -> int:
            raise ValueError("no")

    assert len(unfit(Form, {"sizes": ["s"], "age": 1})) == 2


def test_form_cannot_limit_from_outside() -> None:
    item = Annotated[Literal["a", "b"], AfterValidator(str)]
    with pytest.raises(FormError, match="cannot limit single choices of a list"):
        form_of(list[item])
    with pytest.raises(FormError, match="Person: a form cannot limit a whole class"):
        form_of(Annotated[Person, AfterValidator(lambda value: value)])


def test_form_reports_all_limits_of_a_field() -> None:
    annotation = Annotated[
        str,
        annotated_types.Predicate(str.islower),
        annotated_types.Predicate(str.isdigit),
    ]
    assert unfit(annotation, {"value": "A"}) == [
        "value: must pass islower; must pass isdigit"
    ]


Age = TypeAliasType("Age", int)
Key = TypeAliasType("Key", str)


def test_aliases_and_limits() -> None:
    assert problems(Annotated[Age, Field(ge=5)], 4) == ["x: must be at least 5"]
    assert read(dict[Key, int], {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    "annotation", [dict.__class_getitem__((str,)), list.__class_getitem__((int, str))]
)
def test_types_with_too_many_parts(annotation: Any) -> None:
    with pytest.raises(SchemaError, match="two types|one type of items"):
        schema_of(annotation)


def test_floats_are_multiples_nearly() -> None:
    assert read(Annotated[float, Field(multiple_of=0.1)], 0.3) == 0.3
    assert problems(Annotated[float, Field(multiple_of=0.1)], 0.35)
    assert problems(Annotated[Decimal, annotated_types.MultipleOf(3)], "1e9999") == [
        "x: must be a multiple of 3"
    ]


@pytest.mark.parametrize(
    "limit",
    [
        annotated_types.MultipleOf(0),
        annotated_types.Ge(float("nan")),
        annotated_types.Predicate(None),  # type: ignore[arg-type]  # wrong on purpose
    ],
)
def test_limits_that_admit_nothing(limit: Any) -> None:
    with pytest.raises(SchemaError, match="admits no value"):
        schema_of(Annotated[int, limit])


def test_limits_that_leave_nothing() -> None:
    with pytest.raises(SchemaError, match="no number is at least 5 and at most 3"):
        schema_of(Annotated[int, Field(ge=5, le=3)])
    with pytest.raises(SchemaError, match="no length is at least 3 and at most 1"):
        schema_of(Annotated[str, Field(min_length=3, max_length=1)])


class Forward(BaseModel):
    x: "Later"  # noqa: UP037  # defined below, so the model is not complete yet


class Unfinished(BaseModel):
    x: "Never"  # type: ignore[name-defined]  # noqa: F821, UP037  # wrong on purpose


class Later(BaseModel):
    y: int


def test_models_that_name_later_ones() -> None:
    assert read(Forward, {"x": {"y": 1}}).x.y == 1
    with pytest.raises(SchemaError, match="Unfinished: an annotation could not be"):
        schema_of(Unfinished)


@dataclass
class Counter:
    start: int
    count: int = dataclasses.field(default=0, init=False)


def test_fields_that_a_constructor_does_not_take() -> None:
    assert list(schema_of(Counter)["properties"]) == ["start"]
    output = output_of(Counter)
    assert output is not None
    assert output.write(Counter(1)) == {"start": 1, "count": 0}


class Again(BaseModel):
    model_config = ConfigDict(revalidate_instances="always")

    n: int

    @field_validator("n")
    @classmethod
    def twice(cls, value: int) -> int:
        seen.append(value)
        if len(seen) % 2 == 0:
            raise ValueError("not twice")
        return value


seen: list[int] = []


class Around(BaseModel):
    model_config = ConfigDict(populate_by_name=True, loc_by_alias=False)

    inner: Again | None = Field(default=None, alias="Inner")
    tags: list[Annotated[str, AfterValidator(bang)]] = Field(default=[], alias="Tags")
    either: dict[str, Annotated[int, AfterValidator(even)]] | list[int] = Field(
        default=[], alias="Either"
    )
    odd: Annotated[
        list[Annotated[int, AfterValidator(even)]],
        annotated_types.Predicate(lambda value: False),
    ] = Field(default=[], alias="Odd")


def test_paths_inside_of_values() -> None:
    seen.clear()
    assert problems(Around, {"Inner": {"n": 1}}) == ["x.Inner.n: not twice"]
    assert problems(Around, {"Odd": [2, 1]}) == ["x.Odd[1]: must be even"]
    assert problems(Around, {"Either": {"a": 1}})[0] == "x.Either.a: must be even"
    assert problems(Around, {"Odd": []}) == ["x.Odd: must pass a check"]


class Broken(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def fails(cls, value: int) -> int:
        raise RuntimeError("no")


def test_validator_that_fails_otherwise() -> None:
    assert problems(Broken, {"n": 1}) == ["x: no"]
    assert unfit(Broken, {"n": 1}) == ["no"]


class Unknown(BaseModel):
    n: int

    @computed_field(title="Twice")  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def double(self) -> int:
        return 2 * self.n

    @field_serializer("n")
    def shown(self, value: int):  # type: ignore[no-untyped-def]  # as many write it
        return value


def test_results_of_an_unknown_type() -> None:
    output = output_of(Unknown)
    assert output is not None
    assert output.schema["properties"] == {
        "n": {},
        "double": {"type": "integer", "title": "Twice"},
    }
    assert output.write(Unknown(n=1)) == {"n": 1, "double": 2}


HAS_EXCLUDE_IF = "exclude_if" in inspect.signature(Field).parameters


@pytest.mark.skipif(not HAS_EXCLUDE_IF, reason="exclude_if= needs pydantic 2.12")
def test_fields_that_a_result_may_lack() -> None:
    class LeftOut(BaseModel):
        n: int = Field(exclude_if=lambda value: value == 0)
        m: Annotated[int, Field(title="T", description="D")] = 0

    output = output_of(list[LeftOut])
    assert output is not None
    assert output.write([LeftOut(n=0), LeftOut(n=1)]) == [{"m": 0}, {"n": 1, "m": 0}]


NAIVE = datetime_of.fromisoformat("2026-01-01T00:00:00")


def extra_schema(schema: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Annotated[int, Field(json_schema_extra=extra_schema)], "with a function"),
        (Annotated[int, pydantic.Strict], r"call it: Strict\(\.\.\.\)"),
        (list[Annotated[str, msgspec.Meta(min_length=1)]], None),
        (Annotated[datetime_of, Field(ge=NAIVE)], "needs an offset"),
        (Annotated[Literal[1, "a"], annotated_types.Ge(1)], "does not limit"),
        (pathlib.Path, "write str, and make the path in the function"),
    ],
)
def test_further_misuse(annotation: Any, words: str | None) -> None:
    if words is None:

        class Inner(BaseModel):
            x: annotation

        annotation, words = Inner, "pydantic does not know it; write Field"
    with pytest.raises(SchemaError, match=words):
        schema_of(annotation)


@dataclasses.dataclass
class Plain:
    x: int


@attrs.frozen
class ByAttrs:
    x: int


@attrs.frozen
class Visit:
    url: HttpUrl


@dataclasses.dataclass
class Strictly:
    n: Annotated[int, AfterValidator(even)]


@pytest.mark.parametrize(
    ("annotation", "good"),
    [
        (Annotated[int, pydantic.Strict()], 1),
        (Annotated[Any, annotated_types.Ge(1)], 2),
        (Annotated[Literal[1, 2], annotated_types.Ge(1)], 1),
        (Annotated[Entry, annotated_types.MinLen(1)], {"a": "b"}),
        (Annotated[int, annotated_types.MultipleOf(Fraction(1, 2))], 3),
        (Annotated[str, annotated_types.doc("A word.")], "a"),
        (Annotated[Plain, BeforeValidator(lambda value: value)], {"x": 1}),
        (Annotated[ByAttrs, BeforeValidator(lambda value: value)], {"x": 1}),
    ],
)
def test_further_uses(annotation: Any, good: Any) -> None:
    assert read(annotation, good) is not None


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(type_: Any) -> Any:
        raise ImportError("email-validator is not installed")

    leaf_of.cache_clear()
    monkeypatch.setattr(pydantic, "TypeAdapter", missing)
    with pytest.raises(SchemaError, match="EmailStr: email-validator is not installed"):
        schema_of(pydantic.EmailStr)
    leaf_of.cache_clear()


def test_recorded_answer_that_fits_no_more() -> None:
    made = form_of(Strictly)
    assert made.build({"n": 2}) == Strictly(2)
    with pytest.raises(Unfit, match="n: must be even"):
        made.build({"n": 3})
    with pytest.raises(Unfit, match="n: must be even"):
        made.read({"n": 3})


def test_form_with_an_address() -> None:
    made = form_of(Visit)
    assert made.schema["properties"]["url"] == {"type": "string", "format": "uri"}
    assert unfit(Visit, {"url": "ftp://example.com"}) == [
        "url: must be 'http' or 'https'"
    ]


def fails(value: Any) -> Any:
    raise RuntimeError("no")


@dataclasses.dataclass
class Failing:
    x: Annotated[int, AfterValidator(fails)]


def test_function_of_a_form_that_fails() -> None:
    assert unfit(Failing, {"x": 1}) == ["x: no"]


def test_form_of_a_converted_type() -> None:
    made = form_of(Annotated[dt.date, AfterValidator(lambda day: day.year)])
    assert made.build(made.read({"value": "2026-07-28"})) == 2026
    limited = form_of(Annotated[str, annotated_types.Predicate(str.islower)] | None)
    assert limited.read({}) == {}


def test_docstrings_of_a_form() -> None:
    properties = form_of(Stay).schema["properties"]
    assert properties["nights"]["description"] == "How many."


def test_problem_inside_of_a_limited_list() -> None:
    annotation = Annotated[
        list[Annotated[int, AfterValidator(even)]], annotated_types.Predicate(len)
    ]
    assert problems(annotation, [1]) == ["x[0]: must be even"]


def test_root_of_a_converted_type() -> None:
    made = read(RootModel[dt.date], "2026-07-28")
    assert made.root == dt.date(2026, 7, 28)
