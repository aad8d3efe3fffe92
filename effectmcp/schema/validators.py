"""attrs validators → keywords, if JSON Schema can express them.

The class checks all of it again when it is built. The keywords show the constraints to
a model in advance, and let it see every problem in one message. The description states
`matches_re`: `\\d`, `\\w` and `$` do not mean in Python what they mean elsewhere.
"""

from __future__ import annotations

import math
from typing import Any, Final

from attrs import Attribute

from ..canonical import JSON
from ..forms.validators import known_name, leaves, options_of
from ..forms.words import is_finite
from .written import written

__all__ = ["apply_validators"]

_KEYWORDS: Final = {
    ">": "exclusiveMinimum",
    ">=": "minimum",
    "<": "exclusiveMaximum",
    "<=": "maximum",
}


def apply_validators(schema: dict[str, JSON], attribute: Attribute[Any]) -> None:
    """Add the keywords of the attribute's validators to `schema`."""
    # Validators check the converter's result, and a schema describes its input.
    if attribute.validator is None or attribute.converter is not None:
        return
    target = _target(schema)
    for validator, _ in leaves(attribute.validator):
        # If null is legal and the validator refuses it, the class reports that.
        _apply(target, validator)
        if known_name(validator) == "_MatchesReValidator":
            words = f"must match {validator.pattern.pattern}"
            said = schema.get("description")
            schema["description"] = f"{said} ({words})" if said else f"M{words[1:]}"


def _target(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Return the one schema in `schema` that validators apply to."""
    members = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return members[0] if len(members) == 1 else schema


def _apply(schema: dict[str, JSON], validator: Any) -> None:
    match known_name(validator):
        case "_NumberValidator":
            _bound(schema, validator.compare_op, validator.bound)
        case "_MinLengthValidator":
            _length(schema, "min", validator.min_length, max)
        case "_MaxLengthValidator":
            _length(schema, "max", validator.max_length, min)
        case "_InValidator":
            _choices(schema, options_of(validator))
        case _:
            pass  # checked by the class only


def _bound(schema: dict[str, JSON], operator: str, bound: Any) -> None:
    if schema.get("type") not in ("integer", "number") or "enum" in schema:
        return  # dates have bounds as well
    if type(bound) not in (int, float) or not is_finite(bound):
        return
    keyword = _KEYWORDS[operator]
    if schema["type"] == "integer" and type(bound) is float:
        # Whole, since some readers of schemas do not expect a fraction for an integer.
        bound = math.ceil(bound) if operator in (">=", "<") else math.floor(bound)
    pick = max if operator[0] == ">" else min
    schema[keyword] = pick(schema.get(keyword, bound), bound)


def _length(schema: dict[str, JSON], which: str, length: int, pick: Any) -> None:
    type_ = schema.get("type")
    if type_ == "string" and schema.keys().isdisjoint({"enum", "oneOf", "pattern"}):
        if schema.get("format") in ("date", "date-time", "uuid"):
            return
        keyword = f"{which}Length"
    elif type_ == "array" and "prefixItems" not in schema:
        keyword = f"{which}Items"
    elif type_ == "object":
        keyword = f"{which}Properties"
    else:
        return
    schema[keyword] = pick(schema.get(keyword, length), length)


def _choices(schema: dict[str, JSON], options: list[Any] | None) -> None:
    if options is None:
        return
    values = [written(option)[0] for option in options]
    if "enum" in schema:
        left = [one for one in schema["enum"] if one in values]
        # A schema with an empty choice is invalid; the class refuses all values anyway.
        schema["enum"] = left or schema["enum"]
    elif schema.get("type") == "string" and schema.keys() <= {"type", "description"}:
        if values and all(type(option) is str for option in options):
            schema["enum"] = list(dict.fromkeys(values))
