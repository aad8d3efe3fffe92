"""A whole form: what a client is shown, and what becomes of its answer.

`read` turns an answer into what the journal records, or raises `Unfit` with *every*
problem; `build` turns what was recorded into the author's value, afresh each time, so
that no two deliveries share a list and defaults are those of today's class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

import attrs
from attrs import frozen

from ..canonical import JSON, dumps
from ..errors import CanonicalError, FormError
from .fields import Field, make_check
from .types import _NO_DEFAULT, make_field

__all__ = ["Form", "Unfit", "form", "form_of"]

T = TypeVar("T")
C = TypeVar("C", bound=type)

#: The property of a form that asks for one thing only.
VALUE: Final = "value"


class Unfit(Exception):
    """An answer that does not fit its question.

    Attributes:
        problems: One entry a problem, in words for the user: `age: must be at least 18`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@frozen(eq=False, repr=False)
class Form(Generic[T]):
    """A checked form.

    Attributes:
        schema: The `requestedSchema` a client is shown.
        text: Its canonical JSON, for fingerprints.
        fields: One a property.
        build: Recorded answer to value. Raises `Unfit` when today's class refuses it.
    """

    schema: Mapping[str, JSON]
    text: bytes
    fields: tuple[Field, ...]
    build: Callable[[JSON], T]

    def read(self, content: JSON) -> JSON:
        """What to record of an answer: its known properties, normalised.

        Raises:
            Unfit: with every problem, when the answer does not fit.
        """
        # A client that has nothing to fill in may leave `content` out altogether.
        if content is None:
            content = {}
        if not isinstance(content, dict):
            raise Unfit(["the answer must be an object with the form's fields"])
        recorded: dict[str, JSON] = {}
        problems: list[str] = []
        for field in self.fields:
            if field.name not in content:
                if field.required:
                    problems.append(f"{field.name}: is required")
                continue
            value = content[field.name]
            if value is None:
                problems.append(
                    f"{field.name}: "
                    + ("is required" if field.required else "leave it out instead")
                )
                continue
            try:
                recorded[field.name] = _check(field, value)
            except ValueError as exc:
                problems.append(f"{field.name}: {exc}")
        if problems:
            raise Unfit(problems)
        self.build(recorded)
        return recorded


def _check(field: Field, value: JSON) -> JSON:
    recorded = field.check(value)
    if field.build is not None or field.extras:
        built = recorded if field.build is None else field.build(recorded)
        for extra in field.extras:
            extra(built)
    return recorded


def form_of(annotation: Any, title: str | None = None) -> Form[Any]:
    """The form that `annotation` stands for, checked once.

    Args:
        annotation: An attrs class, the type of a single field, or a raw schema.
        title: The label of a single field.

    Raises:
        FormError: naming the field, and what no client could show.
    """
    if isinstance(annotation, type):
        return _cached(annotation, title, "")
    if isinstance(annotation, Mapping):
        return _raw(annotation, title)
    # `Literal["a", "b"] == Literal["b", "a"]`, but they are shown differently: without
    # the text in the key, what a client sees would depend on which came first.
    order = repr(annotation)
    try:
        return _cached(annotation, title, order)
    except TypeError as exc:
        if "unhashable" not in str(exc):
            raise
        # Annotated metadata of other libraries need not be hashable.
        return _cached.__wrapped__(annotation, title, order)


def form(class_: C) -> C:
    """A class decorator that checks the form at import instead of at its first use."""
    form_of(class_)
    return class_


# Bounded, because classes made at run time must not pile up here for ever.
@lru_cache(maxsize=1024)
def _cached(annotation: Any, title: str | None, order: str) -> Form[Any]:
    class_ = get_origin(annotation) or annotation
    if isinstance(class_, type) and attrs.has(class_):
        if title is not None:
            raise FormError(
                f"{class_.__qualname__}: title= labels a form of one field; a class"
                ' labels its own, with Annotated[..., Title("…")]'
            )
        return _of_class(class_, annotation)
    return _of_value(annotation, title)


def _assemble(
    fields: tuple[Field, ...], build: Callable[[JSON], T], schema: JSON = None
) -> Form[T]:
    if schema is None:
        schema = {
            "type": "object",
            "properties": {field.name: dict(field.schema) for field in fields},
        }
        required = [field.name for field in fields if field.required]
        if required:
            schema["required"] = required
    try:
        text = dumps(schema)
    except CanonicalError as exc:
        raise FormError(f"the form's schema: {exc.problem}") from None
    return Form(schema=schema, text=text, fields=fields, build=build)


# ---- one field ----------------------------------------------------------------------


def _of_value(annotation: Any, title: str | None) -> Form[Any]:
    field = make_field(VALUE, annotation, of="this form", title=title)
    build = field.build

    def plain(recorded: JSON) -> Any:
        return recorded.get(VALUE)

    def built(recorded: JSON) -> Any:
        value = recorded.get(VALUE)
        return None if value is None else build(value)  # type: ignore[misc]

    return _assemble((field,), plain if build is None else built)


# ---- an attrs class -----------------------------------------------------------------


def _of_class(class_: type, annotation: Any) -> Form[Any]:
    fields = tuple(_class_fields(class_, annotation))
    arguments = [(field.name, field.argument or "", field.build) for field in fields]

    def build(recorded: JSON) -> Any:
        values: dict[str, Any] = {
            argument: recorded[name] if convert is None else convert(recorded[name])
            for name, argument, convert in arguments
            if name in recorded
        }
        try:
            return class_(**values)
        except Exception as exc:
            # The class's own word on it: validators, converters, __attrs_post_init__.
            raise Unfit([_complaint(exc)]) from exc

    return _assemble(fields, build)


def _class_fields(class_: type, annotation: Any) -> list[Field]:
    try:
        hints = get_type_hints(class_, include_extras=True)
    except NameError as exc:
        raise FormError(
            f"{class_.__qualname__}: {exc.name!r} in an annotation could not be"
            " resolved; define it at module level, before the form is used"
        ) from None
    variables = dict(
        zip(getattr(class_, "__parameters__", ()), get_args(annotation), strict=False)
    )
    fields = []
    for attribute in attrs.fields(class_):
        if not attribute.init:
            continue
        hint = hints.get(attribute.name, attribute.type)
        of = f"{class_.__qualname__}.{attribute.name}"
        if hint is None:
            raise FormError(f"{of}: has no annotation, so no type to ask for")
        default = attribute.default
        is_factory = isinstance(default, attrs.Factory)  # type: ignore[arg-type]
        alias = attribute.alias or attribute.name
        fields.append(
            make_field(
                alias,
                variables.get(hint, hint),
                of=of,
                default=(
                    _NO_DEFAULT if is_factory or default is attrs.NOTHING else default
                ),
                # Run at delivery, not shown: a factory may read a clock.
                has_hidden_default=is_factory,
                validator=attribute.validator,
                argument=alias,
            )
        )
    return fields


def _complaint(exc: Exception) -> str:
    # attrs's own validators raise (message, attribute, ...): the message names the
    # attribute in quotes and is already a sentence.
    if exc.args and isinstance(exc.args[0], str):
        return exc.args[0]
    return str(exc) or type(exc).__name__


# ---- a raw schema -------------------------------------------------------------------


def _raw(schema: Mapping[str, JSON], title: str | None) -> Form[dict[str, Any]]:
    if title is not None:
        raise FormError("title= labels a form of one field; put titles in the schema")
    for keyword in schema:
        if keyword not in ("$schema", "type", "properties", "required"):
            raise FormError(f"the form's schema: clients do not know {keyword!r} there")
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise FormError(
            "the form's schema: must be {'type': 'object', 'properties': {…}}"
        )
    properties = schema["properties"]
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(r in properties for r in required):
        raise FormError("the form's schema: 'required' must list known properties")
    if not isinstance(schema.get("$schema", ""), str):
        raise FormError("the form's schema: '$schema' must be text")
    fields = tuple(
        Field(
            name=name,
            schema=property_,
            required=name in required,
            check=make_check(property_, of=f"the form's field {name!r}"),
        )
        for name, property_ in properties.items()
    )
    # `loads` made this dict for this delivery, so it is the author's to change.
    return _assemble(fields, dict, dict(schema))
