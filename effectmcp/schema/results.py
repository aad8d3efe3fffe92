"""A return annotation → `outputSchema`, and a result → `structuredContent`."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Generator, Mapping
from inspect import Signature
from types import NoneType
from typing import Any, Final, get_args, get_origin

from attrs import frozen

from ..canonical import JSON
from ..errors import OutputError
from .checks import Check
from .compiler import make_check
from .problems import rendered, unreadable
from .types import Schemas
from .unions import is_union, unwrapped
from .written import written

__all__ = ["Output", "output_of"]

#: Answers for people and models to read, of which a schema would promise nothing.
_TEXT: Final = frozenset({str, bytes, NoneType, None, Any, object})


@frozen(eq=False, repr=False)
class Output:
    """What a function returns: the schema to publish, and the way to JSON.

    Attributes:
        schema: The `outputSchema`.
    """

    schema: Mapping[str, JSON]
    _check: Check

    @property
    def is_object(self) -> bool:
        """Whether every result is an object.

        Since 2026-07-28 it may be any JSON value. Before, it had to be an object, so a
        client of that time must be shown no `outputSchema` where this is false.
        """
        return self.schema.get("type") == "object"

    def write(self, value: Any) -> JSON:
        """`value` as plain JSON that fits the schema.

        Raises:
            OutputError: naming each place where it does not.
        """
        made, problems = written(value)
        problems = problems or unreadable(made) or self._check.find(made)[1]
        if problems:
            raise OutputError(rendered(problems, root="the result"))
        return made


def output_of(annotation: Any, *, content: Collection[type] = ()) -> Output | None:
    """What a function annotated with `annotation` returns, looked at once.

    `None` where there is nothing to promise: no annotation, `Any`, `str`, `bytes`,
    `None`, blocks of content and lists of them, and unions of these.

    Args:
        annotation: The return annotation, resolved, or `Signature.empty`; of a generator
            or a coroutine, what it returns in the end: `Flow[Receipt]` is read as
            `Receipt`.
        content: Classes of content blocks and of whole results.

    Raises:
        SchemaError: naming the part that JSON Schema cannot say.
    """
    while (get_origin(annotation) or annotation) in (Generator, Coroutine):
        annotation = (*get_args(annotation), Any, Any, Any)[2]  # a bare one has none
    if annotation is Signature.empty or _is_content(annotation, tuple(content)):
        return None
    schemas = Schemas(output=True)
    of = "the result"
    schema = schemas.document(schemas.of(annotation, of), of)
    return Output(schema=schema, check=make_check(schema))


def _is_content(annotation: Any, content: tuple[type, ...]) -> bool:
    annotation, _ = unwrapped(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if is_union(annotation):
        return all(_is_content(arg, content) for arg in args)
    if origin in (list, tuple) and args:
        # With texts in between, as long as it is no list of texts alone, which is data.
        parts = [part for arg in args if arg is not ... for part in _parts_of(arg)]
        return any(_is_block(part, content) for part in parts) and all(
            part is str or _is_block(part, content) for part in parts
        )
    return annotation in _TEXT or _is_block(annotation, content)


def _parts_of(annotation: Any) -> list[Any]:
    annotation, _ = unwrapped(annotation)
    if not is_union(annotation):
        return [annotation]
    return [part for arg in get_args(annotation) for part in _parts_of(arg)]


def _is_block(annotation: Any, content: tuple[type, ...]) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, content)
