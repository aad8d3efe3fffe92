"""Classes of attrs: their validators become rules, and all of them are heard.

attrs stops at the first validator that fails, and names the attribute. A user must see
every problem, under the name on the wire. So validators and converters are run here
field by field, over an incomplete instance that has the valid fields so far. A
validator that reads a missing field raises `AttributeError` and is skipped: it runs
when the real instance is constructed.

attrs keeps its validator classes private, so they are recognised by name and a test
pins the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import attrs
from attrs import NOTHING, Attribute, Factory

from ..constraints import (
    FULL,
    Bound,
    Constraint,
    Extra,
    Options,
    Pattern,
    Rule,
    Size,
    stable,
)
from ..words import complaint, path_step
from .source import NO_DEFAULT, Complaints, Judge, Part, Source, hints_of

__all__ = ["known_name", "leaves", "options_of", "source_of"]


def source_of(class_: Any) -> Source | None:
    """Return the source of an attrs class; `None` for any other class."""
    if not attrs.has(class_):
        return None
    hints = hints_of(class_, class_.__qualname__)
    attributes = {
        attribute.alias or attribute.name: attribute
        for attribute in attrs.fields(class_)
        if attribute.init
    }
    judge = _judge_of(class_, attributes)
    rules = {name: _rules_of(one) for name, one in attributes.items()}
    extras = {
        name: tuple(rule.extra(rule.words({}, FULL)) for rule in found)
        for name, found in rules.items()
    }

    def make(values: dict[str, Any]) -> Any:
        try:
            return class_(**values)
        except Exception as exc:
            problems: dict[str, str] = {}
            if judge is not None:
                judge(values, problems, extras)
            if problems:
                found = [(path_step(name), words) for name, words in problems.items()]
                raise Complaints(found) from exc
            raise

    def read(value: Any) -> Iterable[tuple[str, Any]]:
        return [(name, getattr(value, one.name)) for name, one in attributes.items()]

    return Source(
        class_=class_,
        parts=tuple(
            Part(
                # attrs calls the parameter of a private `_x` `x`, and so do we.
                name=name,
                hint=hints.get(one.name, one.type or Any),
                required=one.default is NOTHING,
                # A factory's value is not published: it may read a clock.
                default=one.default if _has_value(one) else NO_DEFAULT,
                rules=rules[name],
                own_name=one.name,
            )
            for name, one in attributes.items()
        ),
        make=make,
        read=read,
        judge=judge,
    )


# ---- validators ---------------------------------------------------------------------


def _rules_of(attribute: Attribute[Any]) -> tuple[Rule, ...]:
    if attribute.validator is None:
        return ()
    return tuple(
        Rule(
            _constraint_of(validator),
            _check(validator, attribute),
            takes_none=takes_none,
            # Validators check the converter's result. A schema describes the answer
            # before the conversion, so it cannot express them.
            is_hidden=attribute.converter is not None,
            is_code=known_name(validator) not in _KNOWN,
        )
        for validator, takes_none in leaves(attribute.validator)
    )


#: Validators of attrs that see only the value.
_KNOWN: Final = frozenset(
    {"_NumberValidator", "_MinLengthValidator", "_MaxLengthValidator", "_InValidator"}
    | {"_MatchesReValidator", "_InstanceOfValidator"}
)


def _check(validator: Any, attribute: Attribute[Any]) -> Extra:
    def check(instance: Any, value: Any) -> None:
        try:
            validator(instance, attribute, value)
        except AttributeError:
            raise
        except Exception as exc:
            # attrs's own validators would report "'>=' not supported between …".
            is_null = value is None and isinstance(exc, TypeError) and len(exc.args) < 2
            words = "must not be null" if is_null else complaint(exc, attribute.name)
            raise ValueError(words) from exc

    return check


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


def _constraint_of(validator: Any) -> Constraint | None:
    match known_name(validator):
        case "_NumberValidator":
            return Bound(validator.compare_op, validator.bound)
        case "_MinLengthValidator":
            return Size("min", validator.min_length)
        case "_MaxLengthValidator":
            return Size("max", validator.max_length)
        case "_InValidator":
            return Options(validator.options, options_of(validator))
        case "_MatchesReValidator":
            return Pattern(validator.pattern.pattern, validator.match_func)
        case _:
            return None


def options_of(validator: Any) -> list[Any] | None:
    """Return the options of an `in_` validator in a stable order, if there is one."""
    return stable(validator._original_options)


# ---- an incomplete instance ---------------------------------------------------------


def _has_value(attribute: Attribute[Any]) -> bool:
    """Whether there is a default that no factory makes."""
    # attrs's stubs declare `Factory` as a function.
    is_factory = isinstance(attribute.default, Factory)  # type: ignore[arg-type]
    return attribute.default is not NOTHING and not is_factory


def _judge_of(class_: Any, fields: Mapping[str, Attribute[Any]]) -> Judge | None:
    """Return the class's own checks as a function; `None` if it has none."""
    attributes = attrs.fields(class_)
    if not any(attribute.validator or attribute.converter for attribute in attributes):
        return None
    defaults = {name: one.default for name, one in fields.items() if _has_value(one)}
    constants = {
        one.name: one.default
        for one in attributes
        if _has_value(one) and not one.init and one.converter is None
    }

    def judge(
        values: Mapping[str, Any],
        problems: dict[str, str],
        extras: Mapping[str, tuple[Extra, ...]],
    ) -> None:
        try:
            instance = class_.__new__(class_)
        except Exception:
            return  # an author-defined `__new__` with parameters
        # Frozen classes and `on_setattr` do not apply to the incomplete instance.
        put = partial(object.__setattr__, instance)
        for name, default in constants.items():
            put(name, default)
        given = {**defaults, **values}
        judged: list[tuple[str, Any]] = []
        for name, attribute in fields.items():
            # A default must not replace an answer that did not fit.
            if name in problems or name not in given:
                continue
            try:
                value = _converted(attribute, instance, given[name])
            except AttributeError:
                continue
            except Exception as exc:
                problems[name] = complaint(exc, attribute.name)
                continue
            put(attribute.name, value)
            judged.append((name, value))
        # After all fields are set, as in attrs.
        for name, value in judged:
            said = []
            for extra in extras.get(name, ()):
                try:
                    extra(instance, value)
                except AttributeError:
                    break
                except ValueError as exc:
                    said.append(str(exc))
            if said:
                problems[name] = "; ".join(dict.fromkeys(said))

    return judge


def _converted(attribute: Attribute[Any], instance: Any, value: Any) -> Any:
    converter: Any = attribute.converter
    if converter is None:
        return value
    if isinstance(converter, attrs.Converter):
        wrapped: Any = converter
        return wrapped(value, instance, attribute)
    return converter(value)
