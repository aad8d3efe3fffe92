"""The references of a schema, and the number of ways to follow them.

Every reference must resolve within the document: by a pointer, by an anchor, or by the
`$id` of a part. Nothing is fetched, so other references are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from ..canonical import JSON
from ..errors import SchemaError
from .keywords import parts_below, parts_in, parts_of_same

__all__ = ["Document", "all_parts"]

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")

#: The base of a document that has no name. The host is reserved (RFC 2606), so no
#: reference of an author can mean it.
_NAMELESS: Final = "http://effectmcp.invalid/"

#: Counting stops here.
_MANY: Final = 10**9


def all_parts(schema: Mapping[str, JSON]) -> Iterator[Mapping[str, JSON]]:
    """Yield `schema` and every schema in it."""
    yield schema
    for part in parts_in(schema):
        yield from all_parts(part)


class Document:
    """A schema whose references all resolve within it.

    Args:
        schema: The schema.
        of: The name of the schema in messages.
        draft: 4, 6 or 7; `None` for a later dialect.

    Raises:
        SchemaError: If a reference leads out of the schema, or nowhere; names it.
    """

    def __init__(
        self, schema: Mapping[str, JSON], of: str, *, draft: int | None = None
    ) -> None:
        self._id = "id" if draft == 4 else "$id"
        # Up to draft 7, other keywords beside a `$ref` are ignored.
        self._is_ref_alone = draft is not None
        self._schema = schema
        self._of = of
        self._roots: dict[str, JSON] = {_NAMELESS: schema}
        self._anchors: dict[str, JSON] = {}
        self._bases: list[tuple[str, Mapping[str, JSON]]] = []
        self._seen: set[int] = set()
        self._visit(schema, _NAMELESS)
        self._targets: dict[int, list[JSON]] = {}
        for base, part in self._bases:  # grows by the schemas under unknown keywords
            for keyword in _REFERENCES:
                # The metaschema reports a `$ref` of another type.
                if isinstance(part.get(keyword), str):
                    target = self._find(base, part[keyword], f"{of}: {keyword}")
                    self._targets.setdefault(id(part), []).append(target)

    def unfolded(self) -> int:
        """Count the schemas after each reference is replaced by its target.

        A reference to a schema around it is not counted: jsonschema-rs caches its
        results for schemas that hold themselves, and for no others.
        """
        return self._guarded(self._unfold, self._schema, {})

    def ways(self, depth: int) -> int:
        """Count the ways through the schema to parts of a value `depth` deep.

        Nested unions, reached by references, can be followed in 2⁶⁴ ways at the maximum
        depth, and jsonschema-rs may report a reason for each.
        """
        return self._guarded(self._follow, self._schema, {}, depth)

    def _guarded(self, count: Callable[..., int], *args: Any) -> int:
        try:
            return count(*args)
        except RecursionError:  # a reference to a reference, and so on
            return _MANY

    def _unfold(self, part: JSON, counted: dict[int, int]) -> int:
        if id(part) not in counted:
            counted[id(part)] = 0
            total = 1
            for one in (*self._same(part), *parts_below(part)):
                total += self._unfold(one, counted)
            counted[id(part)] = min(total, _MANY)
        return counted[id(part)]

    def _follow(
        self, part: JSON, counted: dict[tuple[int, int], int], depth: int
    ) -> int:
        key = (id(part), depth)
        if key not in counted:
            counted[key] = 0  # a cycle without a step: no new way
            total = 1
            for one in self._same(part):
                total += self._follow(one, counted, depth)
            for one in parts_below(part) if depth > 0 else ():
                total += self._follow(one, counted, depth - 1)
            counted[key] = min(total, _MANY)
        return counted[key]

    def _same(self, part: JSON) -> list[JSON]:
        return [*self._targets.get(id(part), ()), *parts_of_same(part)]

    def _visit(self, part: Mapping[str, JSON], base: str) -> None:
        name = part.get(self._id)
        if isinstance(name, str) and not (self._is_ref_alone and "$ref" in part):
            base, fragment = _resolved(base, name, f"{self._of}: {self._id}")
            if fragment:  # an anchor, in draft 7 and before
                self._anchors[f"{base}#{fragment}"] = part
            else:
                self._roots[base] = part
        for keyword in _ANCHORS:
            if isinstance(part.get(keyword), str):
                self._anchors[f"{base}#{part[keyword]}"] = part
        self._bases.append((base, part))
        self._seen.add(id(part))
        for one in parts_in(part):
            self._visit(one, base)

    def _find(self, base: str, reference: str, of: str) -> JSON:
        target, fragment = _resolved(base, reference, of)
        if target not in self._roots:
            raise SchemaError(
                f"{of} {reference!r} leads out of the schema, and nothing is fetched; put"
                " what it means under $defs"
            )
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get(f"{target}#{fragment}")
        else:
            found = _pointed(self._roots[target], fragment)
        if not isinstance(found, (dict, bool)):
            raise SchemaError(f"{of} {reference!r} leads nowhere")
        if isinstance(found, bool):
            return {}
        if id(found) not in self._seen:
            # A schema under an unknown keyword, which this reference makes a part.
            self._visit(found, target)
        return found


def _resolved(base: str, reference: str, of: str) -> tuple[str, str]:
    if reference.startswith("#"):
        # urljoin() does not handle fragments of a `urn:`.
        return base, reference[1:]
    try:
        target, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        raise SchemaError(f"{of} {reference!r} is no address") from None
    return target, fragment


def _is_index(key: str) -> bool:
    return key.isdecimal() and len(key) < 10


def _pointed(schema: JSON, pointer: str) -> JSON:
    for piece in unquote(pointer).split("/")[1:]:
        key = piece.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list) and _is_index(key) and int(key) < len(schema):
            schema = schema[int(key)]
        elif isinstance(schema, dict) and key in schema:
            schema = schema[key]
        else:
            return None
    return schema
