from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar

import attrs
import pytest
from attrs.validators import ge, gt, in_, min_len, optional

from effectmcp.errors import FormError
from effectmcp.forms import Title, Unfit, form_of

T = TypeVar("T")
U = TypeVar("U")
Size = Literal["s", "l"]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


def problems(class_: Any, content: Any) -> list[str]:
    with pytest.raises(Unfit) as caught:
        form_of(class_).read(content)
    return caught.value.problems


def built(class_: Any, content: Any) -> Any:
    made = form_of(class_)
    return made.build(made.read(content))


def refusal(class_: Any) -> str:
    with pytest.raises(FormError) as caught:
        form_of(class_)
    return caught.value.problem.replace(f"{__name__}.", "")


# ---- which fields -------------------------------------------------------------------


@attrs.frozen
class Base:
    name: str
    _age: Annotated[int, Title("Age")] = attrs.field(validator=ge(18))
    LIMIT: ClassVar[int] = 3


@attrs.frozen(kw_only=True)
class Person(Base):
    colour: Colour = Colour.RED
    size: Final[Size | None]
    seen: int = attrs.field(init=False, default=0)
    born: dt.date | None = None
    wire: str = attrs.field(alias="on_the_wire", default="w")
    made: dt.datetime = attrs.field(
        factory=lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    )
    tags: list[Size] = attrs.field(factory=list)
    greeting: str = attrs.field(
        default=attrs.Factory(lambda self: f"Hello {self.name}", takes_self=True)
    )


def test_class_schema() -> None:
    """In the order of the class; privates by alias; factories are not shown."""
    made = form_of(Person)
    assert list(made.schema["properties"]) == [
        *("name", "age", "colour", "size", "born", "on_the_wire"),
        *("made", "tags", "greeting"),
    ]
    assert made.schema["required"] == ["name", "age"]
    assert made.schema["properties"]["age"] == {
        "type": "integer",
        "minimum": 18,
        "title": "Age",
    }
    assert made.schema["properties"]["colour"]["default"] == "red"
    for name in ("size", "born", "made", "tags", "greeting"):
        assert "default" not in made.schema["properties"][name]


def test_class_built_from_the_least() -> None:
    """The class fills in missing fields; an optional field is `None`."""
    person = built(Person, {"name": "Ann", "age": 18})
    assert person == Person("Ann", 18, size=None)
    assert person.greeting == "Hello Ann"
    assert person.tags == []


def test_class_built_from_everything() -> None:
    content = {
        "name": "Ann",
        "age": 18.0,
        "colour": "green",
        "size": "l",
        "born": "2000-02-29",
        "on_the_wire": "x",
        "made": "2026-07-28T09:30:00Z",
        "tags": ["s"],
        "greeting": "Hi",
        "seen": 5,
        "LIMIT": 5,
    }
    person = built(Person, content)
    assert person == Person(
        "Ann",
        18,
        colour=Colour.GREEN,
        size="l",
        born=dt.date(2000, 2, 29),
        on_the_wire="x",
        made=dt.datetime(2026, 7, 28, 9, 30, tzinfo=dt.UTC),
        tags=["s"],
        greeting="Hi",
    )
    assert person.seen == 0


@attrs.define
class Nothing:
    pass


def test_class_without_fields() -> None:
    """A question that can only be accepted or not."""
    made = form_of(Nothing)
    assert made.schema == {"type": "object", "properties": {}}
    assert made.build(made.read(None)) == Nothing()
    assert made.build(made.read({"more": 1})) == Nothing()


@attrs.define
class Shared:
    tags: list[Size] = ["s"]
    more: list[Colour] = attrs.field(factory=list)


def test_class_with_a_list_for_a_default() -> None:
    """attrs hands out the one list; a handler that adds to it would change the next."""
    made = form_of(Shared)
    assert made.schema["properties"]["tags"]["default"] == ["s"]
    first, second = made.build({}), made.build({})
    assert first.tags == ["s"]
    assert first.tags is not second.tags
    assert first.tags is not Shared().tags
    assert first.more is not second.more


@attrs.frozen
class Box(Generic[T, U]):
    one: T
    many: list[T]
    perhaps: U | None = None


def test_class_generic() -> None:
    made = form_of(Box[Size, dt.date])
    assert made.schema["properties"] == {
        "one": {"type": "string", "enum": ["s", "l"]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}},
        "perhaps": {"type": "string", "format": "date"},
    }
    assert made.build({"one": "s", "many": ["l"]}) == Box("s", ["l"])
    assert form_of(Box[Colour, int]).text != made.text


@attrs.frozen
class Open(Generic[T]):
    value: T | None


@attrs.frozen
class Closed(Open[int]):
    pass


def test_class_generic_left_open() -> None:
    assert refusal(Open) == "Open.value: ~T is open; name its type, as in Box[int]"
    assert refusal(Box).startswith("Box.one: ~T is open")


def test_class_closed_by_a_subclass() -> None:
    assert built(Closed, {"value": 3}) == Closed(3)


def test_class_made_at_run_time() -> None:
    """Types come from the attribute where nothing is annotated."""
    class_ = attrs.make_class("Late", {"age": attrs.field(type=int)})
    assert form_of(class_).schema["properties"] == {"age": {"type": "integer"}}
    bare = attrs.make_class("Bare", ["age"])
    assert refusal(bare) == "Bare.age: has no annotation, so no type to ask for"


@attrs.frozen
class Node:
    name: str
    next: Node | None = None


@attrs.frozen
class Wrong:
    count: int = attrs.field(default="many")  # type: ignore[assignment]


def test_class_refused_by_class_and_field() -> None:
    assert refusal(Node).startswith("Node.next: forms are flat, so the class Node")
    assert refusal(Wrong) == "Wrong.count: the default 'many' must be a whole number"


@attrs.frozen
class Untyped:
    born: dt.date = attrs.field(default="2000-01-01")  # type: ignore[assignment]


@attrs.frozen
class Unlisted:
    colour: Colour = attrs.field(default="blue")  # type: ignore[assignment]


@attrs.frozen
class Naive:
    made: dt.datetime = dt.datetime(2026, 1, 1)  # noqa: DTZ001


def test_class_with_a_default_of_another_type() -> None:
    problem = "Untyped.born: the default '2000-01-01' is not of the type"
    assert refusal(Untyped) == problem
    assert refusal(Unlisted) == "Unlisted.colour: the default 'blue' is not of the type"
    assert "must have an offset" in refusal(Naive)


def test_class_with_a_name_that_is_not_at_module_level() -> None:
    @attrs.frozen
    class Local:
        there: Elsewhere  # type: ignore[name-defined]  # noqa: F821

    problem = refusal(Local)
    assert "'Elsewhere' in an annotation could not be resolved" in problem
    assert "define it at module level" in problem


# ---- every problem at once ----------------------------------------------------------


@attrs.frozen
class Trip:
    start: dt.date = attrs.field(validator=ge(dt.date(2026, 1, 1)))
    end: dt.date = attrs.field()
    seats: int = attrs.field(validator=in_([1, 2, 4]))
    code: str = attrs.field()
    budget: float = attrs.field(default=10.0, validator=gt(0))
    _note: str | None = attrs.field(default=None, validator=optional(min_len(2)))

    @end.validator
    def _after_start(self, attribute: attrs.Attribute[Any], value: dt.date) -> None:
        if value < self.start:
            raise ValueError(f"must not be before {self.start}")

    @code.validator
    def _not_shouted(self, attribute: attrs.Attribute[Any], value: str) -> None:
        if value.isupper():
            raise ValueError("'code' must not be shouted")


def trip(**changes: Any) -> dict[str, Any]:
    fine = {"start": "2026-07-28", "end": "2026-07-30", "seats": 2, "code": "x"}
    return {**fine, **changes}


def test_every_problem_of_the_schema_and_the_class() -> None:
    content = trip(start=7, seats=3, code="ABC", budget=0, note="x")
    assert problems(Trip, content) == [
        "start: must be text",
        "seats: must be one of 1, 2, 4",
        "code: must not be shouted",
        "budget: must be more than 0",
        "note: must have at least 2 characters",
    ]


def test_validator_that_looks_at_another_field() -> None:
    """The validator sees the answers of other fields, and its own field is named."""
    assert problems(Trip, trip(end="2026-07-27", code="X")) == [
        "end: must not be before 2026-07-28",
        "code: must not be shouted",
    ]
    assert built(Trip, trip(end="2026-07-28")).seats == 2


def test_validator_that_looks_at_a_field_that_does_not_fit() -> None:
    """The validator needs that field, so it runs once the field is valid."""
    content = trip(start="soon", end="2020-01-01")
    assert problems(Trip, content) == ["start: must be a date such as 2026-07-28"]


def strip(value: str) -> str:
    return value.strip()


@attrs.define
class Range:
    low: int = attrs.field(default=5)
    high: int = attrs.field(default=9)
    step: int = attrs.field(init=False, default=1)
    words: str = attrs.field(init=False, default="below ", converter=strip)

    @high.validator
    def _above(self, attribute: attrs.Attribute[Any], value: int) -> None:
        if value < self.low + self.step:
            raise ValueError("must be above low")

    @low.validator
    def _below(self, attribute: attrs.Attribute[Any], value: int) -> None:
        if value > 99:
            raise ValueError(f"must be {self.words} 100")


def test_validator_that_looks_at_defaults() -> None:
    """The default of the validated field is checked as well, and named."""
    assert problems(Range, {"high": 4}) == ["high: must be above low"]
    assert problems(Range, {"low": 9}) == ["high: must be above low"]
    assert built(Range, {"low": 8}) == Range(8)


def test_validator_that_looks_at_a_converted_constant() -> None:
    """Which only the construction makes, so it has the word."""
    assert problems(Range, {"low": 100, "high": 200}) == ["must be below 100"]


def test_default_does_not_replace_an_answer_that_does_not_fit() -> None:
    """`high` is not compared with the default of `low`."""
    assert problems(Range, {"low": "x", "high": 4}) == ["low: must be a whole number"]
    assert problems(Range, {"low": 4, "high": "x"}) == ["high: must be a whole number"]


@attrs.define
class Whole:
    one: int = attrs.field()
    two: int = attrs.field(factory=int)

    @one.validator
    def _matches(self, attribute: attrs.Attribute[Any], value: int) -> None:
        if value != self.two:
            raise ValueError("must be two")

    def __attrs_post_init__(self) -> None:
        if self.one == 3:
            raise ValueError("three is one too many")


def test_validator_that_needs_what_only_construction_makes() -> None:
    """A factory is not run out of turn, so here the construction has the word."""
    assert problems(Whole, {"one": 1}) == ["must be two"]
    assert problems(Whole, {"one": 1, "two": 0}) == ["one: must be two"]
    assert problems(Whole, {"one": 3, "two": 3}) == ["three is one too many"]
    assert built(Whole, {"one": 0}) == Whole(0)


def test_build_reports_that_the_class_has_changed() -> None:
    """A recorded answer that no longer fits is unfitting, not an error of its own."""
    with pytest.raises(Unfit) as caught:
        form_of(Whole).build({"one": 3, "two": 3})
    assert caught.value.problems == ["three is one too many"]
    assert isinstance(caught.value.__cause__, ValueError)


@attrs.define(init=False)
class Peculiar:
    age: int = attrs.field(validator=in_([1, 2]))

    def __new__(cls, age: int) -> Peculiar:
        return super().__new__(cls)

    def __init__(self, age: int) -> None:
        self.__attrs_init__(age)


def test_class_whose_instances_cannot_be_made_empty() -> None:
    assert problems(Peculiar, {"age": 3}) == ["'age' must be in [1, 2] (got 3)"]
    assert built(Peculiar, {"age": 2}).age == 2


@attrs.define(slots=False)
class Careful:
    """`on_setattr` validates on assignment, but not in an incomplete instance."""

    a: int = attrs.field(validator=in_([1]))
    b: int = attrs.field(validator=in_([1]))


def test_class_with_hooks_on_assignment() -> None:
    assert problems(Careful, {"a": 2, "b": 2}) == [
        "a: must be one of 1",
        "b: must be one of 1",
    ]


# ---- converters ---------------------------------------------------------------------


def number(value: str) -> str:
    return str(int(value))


def relative(value: int, instance: Any) -> int:
    return value + int(instance.base)


def named(value: str, attribute: attrs.Attribute[Any]) -> str:
    if not value:
        raise ValueError(f"'{attribute.name}' must not be blank")
    return value


RELATIVE: Any = attrs.Converter(relative, takes_self=True)
NAMED: Any = attrs.converters.pipe(strip, attrs.Converter(named, takes_field=True))


@attrs.define
class Converted:
    name: str = attrs.field(converter=strip, validator=min_len(1))
    number: str = attrs.field(converter=number)
    base: int = 1
    offset: int = attrs.field(default=0, converter=RELATIVE)  # type: ignore[misc]
    plain: str = attrs.field(default="p", converter=NAMED)  # type: ignore[misc]


def test_converter_is_given_what_was_asked_for() -> None:
    made = form_of(Converted)
    assert made.schema["properties"]["name"] == {"type": "string"}
    content = {"name": " Ann ", "number": "007", "base": 2, "offset": 3, "plain": " x"}
    assert built(Converted, content) == Converted("Ann", "7", 2, 3, "x")
    assert made.read(content)["name"] == " Ann "


def test_converter_that_refuses() -> None:
    assert problems(
        Converted, {"name": "  ", "number": "x", "base": "y", "plain": " "}
    ) == [
        "name: must have at least 1 character",
        "number: invalid literal for int() with base 10: 'x'",
        "base: must be a whole number",
        "plain: must not be blank",
    ]


def shout(value: str) -> str:
    return value.upper()


@attrs.define
class Loud:
    word: str = attrs.field(default="quiet", converter=shout)
    echo: str = attrs.field(default="quiet")

    @echo.validator
    def _is_the_same(self, attribute: attrs.Attribute[Any], value: str) -> None:
        if value != self.word:
            raise ValueError(f"must be {self.word}")


def test_converter_is_given_defaults_too() -> None:
    assert problems(Loud, {}) == ["echo: must be QUIET"]
    assert problems(Loud, {"echo": "x"}) == ["echo: must be QUIET"]
    assert built(Loud, {"echo": "QUIET"}) == Loud("quiet", "QUIET")


def test_converter_that_needs_a_field_that_does_not_fit() -> None:
    content = {"name": "Ann", "number": "1", "base": "x", "offset": 3}
    assert problems(Converted, content) == ["base: must be a whole number"]


@attrs.define
class Early:
    first: int = attrs.field(converter=RELATIVE)  # type: ignore[misc]
    base: int = 1


def test_converter_that_needs_a_later_field() -> None:
    """A bug of the class, which its construction tells."""
    (problem,) = problems(Early, {"first": 1})
    assert "base" in problem


@pytest.mark.parametrize("decorate", [attrs.define, attrs.frozen, attrs.mutable])
def test_class_of_any_decorator(decorate: Callable[[type], type]) -> None:
    class Plain:
        age: int = attrs.field(validator=in_([1]))

    assert problems(decorate(Plain), {"age": 2}) == ["age: must be one of 1"]
