"""Run the interceptors of a call: each around the next one, and the handler innermost.

An interceptor is a generator. It is driven like a flow, and never replayed: it lives for
one round, or for the end of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextvars import Context as Variables
from contextvars import copy_context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs
from attrs import define, field

from ..canonical import JSON
from ..effects.base import Effect
from ..effects.local import Caller, Now, Random, Sleep, Uuid
from ..effects.steps import Step
from ..engine.generators import (
    Ended,
    Failed,
    Yielded,
    send,
    start,
    suspend,
    throw,
)
from ..engine.names import name_of
from ..engine.steps import step_name
from ..engine.stops import Done, Failure, Want
from ..errors import ArgumentsError, OutputError, UsageError
from ..schema.declared import place_of
from ..server.events import StepBegan, StepPerformed
from ..server.interceptors import (
    Call,
    CallKind,
    CallOutcome,
    Finished,
    InputNeeded,
    Interceptor,
    TaskStarted,
)
from .calls import Handle, Interim, checked, contained
from .commands import Command, PerformAll
from .results import Misread, result_of
from .shares import party_of
from .telling import tell

if TYPE_CHECKING:
    from ..effects.local import CallerInfo
    from ..server.features import Feature, Tool
    from ..state.codec import Claims
    from .context import Context

__all__ = ["Prepared", "intercept", "intercept_end"]

#: What an interceptor may yield, beside its call.
_LOCAL: Final = (Step, Now, Uuid, Random, Sleep)

Inner: TypeAlias = Callable[[Call], Generator[Command, Any, CallOutcome]]


class Prepared(Protocol):
    """Interface of a call that is ready to run.

    Attributes:
        arguments: The arguments that a task keeps; an interceptor may change them.
    """

    arguments: JSON

    def open(self) -> Claims | None:
        """Return the claims that it resumes from; `None` for a function that asks nothing.

        Raises:
            StateError: If this request may not use its state.
        """

    @property
    def is_resumed(self) -> bool:
        """Whether it resumes a flow, once it is opened."""
        ...

    def run(self, kwargs: Mapping[str, Any]) -> Generator[Command, Any, Any]:
        """Run it with the arguments of its function; return its value."""
        ...


def intercept(
    context: Context,
    chain: tuple[Interceptor, ...],
    feature: Feature,
    target: str,
    arguments: JSON,
    prepared: Prepared,
    read: Callable[[Any], Mapping[str, Any]],
) -> Generator[Command, Any, Mapping[str, JSON] | Interim | Handle]:
    """Run a call inside of its interceptors; return what the response says.

    Args:
        context: The request.
        chain: The interceptors, the outermost first.
        feature: The tool, prompt or resource.
        target: The name or URI by which the request calls it.
        arguments: The arguments as the client sent them.
        prepared: The call.
        read: Returns the keyword arguments of the handler, given such arguments.

    Raises:
        Exception: If an interceptor, or the call, raises it.
    """
    meta = context.meta
    given = None if arguments is None else MappingProxyType(arguments)
    call = Call(
        feature=feature,
        kind=feature.kind,
        name=target,
        tags=feature.tags,
        arguments=given,
        principal=context.peer.principal,
        identity=context.peer.identity,
        party=context.peer.party,
        client=meta.client,
        era=context.dialect.era,
        revision=meta.version,
    )
    # No forged state reaches an interceptor, so none can change what one counts.
    claims = prepared.open()
    if claims is not None:
        call = attrs.evolve(
            call,
            flow_id=claims.flow_id.hex(),
            round=claims.journal.rounds + 1,
            is_first=not prepared.is_resumed,
        )
    held: list[Interim | Handle] = []

    def inner(call: Call) -> Generator[Command, Any, CallOutcome]:
        wanted = arguments if call.arguments is given else call.arguments
        prepared.arguments = wanted
        try:
            kwargs = read(wanted)
        except ArgumentsError as exc:
            raise Misread(exc.problems) from None
        value = yield from prepared.run(kwargs)
        match value:
            case Interim():
                held.append(value)
                expires = _expiry(context, claims)
                return InputNeeded(questions=value.questions, expires=expires)
            case Handle(row):
                held.append(value)
                return TaskStarted(task=row.id)
            case _:
                return Finished(result_of(feature, target, value))

    seconds = context.app.timeout if feature.timeout is None else feature.timeout
    passing = _Passing(
        feature,
        target,
        inner,
        None if seconds is None else lambda: context.clock() + seconds,
        copy_context() if context.watched is None else context.watched.variables,
        None if context.watched is None else _Watching(context, call.flow_id or ""),
    )
    outcome = yield from passing.through(chain, call)
    return outcome.fields if isinstance(outcome, Finished) else held[0]


def _expiry(context: Context, claims: Claims | None) -> float:
    sealer = context.app.sealer
    assert sealer is not None  # it has sealed the state
    assert claims is not None  # only a flow asks
    return min(context.clock() + sealer.ttl, claims.started + sealer.life)


def intercept_end(
    chain: tuple[Interceptor, ...],
    tool: Tool,
    caller: CallerInfo,
    arguments: JSON,
    round_: int,
    variables: Variables | None,
    end: Callable[[], Mapping[str, JSON]],
) -> Generator[Command, Any, Mapping[str, JSON]]:
    """Run the interceptors of a tool around the end of a task; return its result's fields.

    Args:
        chain: The interceptors, the outermost first.
        tool: The tool.
        caller: Who started the task.
        arguments: The arguments that its handler has.
        round_: The number of the round that would follow.
        variables: The context whose copies they run in; `None` for the current one.
        end: Returns the fields of its result, or raises the error that it ended with.

    Raises:
        Exception: If an interceptor, or the task, raises it.
    """
    call = Call(
        feature=tool,
        kind="tool",
        name=tool.name,
        tags=tool.tags,
        arguments=MappingProxyType(arguments),
        principal=caller.principal,
        party=party_of(caller.principal, None),
        client=caller.client,
        era="legacy" if caller.era == "legacy" else "modern",
        revision=caller.protocol_version or "",
        flow_id=caller.flow_id,
        round=round_,
        is_first=False,
        is_task=True,
    )

    def inner(call: Call) -> Generator[Command, Any, CallOutcome]:
        yield from ()
        return Finished(end())

    passing = _Passing(tool, tool.name, inner, None, variables or copy_context())
    outcome = yield from passing.through(chain, call)
    assert isinstance(outcome, Finished)  # `inner` gives no other one to return
    return outcome.fields


@define(eq=False)
class _Watching:
    """Tells observers of the steps of interceptors, in a request."""

    _context: Context
    _flow_id: str
    _began: float = 0.0

    def begin(self, want: Want) -> None:
        assert isinstance(want.effect, Step)
        assert self._context.watched is not None
        self._began = self._context.clock()
        event = StepBegan(
            flow_id=self._flow_id,
            key=want.key,
            name=step_name(want.effect),
            number=self._context.watched.number,
            task=None,
            context=want.context,
        )
        tell(self._context.app, event)

    def end(self, want: Want, outcome: Done | Failure) -> None:
        assert isinstance(want.effect, Step)
        assert self._context.watched is not None
        event = StepPerformed(
            flow_id=self._flow_id,
            key=want.key,
            name=step_name(want.effect),
            seconds=self._context.clock() - self._began,
            number=self._context.watched.number,
            error=outcome.error if isinstance(outcome, Failure) else None,
        )
        tell(self._context.app, event)


@define(eq=False)
class _Passing:
    """One call on its way through its interceptors."""

    _feature: Feature
    _target: str
    _inner: Inner
    _deadline: Callable[[], float] | None
    #: The context whose copies the interceptors run in.
    _variables: Variables
    _watching: _Watching | None = None
    _performed: int = 0
    #: What the call came to; only this very object may be returned, unless it is final.
    _given: list[CallOutcome] = field(factory=list)

    def through(
        self, chain: tuple[Interceptor, ...], call: Call
    ) -> Generator[Command, Any, CallOutcome]:
        """Run the first interceptor around the others; return what it returns."""
        if not chain:
            outcome = yield from self._inner(call)
            self._given.append(outcome)
            return outcome
        function, *rest = chain
        variables = self._variables.copy()
        running = start(function, (call,), {}, variables)
        if isinstance(running, Failed):
            raise contained(running.error, name_of(function))
        if isinstance(running, Ended):
            raise self._misuse(function, "returned no generator")
        is_called = False
        try:
            turn = send(running, variables, None)
            while isinstance(turn, Yielded):
                try:
                    if not isinstance(turn.effect, Call):
                        value = yield from self._perform(
                            function, turn.effect, variables
                        )
                    elif is_called:
                        raise self._misuse(
                            function, "yields its call twice: a call runs once"
                        )
                    else:
                        is_called = True
                        passed = self._checked(function, call, turn.effect)
                        value = yield from self.through(tuple(rest), passed)
                except Exception as exc:
                    turn = throw(running, variables, exc)
                else:
                    turn = send(running, variables, value)
        finally:
            suspend(running, variables)
        if isinstance(turn, Failed):
            raise contained(turn.error, name_of(function))
        return self._outcome(function, turn.value)

    def _checked(self, function: Interceptor, call: Call, passed: Call) -> Call:
        if attrs.evolve(passed, arguments=call.arguments) != call:
            raise self._misuse(function, "changes more of its call than the arguments")
        if passed.arguments is not call.arguments:
            if call.kind == "resource":
                raise self._misuse(function, "gives arguments to a resource")
            if not isinstance(passed.arguments, dict):
                raise self._misuse(
                    function, f"gives the arguments {passed.arguments!r}, and no dict"
                )
        return passed

    def _perform(
        self, function: Interceptor, effect: object, variables: Variables
    ) -> Generator[Command, Any, Any]:
        if isinstance(effect, Caller):
            raise self._misuse(function, "yields Caller(): the call has the principal")
        if not isinstance(effect, _LOCAL):
            what = type(effect).__name__ + "()" * isinstance(effect, Effect)
            raise self._misuse(
                function,
                f"yields {what}: it may yield its call, steps (call the function of a"
                " step), Now(), Uuid(), Random() and Sleep(); questions are for handlers",
            )
        self._performed += 1
        key = f"interceptor-{self._performed}"
        want = Want(key, effect, variables.copy())
        deadline = None if self._deadline is None else self._deadline()
        watching = self._watching if isinstance(effect, Step) else None
        if watching is not None:
            watching.begin(want)
        outcomes: dict[str, Done | Failure] = yield PerformAll((want,), deadline)
        outcome = outcomes[key]
        if watching is not None:
            watching.end(want, outcome)
        if isinstance(outcome, Failure):
            raise outcome.error
        return outcome.value

    def _outcome(self, function: Interceptor, value: object) -> CallOutcome:
        match value:
            case Finished():
                self._check_fields(function, value)
                return value
            case Call():
                raise self._misuse(
                    function, "returns its call: write `return (yield from call)`"
                )
            case InputNeeded() | TaskStarted():
                if not any(one is value for one in self._given):
                    raise self._misuse(
                        function,
                        f"returns a {type(value).__name__}(...) that it has made",
                    )
                return value
            case None:
                raise self._misuse(
                    function,
                    "returns nothing: end it with `return result`, with the result that"
                    " `yield from call` gave",
                )
            case _:
                try:
                    value = checked(value, self._feature.handler)
                    fields = result_of(self._feature, self._target, value)
                except OutputError as exc:
                    problem = f"returns {value!r:.100}: {'; '.join(exc.problems)}"
                    raise self._misuse(function, problem) from None
                return Finished(fields)

    def _check_fields(self, function: Interceptor, result: Finished) -> None:
        """Check that changed fields still make a result."""
        if any(one is result for one in self._given):
            return
        name = _CONTENTS[self._feature.kind]
        if not isinstance(result.fields.get(name), list):
            raise self._misuse(
                function,
                f"returns a result without a list {name!r}: write"
                " `return result.with_fields({...})`",
            )
        for one in ("resultType", "result_type"):
            if one in result.fields:
                raise self._misuse(function, f"returns a result with {one!r}")

    def _misuse(self, function: Interceptor, problem: str) -> UsageError:
        return UsageError(
            f"the interceptor {place_of(function)}, around {self._target}, {problem}"
        )


#: The field that each result has, by the kind of its feature.
_CONTENTS: Final[Mapping[CallKind, str]] = {
    "tool": "content",
    "prompt": "messages",
    "resource": "contents",
}
