"""Step through a handler: a test that reads like the conversation that it tests.

    with play(order, title="Dune") as dialogue:
        dialogue.expect(Elicit("Who is it for?", str)).answer("Ann")
        dialogue.expect(Elicit).answer(dt.date(2026, 12, 1))
        dialogue.expect(Confirm).answer(True)
        dialogue.expect(charge_card).returns("receipt 7")
        assert dialogue.result == "Ordered: receipt 7"

No step is performed unless the test asks for it. Effects that read the clock, random
values or the environment (`Now`, `Uuid`, `Random`, `Caller`, `Detach`, `Sleep`) have
the same outcome in every test, unless the test expects them by name. The engine answers
the rest itself, as usual; it keeps `Progress`, `Log` and `Status` for the test to read.

There is no replay here: the generator is resumed. `drivers.sync.run_flow` replays.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar, overload

import attrs
from attrs import frozen

from ..drivers.sync import perform
from ..effects.base import Effect, Flow, InputRequest
from ..effects.control import (
    Gather,
)
from ..effects.questions import Accepted, Confirm, Outcome
from ..effects.steps import Step, StepFunction
from ..engine.answers import Answer, read_answer
from ..engine.effect_table import INLINE, KINDS
from ..engine.replay import Run
from ..engine.rules import SCRIPT
from ..engine.stops import Asked, Done, Failure, Perform, Raised, Returned, Stop
from ..errors import ClientFailed, Declined, Dismissed, UsageError
from ..forms.form import Unfit
from ..lowlevel import InputRequired, given_parameter
from .chance import FLOW_ID, Chance
from .descriptions import describe
from .values import content_of

__all__ = ["Dialogue", "Expectation", "Mismatch", "Script", "play", "play_script"]

T = TypeVar("T")
P = ParamSpec("P")

#: A pair per effect: the effect that the test expects, and its outcome or answer.
Script: TypeAlias = Iterable[tuple[Any, Any]]

_RULES: Final = attrs.evolve(SCRIPT, development=True)

#: Effects that never wait: the engine answers them, or takes them apart.
_NEVER_WAITS: Final = tuple(
    effect
    for effect, kind in KINDS.items()
    if kind.by == "engine" or kind.wave is INLINE
)

#: Most lines of a transcript in an error: a handler that loops has ten thousand.
_MOST_LINES: Final = 20


class Mismatch(AssertionError):
    """Raised when a handler does something else than a test expects.

    Attributes:
        transcript: The effects before, one line per effect.
        expected: What the test expected.
        came: The actual effects that wait, or the end; one string each.
    """

    def __init__(
        self, transcript: Iterable[str], expected: str, came: Iterable[str]
    ) -> None:
        self.transcript = tuple(transcript)
        self.expected = expected
        self.came = tuple(came)
        lines = [f"expected {expected}", f"but came {' and '.join(self.came)}"]
        if self.transcript:
            lines.append("after")
        if more := len(self.transcript[:-_MOST_LINES]):
            lines.append(f"    ... ({more:,} more)")
        lines += [f"    {line}" for line in self.transcript[-_MOST_LINES:]]
        super().__init__("\n".join(lines))


@frozen
class _PendingEffect:
    key: str
    effect: Effect[Any]
    where: str | None
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{describe(self.effect)} at {self.where}"


class Dialogue(Generic[T]):
    """A handler that waits for a test to answer it. Create it with `play`.

    As a context manager, it ends the handler on exit. Garbage collection ends it, too.

    Attributes:
        transcript: The effects so far, one line per effect.
        told: The `Progress`, `Log` and `Status` effects so far.
    """

    def __init__(
        self, handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.transcript: list[str] = []
        self.told: list[Effect[Any]] = []
        self._unsupported: list[InputRequest[Any]] = []
        self._chance = Chance()
        self._answers: dict[str, Answer | None] = {}
        self._outcomes: dict[str, Done | Failure] = {}
        transcript, told, unsupported = self.transcript, self.told, self._unsupported

        # The run refers to these three lists and not to the dialogue, so that it ends
        # when the last reference to the dialogue is dropped, not when the garbage
        # collector finds a cycle.
        def hear(effect: Effect[Any]) -> None:
            transcript.append(describe(effect))
            told.append(effect)

        def supports(what: object) -> bool:
            return not any(what is one for one in unsupported)

        # A list, for the same reason: the time, which only `lapse` advances.
        times = self._times = [0.0]

        def now() -> float:
            return times[-1]

        self._run = Run(
            handler,
            args,
            kwargs,
            flow_id=FLOW_ID,
            rules=_RULES,
            # A race is performed as one effect, after a Detach as well.
            detached=_RULES,
            emit=hear,
            supports=supports,
            clock=now,
        )
        self._name = getattr(handler, "__name__", repr(handler))
        # Without this, the generator would be closed when it is collected, and its
        # complaint about effects in its cleanup would be lost.
        weakref.finalize(self, self._run.suspend)
        self._stop: Stop = self._run.start()

    def __enter__(self) -> Dialogue[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the handler where it is, as if the client never returned."""
        self._run.suspend()

    # ---- what it waits for ----

    @property
    def pending(self) -> list[Effect[Any]]:
        """The effects that wait to be answered; several of a `Gather`."""
        return [one.effect for one in self._waiting()]

    def _waiting(self) -> list[_PendingEffect]:
        match self._stop:
            case Perform(wants):
                return [
                    _PendingEffect(one.key, one.effect, self._run.line_of(one.key))
                    for one in wants
                    if one.key not in self._outcomes
                ]
            case Asked(questions):
                return [
                    _PendingEffect(one.key, one.effect, one.where, one.problems)
                    for one in questions
                    if one.key not in self._answers
                ]
            case _:
                return []

    def expect(self, what: Any) -> Expectation[T]:
        """Return the next effect, which must match `what`.

        If several effects of a Gather wait, it is the first of them that matches.

        Args:
            what: An effect, equal in every field (`unittest.mock.ANY` is equal to
                anything); a class of effects; or a step's function, with any arguments.

        Raises:
            Mismatch: If the handler did something else.
            UsageError: If no handler can wait for `what`.
        """
        __tracebackhide__ = True
        _check_expected(what)
        while True:
            waiting = self._waiting()
            for one in waiting:
                if _is(one.effect, what):
                    return Expectation(self, one)
            if not self._leave_to_chance(waiting):
                raise self._mismatch(describe(what), waiting)

    def _leave_to_chance(self, waiting: list[_PendingEffect]) -> bool:
        for one in waiting:
            outcome = self._chance.outcome(one.effect)
            if outcome is not None:
                self._settle(one, outcome, repr(outcome.value))
                return True
        return False

    # ---- how it ends ----

    @property
    def result(self) -> T:
        """The return value of the handler.

        Raises:
            Mismatch: If the handler still waits for an effect.
            Exception: If the handler raised: the same exception.
        """
        __tracebackhide__ = True
        self._finish()
        if isinstance(self._stop, Raised):
            raise self._stop.error
        assert isinstance(self._stop, Returned)
        result: T = self._stop.value
        if isinstance(result, InputRequired):
            raise UsageError(_keeps_its_state(self._name))
        return result

    @property
    def error(self) -> BaseException:
        """The exception that the handler raised.

        Raises:
            Mismatch: If the handler returned, or still waits for an effect.
        """
        __tracebackhide__ = True
        self._finish()
        if not isinstance(self._stop, Raised):
            raise self._mismatch("an exception", [])
        return self._stop.error

    def _finish(self) -> None:
        __tracebackhide__ = True
        while waiting := self._waiting():
            if not self._leave_to_chance(waiting):
                raise self._mismatch("the end", waiting)

    def _mismatch(self, expected: str, waiting: list[_PendingEffect]) -> Mismatch:
        if waiting:
            return Mismatch(self.transcript, expected, map(str, waiting))
        if isinstance(self._stop, Raised):
            error = self._stop.error
            came = f"the end, raising {error!r}"
            mismatch = Mismatch(self.transcript, expected, [came])
            mismatch.__cause__ = error  # it has the author's line in its traceback
            return mismatch
        assert isinstance(self._stop, Returned)
        came = f"the end, returning {self._stop.value!r}"
        return Mismatch(self.transcript, expected, [came])

    # ---- for `Expectation` ----

    def _settle(
        self, one: _PendingEffect, outcome: Done | Failure | Answer | None, said: str
    ) -> None:
        """Settle `one` with an outcome or answer; `None` leaves a question open."""
        if all(one.effect is not other.effect for other in self._waiting()):
            raise UsageError(f"{one} was answered before")
        self.transcript.append(f"{describe(one.effect)} → {said}")
        if isinstance(outcome, (Done, Failure)):
            self._outcomes[one.key] = outcome
        else:
            self._answers[one.key] = outcome
        if self._waiting():
            return  # first the other effects of the Gather
        outcomes, self._outcomes = self._outcomes, {}
        answers, self._answers = self._answers, {}
        if isinstance(self._stop, Perform):
            self._stop = self._run.performed(outcomes)
        else:
            given = {key: one for key, one in answers.items() if one is not None}
            self._stop = self._run.answered(given)

    def _lapse(self, one: _PendingEffect) -> None:
        """Let the time pass until the next deadline; leave the question open."""
        due = self._stop.due if isinstance(self._stop, Asked) else None
        if due is None:
            raise UsageError(
                f"{one} has no deadline: it is in no Within() or FirstOf()"
            )
        self._times.append(due)
        self._settle(one, None, "no answer in time")

    def _perform(self, one: _PendingEffect, options: dict[str, Any]) -> Done | Failure:
        assert isinstance(self._stop, Perform)
        (want,) = [want for want in self._stop.wants if want.key == one.key]
        return perform(want, **options)


@frozen
class Expectation(Generic[T]):
    """An effect that came as expected, to be answered."""

    _dialogue: Dialogue[T]
    _waiting: _PendingEffect

    @property
    def effect(self) -> Effect[Any]:
        """The effect, to examine its fields."""
        return self._waiting.effect

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the last answer to this question did not fit, in words for the user."""
        return self._waiting.problems

    # ---- questions ----

    def answer(self, value: Any = None) -> Dialogue[T]:
        """Accept the question with `value`; `False` declines a `Confirm`.

        Args:
            value: The value that the handler gets; or, for a form, the object that a
                client sends.

        Raises:
            UsageError: If `value` does not fit the question, so that no handler would
                get it.
        """
        question = self._question()
        if isinstance(question, Confirm) and value is False:
            return self.decline()
        answer = Accepted(content_of(question, value))
        try:
            read_answer(question, KINDS[type(question)], answer)
        except Unfit as exc:
            raise UsageError(
                f"{value!r} does not fit {describe(question)}: {exc}. To have the question"
                " asked again, send() what a client would"
            ) from None
        return self._say(answer, repr(value))

    def send(self, answer: Answer) -> Dialogue[T]:
        """Send exactly this answer. If it does not fit, the question is asked again.

        Args:
            answer: For example `Accepted(content)`, with the JSON that the client
                sends.
        """
        self._question()
        return self._say(answer, repr(answer))

    def decline(self) -> Dialogue[T]:
        """Decline the question, as a user who reads it and says no."""
        self._question()
        return self._say(Declined(), "declined")

    def dismiss(self) -> Dialogue[T]:
        """Dismiss the question, as a user who closes it."""
        self._question()
        return self._say(Dismissed(), "dismissed")

    def refuse(self, code: int, message: str) -> Dialogue[T]:
        """Answer with an error, as a client of an older era may."""
        self._question()
        return self._say(ClientFailed(code, message), f"failed: {message}")

    def unsupported(self) -> Dialogue[T]:
        """Act as a client that cannot be asked this question."""
        self._dialogue._unsupported.append(self._question())
        return self._say(None, "unsupported")

    def lapse(self) -> Dialogue[T]:
        """Let the next deadline pass without an answer to this question.

        Raises:
            UsageError: If no question that waits is in a `Within` or `FirstOf`.
        """
        self._question()
        self._dialogue._lapse(self._waiting)
        return self._dialogue

    def _question(self) -> InputRequest[Any]:
        effect = self._waiting.effect
        if not isinstance(effect, InputRequest):
            raise UsageError(
                f"{describe(effect)} is performed here and not answered by a client; use"
                " returns(), fails() or performs()"
            )
        return effect

    # ---- performed effects ----

    def returns(self, value: Any = None) -> Dialogue[T]:
        """Return `value` to the handler, without performing the effect.

        Raises:
            UsageError: If the effect cannot return `value`.
        """
        kind = self._local()
        try:
            kind.read(self.effect, kind.write(self.effect, value))
        except Exception as exc:
            raise UsageError(
                f"{describe(self.effect)} cannot return {value!r}: {exc}"
            ) from exc
        return self._say(Done(value), repr(value))

    def fails(self, error: Exception) -> Dialogue[T]:
        """Raise `error` in the handler, without performing the effect.

        Raises:
            UsageError: If the effect cannot fail.
        """
        if self._local().tag != "done":
            raise UsageError(f"{describe(self.effect)} cannot fail; use returns()")
        return self._say(Failure(error), f"raised {error!r}")

    def performs(self, **options: Any) -> Dialogue[T]:
        """Perform the effect.

        Args:
            **options: As for `drivers.sync.perform`: `provided=`, `run_async=`.

        Raises:
            StepError: If the effect needs an option that is missing.
        """
        self._local()
        outcome = self._dialogue._perform(self._waiting, options)
        if isinstance(outcome, Done):
            return self._say(outcome, repr(outcome.value))
        return self._say(outcome, f"raised {outcome.error!r}")

    def _local(self) -> Any:
        if isinstance(self.effect, InputRequest):
            raise UsageError(
                f"{describe(self.effect)} is answered by a client; use answer(),"
                " decline() or dismiss()"
            )
        return KINDS[type(self.effect)]

    def _say(self, outcome: Done | Failure | Answer | None, said: str) -> Dialogue[T]:
        self._dialogue._settle(self._waiting, outcome, said)
        return self._dialogue


# ---- expected effects ---------------------------------------------------------------


def _check_expected(what: Any) -> None:
    class_ = what if isinstance(what, type) else type(what)
    if issubclass(class_, Outcome):
        raise UsageError("Outcome() asks what is inside it: expect the question")
    if issubclass(class_, Gather):
        raise UsageError("Gather() waits for what is inside it: expect its effects")
    if issubclass(class_, _NEVER_WAITS):
        raise UsageError(
            f"nothing waits at {class_.__name__}(): the engine answers it. Messages"
            " to the user are in .told"
        )
    if not issubclass(class_, Effect) and not callable(what):
        raise UsageError(
            f"expect an effect, a class of effects or a step, not {what!r}"
        )


def _is(effect: Effect[Any], what: Any) -> bool:
    if isinstance(what, type) and issubclass(what, Effect):
        return isinstance(effect, what)
    if isinstance(what, Effect):
        return effect == what
    function = what.fn if isinstance(what, StepFunction) else what
    return isinstance(effect, Step) and effect.fn == function


# ---- the two ways in ----------------------------------------------------------------


@overload
def play(
    handler: Callable[P, Flow[T]], /, *args: P.args, **kwargs: P.kwargs
) -> Dialogue[T]: ...
@overload
def play(
    handler: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
) -> Dialogue[T]: ...
@overload
def play(
    handler: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> Dialogue[T]: ...
def play(handler: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Dialogue[Any]:
    """Start a handler whose effects the test answers.

    Args:
        handler: The handler: a generator function, or an async function that awaits
            effects.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.
    Raises:
        UsageError: If `handler` keeps its own state and yields nothing.
    """
    given: object = handler
    if callable(given) and given_parameter(given) is not None:
        raise UsageError(_keeps_its_state(getattr(handler, "__name__", repr(handler))))
    return Dialogue(handler, args, kwargs)


def _keeps_its_state(name: str) -> str:
    return (
        f"{name} keeps its own state (InputRequired, Given), so it has no steps to play:"
        f" call it, {name}(..., given=Given(answers, state)), and look at what it returns"
    )


@overload
def play_script(
    handler: Callable[P, Flow[T]], script: Script, /, *args: P.args, **kwargs: P.kwargs
) -> T: ...
@overload
def play_script(
    handler: Callable[P, Awaitable[T]],
    script: Script,
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T: ...
@overload
def play_script(
    handler: Callable[P, T], script: Script, /, *args: P.args, **kwargs: P.kwargs
) -> T: ...
def play_script(
    handler: Callable[..., Any], script: Script, /, *args: Any, **kwargs: Any
) -> Any:
    """Play a whole conversation, and return what the handler returns.

        said = play_script(order, [
            (Elicit("Who is it for?", str), "Ann"),
            (Elicit, Declined()),
        ], title="Dune")

    Args:
        handler: The handler.
        script: For each effect, what to expect, as for `Dialogue.expect`, and its
            answer: a value; `Declined()`, `Dismissed()` or `ClientFailed(…)` from the
            user or client; or the exception that a step raises.
        *args: The handler's positional arguments.
        **kwargs: Its keyword arguments.
    Raises:
        Mismatch: If the handler does something else than the script.
        Exception: If the handler raised: the same exception.
    """
    __tracebackhide__ = True
    with play(handler, *args, **kwargs) as dialogue:
        for what, value in script:
            _follow(dialogue.expect(what), value)
        return dialogue.result


def _follow(expected: Expectation[Any], value: Any) -> None:
    match value:
        case _ if not isinstance(expected.effect, InputRequest):
            if isinstance(value, Exception):
                expected.fails(value)
            else:
                expected.returns(value)
        case Declined():
            expected.decline()
        case Dismissed():
            expected.dismiss()
        case ClientFailed():
            expected.refuse(value.code, value.message)
        case _:
            expected.answer(value)
