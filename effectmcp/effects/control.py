"""Effects that arrange other effects, or the flow itself.

several at once     Gather  Within  FirstOf
the flow            Checkpoint  Detach  Restart  Version
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import Any, Literal, ParamSpec, TypeVar, overload

from attrs import frozen

from ..errors import UsageError
from .base import Branch, Effect, assign, check_number

__all__ = [
    "Checkpoint",
    "Detach",
    "FirstOf",
    "Gather",
    "Restart",
    "TimedOut",
    "Version",
    "Within",
]

T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
P = ParamSpec("P")


@frozen(init=False, eq=False, repr=False)
class Gather(Effect[T_co]):
    """Run several branches side by side, and ask their questions in the same round.

    Branches are effects or whole flows: `a, b = yield from Gather(ask_a(), ask_b())`.
    For one branch per item of a list, use `Gather.each(...)`. (`yield from` inside a
    comprehension is a SyntaxError in Python.)

    If a branch raises an exception, the others get `Cancelled`, and the exception is
    raised here.

    Returns:
        A tuple with each branch's value, typed by position.
    """

    branches: tuple[Any, ...]
    as_list: bool

    @overload
    def __init__(self: Gather[tuple[()]]) -> None: ...
    @overload
    def __init__(self: Gather[tuple[A]], a: Branch[A], /) -> None: ...
    @overload
    def __init__(self: Gather[tuple[A, B]], a: Branch[A], b: Branch[B], /) -> None: ...
    @overload
    def __init__(
        self: Gather[tuple[A, B, C]], a: Branch[A], b: Branch[B], c: Branch[C], /
    ) -> None: ...
    @overload
    def __init__(
        self: Gather[tuple[A, B, C, D]],
        a: Branch[A],
        b: Branch[B],
        c: Branch[C],
        d: Branch[D],
        /,
    ) -> None: ...
    @overload
    def __init__(
        self: Gather[tuple[A, B, C, D, E]],
        a: Branch[A],
        b: Branch[B],
        c: Branch[C],
        d: Branch[D],
        e: Branch[E],
        /,
    ) -> None: ...
    @overload
    def __init__(
        self: Gather[tuple[A, B, C, D, E, F]],
        a: Branch[A],
        b: Branch[B],
        c: Branch[C],
        d: Branch[D],
        e: Branch[E],
        f: Branch[F],
        /,
    ) -> None: ...
    @overload
    def __init__(self: Gather[tuple[Any, ...]], *branches: Branch[Any]) -> None: ...
    def __init__(self, *branches: Branch[Any]) -> None:
        assign(self, "branches", branches)
        assign(self, "as_list", False)
        self.__attrs_post_init__()

    @classmethod
    def each(cls, branches: Iterable[Branch[A]]) -> Gather[list[A]]:
        """Make a `Gather` of any number of branches, which returns a list.

            names = yield from Gather.each(Elicit(f"Guest {n}?", str) for n in (1, 2))

        The order of the branches must be the same in every process, so take them from a
        list, not from a set.
        """
        if isinstance(branches, (set, frozenset)):
            raise UsageError(
                "Gather.each() over a set: its order differs from process to process."
                " Write Gather.each(... for x in sorted(...))"
            )
        # The overloads of `__init__` say tuple: `as_list` below makes it a list.
        gather: Gather[list[A]] = cls(*branches)  # type: ignore[assignment]
        assign(gather, "as_list", True)
        return gather


@frozen
class TimedOut:
    """The result of a `Within` whose time was up."""


@frozen(init=False, eq=False, repr=False)
class Within(Effect[T_co]):
    """Wait for one effect with a time limit: its value, or `TimedOut()`.

        match (yield from Within(3600, Outcome(Confirm("Still there?")))):
            case TimedOut():
                ...

    Args:
        seconds: The time limit. It counts from when the question is sent, or the step
            starts.
        effect: A question, a `Step` or a `Sleep`.
    """

    seconds: float
    effect: Effect[Any]

    def __init__(self: Within[A | TimedOut], seconds: float, effect: Effect[A]) -> None:
        check_number(self, "seconds", seconds)
        _check_inner("Within", effect)
        assign(self, "seconds", seconds)
        assign(self, "effect", effect)
        self.__attrs_post_init__()

    def around(self, effect: Effect[Any]) -> Within[T_co]:
        """Return the same limit around another effect."""
        made: Within[T_co] = object.__new__(type(self))
        assign(made, "seconds", self.seconds)
        assign(made, "effect", effect)
        return made


@frozen(init=False, eq=False, repr=False)
class FirstOf(Effect[T_co]):
    """Wait for the first of several effects to end: `(position, value)`.

        match (yield from FirstOf(Elicit("Which day?", dt.date), Sleep(3600))):
            case (0, day):
                ...
            case (1, _):
                yield from remind()

    Args:
        *effects: Questions, steps and sleeps. Mixing questions and steps needs a task.
    """

    effects: tuple[Effect[Any], ...]

    @overload
    def __init__(
        self: FirstOf[tuple[Literal[0], A] | tuple[Literal[1], B]],
        a: Effect[A],
        b: Effect[B],
        /,
    ) -> None: ...
    @overload
    def __init__(
        self: FirstOf[
            tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], C]
        ],
        a: Effect[A],
        b: Effect[B],
        c: Effect[C],
        /,
    ) -> None: ...
    @overload
    def __init__(
        self: FirstOf[
            tuple[Literal[0], A]
            | tuple[Literal[1], B]
            | tuple[Literal[2], C]
            | tuple[Literal[3], D]
        ],
        a: Effect[A],
        b: Effect[B],
        c: Effect[C],
        d: Effect[D],
        /,
    ) -> None: ...
    @overload
    def __init__(self: FirstOf[tuple[int, Any]], *effects: Effect[Any]) -> None: ...
    def __init__(self, *effects: Effect[Any]) -> None:
        if not effects:
            raise UsageError("FirstOf() of nothing would never end")
        for effect in effects:
            _check_inner("FirstOf", effect)
        assign(self, "effects", effects)
        self.__attrs_post_init__()

    def around(self, *effects: Effect[Any]) -> FirstOf[T_co]:
        """Return the same race between other effects."""
        made: FirstOf[T_co] = object.__new__(type(self))
        assign(made, "effects", effects)
        return made


def _check_inner(outer: str, effect: object) -> None:
    if not (isinstance(effect, Effect) and effect.may_lose):
        raise UsageError(
            f"{outer}() takes questions, Step and Sleep, not {effect!r}: the"
            " losers are forgotten, and other effects must not be"
        )


@frozen(eq=False, repr=False)
class Checkpoint(Effect[None]):
    """Send the state to the client before continuing, so that no crash can lose it."""


@frozen(kw_only=True, eq=False, repr=False)
class Detach(Effect[bool]):
    """Continue as a task, so that the client need not wait.

        yield from Detach(ttl=3600)

    Only allowed at the top level of a tool, once. The flow continues inline where no
    task is possible: if the client cannot follow tasks, if the server keeps none, or if
    nothing runs their turns.

    Attributes:
        ttl: Seconds from the creation of the task until it expires: then it is ended,
            even if a question is unanswered. `None` for the server's default.
        poll_interval: Seconds that a client should wait between two polls; `None` for
            the server's default.

    Returns:
        `True` if the flow continues as a task, `False` if it continues inline.
    """

    ttl: float | None = None
    poll_interval: float | None = None


@frozen(init=False, eq=False, repr=False)
class Restart(Effect[T_co]):
    """Start again as another handler: `return (yield from Restart(order, title))`.

    The journal starts empty again, but the rounds so far still count. Only allowed at
    the top level of a handler.

    Args:
        handler: A generator function, which later rounds find by its name.
        *args: Its positional arguments: plain data, or values of the annotated types.
        **kwargs: Its keyword arguments: the same kinds of values.
    """

    handler: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @overload
    def __init__(
        self: Restart[A],
        handler: Callable[P, Generator[Effect[Any], Any, A]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def __init__(
        self: Restart[A],
        handler: Callable[P, Awaitable[A]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None: ...
    def __init__(
        self, handler: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> None:
        if not callable(handler):
            raise UsageError(
                f"Restart() takes a handler and its arguments, not {handler!r}"
            )
        assign(self, "handler", handler)
        assign(self, "args", args)
        assign(self, "kwargs", kwargs)
        self.__attrs_post_init__()


@frozen(init=False, eq=False, repr=False)
class Version(Effect[T_co]):
    """The version of the code under which this flow first reached this point.

        fee = yield from Version("fee", default=0, latest=1)

    Args:
        id: A name for the change, used once in the handler.
        default: The version for flows that passed this point before the change.
        latest: The version for all other flows.
    """

    id: str
    default: Any
    latest: Any

    def __init__(self: Version[A], id: str, *, default: A, latest: A) -> None:
        given: object = id
        if not isinstance(given, str):
            raise UsageError(f"Version({given!r}): the name of a change is a string")
        if not id.isprintable():
            raise UsageError(f"Version({id!r}): the name of a change is printable")
        for value in (default, latest):
            if type(value) not in (int, str):
                raise UsageError(f"Version({id!r}): versions are ints or strings")
        assign(self, "id", id)
        assign(self, "default", default)
        assign(self, "latest", latest)
        self.__attrs_post_init__()
