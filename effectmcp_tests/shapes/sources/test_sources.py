from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any, Generic, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import attrs
import pytest
import typing_extensions
from typing_extensions import ReadOnly

from effectmcp import SchemaError
from effectmcp.shapes.sources import (
    NO_DEFAULT,
    Part,
    description_of,
    hints_of,
    source_of,
)

T = TypeVar("T")
U = TypeVar("U")


@attrs.frozen
class Guest:
    """A guest who comes.

    Attributes:
        name: What to call them.
    """

    name: str
    _age: int = 3
    tags: list[str] = attrs.field(factory=list)
    seen: int = attrs.field(init=False, default=0)


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0
    z: list[int] = dataclasses.field(default_factory=list)
    w: float = dataclasses.field(init=False, default=0.0)


class Base(TypedDict):
    a: int


class Entry(Base, total=False):
    b: dt.date
    c: Required[int]
    d: ReadOnly[NotRequired[int]]


class Newer(typing_extensions.TypedDict):
    a: int
    b: NotRequired[int]


class Row(NamedTuple):
    n: int
    s: str


@attrs.frozen
class Box(Generic[T]):
    what: list[T]
    bare: T


@attrs.frozen
class Pair(Box[U], Generic[T, U]):
    other: dict[str, T]


@attrs.frozen
class Numbers(Pair[str, int]):
    pass


class Tagged(TypedDict, Generic[T]):
    tag: T


class Named(Tagged[int]):
    name: str


def parts_of(annotation: Any) -> tuple[Part, ...] | None:
    source = source_of(annotation)
    return None if source is None else source.parts


def shown(annotation: Any) -> list[tuple[str, Any, bool]]:
    return [
        (part.name, part.hint, part.required) for part in parts_of(annotation) or ()
    ]


def test_attrs() -> None:
    assert shown(Guest) == [
        ("name", str, True),
        ("age", int, False),
        ("tags", list[str], False),
    ]
    parts = parts_of(Guest)
    assert parts is not None
    name, age, tags = parts
    assert name.text == "What to call them."
    assert (name.own_name, age.own_name) == ("name", "_age")
    assert (name.default, age.default, tags.default) == (NO_DEFAULT, 3, NO_DEFAULT)


def test_attrs_without_annotations() -> None:
    assert shown(attrs.make_class("Some", ["x"])) == [("x", Any, True)]


def test_dataclass() -> None:
    assert shown(Point) == [
        ("x", float, True),
        ("y", float, False),
        ("z", list[int], False),
    ]


def test_typeddict() -> None:
    """Python does not read these annotations: they are strings here."""
    assert shown(Entry) == [
        ("a", int, True),
        ("b", dt.date, False),
        ("c", int, True),
        ("d", int, False),
    ]
    assert shown(Newer) == [("a", int, True), ("b", int, False)]


def test_named_tuple() -> None:
    assert shown(Row) == [("n", int, True), ("s", str, True)]
    source = source_of(Row)
    assert source is not None
    assert source.is_row
    assert source_of(tuple) is None


def test_type_variables_are_filled_in() -> None:
    """`Pair` and its base call different things T."""
    assert shown(Box[int]) == [("what", list[int], True), ("bare", int, True)]
    assert [hint for _, hint, _ in shown(Pair[str, int])] == [
        list[int],
        int,
        dict[str, str],
    ]
    assert shown(Numbers) == shown(Pair[str, int])
    assert shown(Named) == [("tag", int, True), ("name", str, True)]


def test_other_types_have_no_parts() -> None:
    assert parts_of(int) is None
    assert parts_of(list[int]) is None
    assert parts_of("text") is None


def test_descriptions_are_the_authors() -> None:
    assert description_of(Guest) == "A guest who comes."
    assert description_of(Point) == description_of(Row) == description_of(Box) == ""


def test_hint_that_cannot_be_resolved_is_refused() -> None:
    def tool(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(SchemaError, match=r"tool\(a\): 'Missing' in an annotation"):
        hints_of(tool, "tool")


def test_hint_other_than_a_type_is_refused() -> None:
    def tool(a: None) -> None: ...

    tool.__annotations__["a"] = "1 +"
    with pytest.raises(SchemaError, match="tool: an annotation is not a type"):
        hints_of(tool, "tool")


def test_init_var_is_refused() -> None:
    with pytest.raises(
        SchemaError, match="Seeded.seed: the value of an InitVar cannot"
    ):
        parts_of(Seeded)


@dataclasses.dataclass
class Seeded:
    seed: dataclasses.InitVar[int]
