"""Steps."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

from effectmcp import (
    Provided,
    Step,
    StepFunction,
    StepOptions,
    UsageError,
    step,
)
from effectmcp.effects.steps import PROVIDED


def charge(amount: int, *, key: str = "") -> str:
    """Charge a card."""
    return f"{amount} {key}"


def test_step_of_a_plain_function() -> None:
    effect = Step(charge, 10, key="k")
    assert effect.fn is charge
    assert effect.args == (10,)
    assert effect.kwargs == {"key": "k"}
    assert effect.options == StepOptions()


def test_step_of_a_result_names_the_mistake() -> None:
    done: Any = charge(10)
    with pytest.raises(UsageError, match=r"Write Step\(charge, 10\), not"):
        Step(done)


def test_step_decorator_plain() -> None:
    made = step(charge)
    assert isinstance(made, StepFunction)
    assert made(10, key="k") == Step(made, 10, key="k") == Step(charge, 10, key="k")
    assert made.fn(10) == "10 "
    assert repr(made) == "<step charge>"


def test_step_decorator_with_options() -> None:
    made = step(name="charge", retries=2, raises=(ValueError,), timeout=3)(charge)
    assert made(1).options == StepOptions(
        name="charge", retries=2, raises=(ValueError,), timeout=3
    )
    assert Step(made, 1).options is made.options


def test_step_function_looks_like_its_function() -> None:
    made: Any = step(charge)
    assert made.__name__ == "charge"
    assert made.__doc__ == "Charge a card."
    assert made.__module__ == __name__
    assert inspect.signature(made) == inspect.signature(charge)


def test_step_function_of_a_callable_object() -> None:
    """Attributes that a partial does not have are left out."""
    made: Any = step(functools.partial(charge, 10))
    assert "__name__" not in made.__dict__
    assert made().fn() == "10 "
    assert "partial" in repr(made)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"at_most_once": True, "replayable": True}, "at_most_once and replayable"),
        ({"at_most_once": True, "retries": 1}, "cannot have retries"),
        ({"public": True, "secret": True}, "both public and secret"),
        ({"raises": ValueError}, "tuple of Exception classes"),
        ({"raises": [ValueError]}, "tuple of Exception classes"),
        ({"raises": (KeyboardInterrupt,)}, "tuple of Exception classes"),
        ({"raises": ("ValueError",)}, "tuple of Exception classes"),
        ({"retries": -1}, "retries from 0 up"),
        ({"timeout": 0}, "timeout above 0"),
    ],
)
def test_step_refuses_options_that_contradict(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        step(**options)


def test_step_decorator_refuses_non_functions() -> None:
    given: Any = "charge"
    with pytest.raises(UsageError, match=r"@step takes a function, not 'charge'"):
        step(given)


def test_step_decorator_with_options_refuses_non_functions() -> None:
    given: Any = "charge"
    with pytest.raises(UsageError, match=r"takes a function"):
        step(retries=1)(given)


def test_provided_is_one_recognisable_default() -> None:
    assert Provided() is PROVIDED
    assert repr(Provided()) == "Provided()"
