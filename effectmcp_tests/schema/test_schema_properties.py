"""The law of arguments: what the schema refuses is refused; what it admits is accepted.

Both ways, with jsonschema-rs as the referee. Excused are the formats' known differences
(`forms/formats.py` lists them: year 0000, leap seconds, digits that the referee does not
look at, `xn--` labels), numbers that no double holds, and what only Python says:
validators that no schema can say, and Python's idea of the same item in a set.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import re
import uuid
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, Union

import attrs
import pytest
from attrs.validators import ge, gt, in_, le, lt, max_len, min_len, optional
from hypothesis import assume, given
from hypothesis import strategies as st

from effectmcp import ArgumentsError, Format
from effectmcp.canonical import dumps
from effectmcp.schema import RawSchema, input_of, output_of
from effectmcp.shapes.problems import unreadable

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="the referee of schemas")


def retrieve(uri: str) -> Any:
    raise AssertionError(f"the referee wants to fetch {uri}")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "1"


class Place(enum.Enum):
    HERE = (1, 2)
    THERE = (3, 4)


@attrs.frozen
class Bounded:
    a: int = attrs.field(validator=[ge(0), lt(5)])
    b: float = attrs.field(default=1.5, validator=[gt(1), le(2.5)])
    c: str = attrs.field(default="x", validator=[min_len(1), max_len(3)])
    d: str = attrs.field(default="p", validator=in_(["p", "q"]))
    e: list[int] = attrs.field(factory=list, validator=max_len(2))
    f: int | None = attrs.field(default=None, validator=optional(ge(3)))
    _g: Colour = Colour.RED


@attrs.frozen
class Leaf:
    kind: Literal["leaf"]
    value: int


@attrs.frozen
class Node:
    kind: Literal["node"]
    parts: list[Node | Leaf]
    note: str | None = None


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Entry(TypedDict):
    a: int
    b: NotRequired[dt.date]


class Row(NamedTuple):
    n: int
    s: str


TYPES: list[Any] = [
    str,
    int,
    float,
    bool,
    None,
    dt.date,
    dt.datetime,
    dt.time,
    uuid.UUID,
    decimal.Decimal,
    bytes,
    Any,
    list,
    dict,
    tuple,
    Colour,
    Mixed,
    Place,
    Bounded,
    Node,
    Point,
    Entry,
    Row,
    Literal[1, True, "x", None],
    Literal[0, False],
    Annotated[str, Format("email")],
    Annotated[str, Format("uri"), "somewhere"],
    set[str],
    frozenset[int],
    dict[Colour, int],
    dict[uuid.UUID, str],
]


def optional_union(two: tuple[Any, Any]) -> Any:
    return Union[(*two, None)]


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda item: list.__class_getitem__(item)),
        inner.map(lambda item: dict.__class_getitem__((str, item))),
        inner.map(lambda item: tuple.__class_getitem__((item, ...))),
        st.tuples(inner, inner).map(lambda two: tuple.__class_getitem__(two)),
        st.tuples(inner, inner).map(optional_union),
    )


any_type: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(TYPES), composed, max_leaves=4
)

texts = st.text(max_size=4) | st.sampled_from(
    [
        "red",
        "blue",
        "HERE",
        "leaf",
        "node",
        "p",
        "q",
        "x",
        "1",
        "2026-07-28",
        "0000-01-01",
    ]
    + [
        "2026-02-30",
        "2026-07-28T09:30:00Z",
        "2026-07-28t09:30:60z",
        "09:30:00",
        "24:00:00",
    ]
    + [
        "09:30:00.5+02:00",
        "09:30:00\n",
        "1.5",
        "-1e3",
        "NaN",
        "1e99999",
        "00ff",
        "0",
        "a@b.c",
    ]
    + [
        "http://a/b",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "6ba7b8109dad11d180b400c04fd430c8",
    ]
)
numbers = (
    st.integers(-3, 6)
    | st.floats(-3, 6)
    | st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.5, 1e300, 2**53 + 1, 10**30, 10**400])
)
names = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
        "_g",
        "x",
        "y",
        "kind",
        "parts",
        "value",
        "note",
    ]
)
scalars = st.none() | st.booleans() | numbers | texts
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names | texts, inner, max_size=4)
    ),
    max_leaves=8,
)


def from_schema(schema: Any, defs: Any, room: int = 4) -> st.SearchStrategy[Any]:
    """Values that fit, mostly: what `junk` would never hit."""
    if room < 0:
        return scalars
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return st.deferred(lambda: from_schema(defs[name], defs, room - 1))
    if "anyOf" in schema:
        return st.one_of([from_schema(one, defs, room) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer" | "number":
            return numbers
        case "string":
            return texts
        case "array":
            firsts = [
                from_schema(one, defs, room - 1)
                for one in schema.get("prefixItems", ())
            ]
            if firsts:
                return st.tuples(*firsts).map(list)
            return st.lists(
                from_schema(schema.get("items") or {}, defs, room - 1), max_size=3
            )
        case "object":
            properties = {
                name: from_schema(one, defs, room - 1)
                | (junk if room == 2 else st.nothing())
                for name, one in schema.get("properties", {}).items()
            }
            required = {
                n: s for n, s in properties.items() if n in schema.get("required", ())
            }
            others = {n: s for n, s in properties.items() if n not in required}
            if (
                not properties
                and "additionalProperties" in schema
                and schema["additionalProperties"]
            ):
                values = from_schema(schema["additionalProperties"], defs, room - 1)
                return st.dictionaries(texts, values, max_size=2)
            return st.fixed_dictionaries(required, optional=others)
        case _:
            return junk


def function_of(annotation: Any) -> Any:
    def tool(value: Any) -> None: ...

    tool.__annotations__ = {"value": annotation, "return": None}
    return tool


# ---- excuses ----

DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in (*value, *value.values()) for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def is_excused(value: Any) -> bool:
    """Whether a part of the value is one where Python or the referee is known to err."""
    for text in strings(value):
        if text.startswith("0000") or ":60" in text or "xn--" in text.lower():
            return True
        if len(text) == 10 and text[4::3] == "--" and not re.fullmatch(DATE, text):
            return True
        if (
            len(text) > 19
            and text[4] == "-"
            and not re.fullmatch(f"{DATE}[Tt]{TIME}", text)
        ):
            return True
    try:
        return json.dumps(value).count("0" * 300) > 0  # 10**400, no double
    except ValueError:
        return True


# ---- the law ----


@given(st.data(), any_type)
def test_law(data: st.DataObject, annotation: Any) -> None:
    made = input_of(function_of(annotation))
    schema: Any = made.schema
    dumps(schema)
    jsonschema_rs.meta.validate(schema)
    is_valid = jsonschema_rs.validator_for(
        schema, validate_formats=True, retriever=retrieve
    ).is_valid
    value = data.draw(from_schema(schema, schema.get("$defs", {})) | junk)
    assume(not unreadable(value))
    admitted = is_valid(value)
    try:
        made.read(value)
        accepted = True
    except ArgumentsError:
        accepted = False
    if admitted != accepted:
        assert is_excused(value), (admitted, value, schema)


@given(junk)
def test_anything_at_all_is_kwargs_or_an_error_that_can_be_printed(value: Any) -> None:
    def tool(
        a: Node | Bounded, b: Entry | Row | None = None, x: Any = None
    ) -> None: ...

    refused: ArgumentsError | None = None
    try:
        kwargs = input_of(tool).read(value)
    except ArgumentsError as exc:
        refused = exc
    else:
        assert kwargs.keys() <= {"a", "b", "x"}
    if refused is not None:
        assert refused.problems
        assert str(refused).encode()
        assert all(": " in problem for problem in refused.problems)


@given(
    st.data(),
    st.sampled_from(
        [Bounded, Node, Point, Entry, Row, list[Node], dict[Colour, bytes]]
    ),
)
def test_results_come_back_and_fit_their_schema(
    data: st.DataObject, annotation: Any
) -> None:
    """A value can be read, written to fit the outputSchema, and read again the same."""
    made, out = input_of(function_of(annotation)), output_of(annotation)
    assert out is not None
    value = data.draw(from_schema(made.schema, made.schema.get("$defs", {})))
    assume(not unreadable(value))
    try:
        first = made.read(value)["value"]
    except ArgumentsError:
        return
    written = out.write(first)
    dumps(written)
    assert jsonschema_rs.validator_for(
        out.schema, validate_formats=True, retriever=retrieve
    ).is_valid(written)
    assert made.read({"value": written})["value"] == first


@given(st.data(), any_type)
def test_raw_schema_agrees_with_the_typed_one(
    data: st.DataObject, annotation: Any
) -> None:
    made = input_of(function_of(annotation))
    raw = RawSchema(made.schema)
    value = data.draw(from_schema(made.schema, made.schema.get("$defs", {})) | junk)
    try:
        made.read(value)
        fits = True
    except ArgumentsError:
        fits = False
    if bool(raw.check(value)) is fits:
        assert is_excused(value)
