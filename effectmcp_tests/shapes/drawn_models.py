"""Classes with limits, drawn from a seed, in the words of every source.

A `Model` says what its values are; `admits` judges a value by that alone. `classes_of`
writes the model as a class of each source. The schema, the arguments and the form of each
class must judge as `admits` does.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import annotated_types as at
import attrs
import msgspec
import pydantic
from attrs import field, frozen

__all__ = ["Drawn", "Model", "admits", "classes_of", "draw_model", "draw_value"]

MISSING: Any = object()
SAFE = 2**53 - 1
DAY = dt.date(2026, 7, 28)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


#: A kind of field: its type, and the limits that it may have.
KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "int": (int, ("gt", "ge", "lt", "le", "multiple_of")),
    "float": (float, ("gt", "ge", "lt", "le")),
    "str": (str, ("min_length", "max_length")),
    "bool": (bool, ()),
    "date": (dt.date, ("ge",)),
    "choice": (Literal["a", "b"], ()),
    "enum": (Colour, ()),
    "chosen": (list[Literal["a", "b"]], ("min_length", "max_length")),
    "strs": (list[str], ("min_length", "max_length")),
    "counts": (dict[str, int], ("min_length", "max_length")),
    "model": (None, ()),
}

#: What a form can ask for.
FLAT = {"int", "float", "str", "bool", "date", "choice", "enum", "chosen"}


@frozen
class Drawn:
    """A field of a drawn model."""

    name: str
    kind: str
    limits: Mapping[str, Any] = field(factory=dict)
    is_optional: bool = False
    default: Any = MISSING
    inside: Model | None = None


@frozen
class Model:
    """A drawn model."""

    name: str
    fields: tuple[Drawn, ...]

    @property
    def is_flat(self) -> bool:
        return all(one.kind in FLAT for one in self.fields)

    def is_said(self, *, by_attrs: bool) -> bool:
        """Whether a schema of arguments says all limits.

        It has no keyword for dates, and attrs has no validator of multiples.
        """
        return not any(
            (one.kind == "date" and one.limits)
            or (by_attrs and "multiple_of" in one.limits)
            or (one.inside is not None and not one.inside.is_said(by_attrs=by_attrs))
            for one in self.fields
        )


def draw_model(chance: Random, depth: int = 0) -> Model:
    """Draw a model, whose models nest at most twice."""
    fields = []
    for number in range(chance.randrange(1, 5)):
        kind = chance.choice([one for one in KINDS if one != "model" or depth < 2])
        limits = {
            name: _limit(chance, kind, name)
            for name in KINDS[kind][1]
            if chance.random() < 0.35
        }
        for exact, strict in (("ge", "gt"), ("le", "lt")):
            if exact in limits:
                limits.pop(strict, None)  # msgspec takes one of them
        made = Drawn(
            name=f"x{number}",
            kind=kind,
            limits=limits,
            is_optional=chance.random() < 0.25,
            inside=draw_model(chance, depth + 1) if kind == "model" else None,
        )
        fields.append(attrs.evolve(made, default=_default(chance, made)))
    # Fields with a default come last, as in Python.
    fields.sort(key=lambda one: one.default is not MISSING)
    return Model(f"Model{depth}", tuple(fields))


def _limit(chance: Random, kind: str, name: str) -> Any:
    if kind == "date":
        return DAY
    if name == "multiple_of":
        return chance.randrange(1, 4)
    # Limits that exclude every answer are refused in a form.
    if name.endswith("length"):
        return chance.randrange(2) if name[:3] == "min" else chance.randrange(1, 4)
    low = name in ("gt", "ge")
    whole = chance.randrange(-3, 1) if low else chance.randrange(3, 6)
    return whole if kind == "int" or chance.random() < 0.5 else whole + 0.5


def _default(chance: Random, made: Drawn) -> Any:
    if chance.random() < 0.6:
        return MISSING
    if made.is_optional:
        return None
    if made.kind in ("int", "float", "str", "bool"):
        for _ in range(5):
            value = _typed(chance, made)
            if _fits(made, value, is_form=True):
                return value
    return MISSING


# ---- values -------------------------------------------------------------------------


def draw_value(chance: Random, model: Model) -> dict[str, Any]:
    """Draw a value that fits the model, or nearly does."""
    value = {
        one.name: _typed(chance, one) if chance.random() < 0.9 else _odd(chance)
        for one in model.fields
        if chance.random() < 0.93
    }
    if chance.random() < 0.05:
        value["unknown"] = 1
    return value


def _typed(chance: Random, of: Drawn) -> Any:
    if of.is_optional and chance.random() < 0.2:
        return None
    match of.kind:
        case "int":
            return chance.choice([*range(-4, 7), 2.0, SAFE, -SAFE])
        case "float":
            return chance.choice([*range(-4, 6), 0.5, -0.5, 1.5, 4.5, 1e300])
        case "str":
            return "x" * chance.randrange(4)
        case "bool":
            return chance.random() < 0.5
        case "date":
            return chance.choice(["2026-07-27", "2026-07-28", "2027-01-01"])
        case "choice":
            return chance.choice("ab")
        case "enum":
            return chance.choice(["red", "blue"])
        case "chosen":
            return [chance.choice("ab") for _ in range(chance.randrange(4))]
        case "strs":
            return ["x" * chance.randrange(3) for _ in range(chance.randrange(4))]
        case "counts":
            return {f"k{n}": n for n in range(chance.randrange(4))}
        case _:
            assert of.inside is not None
            return draw_value(chance, of.inside)


def _odd(chance: Random) -> Any:
    return chance.choice(
        [None, True, 1, 0, 2.5, "", "c", "2026-02-30", "2026-7-1", [], ["c"], [1], {}]
        + [{"k": "v"}, {"k": 1.5}, "1", "red"]
    )


# ---- the rules ----------------------------------------------------------------------


def admits(model: Model, value: Any, *, is_form: bool = False) -> bool:
    """Whether the model's author would admit a value."""
    if type(value) is not dict:
        return False
    names = {one.name for one in model.fields}
    # A form ignores what it does not ask for.
    if not is_form and not value.keys() <= names:
        return False
    for one in model.fields:
        if one.name not in value:
            may_lack = one.default is not MISSING or (is_form and one.is_optional)
            if not may_lack:
                return False
        elif not _fits(one, value[one.name], is_form=is_form):
            return False
    return True


def _fits(of: Drawn, value: Any, *, is_form: bool) -> bool:
    if value is None:
        # A client leaves out what a user has not filled in.
        return of.is_optional and not is_form
    if not _is_of(of, value, is_form=is_form):
        return False
    if of.kind == "date":
        value = dt.date.fromisoformat(value)
    return all(LIMITS[name](value, bound) for name, bound in of.limits.items())


LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda value, bound: value > bound,
    "ge": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "le": lambda value, bound: value <= bound,
    "multiple_of": lambda value, bound: value % bound == 0,
    "min_length": lambda value, bound: len(value) >= bound,
    "max_length": lambda value, bound: len(value) <= bound,
}


def _is_of(of: Drawn, value: Any, *, is_form: bool) -> bool:
    is_number = type(value) in (int, float) and math.isfinite(value)
    match of.kind:
        case "int":
            is_whole = is_number and value == int(value)
            return is_whole and (not is_form or abs(value) <= SAFE)
        case "float":
            return is_number
        case "str":
            return type(value) is str
        case "bool":
            return type(value) is bool
        case "date":
            if type(value) is not str or not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
                return False
            try:
                dt.date.fromisoformat(value)
            except ValueError:
                return False
            return True
        case "choice":
            return value in ("a", "b") and type(value) is str
        case "enum":
            return value in ("red", "blue") and type(value) is str
        case "chosen":
            return type(value) is list and all(one in ("a", "b") for one in value)
        case "strs":
            return type(value) is list and all(type(one) is str for one in value)
        case "counts":
            return type(value) is dict and all(
                type(one) in (int, float) and one == int(one) for one in value.values()
            )
        case _:
            assert of.inside is not None
            return admits(of.inside, value)


# ---- the sources --------------------------------------------------------------------


def classes_of(model: Model) -> dict[str, Any]:
    """Return the model as a class of each source."""
    made = {
        "attrs": _attrs(model),
        "attrs, annotated": _annotated_attrs(model),
        "dataclass": _dataclass(model),
        "TypedDict": _typed_dict(model),
        "pydantic": _pydantic(model),
        "msgspec": _msgspec(model),
    }
    if all(one.default is MISSING for one in model.fields):
        made["NamedTuple"] = _named_tuple(model)
    return made


def _hint(of: Drawn, make: Callable[[Model], Any], notes: list[Any]) -> Any:
    type_ = KINDS[of.kind][0] if of.inside is None else make(of.inside)
    for note in notes:
        type_ = Annotated[type_, note]
    return type_ | None if of.is_optional else type_


def _notes(of: Drawn) -> list[Any]:
    names = {
        "min_length": "MinLen",
        "max_length": "MaxLen",
        "multiple_of": "MultipleOf",
    }
    return [
        getattr(at, names.get(name, name.capitalize()))(bound)
        for name, bound in of.limits.items()
    ]


def _hints(model: Model, make: Callable[[Model], Any]) -> dict[str, Any]:
    return {one.name: _hint(one, make, _notes(one)) for one in model.fields}


def _defaults(model: Model) -> dict[str, Any]:
    return {one.name: one.default for one in model.fields if one.default is not MISSING}


def _multiple(bound: int) -> Any:
    def check(instance: Any, attribute: Any, value: Any) -> None:
        if value % bound:
            raise ValueError(f"must be a multiple of {bound}")

    return check


_VALIDATORS: dict[str, Callable[[Any], Any]] = {
    "gt": attrs.validators.gt,
    "ge": attrs.validators.ge,
    "lt": attrs.validators.lt,
    "le": attrs.validators.le,
    "min_length": attrs.validators.min_len,
    "max_length": attrs.validators.max_len,
    "multiple_of": _multiple,
}


def _attrs(model: Model) -> Any:
    fields = {}
    for one in model.fields:
        validators = [_VALIDATORS[name](bound) for name, bound in one.limits.items()]
        validator: Any = attrs.validators.and_(*validators) if validators else None
        if validator is not None and one.is_optional:
            validator = attrs.validators.optional(validator)
        default = attrs.NOTHING if one.default is MISSING else one.default
        fields[one.name] = attrs.field(
            type=_hint(one, _attrs, []), validator=validator, default=default
        )
    return attrs.make_class(model.name, fields)


def _annotated_attrs(model: Model) -> Any:
    hints, defaults = _hints(model, _annotated_attrs), _defaults(model)
    fields = {
        name: attrs.field(type=hint, default=defaults.get(name, attrs.NOTHING))
        for name, hint in hints.items()
    }
    return attrs.make_class(model.name, fields)


def _dataclass(model: Model) -> Any:
    defaults = _defaults(model)
    return dataclasses.make_dataclass(
        model.name,
        [
            (name, hint, *([defaults[name]] if name in defaults else []))
            for name, hint in _hints(model, _dataclass).items()
        ],
    )


def _typed_dict(model: Model) -> Any:
    # A key that has a default elsewhere may be left out.
    defaults = _defaults(model)
    hints = _hints(model, _typed_dict)
    return TypedDict(  # type: ignore[operator]  # made of a dict
        model.name,
        {
            name: NotRequired[hint] if name in defaults else hint
            for name, hint in hints.items()
        },
    )


def _named_tuple(model: Model) -> Any:
    return NamedTuple(model.name, list(_hints(model, _dataclass).items()))


def _pydantic(model: Model) -> Any:
    fields: dict[str, Any] = {}
    for one in model.fields:
        default = ... if one.default is MISSING else one.default
        hint = _hint(one, _pydantic, [])
        fields[one.name] = hint, pydantic.Field(default, **one.limits)
    return pydantic.create_model(model.name, **fields)


def _msgspec(model: Model) -> Any:
    fields = []
    for one in model.fields:
        # A Meta has no bounds of dates.
        is_meta = bool(one.limits) and one.kind != "date"
        notes = [msgspec.Meta(**one.limits)] if is_meta else _notes(one)
        hint = _hint(one, _msgspec, notes)
        default = () if one.default is MISSING else (one.default,)
        fields.append((one.name, hint, *default))
    return msgspec.defstruct(model.name, fields)
