"""Shapes → the properties of a form.

`Literal`, `Enum` and lists of them are choices; `date` and `datetime` are strings with
a format; all other types map to the property of the same type. An attrs converter
changes nothing: the form asks for the annotated type, and passes that to the converter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from ..canonical import JSON
from ..errors import FormError, SchemaError
from ..shapes.choices import apply_label, built_by, choice_schema, pairs_of
from ..shapes.constraints import FORM, Rule, apply_rules
from ..shapes.labels import Choices
from ..shapes.notes import check_rules, notes_of
from ..shapes.reading import (
    Choice,
    Items,
    Named,
    Object,
    Plain,
    Shape,
    Union,
    find_shape,
)
from ..shapes.sources import NO_DEFAULT, Part
from ..shapes.unions import unwrapped
from ..shapes.words import type_name
from .fields import Field, make_check

__all__ = ["make_field"]

#: The schema of a property, its recorded value → Python, and Python → recorded.
Property: TypeAlias = tuple[
    dict[str, JSON], Callable[[Any], Any] | None, Callable[[Any], Any] | None
]


def make_field(
    name: str,
    annotation: Any,
    *,
    of: str,
    part: Part | None = None,
    title: str | None = None,
    is_checked: bool = False,
) -> Field:
    """Return the property of a form that `annotation` describes.

    Args:
        name: The property on the wire.
        annotation: The field's type, resolved.
        of: The name of the field in messages: `Person.age`.
        part: The field of the author's class, if there is one.
        title: A label given outside the annotation.
        is_checked: Whether that class checks the limits in its annotations itself.

    Raises:
        FormError: If a form cannot show the type; names the field.
    """
    try:
        return _field(name, annotation, of, part, title, is_checked)
    except SchemaError as exc:
        raise FormError(exc.problem) from None


def _field(
    name: str,
    annotation: Any,
    of: str,
    part: Part | None,
    title: str | None,
    is_checked: bool,
) -> Field:
    bare, metadata, shape, optional = _opened(annotation, of)
    schema, build, unbuild = _property(bare, shape, of)
    notes = notes_of(metadata, bare, shape, of, is_checked=is_checked)
    for label in notes.labels:
        apply_label(schema, label, FORM, of)
    if title is not None:
        schema["title"] = title
    if part is not None and part.text:
        schema.setdefault("description", part.text)
    rules = notes.rules
    default: Any = NO_DEFAULT
    fallback: Callable[[], Any] | None = None
    if part is not None:
        check_rules(part.rules, bare, shape, of)
        rules, default = (*rules, *part.rules), part.default
        if optional and part.required:
            default, fallback = None, lambda: None
        if type(default) is list:
            # A class would hand out this one list every time.
            fallback = default.copy
    _check_default(rules, schema, default, of)
    extras = apply_rules(
        schema, rules, FORM, (lambda choice: choice) if build is None else build
    )
    if default is not NO_DEFAULT and default is not None:
        schema["default"] = _default(default, unbuild, of)
    is_required = not optional if part is None else part.required and not optional
    return Field(
        name=name,
        schema=schema,
        required=is_required,
        check=make_check(schema, of=of),
        build=_converted(build, notes.converts),
        own_name="" if part is None else part.own_name or part.name,
        converts=bool(notes.converts),
        fallback=fallback,
        rules=rules,
        # A class that checks its limits reports them itself.
        extras=() if is_checked else extras,
    )


_STANDARD: Final = sys.stdlib_module_names

#: `type X = X | None` has no end; real types nest a few levels.
_MAX_WRAPPERS: Final = 100


# ---- annotations --------------------------------------------------------------------


def _opened(annotation: Any, of: str) -> tuple[Any, list[Any], Shape, bool]:
    """Return the bare type, the metadata around it, its shape, and if it may be `None`."""
    metadata: list[Any] = []
    optional = False
    for _ in range(_MAX_WRAPPERS):
        bare, inner = unwrapped(annotation)
        metadata[:0] = inner  # applied in order, so the outermost has the last word
        shape = find_shape(bare, of)
        if shape is None:
            raise FormError(f"{of}: {_advice(bare)}")
        if isinstance(shape, Named):
            annotation = shape.value
        elif isinstance(shape, Union):
            members = [one for one in shape.members if one not in (None, type(None))]
            if len(members) != 1:
                raise FormError(
                    f"{of}: a form cannot offer a choice of types, {bare}. Ask"
                    " for text, or ask two questions"
                )
            annotation, optional = members[0], True
        else:
            return bare, metadata, shape, optional
    raise FormError(f"{of}: the type {annotation} is made of nothing but itself")


def _property(bare: Any, shape: Shape, of: str) -> Property:
    match shape:
        case Plain(leaf=leaf) if leaf.secret:
            raise FormError(f"{of}: {leaf.secret}")
        case Plain(leaf=leaf) if leaf.is_for_forms:
            return dict(leaf.schema), leaf.make, leaf.write
        case Choice():
            pairs = pairs_of(shape, FORM, of)
            texts = {value: text for text, value in pairs}
            built = built_by(pairs)
            unbuilt = None if built is None else texts.__getitem__
            return choice_schema(pairs), built, unbuilt
        case Items(item=item, make=make) if make is list and bare is not list:
            return _list(bare, item, of)
        case _:
            raise FormError(f"{of}: {_advice(bare, shape)}")


def _list(bare: Any, item: Any, of: str) -> Property:
    inner, metadata, shape, optional = _opened(item, of)
    if optional or not isinstance(shape, Choice):
        raise FormError(
            f"{of}: a list in a form is a choice of several, list[Literal['a', 'b']] or"
            f" a list of an Enum, not {bare!r}"
        )
    items, build, unbuild = _property(inner, shape, of)
    holder: dict[str, JSON] = {"type": "array", "items": items}
    notes = notes_of(metadata, inner, shape, of)
    for label in notes.labels:
        # The titles of choices; the check refuses all other labels by name.
        place = holder if isinstance(label, Choices) else items
        apply_label(place, label, FORM, of)
    if notes.rules or notes.converts:
        raise FormError(
            f"{of}: a form cannot limit single choices of a list; limit the list, or"
            " leave choices out"
        )
    # A new list is built even from strings, so that two deliveries never share one.
    if build is None or unbuild is None:
        return holder, list, list
    return (
        holder,
        lambda values: [build(value) for value in values],
        lambda values: [unbuild(value) for value in values],
    )


def _advice(bare: Any, shape: Shape | None = None) -> str:
    if bare is list:
        return "name its items: list[Literal['a', 'b']] or a list of an Enum"
    if isinstance(bare, str):
        return f"the annotation {bare!r} could not be resolved; define it first"
    if isinstance(bare, TypeVar):
        return f"{bare} is open; name its type, as in Box[int]"
    if isinstance(shape, Object):
        return (
            f"forms are flat, so the class {shape.source.class_.__qualname__} cannot"
            " stand inside one; spread its fields out or ask for it in a question of its"
            " own"
        )
    if isinstance(bare, type) and bare.__module__.partition(".")[0] not in _STANDARD:
        return (
            f"{bare!r} has no fields: decorate it with @attrs.frozen or @dataclass,"
            " below @form if that is there"
        )
    return (
        f"{type_name(bare)} cannot be shown as a form field. Fields are str, int, float,"
        " bool, date, datetime, an Enum, a Literal of strings, or a list of those two; a"
        " form of several fields is a class of these: attrs, dataclass, TypedDict,"
        " NamedTuple, a model of pydantic or a Struct of msgspec"
    )


# ---- defaults -----------------------------------------------------------------------


def _check_default(
    rules: tuple[Rule, ...], schema: dict[str, JSON], default: Any, of: str
) -> None:
    # Otherwise every user who leaves the field out would see a problem that they cannot
    # fix. Author-defined validators are not run at import.
    if default is NO_DEFAULT:
        return
    for rule in rules:
        if rule.is_code or rule.is_hidden or (default is None and rule.takes_none):
            continue
        words = rule.words(schema, FORM)
        try:
            rule.extra(words)(None, default)
        except Exception as exc:
            advice = "; wrap the validator in optional(...)" if default is None else ""
            raise FormError(f"{of}: the default {default!r} {exc}{advice}") from None


def _default(value: Any, unbuild: Callable[[Any], JSON] | None, of: str) -> JSON:
    try:
        return value if unbuild is None else unbuild(value)
    except (TypeError, AttributeError, KeyError, ValueError):
        raise FormError(f"{of}: the default {value!r} is not of the type") from None


def _converted(
    build: Callable[[Any], Any] | None, converts: tuple[Callable[[Any], Any], ...]
) -> Callable[[Any], Any] | None:
    if not converts:
        return build

    def run(value: Any) -> Any:
        if build is not None:
            value = build(value)
        for convert in converts:
            value = convert(value)
        return value

    return run
