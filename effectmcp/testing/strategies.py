"""Hypothesis strategies for the answers and arguments that clients may send.

    @given(answers_for(Guest))
    def test_guests(answer): ...

Drawn values are valid. They are made from the published schema, narrowed by those
validators of attrs that a schema cannot express; values that author-defined code
refuses are drawn again. Everything shrinks to the simplest valid value. A validator
that random values rarely satisfy needs your own strategy: `contents_for(Guest,
code=st.just("A-113"))`.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hypothesis import strategies as st

from ..canonical import JSON, MAX_SAFE_INTEGER
from ..effects.questions import (
    Accepted,
    Confirm,
    Elicit,
    ElicitUrl,
    ListRoots,
    Sample,
)
from ..errors import ArgumentsError, UsageError
from ..forms.form import Form, Unfit, form_of
from ..schema.arguments import Arguments, input_of
from ..schema.checks import equality_key
from ..schema.written import written
from ..shapes.constraints import Bound, Options, Pattern
from ..shapes.plain import PATTERNS
from .values import plain

if TYPE_CHECKING:
    from ..forms.fields import Field
    from ..server.handlers import RawArguments

__all__ = [
    "answers_for",
    "arguments_for",
    "arguments_of",
    "contents_for",
    "roots",
    "sampled",
    "values_for",
]

Strategy: TypeAlias = st.SearchStrategy[Any]
Schema: TypeAlias = Mapping[str, JSON]

_NONE: Final[Mapping[str, Strategy]] = {}
#: Depth of recursive classes at which drawing turns to their shortest form.
_DEPTH: Final = 4
#: Most characters and items that a value gets beyond its minimum.
_MORE_TEXT: Final = 20
_MORE_ITEMS: Final = 3

_CHARACTERS: Final = st.characters(exclude_categories=["Cs"])
_TEXT: Final = st.text(_CHARACTERS, max_size=_MORE_TEXT)
_NAME: Final = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
_HOST: Final = st.sampled_from(["example.com", "example.org", "shop.example"])
_ANYTHING: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3)
    ),
    max_leaves=5,
)


# ---- values of a schema -------------------------------------------------------------


def values_for(schema: Schema) -> Strategy:
    """Return a strategy for JSON that fits `schema`.

    The schema must be one of a form, or written by effectmcp.

    Raises:
        UsageError: If the schema has keywords that no such schema has.
    """
    return _of(schema, schema.get("$defs", {}), _DEPTH)


def _of(schema: Schema, defs: Schema, room: int) -> Strategy:
    unknown = schema.keys() - _KEYWORDS
    if unknown:
        raise UsageError(
            f"no values can be drawn for {', '.join(sorted(unknown))} in a schema; give"
            " a strategy of your own"
        )
    if "$ref" in schema:
        return st.deferred(lambda: _of(_referred(schema, defs), defs, room - 1))
    if "anyOf" in schema:
        parts = schema["anyOf"]
        if room < 0:
            least = min(_height(one, defs) for one in parts)
            parts = [one for one in parts if _height(one, defs) == least]
        return st.one_of([_of(one, defs, room) for one in parts])
    if "oneOf" in schema:
        return st.sampled_from([choice["const"] for choice in schema["oneOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return _MAKERS[schema.get("type")](schema, defs, room)


def _referred(schema: Schema, defs: Schema) -> Schema:
    found: Schema = defs[schema["$ref"].removeprefix("#/$defs/")]
    return found


def _height(schema: Schema, defs: Schema, above: frozenset[str] = frozenset()) -> float:
    """Return the least number of nested classes that a value can have."""
    if "$ref" in schema:
        if schema["$ref"] in above:
            return math.inf
        inside = _referred(schema, defs)
        return 1 + _height(inside, defs, above | {schema["$ref"]})
    if "anyOf" in schema:
        return min(_height(one, defs, above) for one in schema["anyOf"])
    parts = list(schema.get("prefixItems", ()))
    if schema.get("minItems") and isinstance(schema.get("items"), dict):
        parts.append(schema["items"])
    parts += [schema["properties"][name] for name in schema.get("required", ())]
    return max((_height(one, defs, above) for one in parts), default=0)


def _integers(schema: Schema, defs: Schema, room: int) -> Strategy:
    low, high = -MAX_SAFE_INTEGER, MAX_SAFE_INTEGER
    if "minimum" in schema:
        low = max(low, math.ceil(schema["minimum"]))
    if "exclusiveMinimum" in schema:
        low = max(low, math.floor(schema["exclusiveMinimum"]) + 1)
    if "maximum" in schema:
        high = min(high, math.floor(schema["maximum"]))
    if "exclusiveMaximum" in schema:
        high = min(high, math.ceil(schema["exclusiveMaximum"]) - 1)
    factor = schema.get("multipleOf", 1)
    low, high = -(-low // factor), high // factor
    numbers = st.integers(low, high) if low <= high else st.nothing()
    return numbers if factor == 1 else numbers.map(lambda number: number * factor)


def _numbers(schema: Schema, defs: Schema, room: int) -> Strategy:
    lows = [_float_from(schema[key], math.inf) for key in _LOWEST if key in schema]
    highs = [_float_from(schema[key], -math.inf) for key in _HIGHEST if key in schema]
    if "exclusiveMinimum" in schema:
        lows.append(_beyond(schema["exclusiveMinimum"], math.inf))
    if "exclusiveMaximum" in schema:
        highs.append(_beyond(schema["exclusiveMaximum"], -math.inf))
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and low > high:
        return st.nothing()
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


_LOWEST: Final = ("minimum", "exclusiveMinimum")
_HIGHEST: Final = ("maximum", "exclusiveMaximum")


def _float_from(bound: float, inwards: float) -> float:
    """Return the first float from `bound` on, because not every integer is a float."""
    # The addition turns -0.0 into 0.0: Hypothesis orders the two.
    found = float(bound) + 0.0
    is_outside = found < bound if inwards > 0 else found > bound
    return math.nextafter(found, inwards) if is_outside else found


def _beyond(bound: float, inwards: float) -> float:
    found = _float_from(bound, inwards)
    return math.nextafter(found, inwards) if found == bound else found


def _strings(schema: Schema, defs: Schema, room: int) -> Strategy:
    low, high = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if low > high:
        return st.nothing()
    if "pattern" in schema:
        made = _PATTERNS.get(schema["pattern"])
        if made is None:
            raise UsageError("no values can be drawn for a pattern of your own")
    elif "format" in schema:
        made = _FORMATS[schema["format"]](low, high)
    else:
        # Long strings are padded, not drawn to the last character.
        drawn = st.text(
            _CHARACTERS,
            min_size=min(low, _MORE_TEXT),
            max_size=min(high, low + _MORE_TEXT, 2 * _MORE_TEXT),
        )
        return drawn.map(lambda text: text.ljust(low, "0"))
    return made.filter(lambda text: low <= len(text) <= high)


def _emails(low: int, high: float) -> Strategy:
    if high < 20:
        return _NAME.map(lambda name: f"{name[: max(1, int(high) - 2)]}@b")
    long = low - len("@shop.example")
    return st.builds(lambda name, host: f"{name.ljust(long, 'x')}@{host}", _NAME, _HOST)


def _uris(low: int, high: float) -> Strategy:
    if high < 29:
        return _NAME.map(lambda name: f"a:{name}"[: int(high)].ljust(low, "x"))
    made = st.builds("https://{}/{}".format, _HOST, _NAME)
    return made.map(lambda uri: uri.ljust(low, "x"))


#: The simplest date, and dates that handlers often get wrong.
_DAYS: Final = st.sampled_from(
    [dt.date(2000, 1, 1), dt.date(2024, 2, 29), dt.date(2025, 12, 31)]
)

_FORMATS: Final[Mapping[str, Callable[[int, float], Strategy]]] = {
    "date": lambda low, high: (_DAYS | st.dates()).map(dt.date.isoformat),
    "date-time": lambda low, high: st.datetimes(timezones=st.just(dt.UTC)).map(
        dt.datetime.isoformat
    ),
    "email": _emails,
    "uri": _uris,
    # Unlike st.uuids(), these shrink.
    "uuid": lambda low, high: st.integers(0, 2**128 - 1).map(
        lambda number: str(uuid.UUID(int=number))
    ),
}
_PATTERNS: Final[Mapping[str, Strategy]] = dict(
    zip(
        PATTERNS,
        (
            st.times().map(dt.time.isoformat),
            st.decimals(-(10**9), 10**9, places=2).map(str),
            st.binary(max_size=8).map(bytes.hex),
        ),
        strict=True,
    )
)


def _arrays(schema: Schema, defs: Schema, room: int) -> Strategy:
    if "prefixItems" in schema:
        items = [_of(one, defs, room - 1) for one in schema["prefixItems"]]
        return st.tuples(*items).map(list)
    low, high = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    most = low if room < 0 else low + _MORE_ITEMS
    if low > high:
        return st.nothing()
    return st.lists(
        _of(schema.get("items") or {}, defs, room - 1),
        min_size=low,
        max_size=min(high, most),
        unique_by=equality_key if schema.get("uniqueItems") else None,
    )


def _objects(schema: Schema, defs: Schema, room: int) -> Strategy:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if not properties and others is not False:
        low = schema.get("minProperties", 0)
        high = schema.get("maxProperties", math.inf)
        most = low if room < 0 else low + _MORE_ITEMS
        if low > high:
            return st.nothing()
        return st.dictionaries(
            _of(schema.get("propertyNames", {"type": "string"}), defs, room),
            _of(others if isinstance(others, dict) else {}, defs, room - 1),
            min_size=low,
            max_size=min(high, most),
        )
    made = {name: _of(one, defs, room - 1) for name, one in properties.items()}
    return _record(made, schema.get("required", ()), has_room=room >= 0)


def _record(
    made: Mapping[str, Strategy], required: Iterable[str], *, has_room: bool = True
) -> Strategy:
    needed = {name: made[name] for name in required}
    # Deep inside, optional properties are left out.
    others = {name: one for name, one in made.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional=others if has_room else {})


_MAKERS: Final[Mapping[Any, Callable[[Schema, Schema, int], Strategy]]] = {
    None: lambda schema, defs, room: _ANYTHING,
    "null": lambda schema, defs, room: st.none(),
    "boolean": lambda schema, defs, room: st.booleans(),
    "integer": _integers,
    "number": _numbers,
    "string": _strings,
    "array": _arrays,
    "object": _objects,
}

_KEYWORDS: Final = frozenset(
    {
        *("$schema", "$defs", "$ref", "title", "description", "default", "enumNames"),
        *("x-mcp-header", "type", "enum", "const", "oneOf", "anyOf", *_LOWEST),
        *(*_HIGHEST, "minLength", "maxLength", "format", "pattern", "contentEncoding"),
        *("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "properties"),
        *("required", "additionalProperties", "propertyNames", "minProperties"),
        *("maxProperties", "multipleOf"),
    }
)


# ---- answers ------------------------------------------------------------------------


def contents_for(form: Any, **fields: Strategy) -> st.SearchStrategy[dict[str, JSON]]:
    """Return a strategy for contents that a client may send for a form, and that fit.

    Args:
        form: A form, or a class, a type or a raw schema to make a form of.
        **fields: Your own strategies for some of its fields. They draw the values that
            the class has.
    """
    made: Form[Any] = form if isinstance(form, Form) else form_of(form)
    _check_names(fields, {field.name for field in made.fields})
    drawn = {
        field.name: _field(made, field, fields.get(field.name)) for field in made.fields
    }
    required = [field.name for field in made.fields if field.required]
    # Check the whole again, because a class may compare one field with another.
    return _record(drawn, required).filter(lambda content: not _unfit(made, content))


def _field(form: Form[Any], field: Field, given: Strategy | None) -> Strategy:
    drawn = _narrowed(field) if given is None else given.map(plain)
    here = f"{field.name}: "
    # Check each field alone, so that one refused field does not redraw the whole.
    return drawn.filter(
        lambda value: (
            not any(
                problem.startswith(here)
                for problem in _unfit(form, {field.name: value})
            )
        )
    )


def _unfit(form: Form[Any], content: dict[str, JSON]) -> list[str]:
    try:
        form.read(content)
    except Unfit as exc:
        return exc.problems
    return []


def _narrowed(field: Field) -> Strategy:
    """Return a strategy for a field, by its schema and by limits that it lacks."""
    schema = dict(field.schema)
    bounds: dict[str, Any] = {}
    for rule in field.rules:
        if rule.is_hidden:
            continue
        match rule.constraint:
            case Options(options=options, listed=listed) if _is_open(schema):
                if isinstance(options, Collection) and not isinstance(options, str):
                    if not isinstance(options, range):
                        options = listed or list(options)
                    return st.sampled_from(options).map(plain)
            case Pattern() as pattern:
                expression = re.compile(pattern.pattern)
                is_full = getattr(pattern.matches, "__name__", "") == "fullmatch"
                return st.from_regex(expression, fullmatch=is_full)
            case Bound(op=operator, value=bound):
                _tighten(bounds, operator, bound)
            case _:
                pass
    low, high = bounds.get(">"), bounds.get("<")
    if schema.get("format") == "date":
        dates = st.dates(low or dt.date.min, high or dt.date.max)
        return dates.map(dt.date.isoformat)
    if schema["type"] == "number" and bounds:
        if low is not None:
            schema["minimum"] = low
        if high is not None:
            schema["maximum"] = high
    return values_for(schema)


def _is_open(schema: Schema) -> bool:
    return "enum" not in schema and "oneOf" not in schema


def _tighten(bounds: dict[str, Any], operator: str, bound: Any) -> None:
    side, pick = operator[0], max if operator[0] == ">" else min
    bounds[side] = pick(bounds.get(side, bound), bound)


def sampled(
    text: st.SearchStrategy[str] = _TEXT,
) -> st.SearchStrategy[dict[str, JSON]]:
    """Return a strategy for the results of a client's model (`CreateMessageResult`).

    Args:
        text: A strategy for the text of the model.
    """
    return st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": text.map(lambda one: {"type": "text", "text": one}),
            "model": st.just("test-model"),
        },
        optional={"stopReason": st.sampled_from(["endTurn", "maxTokens"])},
    )


def roots() -> st.SearchStrategy[dict[str, JSON]]:
    """Return a strategy for a client's roots (`ListRootsResult`)."""
    root = st.fixed_dictionaries(
        {"uri": _NAME.map("file:///{}".format)}, optional={"name": _NAME}
    )
    return st.lists(root, max_size=3).map(lambda found: {"roots": found})


def answers_for(request: Any, **fields: Strategy) -> st.SearchStrategy[Accepted[Any]]:
    """Return a strategy for answers that accept a question, as a client sends them.

    Args:
        request: A question; or a form's class, type or schema.
        **fields: As for `contents_for`.
    """
    match request:
        case Confirm() | ElicitUrl():
            contents: Strategy = st.sampled_from([{}, None])
        case Sample():
            contents = sampled()
        case ListRoots():
            contents = roots()
        case Elicit():
            return contents_for(request.spec, **fields).map(Accepted)
        case _:
            return contents_for(request, **fields).map(Accepted)
    _check_names(fields, ())
    return contents.map(Accepted)


# ---- arguments ----------------------------------------------------------------------


def arguments_for(
    function: Callable[..., Any], **parameters: Strategy
) -> st.SearchStrategy[dict[str, JSON]]:
    """Return a strategy for arguments that a client may call a tool with, as JSON.

    Args:
        function: The tool's function.
        **parameters: Your own strategies for some of its parameters. They draw the
            values that the function receives.
    """
    return arguments_of(input_of(function), parameters)


def arguments_of(
    takes: Arguments | RawArguments, parameters: Mapping[str, Strategy] = _NONE
) -> st.SearchStrategy[dict[str, JSON]]:
    """Return a strategy for arguments that fit a handler; see `arguments_for`."""
    schema = takes.schema
    properties = schema.get("properties", {})
    _check_names(parameters, properties)

    def drawn(name: str) -> Strategy:
        if name in parameters:
            return parameters[name].map(lambda value: written(value)[0])
        here = re.compile(rf"{re.escape(name)}[:.\[]")
        values = _of(properties[name], schema.get("$defs", {}), _DEPTH)
        return values.filter(
            lambda value: not any(map(here.match, problems({name: value})))
        )

    def problems(arguments: dict[str, JSON]) -> list[str]:
        try:
            takes.read(arguments)
        except ArgumentsError as exc:
            return list(exc.problems)
        return []

    made = {name: drawn(name) for name in properties}
    return _record(made, schema.get("required", ())).filter(
        lambda one: not problems(one)
    )


def _check_names(given: Mapping[str, Strategy], known: Iterable[str]) -> None:
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise UsageError(f"there is no field or parameter {', '.join(unknown)}")
