"""attrs validators → schema where the form subset can say it, a check where it cannot.

A client can show a bound, a length and a choice. The description states the other
constraints of attrs's own validators. Each validator that the schema does not express
becomes an `Extra`. Extras run on each answer field by field, so that a user sees every
problem in one message.

attrs keeps its validator classes private, so they are recognised by name and a test
pins the names.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from attrs import Attribute

from ..canonical import JSON
from ..errors import FormError
from .words import complaint, count, is_finite, one_of

__all__ = [
    "NO_DEFAULT",
    "Extra",
    "apply_validators",
    "known_name",
    "leaves",
    "options_of",
]

#: Takes the instance and the value, as validators do, and raises `ValueError` in words
#: for the user. An `AttributeError` means that it needs a field which is still missing.
Extra: TypeAlias = Callable[[Any, Any], None]

#: Marks a missing default, as `None` is a legal default.
NO_DEFAULT: Final = object()

_PHRASES: Final = {
    ">": "more than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
}


def apply_validators(
    schema: dict[str, JSON],
    attribute: Attribute[Any],
    build: Callable[[Any], Any] | None,
    *,
    default: Any,
    of: str,
) -> tuple[Extra, ...]:
    """Add the attribute's validators to `schema`; return those it cannot express.

    Raises:
        FormError: If the class would refuse its own default.
    """
    extras: list[Extra] = []
    if attribute.validator is None:
        return ()
    for validator, takes_none in leaves(attribute.validator):
        words = _words(validator, schema)
        # Validators check the converter's result. A schema describes the answer before
        # the conversion, so it cannot express them.
        if attribute.converter is None:
            if default is not None or not takes_none:
                _check_default(validator, attribute, default, words, of)
            if _show(schema, validator, build):
                continue
            if words is not None:
                _describe(schema, words)
        extras.append(_extra(validator, attribute, words, takes_none))
    return tuple(extras)


def leaves(validator: Any, takes_none: bool = False) -> Iterator[tuple[Any, bool]]:
    """Yield the parts of `validator`, and whether each lets `None` pass."""
    match known_name(validator):
        case "_AndValidator":
            for part in validator._validators:
                yield from leaves(part, takes_none)
        case "_OptionalValidator":
            yield from leaves(validator.validator, True)
        case _:
            yield validator, takes_none


def known_name(validator: Any) -> str:
    """Return the name of attrs's class of validators; "" for any other class."""
    # An author's class may have the same name.
    class_ = type(validator)
    return class_.__name__ if class_.__module__.startswith("attr.") else ""


def _extra(
    validator: Any, attribute: Attribute[Any], words: str | None, takes_none: bool
) -> Extra:
    def check(instance: Any, value: Any) -> None:
        # From a default or a converter: a null from a client is refused earlier.
        if value is None and takes_none:
            return
        try:
            validator(instance, attribute, value)
        except AttributeError:
            raise
        except Exception as exc:
            raise ValueError(words or complaint(exc, attribute.name)) from exc

    return check


def _check_default(
    validator: Any, attribute: Attribute[Any], default: Any, words: str | None, of: str
) -> None:
    # Otherwise every user who leaves the field out would see a problem that they cannot
    # fix. Author-defined validators are not run at import.
    if default is NO_DEFAULT:
        return
    if words is None and known_name(validator) != "_InstanceOfValidator":
        return
    try:
        validator(None, attribute, default)
    except Exception as exc:
        advice = "; wrap the validator in optional(...)" if default is None else ""
        said = words or complaint(exc, attribute.name)
        raise FormError(f"{of}: the default {default!r} {said}{advice}") from None


# ---- in words -----------------------------------------------------------------------


def _words(validator: Any, schema: dict[str, JSON]) -> str | None:
    noun = "choice" if schema["type"] == "array" else "character"
    match known_name(validator):
        case "_NumberValidator":
            return f"must be {_PHRASES[validator.compare_op]} {validator.bound}"
        case "_MinLengthValidator":
            return f"must have at least {count(validator.min_length, noun)}"
        case "_MaxLengthValidator":
            return f"must have at most {count(validator.max_length, noun)}"
        case "_InValidator":
            options = options_of(validator)
            if options is not None:
                return one_of(options)
            # The repr of any other container may hold its address, and the message must
            # be the same in every process.
            known = isinstance(validator.options, (range, str))
            return f"must be in {validator.options!r}" if known else None
        case "_MatchesReValidator":
            return f"must match {validator.pattern.pattern}"
        case _:
            return None


def _describe(schema: dict[str, JSON], words: str) -> None:
    said = schema.get("description")
    sentence = words[0].upper() + words[1:]
    schema["description"] = f"{said} ({words})" if said else sentence


# ---- in the schema ------------------------------------------------------------------


def _show(
    schema: dict[str, JSON], validator: Any, build: Callable[[Any], Any] | None
) -> bool:
    match known_name(validator):
        case "_NumberValidator":
            return _show_bound(schema, validator.compare_op, validator.bound)
        case "_MinLengthValidator":
            return _show_length(schema, build, "min", validator.min_length, max)
        case "_MaxLengthValidator":
            return _show_length(schema, build, "max", validator.max_length, min)
        case "_InValidator":
            return _show_choices(schema, build, options_of(validator))
        case _:
            # `matches_re`, too: Python and JavaScript differ on \d, \w, $ and \Z, so a
            # client could read the pattern differently.
            return False


def _show_bound(schema: dict[str, JSON], operator: str, bound: Any) -> bool:
    is_integer = schema["type"] == "integer"
    if not is_integer and schema["type"] != "number":
        return False  # dates have bounds as well
    if type(bound) not in (int, float) or not is_finite(bound):
        return False
    keyword, pick = ("minimum", max) if operator[0] == ">" else ("maximum", min)
    is_strict = operator in ("<", ">")
    if is_integer:
        # Rounded inwards, so that the schema and the validator admit the same integers.
        if keyword == "minimum":
            bound = math.floor(bound) + 1 if is_strict else math.ceil(bound)
        else:
            bound = math.ceil(bound) - 1 if is_strict else math.floor(bound)
    elif is_strict:
        return False
    schema[keyword] = pick(schema.get(keyword, bound), bound)
    return True


def _show_length(
    schema: dict[str, JSON],
    build: Callable[[Any], Any] | None,
    which: str,
    length: int,
    pick: Callable[[int, int], int],
) -> bool:
    is_text = schema["type"] == "string" and build is None
    if schema["type"] == "array":
        keyword = f"{which}Items"
    elif is_text and "enum" not in schema and "oneOf" not in schema:
        keyword = f"{which}Length"
    else:
        return False
    schema[keyword] = pick(schema.get(keyword, length), length)
    return True


def _show_choices(
    schema: dict[str, JSON],
    build: Callable[[Any], Any] | None,
    options: list[Any] | None,
) -> bool:
    if options is None:
        return False
    if "enum" in schema:
        schema["enum"] = [
            choice
            for choice in schema["enum"]
            if (choice if build is None else build(choice)) in options
        ]
        return True
    if schema["type"] != "string" or schema.keys() - {"type", "title", "description"}:
        return False
    if not all(type(option) is str for option in options):
        return False
    schema["enum"] = list(dict.fromkeys(options))
    return True


def options_of(validator: Any) -> list[Any] | None:
    """Return the options of an `in_` validator in a stable order, if there is one."""
    # attrs before 24.1 has no `_original_options`. The order of a set differs from
    # process to process, so sets are sorted.
    options = getattr(validator, "_original_options", validator.options)
    if isinstance(options, (set, frozenset)):
        return _sorted(options)
    if isinstance(options, enum.EnumMeta) or isinstance(options, (list, tuple, dict)):
        return list(options)
    return None


def _sorted(options: Iterable[Any]) -> list[Any]:
    try:
        return sorted(options)
    except TypeError:
        return sorted(options, key=repr)
