"""Shapes → JSON Schema, 2020-12.

    schemas = Schemas()
    schemas.document(schemas.of(list[Guest], "invite.guests"))

A class is written once, under `$defs`, and referenced. In the end, a class that has one
reference and does not hold itself replaces its reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, assert_never, get_args

from ..canonical import JSON, MAX_DEPTH, dumps
from ..errors import CanonicalError, SchemaError
from ..shapes.choices import apply_label, built_by, choice_schema, pairs_of
from ..shapes.constraints import FULL, apply_rules
from ..shapes.notes import check_rules, notes_of
from ..shapes.problems import unreadable
from ..shapes.reading import (
    Anything,
    Choice,
    Columns,
    Entries,
    Items,
    Named,
    Object,
    Plain,
    Shape,
    Union,
    shape_of,
)
from ..shapes.sources import (
    NO_DEFAULT,
    Part,
    Source,
    checks_parts,
    description_of,
)
from ..shapes.unions import identity_of, unwrapped
from ..shapes.words import type_name
from .keywords import parts_in, with_parts
from .written import written

__all__ = ["Schemas", "add_default", "object_of"]

JSONSchema = dict[str, JSON]

#: The maximum nesting of classes, and of values.
_MAX_OPEN: Final = MAX_DEPTH


class Schemas:
    """The schemas of one document, and the classes that it defines.

    Args:
        output: Whether they describe results: then a field with a default is always
            present, and an object may have more properties than its class, as a
            subclass would.
    """

    def __init__(self, *, output: bool = False) -> None:
        self._output = output
        self._defs: dict[str, JSONSchema] = {}
        self._names: dict[str, str] = {}
        self._open = 0  # classes whose fields are being read
        self._place = ""  # where the outermost of them stands

    def of(self, annotation: Any, of: str, *, is_checked: bool = False) -> JSONSchema:
        """Return the schema of `annotation`; messages name `of`.

        Args:
            annotation: The type.
            of: The name of the value in messages.
            is_checked: Whether the class around checks the limits itself.

        Raises:
            SchemaError: If JSON Schema cannot express the type; names it.
        """
        bare, metadata = unwrapped(annotation)
        shape = shape_of(bare, of)
        schema = self._bare(bare, shape, of, is_checked)
        notes = notes_of(metadata, bare, shape, of, is_checked=is_checked)
        for label in notes.labels:
            apply_label(schema, label, FULL, of)
        apply_rules(schema, notes.rules, FULL, _built(shape, of))
        _refuse_empty(schema, of)
        return schema

    def document(self, schema: JSONSchema, of: str = "the schema") -> JSONSchema:
        """Return `schema` with the classes it refers to.

        Raises:
            SchemaError: If JSON cannot express a string or a number in it.
        """
        uses: dict[str, int] = {}
        for one in (schema, *self._defs.values()):
            for name in _references(one):
                uses[name] = uses.get(name, 0) + 1
        kept = {
            name
            for name in self._defs
            if uses.get(name, 0) > 1 or name in self._reachable(name)
        }
        result: JSONSchema = self._inlined(schema, kept)
        if kept:
            result["$defs"] = {
                name: self._inlined(one, kept)
                for name, one in self._defs.items()
                if name in kept
            }
        try:
            # The depth of a value is bounded; a schema only has to be finite.
            dumps(result, max_depth=_MAX_OPEN * MAX_DEPTH)
        except CanonicalError as exc:
            raise SchemaError(f"{of}: in its schema, {exc.problem}") from None
        return result

    def _reachable(self, name: str) -> set[str]:
        seen: set[str] = set()
        todo = [name]
        while todo:
            for found in _references(self._defs[todo.pop()]):
                if found not in seen:
                    seen.add(found)
                    todo.append(found)
        return seen

    def _inlined(self, schema: JSONSchema, kept: set[str]) -> JSONSchema:
        name = _referred(schema)
        if name is not None and name not in kept:
            # The keywords at the place of use take precedence.
            rest = {key: one for key, one in schema.items() if key != "$ref"}
            schema = {**self._defs[name], **rest}
        return with_parts(schema, lambda part: self._inlined(part, kept))

    # ---- one shape ----

    def _bare(self, bare: Any, shape: Shape, of: str, is_checked: bool) -> JSONSchema:
        def inside(annotation: Any, which: str) -> JSONSchema:
            return self.of(annotation, f"{of}, {which}", is_checked=is_checked)

        match shape:
            case Plain(leaf=leaf) if leaf.secret and self._output:
                raise SchemaError(
                    f"{of}: a result must not hold a secret; leave {type_name(bare)} out"
                )
            case Plain(leaf=leaf):
                return dict(leaf.schema)
            case Anything():
                return {}
            case Choice():
                return choice_schema(pairs_of(shape, FULL, of))
            case Items(item=item, is_set=is_set):
                items = inside(item, "an item")
                schema = {"type": "array", **({"items": items} if items else {})}
                return {**schema, "uniqueItems": True} if is_set else schema
            case Columns(items=items):
                return _row(
                    [inside(one, f"item {place}") for place, one in enumerate(items, 1)]
                )
            case Entries():
                return self._entries(shape, inside, of)
            case Union(members=members):
                return {
                    "anyOf": [
                        self.of(one, of, is_checked=is_checked) for one in members
                    ]
                }
            case Named(name=name, value=value):
                return self._defined(
                    bare, name, lambda: self.of(value, of, is_checked=is_checked), of
                )
            case Object(source=source):
                name = source.class_.__name__
                return self._defined(
                    bare, name, lambda: self._class(source, of, is_checked), of
                )
            case _:
                assert_never(shape)

    def _entries(
        self, shape: Entries, inside: Callable[[Any, str], JSONSchema], of: str
    ) -> JSONSchema:
        schema: JSONSchema = {"type": "object"}
        if shape.key is None:
            return schema
        keys, values = inside(shape.key, "a key"), inside(shape.value, "a value")
        keys = self._defs.get(_referred(keys) or "", keys)
        key = shape_of(unwrapped(shape.key)[0], of)
        if isinstance(key, Plain) and key.leaf.secret:
            raise SchemaError(f"{of}: a secret is shown where it is a key")
        if keys != {"type": "string"}:
            if keys.get("type") != "string":
                raise SchemaError(
                    f"{of}: JSON keys are strings, so not {shape.key!r}; write"
                    " dict[str, ...] or a list of pairs"
                )
            schema["propertyNames"] = keys
        schema["additionalProperties"] = values
        return schema

    # ---- classes ----

    def _defined(
        self, annotation: Any, name: str, make: Callable[[], JSONSchema], of: str
    ) -> JSONSchema:
        # `Box[int]` is a new object at each use.
        key = identity_of(annotation)
        if key not in self._names:
            if self._open >= _MAX_OPEN:
                raise SchemaError(
                    f"{of}: classes inside classes without an end; a generic class can"
                    " hold itself with the same arguments only"
                )
            args = [getattr(arg, "__name__", "") for arg in get_args(annotation)]
            name = "_".join(filter(None, (name, *args)))
            # A `$ref` is a URI, and has no room for `Größe` (RFC 3986, section 2).
            name = unique = "".join(
                char if char.isascii() and char.isalnum() else "_" for char in name
            )
            number = 1
            while unique in self._defs:
                number += 1
                unique = f"{name}_{number}"
            self._names[key] = unique
            if not self._open:
                self._place = of
            self._defs[unique] = {}  # reserved, while the fields of the class are read
            self._open += 1
            self._defs[unique].update(make())
            self._open -= 1
        return {"$ref": f"#/$defs/{self._names[key]}"}

    def _class(self, source: Source, of: str, is_checked: bool) -> JSONSchema:
        class_, parts = source.class_, source.parts
        if self._output and source.refuses_results:
            raise SchemaError(f"{of}: {class_.__qualname__} {source.refuses_results}")
        if self._output and source.results is not None:
            parts = source.results
        schemas = {part.name: self._part(source, part, is_checked) for part in parts}
        described: JSONSchema = {"title": class_.__name__}
        if text := description_of(class_):
            described["description"] = text
        if source.is_root:
            (root,) = schemas.values()
            return {**described, **root}
        if source.is_row:
            for name, one in schemas.items():
                one.setdefault("title", name)
            return {**_row(list(schemas.values())), **described}
        return object_of(
            schemas,
            [
                part.name
                for part in parts
                if part.required or (self._output and part.is_always)
            ],
            is_open=self._output or source.is_open,
            **described,
        )

    def _part(self, source: Source, part: Part, is_checked: bool) -> JSONSchema:
        of = f"{self._place}, {source.class_.__qualname__}.{part.name}"
        schema = self.of(part.hint, of, is_checked=checks_parts(source, is_checked))
        if part.text:
            schema.setdefault("description", part.text)
        if part.rules:
            bare, _ = unwrapped(part.hint)
            shape = shape_of(bare, of)
            check_rules(part.rules, bare, shape, of)
            apply_rules(schema, part.rules, FULL, _built(shape, of))
            _refuse_empty(schema, of)
        if part.default is not NO_DEFAULT:
            add_default(schema, part.default)
        return schema


def _refuse_empty(schema: JSONSchema, of: str) -> None:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None and high is not None and low > high:
        raise SchemaError(f"{of}: no number is at least {low} and at most {high}")
    for noun in ("Length", "Items", "Properties"):
        low, high = schema.get(f"min{noun}"), schema.get(f"max{noun}")
        if low is not None and high is not None and low > high:
            raise SchemaError(f"{of}: no length is at least {low} and at most {high}")


def _built(shape: Shape, of: str) -> Callable[[Any], Any]:
    """Return the function from a choice in the schema to its value."""
    found = built_by(pairs_of(shape, FULL, of)) if isinstance(shape, Choice) else None
    return (lambda choice: choice) if found is None else found


def object_of(
    properties: JSONSchema, required: list[str], *, is_open: bool = False, **more: JSON
) -> JSONSchema:
    """Return the schema of an object."""
    schema: JSONSchema = {"type": "object", **more}
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = required
    if not is_open:
        schema["additionalProperties"] = False
    return schema


def add_default(schema: JSONSchema, default: Any) -> None:
    """Add the default to the schema, if JSON can express it."""
    value, problems = written(default)
    if not problems and not unreadable(value):
        schema["default"] = value


def _row(items: list[JSONSchema]) -> JSONSchema:
    schema: JSONSchema = {"type": "array"}
    if items:
        schema["prefixItems"] = items
    return {**schema, "items": False, "minItems": len(items), "maxItems": len(items)}


def _referred(schema: JSONSchema) -> str | None:
    reference: str | None = schema.get("$ref")
    return None if reference is None else reference.removeprefix("#/$defs/")


def _references(schema: JSONSchema) -> list[str]:
    name = _referred(schema)
    found = [] if name is None else [name]
    for part in parts_in(schema):
        found += _references(part)
    return found
