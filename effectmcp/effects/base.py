"""The base classes of all effects, and the checks of their constructors.

Effects that take any callable or form have constructors written by hand: mypy and
pyright need the overloads to type `yield from`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from attrs import NOTHING, Attribute

from ..canonical import dumps, loads
from ..errors import CanonicalError, UsageError

__all__ = [
    "Branch",
    "Effect",
    "Flow",
    "InputRequest",
    "assign",
    "bind",
    "check_message",
    "check_meta",
    "check_number",
    "check_once",
    "check_type",
    "on_built",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: Called with each new effect in development mode, where an effect that is built and
#: not performed is a bug worth a warning. Otherwise `None`: checking a global costs
#: 20 ns, calling a hook 60.
on_built: Callable[[Effect[Any]], None] | None = None

#: Sets an attribute of an effect, in constructors written by hand.
assign: Final = object.__setattr__
#: The same for one effect: bound once per constructor call, as in the constructors that
#: attrs writes.
bind: Final = assign.__get__


def _shown(value: object) -> str:
    # Functions are shown by name: their address differs from run to run.
    return getattr(value, "__qualname__", None) or repr(value)


class Effect(Generic[T_co]):
    """Base class of all effects. Write `answer = yield from effect`."""

    __slots__ = ("__weakref__",)
    __attrs_attrs__: ClassVar[tuple[Attribute[Any], ...]] = ()
    #: Whether it may lose a race: its outcome may be forgotten.
    may_lose: ClassVar[bool] = False

    # One `==`, `hash` and `repr` for all of them: attrs would compile three for each
    # class, which is a third of what `import effectmcp` costs.
    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            getattr(self, field.name) == getattr(other, field.name)
            for field in self.__attrs_attrs__
            if field.eq
        )

    def __hash__(self) -> int:
        values = [getattr(self, f.name) for f in self.__attrs_attrs__ if f.eq]
        return hash((type(self), *values))

    def __repr__(self) -> str:
        # Defaults are left out: a message about an effect should be short.
        shown = [
            f"{field.alias}={_shown(value)}"
            for field in self.__attrs_attrs__
            if field.repr
            and (value := getattr(self, field.name)) is not NOTHING
            and value is not field.default
            and value is not None
            and value != {}
            and value != ()
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __bool__(self) -> bool:
        # `if Confirm("Sure?"):` would always be true, and the user would not be asked.
        raise UsageError(
            f"{type(self).__name__}(...) is not an answer yet: a forgotten `yield from`?"
        )

    def __iter__(self) -> Generator[Effect[Any], Any, T_co]:
        answer: T_co = yield self
        return answer

    def __await__(self) -> Generator[Effect[Any], Any, T_co]:
        answer: T_co = yield self
        return answer

    # attrs calls this at the end of the constructors that it writes. The constructors
    # written by hand call it themselves, or do the same.
    def __attrs_post_init__(self) -> None:
        if on_built is not None:
            on_built(self)


#: A running handler, and its annotation: `def order(title: str) -> Flow[str]:`.
Flow: TypeAlias = Generator[Effect[Any], Any, T]

#: What `Gather` takes: an effect or a flow.
Branch: TypeAlias = Effect[T] | Generator[Effect[Any], Any, T]


class InputRequest(Effect[T_co]):
    """Base class of all questions, which take `key=` and `otherwise=`.

    Attributes:
        key: Your own name for the question, on the wire and in the journal. With it, an
            answer stays with its question when the handler is edited around it.
        otherwise: The value to use if the user declines or dismisses the question, or
            if the client cannot be asked. A declined `Confirm` is always `False`.
        once: Whether the answer counts for one completed flow only. A `Confirm` and an
            `ElicitUrl` may be such questions.
    """

    __slots__ = ()
    may_lose: ClassVar[bool] = True
    key: str | None
    otherwise: Any
    once: bool = False


def check_message(effect: InputRequest[Any], message: object) -> None:
    if not isinstance(message, str):
        raise UsageError(
            f"{type(effect).__name__}(): the first argument is the message, a string, not"
            f" {message!r}"
        )


def check_once(effect: InputRequest[Any], once: object, otherwise: object) -> None:
    name = type(effect).__name__
    if not isinstance(once, bool):
        raise UsageError(f"{name}(once={once!r}): give True or False")
    # Without an answer nothing is counted, so nothing may be agreed to.
    if once and otherwise is not NOTHING and otherwise is not False:
        raise UsageError(
            f"{name}(once=True, otherwise={otherwise!r}): without an answer there is no"
            " consent to count; leave out otherwise="
        )


def check_meta(effect: InputRequest[Any], meta: object) -> Mapping[str, Any]:
    name = type(effect).__name__
    if not isinstance(meta, Mapping):
        raise UsageError(f"{name}(meta={meta!r}): give a dict of JSON")
    for key in meta:
        prefix = str(key).rpartition("/")[0].split(".")
        if key == "progressToken" or {"mcp", "modelcontextprotocol"} & set(prefix[:2]):
            raise UsageError(f"{name}(meta=…): the name {key!r} is the protocol's own")
    try:
        # Copied: an author who edits the dict later must not change the question.
        made: Mapping[str, Any] = loads(dumps(dict(meta)))
    except CanonicalError as exc:
        raise UsageError(f"{name}(meta=…): {exc.problem}") from None
    return made


def check_number(effect: Effect[Any], name: str, value: object) -> None:
    check_type(effect, name, value, "a number", int, float)
    try:
        is_finite = math.isfinite(value)  # type: ignore[arg-type]  # checked above
    except OverflowError:  # an integer too large for clocks and clients
        is_finite = False
    if not is_finite:
        raise UsageError(f"{type(effect).__name__}({name}={value!r}): give a number")


def check_type(
    effect: Effect[Any], name: str, value: object, noun: str, *types: type
) -> None:
    # Refused here, so that the traceback shows the line that has the bad value.
    if not isinstance(value, types) or isinstance(value, bool):
        raise UsageError(f"{type(effect).__name__}({name}={value!r}): give {noun}")
