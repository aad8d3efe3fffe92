"""Interceptors: generator functions around a call, in the style of handlers.

    def only_office_hours(call: Call) -> Intercepting:
        now = yield from Now()
        if not 9 <= now.hour < 17:
            raise ToolError("Come back at nine.")
        result = yield from call
        return result

    it may                        by
    ----------------------------  ----------------------------------------------------
    look at a call                the attributes of `Call`
    change arguments              `yield from call.with_arguments({...})`
    change the result             `return result.with_fields({...})`, if it is `Finished`
    answer in its place           `return "closed"`, as the handler would
    refuse                        `raise ToolError(...)` for the model, or `ProtocolError`
    handle a failure              `try: ... except`, around the yield
    do something                  `yield from` a step, `Now()`, `Random()`, `Sleep(...)`

Each round of a flow is a call of its own, and `Call.round` counts them; the end of a task
is one, too. An interceptor is not replayed. It sees no state and cannot ask.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs
from attrs import field, frozen

from ..canonical import JSON
from ..effects.base import Effect
from ..errors import SchemaError
from .listeners import called_by, takes

if TYPE_CHECKING:
    from ..engine.stops import Question
    from .features import Feature
    from .identity import Identity

__all__ = [
    "Call",
    "CallKind",
    "CallOutcome",
    "Finished",
    "InputNeeded",
    "Intercepting",
    "Interceptor",
    "TaskStarted",
    "checked_interceptor",
    "checked_interceptors",
]

CallKind: TypeAlias = Literal["tool", "prompt", "resource"]


@frozen(kw_only=True)
class Call:
    """A call of a tool, a prompt or a resource, or one round of it.

    Yield it to continue with the call: `result = yield from call`.

    Attributes:
        feature: The tool, prompt or resource, as it is registered: with its `listing`.
        kind: Whether it is a tool, a prompt or a resource.
        name: The tool or the prompt by name, or the resource by URI.
        tags: The tags of the tool, prompt or resource.
        arguments: The arguments as the client sent them, unchecked; `None` for a
            resource. Do not change them in place: see `with_arguments`.
        principal: The authenticated user, if the transport knows one.
        identity: What else is known about this user, such as scopes; `None` for nothing,
            and at the end of a task.
        party: Whose share of the server this takes: the user or, without
            authentication, the client's address; `None` if neither is known.
        client: The client's name and version, in its own words.
        era: Whether the client answers by retry (`"modern"`) or on a session.
        revision: The revision that the client speaks.
        flow_id: The id of the flow in hex, the same in all its rounds and its task;
            `None` for a function that yields no effects.
        round: The number of the round, from 1. A call that asks live has one round.
        is_first: Whether the flow starts with this call.
        is_task: Whether this is the end of a task, with the result that is kept.
    """

    feature: Feature = field(repr=False)
    kind: CallKind
    name: str
    tags: frozenset[str]
    arguments: Mapping[str, JSON] | None = field(repr=False)
    principal: str | None
    identity: Identity | None = field(default=None, repr=False)
    party: str | None
    client: str | None
    era: Literal["modern", "legacy"]
    revision: str
    flow_id: str | None = None
    round: int = 1
    is_first: bool = True
    is_task: bool = False

    def with_arguments(self, arguments: Mapping[str, JSON]) -> Call:
        """Return this call with other arguments, which are checked as a client's are.

        Each round begins with the client's arguments again, so change them in the same
        way each time.
        """
        changed: Call = attrs.evolve(self, arguments=arguments)
        return changed

    def __iter__(self) -> Generator[Call, CallOutcome, CallOutcome]:
        outcome = yield self
        return outcome


@frozen
class Finished:
    """A call has its result.

    Attributes:
        fields: The fields of the result, as the protocol defines them: `content` of a
            tool, `messages` of a prompt, `contents` of a resource.
    """

    fields: Mapping[str, JSON]

    def with_fields(self, fields: Mapping[str, JSON]) -> Finished:
        """Return this result with some fields added or replaced."""
        return Finished({**self.fields, **fields})

    @property
    def is_error(self) -> bool:
        """Whether it is the result of a tool that says that it failed."""
        return self.fields.get("isError") is True


@frozen(kw_only=True)
class InputNeeded:
    """A round ends, because the call needs answers. Return it as it is, or refuse.

    Attributes:
        questions: The questions; none for a round that only carries a state.
        expires: When its state expires, in seconds since 1970.
    """

    questions: tuple[Question, ...]
    expires: float


@frozen(kw_only=True)
class TaskStarted:
    """A call became a task. Return it as it is.

    Attributes:
        task: The id of the task.
    """

    task: str


CallOutcome: TypeAlias = Finished | InputNeeded | TaskStarted

#: The annotation of an interceptor: `def quota(call: Call) -> Intercepting:`.
Intercepting: TypeAlias = Generator[Call | Effect[Any], Any, Any]

Interceptor: TypeAlias = Callable[[Call], Intercepting]


def checked_interceptors(of: str, functions: Any) -> tuple[Interceptor, ...]:
    """Return interceptors as a tuple.

    Args:
        of: What they are given for.
        functions: The interceptors.

    Raises:
        SchemaError: If one is not a generator function of one argument.
    """
    if callable(functions) or isinstance(functions, (str, bytes)):
        raise SchemaError(f"{of}: give a list of interceptors, not {functions!r}")
    return tuple(checked_interceptor(of, one) for one in functions)


def checked_interceptor(of: str, function: Any) -> Interceptor:
    """Return an interceptor.

    Raises:
        SchemaError: If it is not a generator function of one argument.
    """
    name = getattr(function, "__qualname__", repr(function))
    called = called_by(function)
    if isinstance(function, str):
        raise SchemaError(
            f"{of}: {function!r} is not a function; write kind={function!r} or"
            f" tag={function!r}"
        )
    if not callable(function) or not inspect.isgeneratorfunction(called):
        is_async = inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(
            called
        )
        hint = "; what it awaits is an async @step" if is_async else ""
        raise SchemaError(
            f"{of}: {name} is not a generator function: write"
            f" `def {getattr(function, '__name__', 'name')}(call: Call) -> Intercepting:`"
            f" with `result = yield from call` in it, or call {name}(...) if that"
            f" returns one{hint}"
        )
    if not takes(function, 1):
        raise SchemaError(
            f"{of}: {name} takes one argument, the call; to continue with it, write"
            " `yield from call`"
        )
    checked: Any = function
    given: Interceptor = checked
    return given
