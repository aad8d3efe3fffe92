"""Limits of values, from every source, in one vocabulary.

Authors write limits as validators of attrs, or in `Annotated`, with annotated-types,
pydantic's `Field` or msgspec's `Meta`. All of them become a `Rule` here. A client is
shown a rule as a keyword of the schema where the dialect has one, and else as a sentence
in the description. What no keyword says is checked by the rule itself.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from attrs import frozen

from .words import count, is_finite, one_of

__all__ = [
    "FORM",
    "FULL",
    "Bound",
    "Constraint",
    "Dialect",
    "Extra",
    "Multiple",
    "Options",
    "Other",
    "Pattern",
    "Rule",
    "Size",
    "apply_rules",
    "stable",
]

JSONSchema: TypeAlias = dict[str, Any]

#: Takes the instance and the value, as validators do, and raises `ValueError` in words
#: for the user. An `AttributeError` means that it needs a field which is still missing.
Extra: TypeAlias = Callable[[Any, Any], None]

#: A choice of the schema → the value that Python code sees.
Built: TypeAlias = Callable[[Any], Any]


@frozen
class Dialect:
    """A kind of JSON Schema.

    Attributes:
        is_form: Whether it is the protocol's subset for forms, which has no exclusive
            bounds and no multiples.
        item: The word for an item of a list.
    """

    is_form: bool
    item: str


#: JSON Schema 2020-12, for arguments and results.
FULL: Final = Dialect(is_form=False, item="item")
#: The form subset (client/elicitation, "Requested Schema").
FORM: Final = Dialect(is_form=True, item="choice")


@frozen
class Bound:
    """A bound of an ordered value: `op` is one of >, >=, < and <=."""

    op: str
    value: Any

    @property
    def is_possible(self) -> bool:
        """Whether it admits some value."""
        return bool(self.value == self.value)  # not so for NaN

    def words(self, schema: JSONSchema, dialect: Dialect) -> str | None:
        return f"must be {_PHRASES[self.op]} {self.value}"

    def holds(self, value: Any) -> bool:
        return bool(_OPERATORS[self.op](value, self.value))

    def publish(self, schema: JSONSchema, dialect: Dialect, built: Built) -> bool:
        is_integer, bound = schema.get("type") == "integer", self.value
        if not is_integer and schema.get("type") != "number" or "enum" in schema:
            return False  # dates have bounds as well
        if type(bound) not in (int, float) or not is_finite(bound):
            return False
        op = self.op
        keyword, pick = ("minimum", max) if op[0] == ">" else ("maximum", min)
        is_strict = op in ("<", ">")
        if is_integer and is_strict and dialect.is_form:
            # Rounded inwards: the subset has no exclusive bounds.
            bound = math.floor(bound) + 1 if op == ">" else math.ceil(bound) - 1
        elif is_integer and type(bound) is float:
            # Whole, as some readers of schemas do not expect a fraction for an integer.
            bound = math.ceil(bound) if op in (">=", "<") else math.floor(bound)
        if is_strict and not dialect.is_form:
            keyword = f"exclusive{keyword.capitalize()}"
        elif is_strict and not is_integer:
            return False
        schema[keyword] = pick(schema.get(keyword, bound), bound)
        return True


_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_PHRASES: Final = {
    ">": "more than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
}


@frozen
class Multiple:
    """The value is a multiple of a number."""

    of: Any

    @property
    def is_possible(self) -> bool:
        """Whether it admits some value."""
        return bool(self.of > 0)

    def words(self, schema: JSONSchema, dialect: Dialect) -> str | None:
        return f"must be a multiple of {self.of}"

    def holds(self, value: Any) -> bool:
        if not isinstance(value, float) and not isinstance(self.of, float):
            return not value % self.of
        # 0.3 is not exactly three times 0.1.
        quotient = float(value) / float(self.of)
        return math.isclose(quotient, round(quotient), rel_tol=1e-9, abs_tol=1e-9)

    def publish(self, schema: JSONSchema, dialect: Dialect, built: Built) -> bool:
        # Fractions of floats are rounded, and each validator rounds in its own way.
        if dialect.is_form or schema.get("type") != "integer" or "enum" in schema:
            return False
        if type(self.of) is not int or self.of < 1:
            return False
        before = schema.get("multipleOf", 1)
        schema["multipleOf"] = math.lcm(before, self.of)
        return True


@frozen
class Size:
    """The least or the most length: `side` is `min` or `max`."""

    side: str
    length: int

    @property
    def is_possible(self) -> bool:
        """Whether it admits some value."""
        return type(self.length) is int and self.length >= 0

    def words(self, schema: JSONSchema, dialect: Dialect) -> str | None:
        which = "least" if self.side == "min" else "most"
        noun = dialect.item if schema.get("type") == "array" else "character"
        return f"must have at {which} {count(self.length, noun)}"

    def holds(self, value: Any) -> bool:
        size = len(value)
        return size >= self.length if self.side == "min" else size <= self.length

    def publish(self, schema: JSONSchema, dialect: Dialect, built: Built) -> bool:
        type_ = schema.get("type")
        if type_ == "string" and schema.keys().isdisjoint({"enum", "oneOf", "pattern"}):
            if schema.get("format") in _OTHER_TEXT:
                return False
            keyword = f"{self.side}Length"
        elif type_ == "array" and "prefixItems" not in schema:
            keyword = f"{self.side}Items"
        elif type_ == "object" and "properties" not in schema:
            keyword = f"{self.side}Properties"
        else:
            return False
        pick = max if self.side == "min" else min
        schema[keyword] = pick(schema.get(keyword, self.length), self.length)
        return True


#: Formats of other Python types than `str`: the length of such a string means nothing.
_OTHER_TEXT: Final = ("date", "date-time", "uuid")


@frozen(eq=False)
class Pattern:
    """A regular expression of Python's."""

    pattern: str
    matches: Callable[[Any], Any]

    @property
    def is_possible(self) -> bool:
        """Whether it admits some value."""
        return True

    def words(self, schema: JSONSchema, dialect: Dialect) -> str | None:
        return f"must match {self.pattern}"

    def holds(self, value: Any) -> bool:
        return bool(self.matches(value))

    def publish(self, schema: JSONSchema, dialect: Dialect, built: Built) -> bool:
        # Python and JavaScript differ on \d, \w, $ and \Z, so a client could read the
        # pattern differently.
        return False


@frozen(eq=False)
class Options:
    """The values that are admitted.

    Attributes:
        options: Their container, for words.
        listed: The values in a stable order, or `None` if they cannot be listed.
    """

    options: Any
    listed: Sequence[Any] | None

    @property
    def is_possible(self) -> bool:
        """Whether it admits some value."""
        return self.listed is None or bool(self.listed)

    def words(self, schema: JSONSchema, dialect: Dialect) -> str | None:
        if self.listed is not None:
            return one_of(self.listed)
        # The repr of any other container may hold its address, and the message must be
        # the same in every process.
        is_known = isinstance(self.options, (range, str))
        return f"must be in {self.options!r}" if is_known else None

    def holds(self, value: Any) -> bool:
        return value in self.options

    def publish(self, schema: JSONSchema, dialect: Dialect, built: Built) -> bool:
        options = self.listed
        if options is None:
            return False
        if "enum" in schema:
            left = [one for one in schema["enum"] if built(one) in options]
            # A schema with an empty choice is invalid. A form refuses it by name.
            schema["enum"] = left if dialect.is_form or left else schema["enum"]
            return True
        type_ = {"string": str, "integer": int}.get(schema.get("type", ""))
        if type_ is None or schema.keys() - _LABELS:
            return False
        if dialect.is_form and type_ is int:
            return False  # users choose by words
        if not options or not all(type(option) is type_ for option in options):
            return False
        schema["enum"] = list(dict.fromkeys(options))
        return True


_LABELS: Final = frozenset({"type", "title", "description", "default"})


@frozen(eq=False)
class Other:
    """A limit that only code can express.

    Attributes:
        test: Whether a value is admitted.
        said: Words that follow the name of the field.
        types: The names of the types that it is for; none if it is for all.
    """

    test: Callable[[Any], Any]
    said: str
    types: tuple[str, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether it admits some value."""
        return callable(self.test)

    def words(self, schema: JSONSchema, dialect: Dialect) -> str | None:
        return self.said

    def holds(self, value: Any) -> bool:
        return bool(self.test(value))

    def publish(self, schema: JSONSchema, dialect: Dialect, built: Built) -> bool:
        return False


Constraint: TypeAlias = Bound | Multiple | Size | Pattern | Options | Other


@frozen(eq=False)
class Rule:
    """A limit that an author wrote.

    Attributes:
        constraint: What it says, if that is known.
        check: Checks a value; `None` if the constraint itself does.
        takes_none: Whether `None` passes.
        is_hidden: Whether it applies to another value than the value on the wire, as
            validators behind a converter do.
        is_code: Whether it is the author's code, which must not run before a request.
    """

    constraint: Constraint | None
    check: Extra | None = None
    takes_none: bool = True
    is_hidden: bool = False
    is_code: bool = False

    def words(self, schema: JSONSchema, dialect: Dialect) -> str | None:
        """Return what a value must be, if that is known."""
        if self.constraint is None:
            return None
        return self.constraint.words(_target(schema), dialect)

    def extra(self, words: str | None) -> Extra:
        """Return the check, which complains in `words`, if there are any."""
        check, constraint = self.check, self.constraint

        def run(instance: Any, value: Any) -> None:
            # From a default or a converter: a null from a client is refused earlier.
            if value is None and self.takes_none:
                return
            if check is None:
                assert constraint is not None
                try:
                    holds = constraint.holds(value)
                except Exception:
                    if isinstance(constraint, Other):
                        raise  # in the author's words
                    holds = False
                if not holds:
                    raise ValueError(words)
                return
            try:
                check(instance, value)
            except AttributeError:
                raise
            except Exception as exc:
                raise (exc if words is None else ValueError(words)) from exc

        return run


def apply_rules(
    schema: JSONSchema,
    rules: Iterable[Rule],
    dialect: Dialect,
    built: Built = lambda choice: choice,
) -> tuple[Extra, ...]:
    """Add the rules to `schema`; return the checks of all rules that it cannot express."""
    target, extras = _target(schema), []
    for rule in rules:
        constraint, words = rule.constraint, rule.words(schema, dialect)
        if constraint is not None and not rule.is_hidden:
            if constraint.publish(target, dialect, built):
                continue
            if words is not None:
                _describe(schema, words)
        extras.append(rule.extra(words))
    return tuple(extras)


def _target(schema: JSONSchema) -> JSONSchema:
    """Return the one schema in `schema` that limits apply to: null has none."""
    members = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return members[0] if len(members) == 1 else schema


def _describe(schema: JSONSchema, words: str) -> None:
    said = schema.get("description")
    sentence = words[0].upper() + words[1:]
    schema["description"] = f"{said} ({words})" if said else sentence


def stable(options: Any) -> list[Any] | None:
    """Return options in an order that each process gives them, if there is one."""
    if isinstance(options, (set, frozenset)):
        try:
            return sorted(options)
        except TypeError:
            return sorted(options, key=repr)
    if isinstance(options, enum.EnumMeta) or isinstance(options, (list, tuple, dict)):
        return list(options)
    return None
