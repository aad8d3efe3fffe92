"""Questions: effects that only the client can answer.

A question costs a round if the client retries its request. All of them take `key=` and
`otherwise=`. `Outcome` wraps a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

from attrs import NOTHING, field, frozen
from typing_extensions import TypeForm

from ..errors import Declined, Dismissed, UsageError
from ..forms.form import Form, form_of
from . import base
from .base import (
    Effect,
    InputRequest,
    assign,
    bind,
    check_message,
    check_meta,
    check_once,
    check_type,
)

__all__ = [
    "Accepted",
    "Confirm",
    "Elicit",
    "ElicitUrl",
    "ListRoots",
    "Outcome",
    "Root",
    "Sample",
    "Sampled",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")
V = TypeVar("V")


@frozen
class Accepted(Generic[T]):
    """The user's answer, as `Outcome` returns it; see also `Declined` and `Dismissed`.

    Attributes:
        value: The answer, of the type that was asked for.
    """

    value: T


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
        meta: The `_meta` of the question: JSON for hosts that show forms of their own.

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
    meta: Mapping[str, Any] | None = None

    @overload
    def __init__(
        self: Elicit[A],
        message: str,
        form: TypeForm[A],
        *,
        title: str | None = None,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
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
        meta: Mapping[str, Any] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Elicit[dict[str, Any]],
        message: str,
        form: Mapping[str, Any],
        *,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Elicit[dict[str, Any] | V],
        message: str,
        form: Mapping[str, Any],
        *,
        key: str | None = None,
        otherwise: V,
        meta: Mapping[str, Any] | None = None,
    ) -> None: ...
    def __init__(
        self,
        message: str,
        form: Any,
        *,
        title: str | None = None,
        key: str | None = None,
        otherwise: Any = NOTHING,
        meta: Any = None,
    ) -> None:
        if type(message) is not str:
            check_message(self, message)
        put = bind(self)
        put("message", message)
        put("form", form)
        put("title", title)
        put("key", key)
        put("otherwise", otherwise)
        put("meta", None if meta is None else check_meta(self, meta))
        # Built here and not when the question is asked, so that the traceback of a form
        # that cannot be shown points at the author's line.
        put("spec", form_of(form, title))
        if base.on_built is not None:
            base.on_built(self)


@frozen(init=False, eq=False, repr=False)
class Confirm(InputRequest[bool]):
    """Ask the user a yes-or-no question.

    Args:
        message: The question that the user reads.
        key: Your own name for this question.
        otherwise: The value to return if the user closes the question, or if the client
            cannot be asked. A user who declines has answered: that is `False`.
        once: Whether the answer counts for one completed flow only: a client that goes back
            to an earlier state, to use the answer a second time or to give another one,
            is refused before anything is performed. Needs a ledger; see `Server`. Then
            `otherwise=` may only be `False`.

    Returns:
        `True` if the user accepts, `False` if the user declines.

    Raises:
        Dismissed: If the user closes the question without choosing.
        Unsupported: If the client cannot show forms.
    """

    message: str
    key: str | None
    otherwise: Any
    once: bool = False

    @overload
    def __init__(
        self, message: str, *, key: str | None = None, once: bool = False
    ) -> None: ...
    @overload
    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        otherwise: bool,
        once: bool = False,
    ) -> None: ...
    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        otherwise: Any = NOTHING,
        once: Any = False,
    ) -> None:
        if type(message) is not str:
            check_message(self, message)
        if once is not False:
            check_once(self, once, otherwise)
        assign(self, "message", message)
        assign(self, "key", key)
        assign(self, "otherwise", otherwise)
        assign(self, "once", once)
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
        once: See `Confirm`.

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
    once: bool = False

    @overload
    def __init__(
        self: ElicitUrl[None],
        message: str,
        url: str,
        *,
        key: str | None = None,
        once: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: ElicitUrl[V | None],
        message: str,
        url: str,
        *,
        key: str | None = None,
        otherwise: V,
        once: bool = False,
    ) -> None: ...
    def __init__(
        self,
        message: str,
        url: str,
        *,
        key: str | None = None,
        otherwise: Any = NOTHING,
        once: Any = False,
    ) -> None:
        if type(message) is not str:
            check_message(self, message)
        if once is not False:
            check_once(self, once, otherwise)
        check_type(self, "url", url, "a text", str)
        assign(self, "message", message)
        assign(self, "url", url)
        assign(self, "key", key)
        assign(self, "otherwise", otherwise)
        assign(self, "once", once)
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
            later round contains the record.
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
        assign(self, "messages", tuple(dict(message) for message in messages))
        assign(self, "max_tokens", max_tokens)
        assign(self, "system", system)
        assign(self, "tools", tuple(dict(tool) for tool in tools))
        assign(self, "tool_choice", tool_choice)
        assign(self, "temperature", temperature)
        assign(self, "stop_sequences", tuple(stop_sequences))
        assign(self, "preferences", preferences)
        check_type(self, "max_tokens", max_tokens, "a whole number", int)
        if system is not None:
            check_type(self, "system", system, "a text", str)
        if temperature is not None:
            check_type(self, "temperature", temperature, "a number", int, float)
        if keep not in ("all", "text"):
            raise UsageError(f"Sample(keep={keep!r}): give 'all' or 'text'")
        assign(self, "keep", keep)
        assign(self, "key", key)
        assign(self, "otherwise", otherwise)
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
        assign(self, "key", key)
        assign(self, "otherwise", otherwise)
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

    may_lose: ClassVar[bool] = True
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
        assign(self, "request", request)
        self.__attrs_post_init__()
