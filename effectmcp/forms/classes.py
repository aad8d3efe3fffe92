"""The parameters of an attrs class, and its own checks of a partial answer.

attrs stops at the first validator that fails, and names the attribute. A user must see
every problem, under the name on the wire. So validators and converters are run here
field by field, over an incomplete instance that has the valid fields so far. A
validator that reads a missing field raises `AttributeError` and is skipped: it runs
when the real instance is constructed.
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
        annotation: The class, or an alias such as `Box[int]`.

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
    """Replace the class's type variables in `hint`, such as the T of `list[T]`."""
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    inside = getattr(hint, "__parameters__", ())
    if not inside:
        return hint
    return hint[tuple(variables.get(variable, variable) for variable in inside)]


def make_judge(class_: type, fields: tuple[Field, ...]) -> Judge | None:
    """Return the class's own checks as a function; `None` if it has none."""
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
            return  # an author-defined `__new__` with parameters
        # Frozen classes and `on_setattr` do not apply to the incomplete instance.
        put = partial(object.__setattr__, instance)
        for name, default in constants.items():
            put(name, default)
        given = {**defaults, **values}
        judged: list[tuple[Field, Any]] = []
        for field in fields:
            # A default must not replace an answer that did not fit.
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
        # After all fields are set, as in attrs.
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
    """Whether there is a default that no factory makes."""
    is_factory = isinstance(attribute.default, Factory)  # type: ignore[arg-type]
    return attribute.default is not NOTHING and not is_factory


def _converted(attribute: Attribute[Any], instance: Any, value: Any) -> Any:
    converter: Any = attribute.converter
    if converter is None:
        return value
    # attrs before 24.1 has plain functions only.
    is_wrapped = isinstance(converter, getattr(attrs, "Converter", ()))
    return converter(value, instance, attribute) if is_wrapped else converter(value)
