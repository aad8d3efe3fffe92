"""Classes with fields: a module for each kind of them.

A module has `source_of(class_)`, which returns a `Source`, or `None` for a class of
another kind. It may have `notes_in(item)` for its objects in `Annotated`, and `leaf_of(
class_)` for its types of single values. To add a kind, add its module here. None of them
imports a library: an app that uses one has imported it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from inspect import cleandoc
from types import FunctionType
from typing import Any, Generic, Protocol, TypeVar, get_args, get_origin

from attrs import evolve

from ..docstrings import parse_docstring
from ..labels import Choices, Format, Header, Title
from ..plain import Leaf
from . import (
    annotated_types_notes,
    attrs_classes,
    dataclass_classes,
    msgspec_structs,
    named_tuples,
    pydantic_models,
    pydantic_notes,
    typed_dicts,
)
from .source import (
    NO_DEFAULT,
    Complaints,
    Converted,
    Judge,
    Note,
    Part,
    Source,
    Unknown,
    checks_parts,
    hints_of,
    refuse_field,
)

__all__ = [
    "NO_DEFAULT",
    "Complaints",
    "Converted",
    "Judge",
    "Note",
    "Part",
    "Source",
    "Unknown",
    "checks_parts",
    "class_source",
    "description_of",
    "hints_of",
    "leaf_of",
    "notes_in",
    "refuse_field",
    "shown_note",
    "source_of",
]

#: The first that knows a class takes it: pydantic's dataclasses are dataclasses, too.
_KINDS = (
    pydantic_models,
    attrs_classes,
    dataclass_classes,
    msgspec_structs,
    typed_dicts,
    named_tuples,
)


#: The first that knows an object takes it: some of pydantic's inherit from annotated-types.
_NOTES = (pydantic_notes, msgspec_structs, annotated_types_notes)


def notes_in(item: Any) -> Iterable[Note]:
    """Return the meaning of an object in `Annotated`; nothing for an unknown one."""
    if isinstance(item, (str, Title, Format, Choices, Header)):
        return (item,)
    root = getattr(item, "__module__", type(item).__module__).partition(".")[0]
    if root in ("attr", "attrs"):
        advice = "validators of attrs belong to a field of a class; write Ge(3) and the"
        return (Unknown(f"{advice} like, of annotated-types", is_always=True),)
    is_uncalled = isinstance(item, (type, FunctionType))
    if is_uncalled and root in ("annotated_types", "msgspec", "pydantic"):
        found = pydantic_notes.notes_in(item) if isinstance(item, type) else None
        return found or (Unknown(f"call it: {item.__name__}(...)", is_always=True),)
    return next(
        (found for kind in _NOTES if (found := kind.notes_in(item)) is not None),
        (),
    )


def shown_note(item: Any) -> str:
    """Return an object in `Annotated` as its author wrote it, or nearly so."""
    return pydantic_notes.shown_note(item) or repr(item)


def leaf_of(class_: Any) -> Leaf | None:
    """Return a type of single values that a library defines; `None` for others."""
    return pydantic_notes.leaf_of(class_)


@lru_cache(maxsize=1024)
def class_source(class_: Any) -> Source | None:
    """Return the source of a class, with open type variables; `None` for other types."""
    return next(filter(None, (kind.source_of(class_) for kind in _KINDS)), None)


def source_of(annotation: Any) -> Source | None:
    """Return the source of a class or an alias such as `Box[int]`.

    Return `None` for all other types.

    Raises:
        SchemaError: If a field has no usable type; names the class and the field.
    """
    class_ = get_origin(annotation) or annotation
    if not isinstance(class_, type):
        return None
    found = class_source(class_)
    if found is None:
        return None
    variables = _variables(class_, get_args(annotation))
    texts = parse_docstring(_own_docstring(class_)).entries

    def filled(part: Part) -> Part:
        owner = _owner(class_, part.own_name or part.name, variables)
        hint = _filled_in(part.hint, variables.get(owner, {}))
        return evolve(part, hint=hint, text=part.text or texts.get(part.name, ""))

    results = found.results
    return evolve(
        found,
        parts=tuple(map(filled, found.parts)),
        results=None if results is None else tuple(map(filled, results)),
    )


def description_of(class_: type) -> str:
    """Return the first paragraph of a class's own docstring."""
    return parse_docstring(_own_docstring(class_)).summary


def _own_docstring(class_: type) -> str:
    text = vars(class_).get("__doc__") or ""
    # dataclass and NamedTuple generate a docstring from the signature.
    return "" if text.startswith(f"{class_.__name__}(") else cleandoc(text)


# ---- type variables -----------------------------------------------------------------


def _variables(class_: type, args: tuple[Any, ...]) -> dict[type, Mapping[Any, Any]]:
    """Return the values of the type variables of `class_` and of each base.

    They are grouped by class, since a class and its base may use the same variable for
    two types.
    """
    parameters = getattr(class_, "__parameters__", ())
    own = dict(zip(parameters, args, strict=False))
    found: dict[type, Mapping[Any, Any]] = {class_: own}
    for base in getattr(class_, "__orig_bases__", class_.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and origin not in (Generic, Protocol):
            inside = tuple(_filled_in(arg, own) for arg in get_args(base))
            found = {**_variables(origin, inside), **found}
    return found


def _owner(class_: type, name: str, bases: Iterable[type]) -> type:
    """Return the class that annotates `name`.

    Args:
        class_: The class that has it.
        name: The field.
        bases: `class_` and its bases, the outermost first.
    """
    # A TypedDict does not list its bases, and repeats their annotations as its own.
    is_dict = issubclass(class_, dict)
    for base in bases if is_dict else class_.__mro__:
        if name in getattr(base, "__annotations__", ()):
            return base
    return class_


def _filled_in(hint: Any, variables: Mapping[Any, Any]) -> Any:
    """Replace the class's type variables in `hint`, such as the T of `list[T]`."""
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    inside = getattr(hint, "__parameters__", ())
    if not inside or isinstance(hint, type):
        return hint
    return hint[tuple(variables.get(variable, variable) for variable in inside)]
