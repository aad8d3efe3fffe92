"""A Python annotation → JSON Schema, 2020-12.

    schemas = Schemas()
    schemas.document(schemas.of(list[Guest], "invite.guests"))

A class is written once, under `$defs`, and referenced. In the end, a class that has one
reference and does not hold itself replaces its reference. Types that JSON cannot
express are refused by name, with what to write instead.
"""

from __future__ import annotations

import collections.abc as cabc
import datetime as dt
import decimal
import enum
import typing
import uuid
from types import NoneType
from typing import (
    Any,
    Final,
    ForwardRef,
    Literal,
    TypeVar,
    get_args,
    get_origin,
)

from ..canonical import JSON, MAX_DEPTH, dumps
from ..errors import CanonicalError, SchemaError
from ..forms.validators import NO_DEFAULT
from .checks import PATTERNS
from .choices import annotate, enum_of, literal_of
from .classes import Part, description_of, is_row, parts_of
from .keywords import parts_in, with_parts
from .problems import unreadable
from .unions import identity_of, is_union, members_of, unwrapped
from .validators import apply_validators
from .written import written

__all__ = ["MAPPINGS", "SETS", "Schemas", "add_default", "object_of"]

JSONSchema = dict[str, JSON]

_TIME, _DECIMAL, _BYTES = PATTERNS

_PLAIN: Final[dict[Any, JSONSchema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    None: {"type": "null"},
    Any: {},
    object: {},
    dt.date: {"type": "string", "format": "date"},
    dt.datetime: {"type": "string", "format": "date-time"},
    # The format `time` demands an offset, and Python's times rarely have one.
    dt.time: {"type": "string", "pattern": _TIME},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "pattern": _DECIMAL},
    # As in the converter of step results (RFC 4648, section 8).
    bytes: {"type": "string", "contentEncoding": "base16", "pattern": _BYTES},
}

_ARRAYS: Final = (list, cabc.Sequence, cabc.MutableSequence)
SETS: Final = (set, frozenset, cabc.Set, cabc.MutableSet)
_BARE_TUPLES: Final = (tuple, typing.Tuple)  # noqa: UP006  # not `tuple[()]`
MAPPINGS: Final = (dict, cabc.Mapping, cabc.MutableMapping)

_ADVICE: Final[dict[Any, str]] = {
    dt.timedelta: "take a number and name its unit: Annotated[float, 'in seconds']",
    complex: "take two floats",
    cabc.Callable: "a function cannot be sent; take its name, as a Literal",
    cabc.Iterator: "write list[...]",
    cabc.Iterable: "write list[...]",
    cabc.Collection: "write list[...]",
    bytearray: "write bytes",
}


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

    def of(self, annotation: Any, of: str) -> JSONSchema:
        """Return the schema of `annotation`; messages name `of`.

        Raises:
            SchemaError: If JSON Schema cannot express the type; names it.
        """
        try:
            hash(annotation)
        except TypeError:
            raise SchemaError(
                f"{of}: {annotation!r} is not a type, or holds something unhashable in"
                " its Annotated; write a tuple or a frozen class there"
            ) from None
        annotation, metadata = unwrapped(annotation)
        schema = self._bare(annotation, of)
        for item in metadata:
            annotate(schema, item, of)
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

    # ---- one annotation ----

    def _bare(self, annotation: Any, of: str) -> JSONSchema:
        if annotation in _PLAIN:
            return dict(_PLAIN[annotation])
        if hasattr(annotation, "__value__"):  # type Size = Literal["s", "l"]
            return self._defined(
                annotation,
                annotation.__name__,
                lambda: self.of(annotation.__value__, of),
                of,
            )
        origin, args = get_origin(annotation) or annotation, get_args(annotation)
        if is_union(annotation):
            return {"anyOf": [self.of(arg, of) for arg in members_of(annotation)]}
        if origin is Literal:
            return literal_of(args, of)
        if origin in _ARRAYS:
            return {"type": "array", **self._items(args, of)}
        if origin in SETS:
            for arg in args or (Any,):
                _refuse_unhashable(arg, of)
            return {"type": "array", **self._items(args, of), "uniqueItems": True}
        if origin is tuple:
            return self._tuple(annotation, args, of)
        if origin in MAPPINGS:
            return self._mapping(args, of)
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return enum_of(annotation, of)
        parts = parts_of(annotation)
        if parts is None:
            raise SchemaError(f"{of}: {_advice(annotation)}")
        return self._defined(
            annotation, origin.__name__, lambda: self._class(origin, parts), of
        )

    def _items(self, args: tuple[Any, ...], of: str) -> JSONSchema:
        items = self.of(args[0], of) if args else {}
        return {"items": items} if items else {}

    def _tuple(self, annotation: Any, args: tuple[Any, ...], of: str) -> JSONSchema:
        if len(args) == 2 and args[1] is Ellipsis or annotation in _BARE_TUPLES:
            return {"type": "array", **self._items(args, of)}
        return _row([self.of(arg, of) for arg in args])

    def _mapping(self, args: tuple[Any, ...], of: str) -> JSONSchema:
        schema: JSONSchema = {"type": "object"}
        if not args:
            return schema
        keys, values = self.of(args[0], of), self.of(args[1], of)
        if keys != {"type": "string"}:
            if keys.get("type") != "string":
                raise SchemaError(
                    f"{of}: JSON keys are strings, so not {args[0]!r}; write"
                    " dict[str, ...] or a list of pairs"
                )
            schema["propertyNames"] = keys
        schema["additionalProperties"] = values
        return schema

    # ---- classes ----

    def _defined(self, annotation: Any, name: str, make: Any, of: str) -> JSONSchema:
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
            self._defs[unique] = {}  # reserved, while the fields of the class are read
            self._open += 1
            self._defs[unique].update(make())
            self._open -= 1
        return {"$ref": f"#/$defs/{self._names[key]}"}

    def _class(self, class_: type, parts: list[Part]) -> JSONSchema:
        schemas = {part.name: self._part(class_, part) for part in parts}
        described = {"title": class_.__name__}
        if text := description_of(class_):
            described["description"] = text
        if is_row(class_):
            for name, one in schemas.items():
                one.setdefault("title", name)
            return {**_row(list(schemas.values())), **described}
        return object_of(
            schemas,
            [part.name for part in parts if part.required or self._always(class_)],
            is_open=self._output,
            **described,
        )

    def _always(self, class_: type) -> bool:
        return self._output and not issubclass(class_, dict)

    def _part(self, class_: type, part: Part) -> JSONSchema:
        of = f"{class_.__qualname__}.{part.name}"
        schema = self.of(part.hint, of)
        if part.text:
            schema.setdefault("description", part.text)
        if part.attribute is not None:
            apply_validators(schema, part.attribute)
        if part.default is not NO_DEFAULT:
            add_default(schema, part.default)
        return schema


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


# ---- refusals ----------------------------------------------------------------------


def _refuse_unhashable(annotation: Any, of: str) -> None:
    bare, _ = unwrapped(annotation)
    class_ = get_origin(bare) or bare
    if is_union(bare):
        for arg in get_args(bare):
            _refuse_unhashable(arg, of)
    elif class_ is tuple:
        for arg in get_args(bare) or (Any,):
            _refuse_unhashable(arg, of)
    elif (
        class_ is Any
        or getattr(class_, "__hash__", None) is None
        or (class_ in _ARRAYS + SETS + MAPPINGS and class_ is not frozenset)
    ):
        raise SchemaError(
            f"{of}: a set cannot hold {annotation!r}, which has no hash; write list[...]"
        )


def _advice(annotation: Any) -> str:
    if isinstance(annotation, (str, ForwardRef)):
        return f"the annotation {annotation!r} could not be resolved; define it first"
    if isinstance(annotation, TypeVar):
        return f"{annotation} is open; name its type, as in Box[int]"
    advice = _ADVICE.get(get_origin(annotation) or annotation)
    if advice is None:
        advice = (
            "write plain types, lists, dicts, unions, Literal, an Enum, or a class with"
            " annotated fields: attrs, dataclass, TypedDict, NamedTuple"
        )
    shown = (
        annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)
    )
    return f"{shown} has no schema; {advice}"
