"""A return annotation → `outputSchema`, and a result → `structuredContent`."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from inspect import Signature
from types import NoneType
from typing import Any, Final, get_args, get_origin

from attrs import field, frozen

from ..canonical import JSON
from ..errors import OutputError
from ..shapes.problems import rendered, unreadable
from ..shapes.unions import is_union, unwrapped
from .checks import Check
from .compiler import make_check
from .declared import final_type
from .types import Schemas
from .written import written

__all__ = ["Output", "output_of"]

#: Results for people and models to read, for which a schema would be useless.
_TEXT: Final = frozenset({str, bytes, NoneType, None, Any, object})


@frozen(eq=False, repr=False)
class Output:
    """The result of a function: its schema, and its conversion to JSON.

    Attributes:
        schema: The `outputSchema`.
    """

    schema: Mapping[str, JSON]
    _check: Check = field(alias="check")

    @property
    def is_object(self) -> bool:
        """Whether every result is an object.

        Since 2026-07-28 a result may be any JSON value. Earlier revisions require an
        object, so their clients must not be shown an `outputSchema` if this is false.
        """
        return self.schema.get("type") == "object"

    def write(self, value: Any) -> JSON:
        """Convert `value` to plain JSON that fits the schema.

        Raises:
            OutputError: If the result does not fit; names each place.
        """
        made, problems = written(value)
        problems = problems or unreadable(made) or self._check.find(made)[1]
        if problems:
            raise OutputError(rendered(problems, root="the result"))
        return made


def output_of(
    annotation: Any, *, content: Collection[type] = (), of: str = "the result"
) -> Output | None:
    """Return the `Output` of a function that returns `annotation`.

    Return `None` if a schema would be useless: for no annotation, `Any`, `str`,
    `bytes`, `None`, blocks of content, lists of blocks, and unions of these.

    Args:
        annotation: The return annotation, resolved, or `Signature.empty`; for a
            generator or a coroutine, its final type: `Flow[Receipt]` is read as
            `Receipt`.
        content: Classes of content blocks and of whole results.
        of: The name of the result in messages.

    Raises:
        SchemaError: If JSON Schema cannot express a part of the type; names it.
    """
    annotation = final_type(annotation)
    if annotation is Signature.empty or _is_content(annotation, tuple(content)):
        return None
    schemas = Schemas(output=True)
    schema = schemas.document(schemas.of(annotation, of), of)
    return Output(schema=schema, check=make_check(schema))


def _is_content(annotation: Any, content: tuple[type, ...]) -> bool:
    annotation, _ = unwrapped(annotation)
    origin, args = get_origin(annotation), get_args(annotation)
    if is_union(annotation):
        return all(_is_content(arg, content) for arg in args)
    if origin in (list, tuple) and args:
        # Blocks mixed with strings are content; a list of only strings is data.
        parts = [part for arg in args if arg is not ... for part in _parts_of(arg)]
        return any(_is_block(part, content) for part in parts) and all(
            part is str or _is_block(part, content) for part in parts
        )
    is_text = isinstance(annotation, Hashable) and annotation in _TEXT
    return is_text or _is_block(annotation, content)


def _parts_of(annotation: Any) -> list[Any]:
    annotation, _ = unwrapped(annotation)
    if not is_union(annotation):
        return [annotation]
    return [part for arg in get_args(annotation) for part in _parts_of(arg)]


def _is_block(annotation: Any, content: tuple[type, ...]) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, content)
