"""Convert a step's arguments and result to JSON, and back.

A step is identified by its name and arguments, so these must be plain data. Its result
is read back by the return annotation, which is checked *before* the step is performed:
afterwards, it would be too late to report that the receipt cannot be recorded
(docs/internals/replay.md#s3).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import inspect
import typing
import uuid
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

from attrs import frozen

from ..canonical import JSON, dumps, loads
from ..converter import converter, explained, is_made_whole, plain
from ..effects.steps import PROVIDED, Step
from ..errors import CanonicalError, SchemaError, StepError, UsageError
from ..shapes.reading import alias_value
from ..shapes.sources import class_source, leaf_of
from .names import name_of

__all__ = [
    "StepSpec",
    "given_names",
    "provided_names",
    "read_arguments",
    "spec_of",
    "step_name",
    "write_arguments",
]

# ---- arguments ----------------------------------------------------------------------

_SCALARS: Final = frozenset({str, int, float, bool, NoneType})


def step_name(step: Step[Any]) -> str:
    """Return the name of a step in journals."""
    return step.options.name or name_of(step.fn)


def write_arguments(args: tuple[Any, ...], kwargs: Any) -> list[JSON]:
    """Return arguments as JSON: `[args, kwargs]`.

    Raises:
        CanonicalError: If an argument is not plain data.
    """
    if not kwargs and all(type(arg) in _SCALARS for arg in args):
        return [list(args), {}]
    try:
        return [
            [converter().unstructure(arg) for arg in args],
            {name: converter().unstructure(arg) for name, arg in kwargs.items()},
        ]
    except RecursionError:
        raise CanonicalError("an argument that contains itself") from None
    except (TypeError, ValueError, AttributeError) as exc:
        raise CanonicalError(f"an argument that cannot be taken apart: {exc}") from None


def read_arguments(
    function: Callable[..., Any], written: JSON
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that `write_arguments` wrote, by `function`'s annotations.

    Raises:
        UsageError: If `function` does not take them.
    """
    args, kwargs = written
    hints = _hints(function)
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as exc:
        raise UsageError(f"{name_of(function)}: {exc}") from None
    parameters = bound.signature.parameters
    for name, value in bound.arguments.items():
        if name not in hints:
            continue
        hint = hints[name]
        try:
            match parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    built: Any = tuple(_structure(one, hint) for one in value)
                case inspect.Parameter.VAR_KEYWORD:
                    built = {key: _structure(one, hint) for key, one in value.items()}
                case _:
                    built = _structure(value, hint)
        except Exception as exc:
            raise UsageError(
                f"{name_of(function)}: the argument {name} does not come back as"
                f" {hint}: {exc}"
            ) from None
        bound.arguments[name] = built
    return bound.args, bound.kwargs


def _structure(value: JSON, type_: Any) -> Any:
    return value if type_ in _UNTYPED else converter().structure(value, type_)


def provided_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters that a driver fills in, with their annotations."""
    hints = _hints(function)
    return {
        name: hints.get(name)
        for name, parameter in _parameters(function).items()
        if parameter.default is PROVIDED
    }


def given_names(step: Step[Any]) -> set[str]:
    """Return the parameters that the handler passed itself, by position or by name."""
    try:
        bound = inspect.signature(step.fn).bind_partial(*step.args, **step.kwargs)
    except (TypeError, ValueError):
        return set(step.kwargs)
    return set(bound.arguments)


def _parameters(function: Callable[..., Any]) -> Any:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return {**_resolved(function.__init__, function), "return": function}  # type: ignore[misc]
    if not inspect.isroutine(function):
        # A callable object: its class may have other annotations.
        function = type(function).__call__
    return _resolved(function, function)


def _resolved(function: Callable[..., Any], of: Callable[..., Any]) -> dict[str, Any]:
    if not getattr(function, "__annotations__", None):
        return {}
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise StepError(
            f"{name_of(of)}: {exc.name!r} in an annotation could not be resolved;"
            " define it at module level"
        ) from None
    except TypeError as exc:
        raise StepError(f"{name_of(of)}: an annotation is not a type: {exc}") from None


# ---- results ------------------------------------------------------------------------

#: Annotations without a type: the result itself must be plain JSON.
_UNTYPED: Final = (inspect.Parameter.empty, Any, object)


@frozen(eq=False)
class StepSpec:
    """The facts about a step's function that are known before it is performed.

    Attributes:
        returns: The return annotation, or one of `_UNTYPED`.
        is_async: Whether it must be awaited.
        provided: Parameters that a driver fills in.
        is_judged_again: Whether classes of the result validate it when it is read, too.
    """

    returns: Any
    is_async: bool
    provided: dict[str, Any]
    is_judged_again: bool = False

    def write(self, value: Any) -> bytes:
        """Return a result as canonical JSON.

        Raises:
            StepError: If it would not be read back as the same value.
        """
        try:
            if self.returns in _UNTYPED:
                return dumps(value)
            if self.returns in _SCALARS and type(value) is not self.returns:
                converter().structure(value, self.returns)
            # JSON has only lists; the annotation restores tuples.
            written = self._written(value)
            back = self.read(written)
            if _has_untyped_part(self.returns) and back != value:
                raise StepError("it comes back as something else; annotate its parts")
            # Its class may have no `==`, so the bytes are compared.
            if self.is_judged_again and self._written(back) != written:
                raise StepError(
                    "it comes back as something else: a validator changes it"
                )
        except UsageError as exc:
            hint = (
                "; annotate what the function returns, so that it can be brought back"
                if self.returns in _UNTYPED
                else ""
            )
            raise StepError(
                f"the result cannot be recorded: {exc.problem}{hint}"
            ) from None
        except Exception as exc:
            raise StepError(
                f"the result {value!r} does not come back as {self.returns}:"
                f" {explained(exc)}"
            ) from None
        return written

    def _written(self, value: Any) -> bytes:
        return dumps(plain(converter().unstructure(value, self.returns)))

    def read(self, payload: bytes) -> Any:
        """Return a new copy of the result that `write` wrote."""
        return _structure(loads(payload), self.returns)


def _has_untyped_part(type_: Any) -> bool:
    if type_ in _UNTYPED or type_ in _CONTAINERS:
        return True
    return get_origin(type_) is not Literal and any(
        map(_has_untyped_part, get_args(type_))
    )


def spec_of(step: Step[Any]) -> StepSpec:
    """Return the spec of a step's function, computed once per function.

    Raises:
        StepError: If its return annotation has a type that cannot be recorded.
    """
    try:
        return _spec(step.fn)
    except TypeError as exc:
        if "unhashable" not in str(exc):
            raise
        return _spec.__wrapped__(step.fn)


# Bounded, because functions that are made at run time must not accumulate here.
@lru_cache(maxsize=1024)
def _spec(function: Callable[..., Any]) -> StepSpec:
    returns = _hints(function).get("return", Any)
    classes = set[Any]()
    if returns not in _UNTYPED:
        _refuse_unrecordable(returns, name_of(function), classes)
        try:
            converter().get_structure_hook(returns)
        except Exception as exc:
            raise StepError(
                f"{name_of(function)}: a result of type {returns} cannot be read back:"
                f" {exc}"
            ) from None
    call = getattr(function, "__call__", None)  # noqa: B004  # an async __call__
    # A decorator's wrapper may be async though the function is not. A plain one usually
    # returns what the function returns, so then that decides.
    called = (function, inspect.unwrap(function), call)
    return StepSpec(
        returns=returns,
        is_async=any(map(inspect.iscoroutinefunction, called)),
        provided=provided_names(function),
        is_judged_again=any(map(is_made_whole, classes)),
    )


_RECORDABLE: Final = frozenset(
    {str, int, float, bool, NoneType, None, bytes, Any, object}
    | {dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID, decimal.Decimal}
)
_CONTAINERS: Final = frozenset({list, tuple, set, frozenset, dict})


def _refuse_unrecordable(type_: Any, of: str, seen: set[Any]) -> None:
    origin = get_origin(type_)
    if origin is Annotated:
        return _refuse_unrecordable(get_args(type_)[0], of, seen)
    if hasattr(type_, "__supertype__"):  # a NewType
        return _refuse_unrecordable(type_.__supertype__, of, seen)
    if hasattr(type_, "__value__"):
        return _refuse_unrecordable(alias_value(type_), of, seen)
    if origin is dict and not _is_text(get_args(type_)[0]):
        raise StepError(
            f"{of} returns {type_}, which cannot be recorded: JSON has only strings as keys"
        )
    if origin is Literal or type_ in _RECORDABLE or type_ in _CONTAINERS:
        return None
    if origin in (Union, UnionType) or origin in _CONTAINERS:
        for arg in get_args(type_):
            if arg is not Ellipsis:
                _refuse_unrecordable(arg, of, seen)
        return None
    class_ = origin or type_
    if isinstance(class_, type) and issubclass(class_, enum.Enum):
        if all(type(plain(member)) in _SCALARS for member in class_):
            return None
        raise StepError(
            f"{of} returns {type_}, whose members have values that JSON does not know"
        )
    leaf = leaf_of(class_)
    if leaf is not None and not leaf.secret:
        return None
    try:
        source = class_source(class_) if isinstance(class_, type) else None
    except SchemaError as exc:
        raise StepError(f"{of} returns {type_}: {exc.problem}") from None
    if source is None:
        raise StepError(
            f"{of} returns {type_}, which cannot be recorded. Return plain data, a"
            " class with fields, or what you need to find the object again"
        )
    if class_ not in seen:
        seen.add(class_)
        hints: Iterable[Any] = typing.get_type_hints(class_).values()
        if is_made_whole(class_):
            hints = [part.hint for part in source.parts]
        for hint in hints:
            if not isinstance(hint, typing.TypeVar) and not _is_of_class(hint):
                _refuse_unrecordable(hint, f"{of}, {class_.__qualname__}", seen)
    return None


def _is_of_class(hint: Any) -> bool:
    """Whether an annotation in a class does not apply to its instances."""
    return ClassVar in (hint, get_origin(hint)) or hint is dataclasses.KW_ONLY


def _is_text(type_: Any) -> bool:
    if get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    type_ = getattr(type_, "__supertype__", type_)
    if get_origin(type_) is Literal:
        return all(type(value) is str for value in get_args(type_))
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return all(type(member.value) is str for member in type_)
    return type_ in (str, uuid.UUID, dt.date, dt.datetime)
