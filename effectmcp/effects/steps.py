"""Steps: calls of functions, whose results are recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from attrs import frozen

from ..errors import UsageError
from . import base
from .base import Effect, bind

__all__ = [
    "DEFAULT_OPTIONS",
    "PROVIDED",
    "Provided",
    "Step",
    "StepFunction",
    "StepOptions",
    "step",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")
P = ParamSpec("P")


@frozen(kw_only=True)
class StepOptions:
    """The options of a step; see `step` and docs/internals/replay.md#s2."""

    name: str | None = None
    at_most_once: bool = False
    replayable: bool = False
    public: bool = False
    secret: bool = False
    raises: tuple[type[Exception], ...] = ()
    retries: int = 0
    timeout: float | None = None


DEFAULT_OPTIONS: Final = StepOptions()


def Provided() -> Any:
    """Mark a parameter of a step that the driver fills in: use this as its default.

        @step
        async def charge(amount: int, *, pool: Pool = Provided()) -> str: ...

    Provided values, such as a connection pool, are not recorded, and do not identify
    the step.
    """
    return PROVIDED


class _ProvidedType:
    def __repr__(self) -> str:
        return "Provided()"


PROVIDED: Final = _ProvidedType()


class StepFunction(Generic[P, T_co]):
    """A function made with `@step`: calling it builds the effect.

    Attributes:
        fn: The plain function, to call it directly.
        options: The options of `@step(...)`.
    """

    __slots__ = ("__dict__", "fn", "options")

    def __init__(self, fn: Callable[P, Any], options: StepOptions) -> None:
        self.fn = fn
        self.options = options
        # Like functools.update_wrapper, which would import much for these four.
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(fn, name):
                self.__dict__[name] = getattr(fn, name)
        self.__dict__["__wrapped__"] = fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Step[T_co]:
        return Step(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<step {getattr(self.fn, '__qualname__', self.fn)}>"


@frozen(init=False, eq=False, repr=False)
class Step(Effect[T_co]):
    """Call a function and record its result, so that later rounds do not call it again.

    Delivery is *at least once*: if the response of a round is lost, the client comes
    back with its older state, and the step is performed again. So pass an
    `IdempotencyKey` to functions that charge, send or delete.

    Args:
        fn: A sync or async function, or a function made with `@step(...)`.
        *args: Its positional arguments: plain data, because they identify the step in
            the journal.
        **kwargs: Its keyword arguments: plain data, too.

    Returns:
        The function's result, after a round trip through JSON.

    Raises:
        StepFailed: If the function raised an exception of a class of its own. Builtin
            exceptions, `ToolError` and the classes in `raises=` are raised unchanged.
    """

    may_lose: ClassVar[bool] = True
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: StepOptions = DEFAULT_OPTIONS

    @overload
    def __init__(
        self: Step[A], fn: StepFunction[P, A], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def __init__(
        self: Step[A],
        fn: Callable[P, Coroutine[Any, Any, A]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def __init__(
        self: Step[A], fn: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    def __init__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        options = DEFAULT_OPTIONS
        function: Any = fn
        if isinstance(function, StepFunction):
            fn, options = function.fn, function.options
        elif isinstance(function, functools.partial):
            # The arguments in the partial identify the step just like those given here.
            args = (*function.args, *args)
            kwargs = {**function.keywords, **kwargs}
            fn = function.func
        elif not callable(fn):
            raise UsageError(
                f"Step() takes a function and its arguments, not {fn!r}. Write"
                " Step(charge, 10), not Step(charge(10))"
            )
        put = bind(self)
        put("fn", fn)
        put("args", args)
        put("kwargs", kwargs)
        put("options", options)
        if base.on_built is not None:
            base.on_built(self)

    def with_arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Step[T_co]:
        """Return the same step with other arguments."""
        made: Step[T_co] = object.__new__(type(self))
        put = bind(made)
        put("fn", self.fn)
        put("args", args)
        put("kwargs", kwargs)
        put("options", self.options)
        return made


class _StepDecorator(Protocol):
    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /
    ) -> StepFunction[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> StepFunction[P, T]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, T]], /) -> StepFunction[P, T]: ...
@overload
def step(fn: Callable[P, T], /) -> StepFunction[P, T]: ...
@overload
def step(
    *,
    name: str | None = None,
    at_most_once: bool = False,
    replayable: bool = False,
    public: bool = False,
    secret: bool = False,
    raises: tuple[type[Exception], ...] = (),
    retries: int = 0,
    timeout: float | None = None,
) -> _StepDecorator: ...
def step(fn: Any = None, /, **options: Any) -> Any:
    """Make a function whose calls are effects: `receipt = yield from charge(10, key)`.

    Args:
        fn: The function, when used without parentheses.
        name: The step's name in journals; the default is `module:qualname`. Set it to
            move or rename the function while flows are running.
        at_most_once: Never start the step twice, even if its result was lost. Only for
            tasks.
        replayable: Let an edited handler perform the step again, because that is
            harmless.
        public: Allow the result in states that are not encrypted.
        secret: Never put the result into a client's state.
        raises: Exception classes that reach the handler unchanged.
        retries: How often a failed step is tried again: at once; in a task after 1, 2,
            4 and at most 300 seconds.
        timeout: Seconds per try.
    """
    if fn is not None:
        if not callable(fn):
            raise UsageError(f"@step takes a function, not {fn!r}")
        return StepFunction(fn, DEFAULT_OPTIONS)
    checked = StepOptions(**options)
    if checked.at_most_once and checked.replayable:
        raise UsageError("a step cannot be both at_most_once and replayable")
    if checked.at_most_once and checked.retries:
        raise UsageError("a step that is at_most_once cannot have retries")
    if checked.public and checked.secret:
        raise UsageError("a step cannot be both public and secret")
    raises: Any = checked.raises
    if not isinstance(raises, tuple) or not all(
        isinstance(class_, type) and issubclass(class_, Exception) for class_ in raises
    ):
        raise UsageError("step(raises=...) takes a tuple of Exception classes")
    if checked.retries < 0 or (checked.timeout is not None and checked.timeout <= 0):
        raise UsageError("step() takes retries from 0 up, and a timeout above 0")

    def decorate(fn: Any) -> StepFunction[Any, Any]:
        if not callable(fn):
            raise UsageError(f"@step(...) takes a function, not {fn!r}")
        return StepFunction(fn, checked)

    return decorate
