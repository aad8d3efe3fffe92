"""msgspec: `Struct`s, and `Meta` in `Annotated`.

msgspec checks a `Meta` only where it decodes. Here the values are checked and built by
effectmcp, and the `Struct` is made of them.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Iterable
from functools import reduce
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from ...errors import SchemaError
from ..constraints import Bound, Multiple, Other, Pattern, Rule, Size
from ..labels import Title
from .source import NO_DEFAULT, Note, Part, Source, Unknown, hints_of

__all__ = ["notes_in", "source_of"]


def source_of(class_: Any) -> Source | None:
    """Return the source of a `Struct`; `None` for any other class."""
    library: Any = sys.modules.get("msgspec")
    if library is None or not issubclass(class_, library.Struct):
        return None
    config, unset = class_.__struct_config__, library.UNSET
    try:
        fields = library.structs.fields(class_)
    except Exception:
        hints_of(class_, class_.__qualname__)  # names an annotation, if that is wrong
        raise
    parts = [
        Part(
            name=one.encode_name,
            hint=_without_unset(one.type, library.UnsetType),
            required=one.required,
            default=_default(one.default, library),
            own_name=one.name,
            is_always=one.default is not unset,
        )
        for one in fields
    ]
    tag = config.tag_field if config.tag is not None else None
    if tag is not None:
        parts.insert(0, Part(name=tag, hint=Literal[config.tag], required=True))
    if config.array_like and any(not part.required for part in parts):
        raise SchemaError(
            f"{class_.__qualname__}: array_like with defaults gives lists of several"
            " lengths; leave out array_like, or the defaults"
        )
    names = {one.encode_name: one.name for one in fields}

    def make(values: dict[str, Any]) -> Any:
        return class_(
            **{names[key]: value for key, value in values.items() if key in names}
        )

    def read(value: Any) -> Iterable[tuple[str, Any]]:
        if tag is not None:
            yield tag, config.tag
        for key, name in names.items():
            if (item := getattr(value, name)) is not unset:
                yield key, item

    return Source(
        class_=class_,
        parts=tuple(parts),
        make=make,
        read=read,
        is_row=config.array_like,
    )


def _default(default: Any, library: Any) -> Any:
    return NO_DEFAULT if default in (library.NODEFAULT, library.UNSET) else default


def _without_unset(hint: Any, unset: Any) -> Any:
    if get_origin(hint) is Annotated:
        made: Any = Annotated
        return made[(_without_unset(hint.__origin__, unset), *hint.__metadata__)]
    if get_origin(hint) not in (Union, UnionType) or unset not in get_args(hint):
        return hint
    return reduce(operator.or_, [one for one in get_args(hint) if one is not unset])


_BOUNDS: Final = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def notes_in(item: Any) -> Iterable[Note] | None:
    """Return what a `Meta` says; `None` for any other object."""
    library: Any = sys.modules.get("msgspec")
    if library is None or not isinstance(item, library.Meta):
        return None
    found: list[Note] = []
    for name, op in _BOUNDS.items():
        if (bound := getattr(item, name)) is not None:
            found.append(Rule(Bound(op, bound)))
    if item.multiple_of is not None:
        found.append(Rule(Multiple(item.multiple_of)))
    if item.min_length is not None:
        found.append(Rule(Size("min", item.min_length)))
    if item.max_length is not None:
        found.append(Rule(Size("max", item.max_length)))
    if item.pattern is not None:
        found.append(Rule(Pattern(item.pattern, re.compile(item.pattern).search)))
    if item.tz is not None:
        words = "must have a time zone" if item.tz else "must have no time zone"
        has_zone = item.tz
        found.append(
            Rule(
                Other(
                    lambda value: (value.tzinfo is not None) is has_zone,
                    words,
                    ("datetime", "time"),
                )
            )
        )
    if item.title is not None:
        found.append(Title(item.title))
    if item.description is not None:
        found.append(item.description)
    if item.extra_json_schema:
        keywords = ", ".join(item.extra_json_schema)
        found.append(Unknown(f"write {keywords} as arguments of Meta"))
    return found
