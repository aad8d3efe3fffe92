"""Perform steps in a check, with functions that the handler's author provides.

    check(app, perform={charge_card: fake_charge})     this step, by a fake
    check(app, perform={price_of: True})               this step, really
    check(app, perform=True)                           all steps, really
    check(app, perform=make_fakes)                     new fakes for each conversation

Each step is performed twice, as it would be if the reply of its round were lost, and
each time with copies of its arguments. The first result is used. A step with another
result the second time is noted. The arguments and the variables that a step changes are
noted, too: a replay does not perform the step, so it changes nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen

from ..effects.steps import Step, StepFunction
from ..engine.steps import provided_names
from ..engine.stops import Done, Failure, Want
from ..errors import UsageError
from .descriptions import describe
from .effect_traces import EffectTrace, trace_effects
from .muting import without_output

if TYPE_CHECKING:
    from .loops import RunAsync
    from .subjects import Subject

__all__ = ["Changed", "Fakes", "Performer", "relied_on"]

_Functions: TypeAlias = Mapping[Any, Callable[..., Any] | bool]
#: The type of `check(perform=...)`.
Fakes: TypeAlias = bool | _Functions | Callable[[], _Functions]


@frozen
class Changed:
    """An argument or a variable that a step changed.

    Attributes:
        step: The step's function, as it was performed.
        name: The step, in words.
        variable: The parameter, or the variable around the function.
        is_argument: Whether it is a parameter.
    """

    step: Any
    name: str
    variable: str
    is_argument: bool


class Performer:
    """Performs the steps of one handler's conversations.

    Args:
        fakes: As `check` takes them.

    Attributes:
        changed: The changes by the steps of this conversation.
        notices: Remarks on steps whose second result differs, or that were not
            performed.

    Raises:
        UsageError: If `fakes` has a value that is not a function or a bool.
    """

    def __init__(self, fakes: Fakes) -> None:
        self._fakes = fakes
        self._all = fakes is True
        self._functions: dict[Any, Any] = {}
        self.changed: list[Changed] = []
        self.notices: dict[str, None] = {}
        self.begin()

    @property
    def performs(self) -> bool:
        """Whether it performs any step."""
        return self._all or bool(self._functions)

    def begin(self) -> None:
        """Start a conversation: make new fakes, if a function makes them."""
        self.changed = []
        found: Any = self._fakes
        if isinstance(found, bool):
            return
        if not isinstance(found, Mapping):
            found = found()
        self._functions = {}
        for step, by in found.items():
            function = step.fn if isinstance(step, StepFunction) else step
            if by is not True and by is not False and not callable(by):
                raise UsageError(
                    f"perform= names {by!r} for {describe(step)}, which is not a function;"
                    " give a function that takes the step's arguments, or True"
                )
            self._functions[function] = by.fn if isinstance(by, StepFunction) else by

    def function_of(self, step: Step[Any]) -> Callable[..., Any] | None:
        """Return the function that performs a step; `None` to draw its result."""
        try:
            found = self._functions.get(step.fn, self._all)
        except TypeError:  # not hashable
            found = self._all
        if found is False:
            return None
        if found is not True:
            function: Callable[..., Any] = found
            return function
        missing = provided_names(step.fn).keys() - step.kwargs.keys()
        if missing:
            self.notices[
                f"{describe(step.fn)} is not performed: it is provided with"
                f" {', '.join(sorted(missing))}. Give perform= a function for it"
            ] = None
            return None
        return step.fn

    def outcome(self, want: Want, run_async: RunAsync) -> Done | Failure | None:
        """Return the outcome of performing a step; `None` if it must be drawn."""
        step = want.effect
        if not isinstance(step, Step):
            return None
        function = self.function_of(step)
        if function is None:
            return None
        with without_output():
            first, second = (
                self._perform(want, step, function, run_async) for _ in range(2)
            )
        if _unlike(first, second):
            self.notices[
                f"{describe(step.fn)} gives something else when it is performed again with"
                " the same arguments, as it is when a reply is lost. Give what it does"
                " an IdempotencyKey"
            ] = None
        return first

    def _perform(
        self,
        want: Want,
        step: Step[Any],
        function: Callable[..., Any],
        run_async: RunAsync,
    ) -> Done | Failure:
        args, kwargs = _copy(step.args), _copy(dict(step.kwargs))
        before = _said(args), _said(kwargs), _said(_variables(function))
        try:
            value = want.context.copy().run(function, *args, **kwargs)
            if inspect.isawaitable(value):
                value = run_async(_awaited(value))
            outcome: Done | Failure = Done(value)
        except Exception as exc:
            outcome = Failure(exc)
        if before[:2] != (_said(args), _said(kwargs)):
            name = _first_changed(function, step, args, kwargs)
            self.changed.append(Changed(function, describe(step.fn), name, True))
        for name, value in _variables(function).items():
            if before[2].get(name) != _said(value):
                self.changed.append(Changed(function, describe(step.fn), name, False))
        return outcome


async def _awaited(value: Any) -> Any:
    return await value


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:
        return value  # an object that cannot be copied


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _said(one) for name, one in value.items()}
    try:
        return repr(value)
    except Exception:
        return None


def _variables(function: Any) -> dict[str, Any]:
    """Return the variables around a nested function that it can change."""
    cells = getattr(function, "__closure__", None) or ()
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, cells, strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            pass  # empty
    return found


def _first_changed(
    function: Callable[..., Any],
    step: Step[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str:
    try:
        was = inspect.signature(function).bind(*step.args, **step.kwargs).arguments
        now = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return "an argument"
    names = [name for name in was if _said(was[name]) != _said(now[name])]
    return names[0] if names else "an argument"


def _unlike(first: Done | Failure, second: Done | Failure) -> bool:
    match first, second:
        case Done(one), Done(other):
            return bool(_said(one) != _said(other))
        case Failure(one), Failure(other):
            return type(one) is not type(other)
        case _:
            return True


def relied_on(
    subject: Subject, trace: EffectTrace, performer: Performer
) -> tuple[Changed, str | None] | None:
    """Return an argument's change that the handler depends on, and the step's place.

    The conversation is run again with steps that get the handler's own objects instead
    of copies. If the handler then does something else, it depends on the change.
    """
    for changed in performer.changed:
        if not changed.is_argument:
            continue

        def deliver(effect: Any, changed: Changed = changed) -> None:
            if isinstance(effect, Step):
                function = performer.function_of(effect)
                if function is not None and describe(effect.fn) == changed.name:
                    try:
                        with without_output():
                            value = function(*effect.args, **effect.kwargs)
                            if inspect.isawaitable(value):
                                subject.run_async(_awaited(value))
                    except Exception:
                        pass  # the handler gets the recorded outcome

        again = trace_effects(subject, trace.transcript, deliver=deliver)
        if again.in_words != trace.in_words:
            where = next(
                (
                    one.where
                    for one in trace.effects
                    if isinstance(one.effect, Step)
                    and describe(one.effect.fn) == changed.name
                ),
                None,
            )
            return changed, where
    return None
