"""For functions that keep their own state: they take `Given`, return `InputRequired`.

    @app.tool
    def order(title: str, given: Given = Provided()) -> str | InputRequired:
        match given.answers.get("who"):
            case None:
                return InputRequired({"who": Elicit("Who is it for?", str)}, state=1)
            case Accepted(content):
                return f"Ordered for {content['value']}."
            case _:
                return "Nothing ordered."

The function is called once per round, with all answers so far and the state that it
returned last; both are sent sealed. An answer is the client's JSON, checked against the
form; it is not converted to the form's type, as no class is kept between rounds.

For the engine, each call is a step, recorded like any other, so no call is repeated.
Only the last call is different: its result or exception is not recorded, but handled as
for a plain function.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin

import attrs
from attrs import NOTHING, define, frozen

from .canonical import JSON
from .effects import questions
from .effects.base import Flow, InputRequest
from .effects.control import Checkpoint, Gather
from .effects.questions import (
    Accepted,
    Elicit,
    Outcome,
    Root,
    Sampled,
)
from .effects.steps import PROVIDED, Step, step
from .errors import Declined, Dismissed, SchemaError, UsageError

__all__ = [
    "Given",
    "GivenAnswer",
    "InputRequired",
    "given_parameter",
    "is_call",
    "make_flow",
    "without",
]

GivenAnswer: TypeAlias = Accepted[Any] | Declined | Dismissed


@frozen
class InputRequired:
    """The result of a round that asks: the questions, and the state to keep.

    Attributes:
        requests: The questions, by your own keys. If empty, the client just sends the
            state back; a call may have two such rounds.
        state: Any JSON value; the next round gets it as `Given.state`.
    """

    requests: Mapping[str, InputRequest[Any]]
    state: JSON = None


@frozen
class Given:
    """The answers and the state of the rounds so far.

    Attributes:
        answers: All answers so far, by key; a later answer replaces an earlier one with
            the same key. The value of an accepted form is the object that the client
            sent; for a `Confirm` or a page, it is `None`.
        state: The state of the last `InputRequired`; `None` in the first round.
    """

    answers: Mapping[str, GivenAnswer]
    state: JSON = None


def _hints(function: Any) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return typing.get_type_hints(function)


def given_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that takes a `Given`; `None` without one.

    Raises:
        SchemaError: If the parameter has no `= Provided()`.
    """
    try:
        hints = _hints(function)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError):
        return None  # reading the signature will report the problem
    for name, hint in hints.items():
        if hint is Given and name != "return":
            if parameters[name].default is not PROVIDED:
                raise SchemaError(
                    f"{function.__qualname__}({name}): write {name}: Given = Provided()"
                )
            return name
    return None


def without(annotation: Any) -> Any:
    """Remove `InputRequired` from a return annotation, as it is not a final result."""
    if get_origin(annotation) in (Union, UnionType):
        rest = [one for one in get_args(annotation) if one is not InputRequired]
        return Union[tuple(rest)] if rest else None  # noqa: UP007  # made at run time
    return None if annotation is InputRequired else annotation


# ---- questions and answers as JSON, to be recorded ----------------------------------

#: Fields of a question that are not recorded: its key is recorded beside it, and for a
#: form only the schema.
_UNRECORDED: Final = frozenset({"key", "otherwise", "form", "title", "spec"})


def _write_request(key: object, request: InputRequest[Any]) -> JSON:
    class_ = type(request)
    if not issubclass(class_, InputRequest):
        raise UsageError(
            f"InputRequired asks questions, and {request!r} is not a question"
        )
    if not isinstance(key, str):
        raise UsageError(f"InputRequired({{{key!r}: ...}}): keys are strings")
    if request.otherwise is not NOTHING or request.key not in (None, key):
        raise UsageError(
            f"{request!r}: in InputRequired, otherwise= is for you to decide when the"
            f" answer is there, and the key is {key!r}"
        )
    fields = {
        name: getattr(request, name)
        for field in request.__attrs_attrs__
        if (name := field.name) not in _UNRECORDED
        # Left out unless it is set: earlier versions do not know it.
        and (name != "once" or request.once)
    }
    for name, value in fields.items():
        if isinstance(value, tuple):
            fields[name] = list(value)
        elif isinstance(value, Mapping):
            fields[name] = dict(value)
    if isinstance(request, Elicit):
        fields["form"] = dict(request.spec.schema)
    return [key, class_.__name__, fields]


def _read_request(written: JSON) -> InputRequest[Any]:
    key, name, fields = written
    class_: Any = getattr(questions, name)
    request: InputRequest[Any] = class_(**fields, key=key)
    return request


def _write_answer(answer: Any) -> JSON:
    match answer:
        case Accepted(Sampled() as sampled):
            return ["sampled", attrs.asdict(sampled)]
        case Accepted([Root(), *_] as roots):
            return ["roots", [attrs.asdict(root) for root in roots]]
        case Accepted(True):
            return ["accepted", None]  # a Confirm
        case Accepted(value):
            return ["accepted", value]
        case Declined():
            return ["declined", None]
        case _:
            return ["dismissed", None]


def _read_answer(written: JSON) -> GivenAnswer:
    match written:
        case ["sampled", fields]:
            return Accepted(Sampled(**fields))
        case ["roots", roots]:
            return Accepted([Root(**fields) for fields in roots])
        case ["accepted", value]:
            return Accepted(value)
        case ["declined", _]:
            return Declined()
        case _:
            return Dismissed()


# ---- the flow -----------------------------------------------------------------------


@define
class _StatefulCall:
    """The arguments of a call that do not identify it, and how the last call ended."""

    kwargs: Mapping[str, Any]
    value: Any = None
    error: Exception | None = None


#: The step's name in every journal. The request shows which function it is.
_NAME: Final = "InputRequired"
#: A step runs in a copy of its flow's context, so this reaches it without being recorded.
_CALL: Final[ContextVar[_StatefulCall]] = ContextVar("call")


def is_call(effect: object) -> bool:
    """Return whether `effect` is the step that calls a function once per round."""
    return isinstance(effect, Step) and effect.options.name == _NAME


def make_flow(
    function: Callable[..., Any], parameter: str | None
) -> Callable[..., Any]:
    """Return a flow handler that calls `function` once per round.

    Args:
        function: A plain or async function.
        parameter: The name of its parameter that takes a `Given`, if any.
    """
    call = step(name=_NAME, public=True)(_make_call(function, parameter))

    @functools.wraps(function)
    def flow(**kwargs: Any) -> Flow[Any]:
        answers: dict[str, JSON] = {}
        state: JSON = None
        while True:
            last = _StatefulCall(kwargs)
            _CALL.set(last)
            asked = yield from call(answers, state)
            if asked is None:
                if last.error is not None:
                    raise last.error
                return last.value
            requests, state = asked
            if not requests:
                yield from Checkpoint()
            found = yield from Gather.each(
                Outcome(_read_request(one)) for one in requests
            )
            for (key, *_), answer in zip(requests, found, strict=True):
                answers = {**answers, key: _write_answer(answer)}

    return flow


def _make_call(
    function: Callable[..., Any], parameter: str | None
) -> Callable[..., Any]:
    def arguments(
        answers: dict[str, JSON], state: JSON, provided: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = Given({key: _read_answer(one) for key, one in answers.items()}, state)
        mine = {} if parameter is None else {parameter: given}
        return {**_CALL.get().kwargs, **provided, **mine}

    # The result or exception that ends the flow is not recorded, as nothing follows it.
    # So a result may be of any type, and an exception is raised unchanged.
    def take(value: Any) -> JSON:
        if not isinstance(value, InputRequired):
            _CALL.get().value = value
            return None
        asked = [_write_request(key, one) for key, one in value.requests.items()]
        return [asked, value.state]

    def call(answers: dict[str, JSON], state: JSON, **provided: Any) -> JSON:
        try:
            return take(function(**arguments(answers, state, provided)))
        except Exception as exc:
            _CALL.get().error = exc
            return None

    async def acall(answers: dict[str, JSON], state: JSON, **provided: Any) -> JSON:
        try:
            return take(await function(**arguments(answers, state, provided)))
        except Exception as exc:
            _CALL.get().error = exc
            return None

    made: Any = acall if inspect.iscoroutinefunction(function) else call
    # Parameters that the lifespan fills in become parameters of the step.
    hints = _hints(function)
    wanted = {
        name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in inspect.signature(function).parameters.items()
        if one.default is PROVIDED and name != parameter
    }
    own = inspect.signature(made).parameters
    made.__signature__ = inspect.Signature(
        [own["answers"], own["state"], *wanted.values()]
    )
    made.__annotations__ = {name: hints[name] for name in wanted if name in hints}
    return made  # type: ignore[no-any-return]  # Any, to be given a signature
