from __future__ import annotations

import collections.abc as cabc
import dataclasses
import datetime as dt
import decimal
import enum
import typing
import uuid
from typing import (
    Annotated,
    Any,
    Final,
    ForwardRef,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
)

import attrs
import pytest
from attrs.validators import ge
from typing_extensions import TypeAliasType

from effectmcp import SchemaError, Title
from effectmcp.schema.types import Schemas, add_default

T = TypeVar("T")
UserId = NewType("UserId", int)
Size = TypeAliasType("Size", Literal["s", "l"])


class Colour(enum.Enum):
    RED = "red"


@attrs.frozen
class Guest:
    """A guest.

    Attributes:
        name: Not used: the annotation has the last word.
        age: In years.
    """

    name: Annotated[str, "What to call them"]
    _age: int = attrs.field(default=18, validator=ge(18))


@attrs.frozen
class Node:
    children: list[Node]
    default: Guest
    enum: Guest | None = None


@attrs.frozen
class Box(Generic[T]):
    what: T


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Entry(TypedDict, total=False):
    a: int


class Row(NamedTuple):
    n: int
    s: Annotated[str, Title("S")]


class Plain:
    pass


@dataclasses.dataclass
class Mutable:
    x: int


def schema_of(annotation: Any, *, output: bool = False) -> Any:
    schemas = Schemas(output=output)
    return schemas.document(schemas.of(annotation, "f(x)"))


INT = {"type": "integer"}
TEXT = {"type": "string"}
GUEST = {
    "type": "object",
    "title": "Guest",
    "description": "A guest.",
    "properties": {
        "name": {"type": "string", "description": "What to call them"},
        "age": {
            "type": "integer",
            "description": "In years.",
            "minimum": 18,
            "default": 18,
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, TEXT),
        (int, INT),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (list, {"type": "array"}),
        (list[Any], {"type": "array"}),
        (list[int], {"type": "array", "items": INT}),
        (cabc.Sequence[int], {"type": "array", "items": INT}),
        (set[int], {"type": "array", "items": INT, "uniqueItems": True}),
        (set[int | str], {"type": "array", "items": {"anyOf": [INT, TEXT]}, "uniqueItems": True}),
        (frozenset[frozenset[int]], {"type": "array", "items": {"type": "array", "items": INT, "uniqueItems": True}, "uniqueItems": True}),
        (tuple, {"type": "array"}),
        (tuple[int, ...], {"type": "array", "items": INT}),
        (tuple[int, str], {"type": "array", "prefixItems": [INT, TEXT], "items": False, "minItems": 2, "maxItems": 2}),
        (tuple[()], {"type": "array", "items": False, "minItems": 0, "maxItems": 0}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": INT}),
        (cabc.Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (dict[Colour, int], {"type": "object", "propertyNames": {"type": "string", "enum": ["red"]}, "additionalProperties": INT}),
        (int | str, {"anyOf": [INT, TEXT]}),
        (Optional[int], {"anyOf": [INT, {"type": "null"}]}),  # noqa: UP045
        (Literal["a"], {"type": "string", "enum": ["a"]}),
        (Colour, {"type": "string", "enum": ["red"]}),
        (UserId, INT),
        (Size, {"type": "string", "enum": ["s", "l"]}),
        (Final[int], INT),
        (Annotated[int, "how many", Title("Count")], {"type": "integer", "description": "how many", "title": "Count"}),
        (Annotated[Annotated[int, "inner"], "outer"], {"type": "integer", "description": "outer"}),
        (Guest, GUEST),
        (Annotated[Guest, "Who comes"], {**GUEST, "description": "Who comes"}),
        (Box[int], {"type": "object", "title": "Box", "properties": {"what": INT}, "required": ["what"], "additionalProperties": False}),
        (Point, {"type": "object", "title": "Point", "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}}, "required": ["x"], "additionalProperties": False}),
        (Entry, {"type": "object", "title": "Entry", "properties": {"a": INT}, "additionalProperties": False}),
        (Row, {"type": "array", "prefixItems": [{"type": "integer", "title": "n"}, {"type": "string", "title": "S"}], "items": False, "minItems": 2, "maxItems": 2, "title": "Row"}),
    ],
)  # fmt: skip
def test_schemas(annotation: Any, schema: Any) -> None:
    assert schema_of(annotation) == schema


@pytest.mark.parametrize("annotation", [dt.time, decimal.Decimal, bytes])
def test_schemas_with_a_pattern(annotation: Any) -> None:
    assert schema_of(annotation)["pattern"][0] == "^"


# ---- definitions ----


def test_class_used_twice_is_defined_once() -> None:
    assert schema_of(tuple[Guest, Guest]) == {
        "type": "array",
        "prefixItems": [{"$ref": "#/$defs/Guest"}] * 2,
        "items": False,
        "minItems": 2,
        "maxItems": 2,
        "$defs": {"Guest": GUEST},
    }


def test_class_that_holds_itself_is_defined() -> None:
    """Fields may be named `default` or `enum`, which are keywords elsewhere."""
    schema = schema_of(Node)
    assert schema["$ref"] == "#/$defs/Node"
    assert schema["$defs"].keys() == {"Node", "Guest"}
    properties = schema["$defs"]["Node"]["properties"]
    assert properties["children"] == {
        "type": "array",
        "items": {"$ref": "#/$defs/Node"},
    }
    assert properties["default"] == {"$ref": "#/$defs/Guest"}


def test_class_that_is_reached_in_two_ways_is_defined() -> None:
    schema = schema_of(tuple[Box[Box[Guest]], Box[Guest]])
    assert schema["$defs"].keys() == {"Box_Guest"}


def test_class_that_its_parts_share_is_defined() -> None:
    left = attrs.make_class("Left", {"x": attrs.field(type=Guest)})
    right = attrs.make_class("Right", {"x": attrs.field(type=Guest)})
    fields = {"a": attrs.field(type=left), "b": attrs.field(type=right)}
    schema = schema_of(attrs.make_class("Both", fields))
    assert schema["$defs"].keys() == {"Guest"}


def test_class_with_another_annotation_inside_is_another_class() -> None:
    schema = schema_of(tuple[Box[str], Box[Annotated[str, "x"]]])
    first, second = schema["prefixItems"]
    assert first["properties"] != second["properties"]


def test_class_in_a_class_is_put_where_it_is_needed() -> None:
    assert schema_of(Box[Guest])["properties"] == {"what": GUEST}


def test_classes_with_one_name_are_distinguished() -> None:
    other = attrs.make_class("Guest", {"x": attrs.field(type=int)})
    schema = schema_of(dict[str, Guest | other | tuple[Guest, other]])  # type: ignore[valid-type]
    assert schema["$defs"].keys() == {"Guest", "Guest_2"}


def test_generic_classes_are_distinguished() -> None:
    schema = schema_of(tuple[Box[int], Box[int], Box[str], Box[str]])
    assert schema["$defs"].keys() == {"Box_int", "Box_str"}


class Recursive:
    """Imitates `type Tree = int | list[Tree]` before Python 3.12."""

    __name__ = "Tree"

    def __init__(self) -> None:
        self.__value__: Any = None


def test_alias_that_holds_itself_is_defined() -> None:
    tree = Recursive()
    tree.__value__ = list[tree]  # type: ignore[valid-type]
    assert schema_of(tree) == {
        "$ref": "#/$defs/Tree",
        "$defs": {"Tree": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    }


# ---- outputs ----


def test_output_always_has_what_has_a_default_and_may_have_more() -> None:
    schema = schema_of(Guest, output=True)
    assert schema["required"] == ["name", "age"]
    assert "additionalProperties" not in schema


def test_output_of_a_typeddict_may_lack_keys() -> None:
    assert "required" not in schema_of(Entry, output=True)


# ---- defaults ----


def test_defaults_that_json_cannot_say_are_left_out() -> None:
    schema: dict[str, Any] = {}
    add_default(schema, object())
    assert schema == {}
    add_default(schema, dt.date(2026, 7, 28))
    assert schema == {"default": "2026-07-28"}


# ---- refusals ----


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (dt.timedelta, "timedelta has no schema; take a number and name its unit"),
        (complex, "take two floats"),
        (cabc.Callable[[int], int], "take its name, as a Literal"),
        (cabc.Iterable[int], r"write list\[...\]"),
        (Plain, "Plain has no schema; its fields are unknown"),
        (set[list[int]], r"a set cannot hold list\[int\]"),
        (set[Any], "a set cannot hold typing.Any"),
        (set[Mutable], "a set cannot hold .*Mutable"),
        (set[int | list[int]], r"a set cannot hold list\[int\]"),
        (dict[int, str], "JSON keys are strings"),
        (dict[Any, str], "JSON keys are strings"),
        (T, "~T is open; name its type"),
        ("Guest", "'Guest' could not be resolved"),
        (ForwardRef("Guest"), "could not be resolved"),
        (Box, "is open"),
        ([], r"\[\] is not a type"),
        (Literal[b"x"], "has no form in JSON"),
    ],
)
def test_what_json_cannot_say_is_refused_by_name(annotation: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        schema_of(annotation)
    assert caught.value.problem.startswith(("f(x): ", "f(x), Box.what: "))


def test_refusal_names_the_field() -> None:
    class_ = attrs.make_class("Some", {"y": attrs.field(type=complex)})
    with pytest.raises(SchemaError, match="Some.y: complex has no schema"):
        schema_of(list[class_])  # type: ignore[valid-type]


def test_bare_tuple_of_typing_is_not_the_empty_one() -> None:
    assert schema_of(typing.Tuple) == {"type": "array"}  # noqa: UP006


@pytest.mark.parametrize(
    "annotation", [set, frozenset, set[tuple[int, list[int]]], set[tuple[Any, ...]]]
)
def test_sets_of_what_may_have_no_hash_are_refused(annotation: Any) -> None:
    with pytest.raises(SchemaError, match="which has no hash"):
        schema_of(annotation)


def test_sets_of_tuples() -> None:
    assert schema_of(set[tuple[int, ...]])["uniqueItems"]


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, {"a": 1}],
        list[Annotated[int, {"a": 1}]],
    ],
)
def test_metadata_need_not_have_a_hash(annotation: Any) -> None:
    """The metadata of pydantic has no hash."""
    assert "integer" in str(schema_of(annotation))


@attrs.frozen
class Growing(Generic[T]):
    more: Growing[list[T]] | None = None


def test_generic_class_that_grows_is_refused() -> None:
    with pytest.raises(SchemaError, match="Growing.more: classes inside classes"):
        schema_of(Growing[int])


def test_names_that_no_reference_can_say() -> None:
    """`#/$defs/Größe` is not a URI."""
    sizes = [attrs.make_class(name, ["x"]) for name in ("Größe", "Gr__e")]
    one, other = sizes
    found = schema_of(tuple.__class_getitem__((one, one, other, other)))
    assert list(found["$defs"]) == ["Gr__e", "Gr__e_2"]
    assert found["$defs"]["Gr__e"]["title"] == "Größe"
