"""The law of forms: what the schema refuses is refused; what it admits is accepted.

Except by one of the extras (validators that no schema can say), by a format's calendar,
or by ±(2**53 - 1). The referee is jsonschema-rs, which shares no line with our checks. It
always gets a retriever that raises, since it would fetch otherwise, and is never shown a
lone surrogate, on which it raises UnicodeEncodeError.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_origin

import attrs
import pytest
from attrs.validators import ge, gt, in_, le, lt, matches_re, max_len, min_len, optional
from hypothesis import assume, example, given
from hypothesis import strategies as st

from effectmcp.canonical import MAX_SAFE_INTEGER, dumps, loads
from effectmcp.effects.questions import Elicit
from effectmcp.errors import FormError
from effectmcp.forms import Form, Unfit, form_of
from effectmcp.forms.types import _advice
from effectmcp.shapes.sources.attrs_classes import known_name

jsonschema_rs = pytest.importorskip(
    "jsonschema_rs", reason="the referee: pip install -e '.[testing]'"
)

JSONSchema = dict[str, Any]


DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"


def retrieve(uri: str) -> Any:
    raise AssertionError(f"the referee wants to fetch {uri}")


def referee(schema: Any) -> Callable[[Any], bool]:
    is_valid = jsonschema_rs.validator_for(
        schema, validate_formats=True, retriever=retrieve
    ).is_valid

    def admits(content: Any) -> bool:
        return not has_surrogates(content) and bool(is_valid(content))

    return admits


def has_surrogates(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_surrogates, [*value, *value.values()]))
    if isinstance(value, list):
        return any(map(has_surrogates, value))
    return isinstance(value, str) and re.search("[\ud800-\udfff]", value) is not None


def accepts(made: Form[Any], content: Any) -> bool:
    try:
        made.read(content)
    except Unfit:
        return False
    return True


# ---- excuses ------------------------------------------------------------------------


def may_be_refused(schema: JSONSchema, value: Any) -> bool:
    """Whether a value that the schema admits may be refused all the same."""
    if schema["type"] == "integer":
        return bool(abs(value) > MAX_SAFE_INTEGER)
    if schema["type"] == "number":
        # No double: JavaScript reads an infinity, and a float field could hold nothing.
        return isinstance(value, int) and abs(value) > 2**1023
    # jsonschema-rs 0.60 does not look at every digit of a date or a time.
    match schema.get("format"):
        case "date":
            return value.startswith("0000") or not re.fullmatch(DATE, value)
        case "date-time":
            is_misread = not re.fullmatch(f"{DATE}[Tt]{TIME}", value)
            return is_misread or value.startswith("0000") or value[17:19] == "60"
        case _:
            return False


def may_be_accepted(schema: JSONSchema, value: Any) -> bool:
    """Whether a value that the schema refuses may be accepted all the same."""
    # International labels are taken on trust: we carry no tables of IDNA 2008.
    return schema.get("format") == "email" and "xn--" in str(value).lower()


# ---- schemas ------------------------------------------------------------------------

texts = st.text(max_size=6)
plain_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = (
    st.integers(-5, 5)
    | st.integers()
    | st.floats(-5, 5)
    | st.floats()
    | st.sampled_from(
        [0.0, -0.0, 1.0, 0.1, 2.0**53, 2**53, 2**53 - 1, 2**53 + 1, 1e300, 10**400]
    )
)
bounds = st.integers(-5, 5) | st.floats(-5, 5) | st.sampled_from([0.1, 2**53, -1e300])
choices = st.lists(plain_texts, min_size=1, max_size=4, unique=True)


def optionally(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[JSONSchema]:
    return st.fixed_dictionaries({}, optional=keywords)


def titled(values: list[str]) -> list[JSONSchema]:
    return [{"const": value, "title": f"{value}!"} for value in values]


labels = optionally(title=plain_texts, description=plain_texts)
lengths = st.integers(0, 5)
kinds: st.SearchStrategy[JSONSchema] = st.one_of(
    optionally(minLength=lengths, maxLength=lengths).map(
        lambda more: {"type": "string", **more}
    ),
    st.sampled_from(["date", "date-time", "email", "uri"]).map(
        lambda format_: {"type": "string", "format": format_}
    ),
    st.builds(
        lambda type_, more: {"type": type_, **more},
        st.sampled_from(["integer", "number"]),
        optionally(minimum=bounds, maximum=bounds),
    ),
    st.just({"type": "boolean"}),
    choices.map(lambda values: {"type": "string", "enum": values}),
    choices.map(lambda values: {"type": "string", "oneOf": titled(values)}),
    st.builds(
        lambda items, more: {"type": "array", "items": items, **more},
        choices.map(lambda values: {"type": "string", "enum": values})
        | choices.map(lambda values: {"anyOf": titled(values)}),
        optionally(minItems=lengths, maxItems=lengths),
    ),
)
properties = st.builds(lambda kind, more: {**kind, **more}, kinds, labels)


@st.composite
def forms(draw: st.DrawFn) -> JSONSchema:
    made = draw(st.dictionaries(plain_texts, properties, max_size=4))
    required = [name for name in made if draw(st.booleans())]
    return {"type": "object", "properties": made, "required": required}


# ---- answers ------------------------------------------------------------------------

junk: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    texts,
    st.sampled_from(["", "1", "\ud800", "2026-07-28", [], {}, [[]], [None], ["a"]]),
    st.lists(texts, max_size=2),
    st.dictionaries(texts, texts, max_size=1),
)

SEEDS = {
    "date": ["2026-07-28", "0000-01-01", "2024-02-29", "9999-12-31"],
    "date-time": [
        "2026-07-28T09:30:00Z",
        "2016-12-31T23:59:60z",
        "2016-12-31t15:59:60.5-08:00",
        "0000-12-31T00:00:00.123456789+23:59",
    ],
    "email": [
        "ann.lee+x@mail.example.com",
        '"a \\" b"@c',
        "a@[127.0.0.1]",
        "a@[IPv6:2001:db8::1]",
        "a@xn--bcher-kva.c",
        "x" * 64 + "@" + ".".join(["b" * 62] * 4),
    ],
    "uri": [
        "https://ann:x@example.com:80/a/b?q=1#top",
        "http://[::ffff:1.2.3.4]:80",
        "http://[v1.a:b]",
        "urn:isbn:0",
        "a:/b%20c",
    ],
}
SPICE = '0123456789-+:.TtZz @"\\[]/?#%,_aüx\n\u0661'


@st.composite
def misspelt(draw: st.DrawFn, format_: str) -> str:
    """A value of the format, with a few characters changed."""
    text = draw(st.sampled_from(SEEDS[format_]))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 2))
        text = text[:at] + draw(st.sampled_from(["", *SPICE])) + text[at + cut :]
    return text


def near(schema: JSONSchema) -> st.SearchStrategy[Any]:
    """Values that might well fit."""
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer" | "number":
            return numbers
        case "array":
            return st.lists(st.sampled_from(choices_of(schema["items"])), max_size=6)
        case _ if "format" in schema:
            return misspelt(schema["format"])
        case _ if "enum" in schema or "oneOf" in schema:
            return st.sampled_from(choices_of(schema))
        case _:
            return texts


def choices_of(schema: JSONSchema) -> list[str]:
    if "enum" in schema:
        return list(schema["enum"])
    return [one["const"] for one in schema.get("oneOf") or schema["anyOf"]]


@st.composite
def answers(draw: st.DrawFn, schema: JSONSchema) -> JSONSchema:
    """Mostly fitting, so that some are accepted as a whole."""
    content = {"more": draw(st.none() | plain_texts)} if draw(st.booleans()) else {}
    for name, property_ in schema["properties"].items():
        way = draw(st.integers(0, 9))
        if way:
            content[name] = draw(near(property_) if way > 1 else junk)
    return content


# ---- the law, over raw schemas ------------------------------------------------------


def made_of(schema: JSONSchema) -> Form[Any]:
    try:
        return form_of(schema)
    except FormError:  # bounds that nothing fits, and the like
        assume(False)
        raise


def hold_to_the_law(made: Form[Any], content: Any) -> None:
    properties = made.schema["properties"]
    if accepts(made, content) == referee(dict(made.schema))(content):
        return
    known = [
        (properties[name], content[name]) for name in content if name in properties
    ]
    if accepts(made, content):
        assert any(may_be_accepted(*one) for one in known), "refused by the schema"
    else:
        assert any(may_be_refused(*one) for one in known), "admitted by the schema"


@given(st.data(), forms())
def test_law(data: st.DataObject, schema: JSONSchema) -> None:
    hold_to_the_law(made_of(schema), data.draw(answers(schema)))


properties_and_values = properties.flatmap(
    lambda property_: st.tuples(st.just(property_), near(property_) | junk)
)
STRING: JSONSchema = {"type": "string"}
INTEGER: JSONSchema = {"type": "integer"}
NUMBER: JSONSchema = {"type": "number"}
CHOICE: JSONSchema = {"type": "string", "enum": ["1", "a"]}
CHOICES: JSONSchema = {"type": "array", "items": CHOICE}
DAY: JSONSchema = {"type": "string", "format": "date"}
MOMENT: JSONSchema = {"type": "string", "format": "date-time"}
EMAIL: JSONSchema = {"type": "string", "format": "email"}
URI: JSONSchema = {"type": "string", "format": "uri"}


@given(properties_and_values)
@example((INTEGER, True))
@example((NUMBER, False))
@example((INTEGER, 1.0))
@example((INTEGER, -0.0))
@example((INTEGER, 1e300))
@example((INTEGER, 10**30))
@example((INTEGER, 2**53))
@example((INTEGER, 2**64))
@example((INTEGER, -(2**53) + 1))
@example((INTEGER, math.nan))
@example((NUMBER, math.inf))
@example((NUMBER, 10**400))
@example((NUMBER, 2**53 + 1))
@example(({**NUMBER, "maximum": 2**53}, 2**53 + 1))
@example(({**NUMBER, "minimum": 2.0**53}, 2**53 + 1))
@example(({**NUMBER, "maximum": 0.1}, 0.1))
@example(({**INTEGER, "minimum": 0.5}, 0))
@example(({**INTEGER, "maximum": 1.5}, 2))
@example(({**STRING, "maxLength": 1}, "\N{GRINNING FACE}"))
@example(({**STRING, "maxLength": 1}, "e\u0301"))
@example((STRING, "\ud800"))
@example((STRING, ""))
@example((STRING, None))
@example((CHOICE, ""))
@example((CHOICE, 1))
@example((CHOICE, ["a"]))
@example(({**STRING, "enum": ["\u00e9"]}, "e\u0301"))
@example((CHOICES, ["a", "a"]))
@example((CHOICES, [["a"]]))
@example((CHOICES, [1]))
@example((DAY, ""))
@example((DAY, "20260728"))
@example((DAY, "2026-W30"))
@example((DAY, "\u0662\u0660\u0662\u0666-07-28"))
@example((DAY, "2026-07-28\n"))
@example((DAY, "0000-01-01"))
@example((DAY, "2026-0+-28"))
@example((MOMENT, "2026-07-28T24:00:00Z"))
@example((MOMENT, "2026-07-28T09:30:00+24:00"))
@example((MOMENT, "2026-07-28T09:30:00+0100"))
@example((MOMENT, "2026-07-28T09:30:00,5Z"))
@example((MOMENT, "2026-07-28 09:30:00Z"))
@example((MOMENT, "2026-07-28T09:30:00"))
@example((MOMENT, "2026-07-28t09:30:00z"))
@example((MOMENT, "2026-07-28T09:30:00.123456789Z"))
@example((MOMENT, "0000-01-01T00:00:00Z"))
@example((MOMENT, "2026-07-28T09:3-:00Z"))
@example((MOMENT, "2016-12-31T23:59:60Z"))
@example((MOMENT, "2016-12-31T15:59:60-08:00"))
@example((MOMENT, "2016-12-31T15:59:60Z"))
@example((EMAIL, "a@b"))
@example((EMAIL, '"a b"@c.d'))
@example((EMAIL, '"a <b"@c.d'))
@example((EMAIL, "a b@c.d"))
@example((EMAIL, "a@[127.0.0.1]"))
@example((EMAIL, "a@ab--c"))
@example((EMAIL, "a@xn--zzzzzzzzzz999999"))
@example((EMAIL, "x" * 65 + "@b"))
@example((EMAIL, '"' + "x" * 40 + "@" + "x" * 40 + '"@b'))
@example((EMAIL, "ü@b.c"))
@example((EMAIL, "a@b.c\n"))
@example((URI, "/page"))
@example((URI, "http:"))
@example((URI, "http://[::01.2.3.4]"))
def test_law_of_one_property(pair: tuple[JSONSchema, Any]) -> None:
    """Every corner where Python and JSON Schema disagree, and then at random."""
    property_, value = pair
    schema = {"type": "object", "properties": {"value": property_}}
    hold_to_the_law(made_of(schema), {"value": value})


@given(
    st.sampled_from(sorted(SEEDS)).flatmap(lambda f: st.tuples(st.just(f), misspelt(f)))
)
def test_law_of_formats(pair: tuple[str, str]) -> None:
    format_, text = pair
    property_ = {"type": "string", "format": format_}
    schema = {"type": "object", "properties": {"value": property_}}
    hold_to_the_law(form_of(schema), {"value": text})


@given(junk)
def test_law_of_values_other_than_objects(content: Any) -> None:
    """Null is excluded: a client without fields may leave `content` out."""
    assume(content is not None)
    made = form_of({"type": "object", "properties": {}})
    assert accepts(made, content) == isinstance(content, dict)


@given(forms())
def test_schema_is_one(schema: JSONSchema) -> None:
    """The client is shown the author's schema, which is valid JSON Schema."""
    made = made_of(schema)
    assert made.schema == schema
    jsonschema_rs.meta.validate(schema)


# ---- attrs classes ------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"
    CRIMSON = "red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


#: What to do about a type that fails.
UNBUILD = "forms/types.py: how is its default written (unbuild)?"
SHOW = (
    "shapes/constraints.py: publish() may show a limit only if a schema"
    " judges what is sent exactly as the class judges what is built"
)


def odd(instance: Any, attribute: Any, value: Any) -> None:
    if value % 2 == 0:
        raise ValueError("must be odd")


def to_wire(value: Any) -> Any:
    """As a client would send it."""
    match value:
        case list():
            return [to_wire(item) for item in value]
        case dt.date():  # and datetime, which is one
            return value.isoformat()
        case Colour():
            return value.value
        case Level():
            return value.name
        case _:
            return value


def as_javascript(value: Any) -> Any:
    """JSON has one kind of number, and a client may write it either way."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is int:
        return float(value)
    return value


zones = st.integers(-1439, 1439).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
values_of: dict[Any, st.SearchStrategy[Any]] = {
    str: plain_texts,
    int: st.integers(-9, 9) | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER),
    # Added, -0.0 becomes 0.0, which is what JavaScript writes for it.
    float: (st.floats(-9, 9) | st.floats(allow_nan=False, allow_infinity=False)).map(
        lambda number: number + 0.0
    ),
    bool: st.booleans(),
    dt.date: st.dates(),
    dt.datetime: st.datetimes(timezones=zones | st.just(dt.UTC)).map(
        lambda moment: moment.replace(fold=0)  # means nothing at a fixed offset
    ),
    Literal["a", "b", "cc"]: st.sampled_from(["a", "b", "cc"]),
    Colour: st.sampled_from(Colour),
    Level: st.sampled_from(Level),
    list[Literal["a", "b"]]: st.lists(st.sampled_from(["a", "b"]), max_size=4),
    list[Level]: st.lists(st.sampled_from(Level), max_size=4),
}
rules_of: dict[Any, list[Any]] = {
    str: [min_len(1), max_len(4), matches_re(r"[a-z\d]*"), in_({"a", "b", ""})],
    int: [ge(-3), le(3.5), gt(-2.5), lt(5), in_([1, 2, 3]), in_(range(4)), odd],
    float: [ge(-3), le(3.5), gt(0), lt(5.5), in_([0.0, 1.5])],
    dt.date: [ge(dt.date(2000, 1, 1)), in_([dt.date(2026, 7, 28)])],
    Literal["a", "b", "cc"]: [in_(["a", "cc"]), max_len(1)],
    Colour: [in_([Colour.RED])],
    list[Literal["a", "b"]]: [min_len(1), max_len(3)],
    list[Level]: [min_len(1), max_len(3)],
}


@st.composite
def attributes(draw: st.DrawFn) -> tuple[Any, Any, dict[str, Any]]:
    """A type, the annotation around it, and the options of the attribute."""
    type_ = draw(st.sampled_from(list(values_of)))
    known = rules_of.get(type_, [])
    rules = draw(st.lists(st.sampled_from(known), max_size=2)) if known else []
    options: dict[str, Any] = {"kw_only": True, "validator": rules or None}
    annotation = type_
    if draw(st.booleans()):
        annotation = type_ | None
        options["validator"] = optional(rules) if rules else None
        options["default"] = None
    elif draw(st.integers(0, 2)) == 0:
        options["default"] = draw(values_of[type_])
    return type_, annotation, options


def one_field(type_: Any, **options: Any) -> Any:
    """Return a class with one field, `value`."""
    class_ = attrs.make_class("OneField", {"value": attrs.field(**options)})
    class_.__annotations__ = {"value": type_}
    return class_


@st.composite
def classes(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    """A class, and the bare type of each of its fields."""
    drawn = draw(st.lists(attributes(), max_size=4))
    names = [f"{'_' * (at % 2)}x{at}" for at in range(len(drawn))]
    class_ = attrs.make_class(
        "Drawn",
        {name: attrs.field(**one[2]) for name, one in zip(names, drawn, strict=True)},
    )
    annotations = {name: one[1] for name, one in zip(names, drawn, strict=True)}
    class_.__annotations__ = annotations
    try:
        form_of(class_)
    except FormError:  # a default that its validators refuse, and the like
        assume(False)
    return class_, {
        name.lstrip("_"): one[0] for name, one in zip(names, drawn, strict=True)
    }


def as_python(type_: Any, wire: Any) -> Any:
    """Convert a wire value for the class, independently of the form."""
    if type_ is dt.date:
        return dt.date.fromisoformat(wire)
    if type_ is dt.datetime:
        return dt.datetime.fromisoformat(wire.upper())
    if type_ in (Colour, float):
        return type_(wire)
    if type_ is Level:
        return Level[wire]
    if type_ == list[Level]:
        return [Level[name] for name in wire]
    return int(wire) if type_ is int else wire


@given(st.data(), classes())
def test_law_of_classes(data: st.DataObject, drawn: tuple[Any, dict[str, Any]]) -> None:
    """Values that the schema refuses are refused; the class checks the others."""
    class_, types = drawn
    made = form_of(class_)
    content: dict[str, Any] = {}
    for name, type_ in types.items():
        if data.draw(st.integers(0, 4)):
            wire = values_of[type_].map(to_wire)
            content[name] = data.draw(st.one_of(wire, wire.map(as_javascript), junk))
    if not referee(dict(made.schema))(content):
        assert not accepts(made, content)
        return
    properties = made.schema["properties"]
    if any(may_be_refused(properties[name], content[name]) for name in content):
        return
    values = {name: as_python(types[name], wire) for name, wire in content.items()}
    try:
        expected = class_(**values)
    except (ValueError, TypeError):
        # An extra: every complaint carries its field's name.
        with pytest.raises(Unfit) as caught:
            made.read(content)
        assert {problem.split(": ")[0] for problem in caught.value.problems} <= {*types}
        return
    assert made.build(made.read(content)) == expected


@given(st.data(), classes())
def test_round_trip(data: st.DataObject, drawn: tuple[Any, dict[str, Any]]) -> None:
    """A value that a client sends is the same after recording."""
    class_, types = drawn
    made = form_of(class_)
    values = {
        name: data.draw(values_of[type_])
        for name, type_ in types.items()
        if name in made.schema.get("required", ()) or data.draw(st.booleans())
    }
    try:
        expected = class_(**values)
    except (ValueError, TypeError):
        assume(False)
    change = data.draw(st.sampled_from([lambda value: value, as_javascript]))
    recorded = made.read({name: change(to_wire(v)) for name, v in values.items()})
    assert made.read(recorded) == recorded
    assert dumps(made.read(recorded)) == dumps(recorded)
    first, second = (made.build(loads(dumps(recorded))) for _ in range(2))
    assert repr(first) == repr(second) == repr(expected)


@given(st.data(), classes())
def test_build_shares_nothing(
    data: st.DataObject, drawn: tuple[Any, dict[str, Any]]
) -> None:
    """Two deliveries of one recorded answer have no list in common."""
    class_, types = drawn
    made = form_of(class_)
    content = {
        name: to_wire(data.draw(values_of[type_])) for name, type_ in types.items()
    }
    assume(accepts(made, content))
    recorded = made.read(content)
    first, second = made.build(recorded), made.build(recorded)
    assert first == second
    for attribute in attrs.fields(class_):
        one, two = getattr(first, attribute.name), getattr(second, attribute.name)
        assert one is not two or not isinstance(one, list)
        assert one is not recorded.get(attribute.alias) or not isinstance(one, list)


@given(st.data(), forms())
def test_raw_round_trip(data: st.DataObject, schema: JSONSchema) -> None:
    """`read` is idempotent, its result is JSON, and `build` gives a copy of it."""
    made = made_of(schema)
    content = data.draw(answers(schema))
    assume(accepts(made, content))
    recorded = made.read(content)
    assert dumps(made.read(recorded)) == dumps(recorded)
    first, second = made.build(recorded), made.build(recorded)
    assert first == second == recorded
    assert first is not second
    for name, value in recorded.items():
        if isinstance(value, list):
            assert first[name] is not second[name]
            assert first[name] is not value


@given(
    st.sampled_from(list(values_of)).flatmap(
        lambda t: st.tuples(st.just(t), values_of[t])
    )
)
def test_round_trip_of_one_field(pair: tuple[Any, Any]) -> None:
    annotation, value = pair
    made = form_of(annotation)
    recorded = made.read({"value": as_javascript(to_wire(value))})
    built = made.build(loads(dumps(recorded)))
    assert built == value
    assert type(built) is type(value)
    assert form_of(annotation | None).build(recorded) == value


@pytest.mark.parametrize("type_", values_of, ids=repr)
@given(st.data())
def test_default_of_each_type_is_shown(type_: Any, data: st.DataObject) -> None:
    value = data.draw(values_of[type_])
    class_ = one_field(type_, default=value)
    try:
        shown = form_of(class_).schema["properties"]["value"]["default"]
    except FormError as exc:
        raise AssertionError(UNBUILD) from exc
    assert shown == to_wire(value), UNBUILD


@pytest.mark.parametrize(
    ("type_", "rule"), [(type_, rule) for type_ in rules_of for rule in rules_of[type_]]
)
def test_validator_is_shown_only_if_the_class_judges_alike(
    type_: Any, rule: Any
) -> None:
    """At its own bound, where a schema and Python differ first."""
    bare, made = form_of(type_), form_of(class_ := one_field(type_, validator=rule))
    admits = referee(dict(made.schema))
    (field,) = made.fields
    corners = [one for one in corners_of(rule) if accepts(bare, {"value": one})]
    assert corners, "corners_of has nothing for this type; does to_wire know it?"
    for wire in corners:
        try:
            class_(value=as_python(type_, wire))
        except ValueError:
            is_valid = False
        else:
            is_valid = True
        assert accepts(made, {"value": wire}) == is_valid, (wire, SHOW)
        if is_valid or not field.extras:
            assert admits({"value": wire}) == is_valid, (wire, SHOW)


def corners_of(rule: Any) -> list[Any]:
    """Values where a rule begins to refuse, as clients may send them, for any type."""
    match known_name(rule):
        case "_NumberValidator" if isinstance(rule.bound, (int, float)):
            near = (math.floor(rule.bound), math.ceil(rule.bound), rule.bound)
            found = [one + more for one in near for more in (-1, 0, 1)]
            found += [math.nextafter(rule.bound, end) for end in (-math.inf, math.inf)]
            return found + [str(one) for one in found]
        case "_NumberValidator":
            return [to_wire(rule.bound)]
        case "_MinLengthValidator":
            return lengths_near(rule.min_length)
        case "_MaxLengthValidator":
            return lengths_near(rule.max_length)
        case "_InValidator":
            return [*map(to_wire, rule.options), "b", 0]
        case _:
            return ["", "a", "A", 0, 1]


def lengths_near(length: int) -> list[Any]:
    items: list[Any] = ["a", "c", ["a"], [Level.LOW.name]]
    return [item * (length + more) for item in items for more in (-1, 0, 1)]


@given(st.permutations(["a", "b", "c"]))
def test_text_of_choices_in_any_order(order: list[str]) -> None:
    made = form_of(Literal[tuple(order)])
    assert made.schema["properties"]["value"]["enum"] == order
    assert made.text == form_of(Literal["a", "b", "c"]).text


HANDLERS = Path(__file__).parents[2] / "docs" / "handlers.md"


@pytest.mark.parametrize("type_", values_of, ids=repr)
def test_each_type_is_in_the_lists_for_authors(type_: Any) -> None:
    name = (get_origin(type_) or type_).__name__
    if isinstance(type_, enum.EnumMeta):
        name = "Enum"
    elif get_origin(type_) is Literal:
        name = "Literal"
    text = HANDLERS.read_text("utf-8").partition("\n## Forms\n")[2]
    listed = text.partition("```")[0]
    assert f"`{name}`" in listed, "add it to the list in docs/handlers.md, Forms"
    assert f"`{name}`" in str(Elicit.__doc__), "add it to the docstring of Elicit"
    advice = _advice(bytes)
    assert re.search(rf"\b{name}\b", advice), "add it to _advice of forms/types.py"
