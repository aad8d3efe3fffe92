"""The fields of a class: attrs, dataclass, TypedDict or NamedTuple.

Annotations are resolved here, once, with the class's type variables filled in: `Box[int]`
has a field of `list[int]` where `Box` has one of `list[T]`.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable, Mapping
from typing import (
    Any,
    Final,
    Generic,
    NotRequired,
    Protocol,
    Required,
    TypeVar,
    get_args,
    get_origin,
)

import attrs
from attrs import Attribute, frozen
from typing_extensions import ReadOnly

from ..errors import SchemaError
from ..forms.validators import NO_DEFAULT
from .docstrings import parse_docstring

__all__ = ["Part", "description_of", "hints_of", "is_row", "parts_of"]


@frozen(eq=False)
class Part:
    """A field of a class.

    Attributes:
        name: The name on the wire and in the class's constructor.
        hint: Its annotation, resolved.
        required: Whether the constructor needs it.
        default: The default, if it is constant.
        text: Its description, from the class's docstring.
        attribute: The attrs attribute, for an attrs class.
    """

    name: str
    hint: Any
    required: bool
    default: Any = NO_DEFAULT
    text: str = ""
    attribute: Attribute[Any] | None = None

    @property
    def of(self) -> str:
        """The name in the class: `_x` for a private attribute."""
        return self.name if self.attribute is None else self.attribute.name


def is_row(type_: Any) -> bool:
    """Whether `type_` is a NamedTuple."""
    return (
        isinstance(type_, type)
        and issubclass(type_, tuple)
        and hasattr(type_, "_fields")
    )


def parts_of(annotation: Any) -> list[Part] | None:
    """Return the fields of a class; `None` for all other types.

    Raises:
        SchemaError: If a field has no usable type; names the class and the field.
    """
    class_ = get_origin(annotation) or annotation
    if not isinstance(class_, type):
        return None
    if attrs.has(class_):
        parts = _of_attrs(class_)
    elif dataclasses.is_dataclass(class_):
        parts = _of_dataclass(class_)
    elif typing.is_typeddict(class_) or _is_typeddict(class_):
        parts = _of_typeddict(class_)
    elif is_row(class_):
        parts = _of_row(class_)
    else:
        return None
    variables = _variables(class_, get_args(annotation))
    texts = parse_docstring(_own_docstring(class_)).entries
    return [
        attrs.evolve(
            part,
            hint=_filled_in(
                part.hint, variables.get(_owner(class_, part.of, variables), {})
            ),
            text=texts.get(part.name, ""),
        )
        for part in parts
    ]


def description_of(class_: type) -> str:
    """Return the first paragraph of a class's own docstring."""
    return parse_docstring(_own_docstring(class_)).summary


def _own_docstring(class_: type) -> str:
    text = vars(class_).get("__doc__") or ""
    # dataclass and NamedTuple generate a docstring from the signature.
    return "" if text.startswith(f"{class_.__name__}(") else inspect.cleandoc(text)


def hints_of(thing: Any, name: str) -> dict[str, Any]:
    """Return the resolved annotations of a class or a function called `name`.

    Raises:
        SchemaError: If an annotation names something that is not defined.
    """
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError as exc:
        raise SchemaError(
            f"{name}: {exc.name!r} in an annotation could not be resolved; define it at"
            " module level, before the tool is registered"
        ) from None
    except (TypeError, SyntaxError) as exc:
        raise SchemaError(f"{name}: an annotation is not a type: {exc}") from None


def _of_attrs(class_: type) -> list[Part]:
    hints = hints_of(class_, class_.__qualname__)
    parts = []
    for attribute in attrs.fields(class_):
        if not attribute.init:
            continue
        default = attribute.default
        if default is attrs.NOTHING or isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default = (
                NO_DEFAULT  # a factory's value is not published: it may read a clock
            )
        parts.append(
            Part(
                name=attribute.alias or attribute.name,
                hint=hints.get(attribute.name, attribute.type or Any),
                required=attribute.default is attrs.NOTHING,
                default=default,
                attribute=attribute,
            )
        )
    return parts


def _of_dataclass(class_: Any) -> list[Part]:
    hints = hints_of(class_, class_.__qualname__)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise SchemaError(
                f"{class_.__qualname__}.{name}: the value of an InitVar cannot be"
                " read back; make it a field"
            )
    missing = dataclasses.MISSING
    return [
        Part(
            name=field.name,
            hint=hints[field.name],
            required=field.default is missing and field.default_factory is missing,
            default=NO_DEFAULT if field.default is missing else field.default,
        )
        for field in dataclasses.fields(class_)
        if field.init
    ]


def _is_typeddict(class_: type) -> bool:
    # From typing_extensions, which has its own class on older Pythons.
    return hasattr(class_, "__required_keys__") and issubclass(class_, dict)


#: The qualifiers of a TypedDict's key, and whether the key is required.
_QUALIFIERS: Final[dict[Any, bool | None]] = {
    Required: True,
    NotRequired: False,
    ReadOnly: None,
}


def _of_typeddict(class_: Any) -> list[Part]:
    parts = []
    for name, hint in hints_of(class_, class_.__qualname__).items():
        required = name in class_.__required_keys__
        # `__required_keys__` is wrong if annotations are strings, as under `from
        # __future__ import annotations`: Python does not read them.
        while (origin := get_origin(hint)) in _QUALIFIERS:
            says = _QUALIFIERS[origin]
            required = required if says is None else says
            (hint,) = get_args(hint)
        parts.append(Part(name=name, hint=hint, required=required))
    return parts


def _of_row(class_: Any) -> list[Part]:
    hints = hints_of(class_, class_.__qualname__)
    return [
        Part(name=name, hint=hints.get(name, Any), required=True)
        for name in class_._fields
    ]


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
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    inside = getattr(hint, "__parameters__", ())
    if not inside or isinstance(hint, type):
        return hint
    return hint[tuple(variables.get(variable, variable) for variable in inside)]
