"""What a handler may yield.

An effect is a frozen value that says what the handler wants; performing it is somebody
else's business. `x = yield from Elicit("Who?", str)` is typed, because `__iter__` yields
the effect and returns the answer; a bare `x = yield Elicit(...)` works too, untyped.
`await` is the same again, for coroutines that await nothing but effects.

    InputRequest    only the client can answer; costs a round where clients retry
        Elicit  Confirm  ElicitUrl  Sample  ListRoots
    the rest        this process answers, or nobody needs to

Where an effect takes any callable or form, its constructor is written by hand: the
overloads are what makes `yield from` typed in mypy and pyright alike.
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

#: As in syslog (RFC 5424), the least important first.
LOG_LEVELS: Final = (
    *("debug", "info", "notice", "warning"),
    *("error", "critical", "alert", "emergency"),
)

#: Called with each effect as it is built. None but in development mode, where an effect
#: that nobody performs is a bug worth a warning; a global costs 20 ns, a hook 60.
_built: Callable[[Effect[Any]], None] | None = None

_set: Final = object.__setattr__
# Looked up once a constructor, as attrs does in its own.
_bind: Final = _set.__get__


def _shown(value: object) -> str:
    # Functions by name: an address differs from run to run, and tells nobody anything.
    return getattr(value, "__qualname__", None) or repr(value)


class Effect(Generic[T_co]):
    """What a handler wants. Write `answer = yield from effect`."""

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
        # `if Confirm("Sure?"):` would always be true, with nobody asked.
        raise UsageError(
            f"{type(self).__name__}(...) is no answer yet: a forgotten `yield from`?"
        )

    def __iter__(self) -> Generator[Effect[Any], Any, T_co]:
        answer: T_co = yield self
        return answer

    def __await__(self) -> Generator[Effect[Any], Any, T_co]:
        answer: T_co = yield self
        return answer

    # attrs calls this at the end of the constructors that it writes; those written by
    # hand below call it themselves.
    def __attrs_post_init__(self) -> None:
        if _built is not None:
            _built(self)


#: A running handler, and the annotation of one: `def order(title: str) -> Flow[str]:`.
Flow: TypeAlias = Generator[Effect[Any], Any, T]

#: What `Gather` takes: an effect or a flow.
Branch: TypeAlias = Effect[T] | Generator[Effect[Any], Any, T]


@frozen
class Accepted(Generic[T]):
    """The user answered. What `Outcome` returns, beside `Declined` and `Dismissed`.

    Attributes:
        value: The answer, of the type that was asked for.
    """

    value: T


# ---- what only the client can answer ------------------------------------------------


class InputRequest(Effect[T_co]):
    """A question. All of them take `key=` and `otherwise=`.

    Attributes:
        key: A name of your own on the wire and in the journal. It keeps an answer
            attached to its question when the handler is edited around it.
        otherwise: The value to use when the user declines or dismisses, and when the
            client cannot be asked. A declined `Confirm` is always `False`.
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
        is_finite = math.isfinite(value)  # type: ignore[arg-type]  # looked at above
    except OverflowError:  # an integer that no clock and no client can read
        is_finite = False
    if not is_finite:
        raise UsageError(f"{type(effect).__name__}({name}={value!r}): give a number")


def _check_type(
    effect: Effect[Any], name: str, value: object, noun: str, *types: type
) -> None:
    # What a client cannot read is better refused on the line that wrote it.
    if not isinstance(value, types) or isinstance(value, bool):
        raise UsageError(f"{type(effect).__name__}({name}={value!r}): give {noun}")


@frozen(init=False, eq=False, repr=False)
class Elicit(InputRequest[T_co]):
    """Ask the user to fill in a form.

    Args:
        message: What the user reads above the form.
        form: An attrs class, the type of a single field (`str`, `int`, `float`, `bool`,
            `date`, `datetime`, an `Enum`, a `Literal` of texts, a `list` of those two),
            any of them `| None`, or a raw schema.
        title: The label of a single field.
        key: A name of your own for this question.
        otherwise: The value to use instead of raising.

    Returns:
        The filled-in form, as the type asked for.

    Raises:
        Declined: The user said no.
        Dismissed: The user closed the form.
        Unsupported: The client cannot show forms.
        FormError: At once, when no client could show this form.
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
        # Here and not when it is performed, so that the traceback of a form that cannot
        # be shown points at the author's own line.
        put("spec", form_of(form, title))
        if _built is not None:
            _built(self)


@frozen(init=False, eq=False, repr=False)
class Confirm(InputRequest[bool]):
    """Ask the user for a yes or a no.

    Args:
        message: What the user reads.
        key: A name of your own for this question.
        otherwise: The value to use when the user closes the question, and when the
            client cannot be asked. A user who declines has answered: that is `False`.

    Returns:
        `True` when the user accepts, `False` when they decline.

    Raises:
        Dismissed: The user closed the question without choosing.
        Unsupported: The client cannot show forms.
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
    """Ask the user to open a web page, for what must not pass through the client.

    The answer means that the user consented to go there, not that they finished.

    Returns:
        `None` when the user consents.

    Raises:
        Declined: The user said no.
        Dismissed: The user closed the question.
        Unsupported: The client cannot open pages.
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
    """What the client's model wrote.

    Attributes:
        content: The content blocks, as the protocol's JSON.
        model: The model that wrote it.
        stop_reason: Why it stopped, if the client said so.
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
        messages: A prompt, or the protocol's list of messages.
        max_tokens: How much the model may write.
        system: The system prompt.
        tools: Tool definitions the model may call, as the protocol's JSON.
        tool_choice: `"auto"`, `"none"` or `"required"`.
        temperature: The sampling temperature.
        stop_sequences: Texts at which the model stops.
        preferences: The protocol's model preferences.
        keep: `"all"`, or `"text"` to record only the text blocks. What is recorded
            travels in the state of every later round.

    Returns:
        A `Sampled`.

    Raises:
        Declined: The user said no.
        Unsupported: The client has no model to offer.
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
    """A place the user is working in.

    Attributes:
        uri: Usually `file://…`.
        name: A name for people.
    """

    uri: str
    name: str | None = None


@frozen(init=False, eq=False, repr=False)
class ListRoots(InputRequest[T_co]):
    """Ask the client where the user is working.

    Deprecated in the protocol since 2026-07-28.

    Returns:
        A list of `Root`.

    Raises:
        Unsupported: The client has no roots to offer.
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
    """Ask, and get the refusal as a value to `match` on instead of an exception.

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
        Unsupported: The client cannot be asked; that is nobody's decision.
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
    """Do several things side by side: all their questions go out in one round.

    Branches are effects or whole flows: `a, b = yield from Gather(ask_a(), ask_b())`.
    For as many as there are items, use `Gather.each(...)`. (`yield from` inside a
    comprehension is a SyntaxError in Python.)

    When a branch raises, the others get `Cancelled`, and the exception comes out here.

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
        """A `Gather` of as many branches as there are, giving a list.

            names = yield from Gather.each(Elicit(f"Guest {n}?", str) for n in (1, 2))

        Take the branches from something whose order is the same in every process: a
        list, not a set.
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
    """How a step behaves; see `step` and docs/internals/replay.md#s2."""

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
    """The default of a step's parameter that the driver fills in.

        @step
        async def charge(amount: int, *, pool: Pool = Provided()) -> str: ...

    What is provided (a connection pool, a client) is neither recorded nor part of what
    identifies the step.
    """
    return PROVIDED


class _ProvidedType:
    def __repr__(self) -> str:
        return "Provided()"


PROVIDED: Final = _ProvidedType()


class StepFunction(Generic[P, T_co]):
    """A function made with `@step`: calling it builds the effect.

    Attributes:
        fn: The plain function, for calling it yourself.
        options: What `@step(...)` was given.
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
    """Call a function once, and record what it returned: later rounds do not repeat it.

    Delivery is *at least once*: when the reply of a round is lost, the client comes
    back with its older state and the step is performed again. Give whatever charges,
    sends or deletes an `IdempotencyKey`.

    Args:
        fn: A function, sync or async, or one made with `@step(...)`.
        *args: Its arguments: plain data, since they identify the step in the journal.
        **kwargs: The same by name.

    Returns:
        What the function returned, after a round trip through JSON.

    Raises:
        StepFailed: The function raised something of its own; builtin exceptions,
            `ToolError` and the classes in `raises=` come back as themselves.
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
            # What it holds identifies the step as much as what is given here.
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
        name: Its name in journals. Defaults to `module:qualname`; give one to move or
            rename a function under running flows.
        at_most_once: Never begin it twice, even if its result was lost. Tasks only.
        replayable: Performing it again is harmless, so an edited handler may.
        public: Its result may travel unencrypted.
        secret: Its result may never travel in a client's state.
        raises: Exception classes that come back as themselves.
        retries: How often the driver tries again after a failure.
        timeout: Seconds that one try may take.
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
    """The time, recorded: an aware `datetime` in UTC, the same one in every round."""


@frozen(eq=False, repr=False)
class Uuid(Effect[uuid.UUID]):
    """A random UUID, recorded."""


@frozen(eq=False, repr=False)
class Random(Effect[float]):
    """A random float from 0 up to 1, recorded."""


@frozen(init=False, eq=False, repr=False)
class IdempotencyKey(Effect[str]):
    """A stable string for one thing that this flow does, such as one charge.

        key = yield from IdempotencyKey("charge", order, amount)

    Give a name for each thing, and the values that the thing is about. A user who goes
    back and answers otherwise gets another amount, and so another key: a payment service
    that repeats its first reply to a known key would ship 100 for 10. Do not name what
    differs from try to try, such as a reading of the clock.

    The same name and values again in the same sequence give another key. Before the first
    question the key is new on every retry of the first call, as nothing yet ties one call
    to the next.

    Args:
        name: What is done.
        *about: What it is done with: plain data.
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
    """Whether the client can be asked: `ClientSupports(Sample)`. Recorded.

    Give a class, or an effect when it matters which (a form or a page, say).
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
    """Who is calling, as the flow's first round saw them.

    Attributes:
        principal: The authenticated user, when the transport knows one.
        client: The client's name and version.
        era: `"modern"`, `"legacy"`, or `"local"` outside of MCP.
        protocol_version: The protocol revision spoken.
        progress_token: The client's token for progress, if it gave one.
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
    """Who is calling. Recorded, so it does not change from round to round."""


@frozen(eq=False, repr=False)
class Checkpoint(Effect[None]):
    """Hand the state to the client before going on, so that no crash can lose it."""


@frozen(eq=False, repr=False)
class Progress(Effect[None]):
    """Tell a waiting client how far this is. Not recorded; silent while replaying."""

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
    """Send the client a log message. Not recorded; silent while replaying.

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
    """Which version of the code this flow passed this point under.

        fee = yield from Version("fee", default=0, latest=1)

    Args:
        id: A name for the change, used once in the handler.
        default: For flows that were past this point before the change.
        latest: For all others.
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
    """Begin again as another handler: `return (yield from Restart(order, title))`.

    What was recorded so far is forgotten; the rounds used are not. Only at the top
    level of a handler.

    Args:
        handler: A generator function, found again by its name in a later round.
        *args: Its arguments: plain data, or what its annotations say.
        **kwargs: The same by name.
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
    """Go on as a task, so that the client need not wait. Top level of tools only.

    Attributes:
        ttl: Seconds to keep the task after it ends.
        poll_interval: Seconds a client should wait between two looks.

    Returns:
        `True` in a task from now on, `False` when going on inline.
    """

    ttl: float | None = None
    poll_interval: float | None = None


@frozen(eq=False, repr=False)
class Sleep(Effect[None]):
    """Wait. After `Detach()`, or in a task."""

    seconds: float

    def __attrs_post_init__(self) -> None:
        _check_number(self, "seconds", self.seconds)
        if _built is not None:
            _built(self)


@frozen(eq=False, repr=False)
class Status(Effect[None]):
    """Say in words what a task is doing. After `Detach()`, or in a task."""

    message: str


@frozen
class TimedOut:
    """What `Within` returns when the time was up."""


@frozen(init=False, eq=False, repr=False)
class Within(Effect[T_co]):
    """Wait only so long for one effect: its value, or `TimedOut()`.

        match (yield from Within(3600, Outcome(Confirm("Still there?")))):
            case TimedOut():
                ...

    Args:
        seconds: How long. The time runs from when the question goes out, or the step
            begins.
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
    """Wait for several effects and take the first to end: `(position, value)`.

        match (yield from FirstOf(Elicit("Which day?", dt.date), Sleep(3600))):
            case (0, day):
                ...
            case (1, _):
                yield from remind()

    Args:
        *effects: Questions, steps and sleeps. A question and a step together need a task.
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
