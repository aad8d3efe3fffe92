"""An attrs class → its parameters, and what the class says of an answer in part.

attrs stops at the first validator that complains, and complains about the attribute. A
user is to hear of every problem, by the name on the wire, so validators and converters
are run here field by field, over a stand-in that has what the answer gave so far. What
they miss on it makes an `AttributeError`: such a validator is left to the construction
of the real instance, which has the last word anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_type_hints

import attrs
from attrs import NOTHING, Attribute, Factory

from ..errors import FormError
from .words import complaint

if TYPE_CHECKING:
    from .fields import Field

__all__ = ["Judge", "make_judge", "parameters_of"]

#: Takes arguments of the class and the problems found so far; adds to the problems.
Judge: TypeAlias = Callable[[Mapping[str, Any], dict[str, str]], None]


def parameters_of(
    class_: type, annotation: Any
) -> Iterator[tuple[str, Any, str, Attribute[Any]]]:
    """Yield the parameters of `class_`: name, type, words for messages, attribute.

    Args:
        class_: The attrs class.
        annotation: The same, or what stands for it: `Box[int]`.

    Raises:
        FormError: naming the attribute, if it has no type.
    """
    try:
        hints = get_type_hints(class_, include_extras=True)
    except NameError as exc:
        raise FormError(
            f"{class_.__qualname__}: {exc.name!r} in an annotation could not be"
            " resolved; define it at module level, before the form is used"
        ) from None
    variables = dict(
        zip(getattr(class_, "__parameters__", ()), get_args(annotation), strict=False)
    )
    for attribute in attrs.fields(class_):
        if not attribute.init:
            continue
        of = f"{class_.__qualname__}.{attribute.name}"
        hint = hints.get(attribute.name, attribute.type)
        if hint is None:
            raise FormError(f"{of}: has no annotation, so no type to ask for")
        # attrs calls the parameter of a private `_x` `x`, and so do we on the wire.
        name = attribute.alias or attribute.name
        yield name, _filled_in(hint, variables), of, attribute


def _filled_in(hint: Any, variables: Mapping[Any, Any]) -> Any:
    """`hint` with the class's type variables replaced, such as the T of `list[T]`."""
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    inside = getattr(hint, "__parameters__", ())
    if not inside:
        return hint
    return hint[tuple(variables.get(variable, variable) for variable in inside)]


def make_judge(class_: type, fields: tuple[Field, ...]) -> Judge | None:
    """The class's own checks, as a function; `None` where it has none."""
    attributes = attrs.fields(class_)
    if not any(attribute.validator or attribute.converter for attribute in attributes):
        return None
    defaults = {
        f.name: a.default for f in fields if (a := f.attribute) and _has_value(a)
    }
    constants = {
        a.name: a.default
        for a in attributes
        if _has_value(a) and not a.init and a.converter is None
    }

    def judge(values: Mapping[str, Any], problems: dict[str, str]) -> None:
        try:
            instance = class_.__new__(class_)  # type: ignore[call-overload]
        except Exception:
            return  # a `__new__` of the author's own, with parameters
        # Frozen classes and `on_setattr` have nothing to say about a stand-in.
        put = partial(object.__setattr__, instance)
        for name, default in constants.items():
            put(name, default)
        given = {**defaults, **values}
        judged: list[tuple[Field, Any]] = []
        for field in fields:
            # Where an answer did not fit, a default would be no fair stand-in for it.
            if field.name in problems or field.name not in given:
                continue
            attribute = field.attribute
            assert attribute is not None
            try:
                value = _converted(attribute, instance, given[field.name])
            except AttributeError:
                continue
            except Exception as exc:
                problems[field.name] = complaint(exc, attribute.name)
                continue
            put(attribute.name, value)
            judged.append((field, value))
        # As attrs does: when everything is in its place.
        for field, value in judged:
            try:
                for extra in field.extras:
                    extra(instance, value)
            except AttributeError:
                continue
            except ValueError as exc:
                problems[field.name] = str(exc)

    return judge


def _has_value(attribute: Attribute[Any]) -> bool:
    """Whether there is a default, and it is not made by a factory."""
    is_factory = isinstance(attribute.default, Factory)  # type: ignore[arg-type]
    return attribute.default is not NOTHING and not is_factory


def _converted(attribute: Attribute[Any], instance: Any, value: Any) -> Any:
    converter: Any = attribute.converter
    if converter is None:
        return value
    # attrs before 24.1 has plain functions only.
    is_wrapped = isinstance(converter, getattr(attrs, "Converter", ()))
    return converter(value, instance, attribute) if is_wrapped else converter(value)
