"""A schema that an author writes by hand, checked by jsonschema-rs.

By default, jsonschema-rs fetches `http` and reads `file` references, and a value nested
50,000 deep under a recursive schema kills the process. So each reference is resolved
within the document at registration, and all others are refused by name; a retriever
that raises is the second defence. Depth is bounded before jsonschema-rs sees a schema
or a value. jsonschema-rs bounds the cost of a regular expression; a string that exceeds
it does not match.

Dialects: 2020-12, which is the default, 2019-09, draft 7, draft 6 and draft 4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from ..canonical import JSON, dumps
from ..errors import CanonicalError, SchemaError
from ..shapes.problems import MAX_PROBLEMS, rendered, unreadable
from ..shapes.words import path_step
from .references import Document, all_parts

__all__ = ["DIALECTS", "MAX_BYTES", "MAX_PARTS", "RawSchema"]

#: The maximum size of a schema in JSON: every client of `tools/list` reads all schemas.
MAX_BYTES: Final = 64 * 1024

#: The maximum number of schemas after each reference is replaced by its target. A chain
#: of forty unions, each with two references to the next, has 2⁴⁰, and jsonschema-rs
#: would try them all.
MAX_PARTS: Final = 10_000

#: By `$schema`, without its fragment, as clients use both spellings.
DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}

_DRAFTS: Final = {"Draft4Validator": 4, "Draft6Validator": 6, "Draft7Validator": 7}

_DEFAULT: Final = "https://json-schema.org/draft/2020-12/schema"

#: The maximum number of visits of a value to find its problems.
_MAX_WAYS: Final = 10_000

#: Messages of jsonschema-rs quote the schema, and an `enum` may be long.
_MAX_WORDS: Final = 300


@cache
def _engine() -> Any:
    try:
        import jsonschema_rs
    except ImportError:
        raise SchemaError(
            "a raw schema is checked by jsonschema-rs, which is not installed:"
            " pip install effectmcp[schema]"
        ) from None
    return jsonschema_rs


def _retrieve(uri: str) -> Any:
    raise ValueError(f"{uri} is not in the schema, and nothing is ever fetched")


class RawSchema:
    """A JSON Schema written by hand, which checks values.

    Args:
        schema: The schema. It is copied.
        of: The name of the schema in messages.

    Raises:
        SchemaError: If the schema is not JSON, is nested deeper than 64 levels, exceeds
            `MAX_BYTES` or `MAX_PARTS`, has a dialect that is not in `DIALECTS`, is
            invalid in its dialect, or refers to anything outside itself; or if
            jsonschema-rs is missing.

    Attributes:
        schema: A copy of the schema.
    """

    def __init__(self, schema: Mapping[str, JSON], *, of: str = "the schema") -> None:
        self.schema: Final = _copied(schema, of)
        class_ = _dialect(self.schema, of)
        self._document = Document(self.schema, of, draft=_DRAFTS.get(class_))
        if self._document.unfolded() > MAX_PARTS:
            raise SchemaError(
                f"{of} unfolds into more than {MAX_PARTS:,} schemas, and checking that"
                " takes too long; let fewer unions refer to unions"
            )
        engine = _engine()
        try:
            # Compiled here and not at first use: a tool that cannot be called must not
            # be listed.
            self._validator = getattr(engine, class_)(
                self.schema, validate_formats=True, retriever=_retrieve, mask="it"
            )
        except ValueError as exc:
            where = "".join(map(path_step, getattr(exc, "instance_path", ())))
            at = f" at {where.removeprefix('.')}" if where else ""
            raise SchemaError(f"{of} is not a valid schema{at}: {_said(exc)}") from None

    def check(self, value: JSON) -> list[str]:
        """Return all problems of `value`."""
        problems = unreadable(value)
        if not problems:
            if self._validator.is_valid(value):
                return []
            if self._document.ways(_depth(value)) > _MAX_WAYS:
                # is_valid() caches its results. The search for reasons does not: 20
                # levels under a union that holds itself twice took minutes.
                words = "does not fit the schema, and is nested too deeply to say where"
                problems = [("", words)]
            else:
                problems = [
                    ("".join(map(path_step, error.instance_path)), _said(error))
                    for error in islice(
                        self._validator.iter_errors(value), MAX_PROBLEMS + 1
                    )
                ]
        return rendered(problems, root="the value")


def _said(exc: Any) -> str:
    words = str(getattr(exc, "message", None) or exc)
    if words.startswith("False schema"):
        # A tool without arguments publishes {"type": "object", "additionalProperties":
        # false}.
        path = getattr(exc, "schema_path", ())
        is_extra = path[-1:] == ["additionalProperties"]
        return "additional properties are not allowed" if is_extra else "is not allowed"
    return words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "…"


def _copied(schema: Mapping[str, JSON], of: str) -> dict[str, JSON]:
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{of} must be an object, not {type(schema).__qualname__}")
    try:
        text = dumps(dict(schema))
    except CanonicalError as exc:
        raise SchemaError(f"{of}: {exc.problem}") from None
    if len(text) > MAX_BYTES:
        raise SchemaError(
            f"{of} has {len(text):,} bytes, and clients need not read more than"
            f" {MAX_BYTES:,}"
        )
    # In the author's order, in which a form or a page would show it.
    copied: dict[str, JSON] = json.loads(json.dumps(dict(schema)))
    return copied


def _dialect(schema: Mapping[str, JSON], of: str) -> str:
    found = ""
    for part in all_parts(schema):
        uri = part.get("$schema", _DEFAULT if part is schema else None)
        if uri is None:
            continue
        name = uri.removesuffix("#") if isinstance(uri, str) else ""
        if name not in DIALECTS:
            known = ", ".join(DIALECTS)
            raise SchemaError(f"{of}: the dialect {uri!r} is not one of {known}")
        if found and DIALECTS[name] != found:
            raise SchemaError(f"{of}: the dialect changes inside, to {uri}")
        found = DIALECTS[name]
    return found


def _depth(value: JSON) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
