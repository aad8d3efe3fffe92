"""A whole form: the schema for the client, and the value that its answer becomes.

`read` checks an answer and returns the values that the journal records, or raises
`Unfit` with *every* problem. `build` makes the author's value from the recorded values.
It makes a new one each time, so no two deliveries share a list, and defaults come from
the present class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

from attrs import frozen

from ..canonical import JSON, dumps
from ..errors import CanonicalError, FormError
from .fields import Field, make_check

__all__ = [
    "LABEL",
    "THIS",
    "VALUE",
    "Form",
    "Recorded",
    "Unfit",
    "assemble",
    "form",
    "form_of",
]

T = TypeVar("T")
C = TypeVar("C", bound=type)

#: The values that `read` returned and the journal recorded, by property.
Recorded: TypeAlias = Mapping[str, JSON]

#: The property of a form with a single field.
VALUE: Final = "value"
#: The title of that property, if the author gave none: a question is shown above it.
LABEL: Final = "Answer"
#: The name of an unnamed form, in messages.
THIS: Final = "this form"


class Unfit(Exception):
    """An answer that does not fit its question.

    Attributes:
        problems: One string per problem, for the user: `age: must be at least 18`.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@frozen(eq=False, repr=False)
class Form(Generic[T]):
    """A checked form.

    Attributes:
        schema: The `requestedSchema` that a client is shown.
        text: Canonical JSON, for fingerprints.
        fields: One `Field` per property.
        build: Recorded answer to value. Raises `Unfit` if the present class refuses it.
        judge: Checks a recorded answer with the author's class, and adds its complaints
            to the problems found so far, by property.
    """

    schema: Mapping[str, JSON]
    text: bytes
    fields: tuple[Field, ...]
    build: Callable[[Recorded], T]
    judge: Callable[[Recorded, dict[str, str]], None] | None = None

    def read(self, content: JSON) -> dict[str, JSON]:
        """Check an answer; return its known properties, normalised, for the journal.

        Raises:
            Unfit: If the answer does not fit; with every problem.
        """
        # A client that has nothing to fill in may leave `content` out altogether.
        if content is None:
            content = {}
        if not isinstance(content, dict):
            fields = ", ".join(field.name for field in self.fields)
            raise Unfit([f"the answer must be an object with the fields {fields}"])
        recorded: dict[str, JSON] = {}
        problems: dict[str, str] = {}
        for field in self.fields:
            value = content.get(field.name)
            if field.takes_text and type(value) is str and value.isascii():
                recorded[field.name] = value
            elif value is not None:
                try:
                    recorded[field.name] = field.check(value)
                except ValueError as exc:
                    problems[field.name] = str(exc)
            elif field.required:
                problems[field.name] = "is required"
            elif field.name in content:
                problems[field.name] = "leave it out instead"
        if self.judge is not None:
            self.judge(recorded, problems)
        if problems:
            names = [field.name for field in self.fields if field.name in problems]
            raise Unfit([f"{name}: {problems[name]}" for name in names])
        self.build(recorded)
        return recorded


def form_of(annotation: Any, title: str | None = None) -> Form[Any]:
    """Return the form of `annotation`, checked once.

    Args:
        annotation: A class with fields, the type of a single field, or a raw schema.
        title: The label of a single field.

    Raises:
        FormError: If no client could show a field; names the field and the reason.
    """
    if isinstance(annotation, type):
        return _cached(annotation, title, "")
    if isinstance(annotation, Mapping):
        return _raw(annotation, title)
    # `Literal["a", "b"] == Literal["b", "a"]`, but they are shown differently: without
    # the string in the key, the order would depend on which was used first.
    order = repr(annotation)
    try:
        return _cached(annotation, title, order)
    except TypeError as exc:
        if "unhashable" not in str(exc):
            raise
        # Metadata of other libraries in Annotated need not be hashable.
        return _cached.__wrapped__(annotation, title, order)


def form(class_: C) -> C:
    """Decorate a class to check its form at import instead of at its first use."""
    form_of(class_)
    return class_


# Bounded, because classes made at run time must not accumulate here.
@lru_cache(maxsize=1024)
def _cached(annotation: Any, title: str | None, order: str) -> Form[Any]:
    # A late import: a module that only defines handlers needs no shapes.
    from .typed import typed_form

    return typed_form(annotation, title)


def assemble(
    fields: tuple[Field, ...],
    build: Callable[[Recorded], T],
    judge: Callable[[Recorded, dict[str, str]], None] | None = None,
    *,
    of: str,
) -> Form[T]:
    """Return the form of some fields; messages name `of`."""
    properties = {field.name: field.schema for field in fields}
    schema: dict[str, JSON] = {"type": "object", "properties": properties}
    required = [field.name for field in fields if field.required]
    if required:
        schema["required"] = required
    # `typing` returns Optional[Literal["a", "b"]] for Optional[Literal["b", "a"]], if
    # the process used the first form earlier. So choices are shown in the order of
    # `typing`, and the fingerprint of the question ignores that order.
    unordered = {name: _unordered(property_) for name, property_ in properties.items()}
    text = _text({**schema, "properties": unordered}, of)
    return Form(schema=schema, text=text, fields=fields, build=build, judge=judge)


def _text(schema: JSON, of: str) -> bytes:
    try:
        return dumps(schema)
    except CanonicalError as exc:
        raise FormError(f"{of}: {exc.problem}") from None


def _unordered(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    result = dict(schema)
    if "items" in result:
        result["items"] = _unordered(result["items"])
    if "enum" in result:
        result["enum"] = sorted(result["enum"])
    for keyword in ("oneOf", "anyOf"):
        if keyword in result:
            result[keyword] = sorted(result[keyword], key=lambda one: str(one["const"]))
    return result


# ---- a raw schema -------------------------------------------------------------------


def _raw(schema: Mapping[str, JSON], title: str | None) -> Form[dict[str, Any]]:
    if title is not None:
        raise FormError("title= labels a form of one field; put titles in the schema")
    for keyword in schema:
        if keyword not in ("$schema", "type", "properties", "required"):
            raise FormError(f"the form's schema: clients do not know {keyword!r} there")
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise FormError(
            "the form's schema: must be {'type': 'object', 'properties': {…}}"
        )
    required = schema.get("required", [])
    if (
        not isinstance(required, list)
        or not all(type(name) is str and name in properties for name in required)
        or len(set(required)) != len(required)
    ):
        raise FormError(
            "the form's schema: 'required' must list known properties, each once"
        )
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
    text = _text(dict(schema), "the form's schema")
    # Copied, so that an author who edits the dict later does not change a question that
    # is already asked. Copied only here, where it is known to be shallow.
    return Form(schema=_copy(dict(schema)), text=text, fields=fields, build=_copy)


def _copy(value: JSON) -> JSON:
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value
