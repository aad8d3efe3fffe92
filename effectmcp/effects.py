"""The effects that a handler may yield.

An effect is a frozen value that describes a request of the handler; the server or the
client carries it out. `x = yield from Elicit("Who?", str)` is typed, because `__iter__`
yields the effect and returns the answer. A bare `x = yield Elicit(...)` works, too, but
is untyped. `await` does the same, for coroutines that await only effects.

    InputRequest    only the client can answer; costs a round if clients retry
        Elicit  Confirm  ElicitUrl  Sample  ListRoots
    the rest        this process answers, or no answer is needed

Effects that take any callable or form have constructors written by hand: mypy and
pyright need the overloads to type `yield from`.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

from attrs import NOTHING, Attribute, field, frozen
from typing_extensions import TypeForm

from .errors import Declined, Dismissed, UsageError
from .forms.form import Form, form_of

__all__ = [
    "LOG_LEVELS",
    "PROVIDED",
    "Accepted",
    "Branch",
    "Caller",
    "CallerInfo",
    "Checkpoint",
    "ClientSupports",
    "Confirm",
    "Detach",
    "Effect",
    "Elicit",
    "ElicitUrl",
    "FirstOf",
    "Flow",
    "Gather",
    "IdempotencyKey",
    "InputRequest",
    "ListRoots",
    "Log",
    "Now",
    "Outcome",
    "Progress",
    "Provided",
    "Random",
    "Restart",
    "Root",
    "Sample",
    "Sampled",
    "Sleep",
    "Status",
    "Step",
    "StepFunction",
    "StepOptions",
    "TimedOut",
    "Uuid",
    "Version",
    "Within",
    "step",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
V = TypeVar("V")
P = ParamSpec("P")

#: The levels of syslog (RFC 5424), the least important first.
LOG_LEVELS: Final = (
    *("debug", "info", "notice", "warning"),
    *("error", "critical", "alert", "emergency"),
)

#: Called with each new effect in development mode, where an effect that is built and
#: not performed is a bug worth a warning. Otherwise `None`: checking a global costs
#: 20 ns, calling a hook 60.
_built: Callable[[Effect[Any]], None] | None = None

_set: Final = object.__setattr__
# Bound once per constructor call, as in the constructors that attrs writes.
_bind: Final = _set.__get__


def _shown(value: object) -> str:
    # Functions by name: their address differs from run to run, and means nothing.
    return getattr(value, "__qualname__", None) or repr(value)


class Effect(Generic[T_co]):
    """Base class of all effects. Write `answer = yield from effect`."""

    __slots__ = ("__weakref__",)
    __attrs_attrs__: ClassVar[tuple[Attribute[Any], ...]] = ()

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
            and value is not DEFAULT_OPTIONS
            and value is not None
            and value != {}
            and value != ()
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __bool__(self) -> bool:
        # `if Confirm("Sure?"):` would always be true, and the user would not be asked.
        raise UsageError(
            f"{type(self).__name__}(...) is no answer yet: a forgotten `yield from`?"
        )

    def __iter__(self) -> Generator[Effect[Any], Any, T_co]:
        answer: T_co = yield self
        return answer

    def __await__(self) -> Generator[Effect[Any], Any, T_co]:
        answer: T_co = yield self
        return answer

    # attrs calls this at the end of the constructors that it writes. The constructors
    # written by hand below call it themselves, or do the same.
    def __attrs_post_init__(self) -> None:
        if _built is not None:
            _built(self)


#: A running handler, and its annotation: `def order(title: str) -> Flow[str]:`.
Flow: TypeAlias = Generator[Effect[Any], Any, T]

#: What `Gather` takes: an effect or a flow.
Branch: TypeAlias = Effect[T] | Generator[Effect[Any], Any, T]


@frozen
class Accepted(Generic[T]):
    """The user's answer, as `Outcome` returns it; see also `Declined` and `Dismissed`.

    Attributes:
        value: The answer, of the type that was asked for.
    """

    value: T


# ---- what only the client can answer ------------------------------------------------


class InputRequest(Effect[T_co]):
    """Base class of all questions, which take `key=` and `otherwise=`.

    Attributes:
        key: Your own name for the question, on the wire and in the journal. With it, an
            answer stays with its question when the handler is edited around it.
        otherwise: The value to use if the user declines or dismisses the question, or
            if the client cannot be asked. A declined `Confirm` is always `False`.
    """

    __slots__ = ()
    key: str | None
    otherwise: Any


def _check_message(effect: InputRequest[Any], message: object) -> None:
    if not isinstance(message, str):
        raise UsageError(
            f"{type(effect).__name__}(): the message comes first and is a text, not"
            f" {message!r}"
        )


def _check_number(effect: Effect[Any], name: str, value: object) -> None:
    _check_type(effect, name, value, "a number", int, float)
    try:
        is_finite = math.isfinite(value)  # type: ignore[arg-type]  # checked above
    except OverflowError:  # an integer too large for clocks and clients
        is_finite = False
    if not is_finite:
        raise UsageError(f"{type(effect).__name__}({name}={value!r}): give a number")


def _check_type(
    effect: Effect[Any], name: str, value: object, noun: str, *types: type
) -> None:
    # Refused here, so that the traceback shows the line that has the bad value.
    if not isinstance(value, types) or isinstance(value, bool):
        raise UsageError(f"{type(effect).__name__}({name}={value!r}): give {noun}")


@frozen(init=False, eq=False, repr=False)
class Elicit(InputRequest[T_co]):
    """Ask the user to fill in a form.

    Args:
        message: The text above the form.
        form: An attrs class, or the type of a single field: `str`, `int`, `float`,
            `bool`, `date`, `datetime`, an `Enum`, a `Literal` of strings, or a `list`
            of one of these two. Each may be `| None`. A raw schema works, too.
        title: The label of a single field.
        key: Your own name for this question.
        otherwise: The value to return instead of raising an error.

    Returns:
        The filled-in form, as a value of the type that was asked for.

    Raises:
        Declined: If the user says no.
        Dismissed: If the user closes the form.
        Unsupported: If the client cannot show forms.
        FormError: If no client could show this form; raised by the constructor.
    """

    message: str
    form: Any
    title: str | None
    key: str | None
    otherwise: Any
    spec: Form[Any] = field(eq=False, repr=False)

    @overload
    def __init__(
        self: Elicit[A],
        message: str,
        form: TypeForm[A],
        *,
        title: str | None = None,
        key: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Elicit[A | V],
        message: str,
        form: TypeForm[A],
        *,
        title: str | None = None,
        key: str | None = None,
        otherwise: V,
    ) -> None: ...
    @overload
    def __init__(
        self: Elicit[dict[str, Any]],
        message: str,
        form: Mapping[str, Any],
        *,
        key: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Elicit[dict[str, Any] | V],
        message: str,
        form: Mapping[str, Any],
        *,
        key: str | None = None,
        otherwise: V,
    ) -> None: ...
    def __init__(
        self,
        message: str,
        form: Any,
        *,
        title: str | None = None,
        key: str | None = None,
        otherwise: Any = NOTHING,
    ) -> None:
        if type(message) is not str:
            _check_message(self, message)
        put = _bind(self)
        put("message", message)
        put("form", form)
        put("title", title)
        put("key", key)
        put("otherwise", otherwise)
        # Built here and not when the question is asked, so that the traceback of a form
        # that cannot be shown points at the author's line.
        put("spec", form_of(form, title))
        if _built is not None:
            _built(self)


@frozen(init=False, eq=False, repr=False)
class Confirm(InputRequest[bool]):
    """Ask the user a yes-or-no question.

    Args:
        message: The question that the user reads.
        key: Your own name for this question.
        otherwise: The value to return if the user closes the question, or if the client
            cannot be asked. A user who declines has answered: that is `False`.

    Returns:
        `True` if the user accepts, `False` if the user declines.

    Raises:
        Dismissed: If the user closes the question without choosing.
        Unsupported: If the client cannot show forms.
    """

    message: str
    key: str | None
    otherwise: Any

    @overload
    def __init__(self, message: str, *, key: str | None = None) -> None: ...
    @overload
    def __init__(
        self, message: str, *, key: str | None = None, otherwise: bool
    ) -> None: ...
    def __init__(
        self, message: str, *, key: str | None = None, otherwise: Any = NOTHING
    ) -> None:
        _check_message(self, message)
        _set(self, "message", message)
        _set(self, "key", key)
        _set(self, "otherwise", otherwise)
        self.__attrs_post_init__()


@frozen(init=False, eq=False, repr=False)
class ElicitUrl(InputRequest[T_co]):
    """Ask the user to open a web page, for data that must not pass through the client.

    The answer means that the user agreed to open the page, not that they finished.

    Args:
        message: The text that the user reads.
        url: The address of the page.
        key: Your own name for this question.
        otherwise: The value to return instead of raising an error.

    Returns:
        `None` if the user agrees.

    Raises:
        Declined: If the user says no.
        Dismissed: If the user closes the question.
        Unsupported: If the client cannot open pages.
    """

    message: str
    url: str
    key: str | None
    otherwise: Any

    @overload
    def __init__(
        self: ElicitUrl[None], message: str, url: str, *, key: str | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: ElicitUrl[V | None],
        message: str,
        url: str,
        *,
        key: str | None = None,
        otherwise: V,
    ) -> None: ...
    def __init__(
        self,
        message: str,
        url: str,
        *,
        key: str | None = None,
        otherwise: Any = NOTHING,
    ) -> None:
        _check_message(self, message)
        _check_type(self, "url", url, "a text", str)
        _set(self, "message", message)
        _set(self, "url", url)
        _set(self, "key", key)
        _set(self, "otherwise", otherwise)
        self.__attrs_post_init__()


@frozen
class Sampled:
    """The output of the client's model.

    Attributes:
        content: The content blocks, as JSON of the protocol.
        model: The name of the model.
        stop_reason: Why the model stopped; `None` if the client did not report it.
    """

    content: list[dict[str, Any]]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(
            block["text"] for block in self.content if block.get("type") == "text"
        )


@frozen(init=False, eq=False, repr=False)
class Sample(InputRequest[T_co]):
    """Ask the client's model to write something.

    Deprecated in the protocol since 2026-07-28: fewer and fewer clients offer it.

    Args:
        messages: A prompt, or a list of messages as JSON of the protocol.
        max_tokens: Limit of the tokens that the model may write.
        system: The system prompt.
        tools: Definitions of tools that the model may call, as JSON of the protocol.
        tool_choice: `"auto"`, `"none"` or `"required"`.
        temperature: The sampling temperature.
        stop_sequences: Strings at which the model stops.
        preferences: The model preferences, as JSON of the protocol.
        keep: `"all"`, or `"text"` to record only the text blocks. The state of every
            later round contains what is recorded.
        key: Your own name for this question.
        otherwise: The value to return instead of raising an error.

    Returns:
        A `Sampled`.

    Raises:
        Declined: If the user says no.
        Unsupported: If the client does not offer a model.
    """

    messages: Any
    max_tokens: int
    system: str | None
    tools: tuple[Any, ...]
    tool_choice: Literal["auto", "none", "required"] | None
    temperature: float | None
    stop_sequences: tuple[str, ...]
    preferences: Mapping[str, Any] | None
    keep: Literal["all", "text"]
    key: str | None
    otherwise: Any

    @overload
    def __init__(
        self: Sample[Sampled],
        messages: str | Iterable[Mapping[str, Any]],
        *,
        max_tokens: int = 1024,
        system: str | None = None,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_choice: Literal["auto", "none", "required"] | None = None,
        temperature: float | None = None,
        stop_sequences: Iterable[str] = (),
        preferences: Mapping[str, Any] | None = None,
        keep: Literal["all", "text"] = "all",
        key: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Sample[Sampled | V],
        messages: str | Iterable[Mapping[str, Any]],
        *,
        max_tokens: int = 1024,
        system: str | None = None,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_choice: Literal["auto", "none", "required"] | None = None,
        temperature: float | None = None,
        stop_sequences: Iterable[str] = (),
        preferences: Mapping[str, Any] | None = None,
        keep: Literal["all", "text"] = "all",
        key: str | None = None,
        otherwise: V,
    ) -> None: ...
    def __init__(
        self,
        messages: str | Iterable[Mapping[str, Any]],
        *,
        max_tokens: int = 1024,
        system: str | None = None,
        tools: Iterable[Mapping[str, Any]] = (),
        tool_choice: Literal["auto", "none", "required"] | None = None,
        temperature: float | None = None,
        stop_sequences: Iterable[str] = (),
        preferences: Mapping[str, Any] | None = None,
        keep: Literal["all", "text"] = "all",
        key: str | None = None,
        otherwise: Any = NOTHING,
    ) -> None:
        if isinstance(messages, str):
            content = {"type": "text", "text": messages}
            messages = [{"role": "user", "content": content}]
        _set(self, "messages", tuple(dict(message) for message in messages))
        _set(self, "max_tokens", max_tokens)
        _set(self, "system", system)
        _set(self, "tools", tuple(dict(tool) for tool in tools))
        _set(self, "tool_choice", tool_choice)
        _set(self, "temperature", temperature)
        _set(self, "stop_sequences", tuple(stop_sequences))
        _set(self, "preferences", preferences)
        _check_type(self, "max_tokens", max_tokens, "a whole number", int)
        if system is not None:
            _check_type(self, "system", system, "a text", str)
        if temperature is not None:
            _check_type(self, "temperature", temperature, "a number", int, float)
        if keep not in ("all", "text"):
            raise UsageError(f"Sample(keep={keep!r}): give 'all' or 'text'")
        _set(self, "keep", keep)
        _set(self, "key", key)
        _set(self, "otherwise", otherwise)
        self.__attrs_post_init__()


@frozen
class Root:
    """A folder or other place that the user is working in.

    Attributes:
        uri: The URI of the place, usually `file://…`.
        name: A name for people.
    """

    uri: str
    name: str | None = None


@frozen(init=False, eq=False, repr=False)
class ListRoots(InputRequest[T_co]):
    """Ask the client which folders the user is working in.

    Deprecated in the protocol since 2026-07-28.

    Args:
        key: Your own name for this question.
        otherwise: The value to return instead of raising an error.

    Returns:
        A list of `Root`.

    Raises:
        Unsupported: If the client does not offer roots.
    """

    key: str | None
    otherwise: Any

    @overload
    def __init__(self: ListRoots[list[Root]], *, key: str | None = None) -> None: ...
    @overload
    def __init__(
        self: ListRoots[list[Root] | V], *, key: str | None = None, otherwise: V
    ) -> None: ...
    def __init__(self, *, key: str | None = None, otherwise: Any = NOTHING) -> None:
        _set(self, "key", key)
        _set(self, "otherwise", otherwise)
        self.__attrs_post_init__()


@frozen(init=False, eq=False, repr=False)
class Outcome(Effect[T_co]):
    """Ask a question, and get a refusal as a value to `match`, not as an exception.

        match (yield from Outcome(Elicit("Your name?", str))):
            case Accepted(name):
                ...
            case Declined():
                ...
            case Dismissed():
                ...

    Returns:
        `Accepted(value)`, `Declined()` or `Dismissed()`.

    Raises:
        Unsupported: If the client cannot be asked. That is not a refusal by the user.
    """

    request: InputRequest[Any]

    def __init__(
        self: Outcome[Accepted[A] | Declined | Dismissed], request: InputRequest[A]
    ) -> None:
        if not isinstance(request, InputRequest):
            raise UsageError(
                "Outcome() takes a question (Elicit, Confirm, ElicitUrl, Sample,"
                f" ListRoots), not {request!r}"
            )
        if request.otherwise is not NOTHING:
            raise UsageError(
                "otherwise= inside Outcome() would never be used: match on Declined()"
                " and Dismissed() instead, or drop Outcome()"
            )
        _set(self, "request", request)
        self.__attrs_post_init__()


# ---- several at once ----------------------------------------------------------------


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
        _set(self, "branches", branches)
        _set(self, "as_list", False)
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
        gather: Gather[list[A]] = cls(*branches)  # type: ignore[assignment]
        _set(gather, "as_list", True)
        return gather


# ---- what this process does ---------------------------------------------------------


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

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: StepOptions

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
        put = _bind(self)
        put("fn", fn)
        put("args", args)
        put("kwargs", kwargs)
        put("options", options)
        if _built is not None:
            _built(self)

    def with_arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Step[T_co]:
        """Return the same step with other arguments."""
        made: Step[T_co] = object.__new__(type(self))
        put = _bind(made)
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
        retries: How often the driver tries again after a failure.
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


@frozen(eq=False, repr=False)
class Now(Effect[dt.datetime]):
    """The time, recorded: an aware `datetime` in UTC, the same in every round."""


@frozen(eq=False, repr=False)
class Uuid(Effect[uuid.UUID]):
    """A random UUID, recorded."""


@frozen(eq=False, repr=False)
class Random(Effect[float]):
    """A random float from 0 up to 1, recorded."""


@frozen(init=False, eq=False, repr=False)
class IdempotencyKey(Effect[str]):
    """A string that stays the same in every replay, for one action such as a charge.

        key = yield from IdempotencyKey("charge", order, amount)

    Pass a name for the action, and the values that it depends on. If a user goes back
    and answers differently, the amount changes, and so does the key. Without the amount
    in it, a payment service would repeat its first reply to the known key, and the user
    would get 100 items for the price of 10. Do not pass values that differ from try to
    try, such as the current time.

    The same name and values a second time in the same sequence give another key. Before
    the first question, every retry of the first call gets a new key, because nothing
    links the calls yet.

    Args:
        name: The name of the action.
        *about: The values that the action depends on: plain data.
    """

    name: str
    about: tuple[Any, ...]

    def __init__(self, name: str, *about: Any) -> None:
        _check_type(self, "name", name, "a text", str)
        _set(self, "name", name)
        _set(self, "about", about)
        self.__attrs_post_init__()


@frozen(eq=False, repr=False)
class ClientSupports(Effect[bool]):
    """Whether the client can be asked a question: `ClientSupports(Sample)`. Recorded.

    Pass a class of questions, or an effect if its details matter, such as the fields of
    a form.
    """

    what: type[InputRequest[Any]] | InputRequest[Any]

    def __attrs_post_init__(self) -> None:
        what = self.what
        is_class = isinstance(what, type) and issubclass(what, InputRequest)
        if not is_class and not isinstance(what, InputRequest):
            raise UsageError(
                "ClientSupports() takes a kind of question, such as Elicit or Sample,"
                f" not {what!r}"
            )
        if _built is not None:
            _built(self)


@frozen(kw_only=True)
class CallerInfo:
    """The caller, as the first round of the flow saw it.

    Attributes:
        principal: The authenticated user, if the transport knows one.
        client: The client's name and version.
        era: `"modern"`, `"legacy"` (also for the drafts), or `"local"` outside of MCP.
        protocol_version: The protocol revision that the client speaks.
        progress_token: The progress token, if the client sent one.
        flow_id: This flow's id, in hex.
    """

    principal: str | None = None
    client: str | None = None
    era: str = "local"
    protocol_version: str | None = None
    progress_token: str | int | None = None
    flow_id: str = ""


@frozen(eq=False, repr=False)
class Caller(Effect[CallerInfo]):
    """The caller, as `CallerInfo`. Recorded, so it is the same in every round."""


@frozen(eq=False, repr=False)
class Checkpoint(Effect[None]):
    """Send the state to the client before continuing, so that no crash can lose it."""


@frozen(eq=False, repr=False)
class Progress(Effect[None]):
    """Report progress to a waiting client. Not recorded, and not sent by replays."""

    done: float
    total: float | None = None
    message: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_number(self, "done", self.done)
        if self.total is not None:
            _check_number(self, "total", self.total)
        if self.message is not None:
            _check_type(self, "message", self.message, "a text", str)
        if _built is not None:
            _built(self)


@frozen(eq=False, repr=False)
class Log(Effect[None]):
    """Send the client a log message. Not recorded, and not sent by replays.

    Deprecated in the protocol since 2026-07-28.
    """

    level: Literal[
        "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
    ]
    data: Any
    logger: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.level not in LOG_LEVELS:
            known = ", ".join(LOG_LEVELS)
            raise UsageError(f"Log({self.level!r}, ...): the level is one of {known}")
        if self.logger is not None:
            _check_type(self, "logger", self.logger, "a text", str)
        if _built is not None:
            _built(self)


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
            raise UsageError(f"Version({given!r}): the name of a change is a text")
        if not id.isprintable():
            raise UsageError(f"Version({id!r}): the name of a change is printable")
        for value in (default, latest):
            if type(value) not in (int, str):
                raise UsageError(f"Version({id!r}): versions are ints or texts")
        _set(self, "id", id)
        _set(self, "default", default)
        _set(self, "latest", latest)
        self.__attrs_post_init__()


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
        _set(self, "handler", handler)
        _set(self, "args", args)
        _set(self, "kwargs", kwargs)
        self.__attrs_post_init__()


# ---- what outlives a request --------------------------------------------------------


@frozen(kw_only=True, eq=False, repr=False)
class Detach(Effect[bool]):
    """Continue as a task, so that the client need not wait.

    Only allowed at the top level of a tool.

    Attributes:
        ttl: Seconds to keep the task after it ends.
        poll_interval: Seconds that a client should wait between two polls.

    Returns:
        `True` if the flow continues as a task, `False` if it continues inline.
    """

    ttl: float | None = None
    poll_interval: float | None = None


@frozen(eq=False, repr=False)
class Sleep(Effect[None]):
    """Wait for some seconds. Use it after `Detach()`, or in a task."""

    seconds: float

    def __attrs_post_init__(self) -> None:
        _check_number(self, "seconds", self.seconds)
        if _built is not None:
            _built(self)


@frozen(eq=False, repr=False)
class Status(Effect[None]):
    """Describe what a task is doing. Use it after `Detach()`, or in a task."""

    message: str


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
        _check_number(self, "seconds", seconds)
        _check_inner("Within", effect)
        _set(self, "seconds", seconds)
        _set(self, "effect", effect)
        self.__attrs_post_init__()

    def around(self, effect: Effect[Any]) -> Within[T_co]:
        """Return the same limit around another effect."""
        made: Within[T_co] = object.__new__(type(self))
        _set(made, "seconds", self.seconds)
        _set(made, "effect", effect)
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
        _set(self, "effects", effects)
        self.__attrs_post_init__()

    def around(self, *effects: Effect[Any]) -> FirstOf[T_co]:
        """Return the same race between other effects."""
        made: FirstOf[T_co] = object.__new__(type(self))
        _set(made, "effects", effects)
        return made


def _check_inner(outer: str, effect: object) -> None:
    if not isinstance(effect, (Step, Sleep, InputRequest, Outcome)):
        raise UsageError(
            f"{outer}() takes questions, Step and Sleep, not {effect!r}: its loser is"
            " forgotten, and nothing else may be"
        )
