from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from effectmcp import (
    ClientSupports,
    Confirm,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    Log,
    Now,
    Outcome,
    Sleep,
    Step,
    Within,
    step,
)
from effectmcp.effects import base
from effectmcp.engine import (
    SCRIPT,
    TASK,
    Done,
    Returned,
    UnperformedEffectWarning,
    development,
)
from effectmcp_tests.helpers import by_retry, by_script, run

DEVELOPMENT = attrs.evolve(SCRIPT, development=True)

CONSTANT = Confirm("Sure?")


def charge(amount: int = 1) -> int:
    return amount


charged = step(charge)


def warned(handler: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """Return the warnings of a run in development mode, as strings."""
    options.setdefault("rules", DEVELOPMENT)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert isinstance(by_script(handler, *args, **options), Returned)
    assert all(one.category is UnperformedEffectWarning for one in caught)
    return [str(one.message) for one in caught]


def line_of(text: str) -> str:
    with open(__file__, encoding="utf-8") as lines:
        (found,) = [n for n, line in enumerate(lines, 1) if line.endswith(text + "\n")]
    return f"{__file__}:{found}"


def test_forgotten_effect_is_warned_about_with_its_line() -> None:
    def handler() -> Flow[None]:
        Log("info", "begin")  # forgotten
        yield from Confirm("Sure?")

    (text,) = warned(handler)
    assert text.startswith(line_of("# forgotten"))
    assert "test_development" in text
    assert "handler built Log(level='info', data='begin') and never performed" in text
    assert "`yield from`?" in text


def test_warning_has_the_effect_and_its_line() -> None:
    def handler() -> Flow[None]:
        Log("info", "left")  # left behind
        yield from Confirm("Sure?")

    with pytest.warns(UnperformedEffectWarning) as caught:
        by_script(handler, rules=DEVELOPMENT)
    warning = caught[0].message
    assert isinstance(warning, UnperformedEffectWarning)
    assert warning.effect == Log("info", "left")
    assert warning.where == line_of("# left behind")


def test_performed_effects_are_reported_with_their_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only effects built while the handler ran are counted, by the test kit."""
    performed: list[str] = []
    monkeypatch.setattr(development, "on_performed", performed.append)

    def handler() -> Flow[None]:
        yield from CONSTANT
        yield from Confirm("Sure?")  # built here

    assert warned(handler) == []
    assert performed == [line_of("# built here")]


def test_observer_is_entered_around_what_a_run_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    @contextmanager
    def observe() -> Iterator[None]:
        events.append("begin")
        yield
        events.append("end")

    def handler() -> Flow[None]:
        events.append("run")
        yield from Confirm("Sure?")

    monkeypatch.setattr(development, "observe", observe)
    one = run(handler, rules=DEVELOPMENT)
    one.start()
    assert events == ["begin", "run", "end"]
    one.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Elicit("Who?", str),  # elicit
        lambda: Now(),  # now
        lambda: ClientSupports(Elicit),  # supports
        lambda: charged(1),  # step
        lambda: Gather.each([]),  # each
    ],
    ids=["elicit", "now", "supports", "step", "each"],
)
def test_forgotten_effect_of_any_constructor(
    make: Callable[[], Any], request: pytest.FixtureRequest
) -> None:
    """Written by hand or by attrs, or called through a step function."""

    def handler() -> Flow[None]:
        make()
        yield from Confirm("Sure?")

    (text,) = warned(handler)
    assert text.startswith(line_of(f"# {request.node.callspec.id}"))


def test_forgotten_effect_in_a_method() -> None:
    class Shop:
        def order(self) -> Flow[None]:
            Now()  # in a method
            yield from Confirm("Sure?")

    (text,) = warned(Shop().order)
    assert text.startswith(line_of("# in a method"))


def test_forgotten_effect_in_a_callable_object() -> None:
    class Shop:
        def __call__(self) -> Flow[None]:
            Now()  # in a call
            yield from Confirm("Sure?")

    (text,) = warned(Shop())
    assert text.startswith(line_of("# in a call"))


def test_forgotten_effect_in_another_is_one_mistake() -> None:
    """The outer one is what was forgotten."""

    def handler() -> Flow[None]:
        Outcome(Confirm("Really?"))
        Gather(Now(), Confirm("Really?"))
        yield from Confirm("Sure?")

    texts = warned(handler)
    assert ["built Outcome" in texts[0], "built Gather" in texts[1]] == [True, True]
    assert len(texts) == 2


def test_forgotten_equal_effects_are_different_mistakes() -> None:
    def handler() -> Flow[None]:
        Now()
        Now()
        yield from Now()

    assert len(warned(handler)) == 2


def test_performed_effects_are_not_warned_about() -> None:
    """Alone, or inside another effect."""

    def branch() -> Flow[None]:
        yield from Now()

    def handler() -> Flow[None]:
        yield from Confirm("Sure?")
        yield Now()
        yield from Outcome(Confirm("Sure?"))
        yield from Gather(Now(), branch(), Outcome(Confirm("Sure?")))
        yield from ClientSupports(Elicit("Who?", str))
        yield from ClientSupports(Elicit)
        yield from charged(1)

    assert warned(handler) == []


def test_performed_local_combinations_are_not_warned_about() -> None:
    def handler() -> Flow[None]:
        yield from Within(1, Sleep(2))
        yield from FirstOf(Sleep(1), Step(charge))

    clock = [0.0]
    one = run(
        handler, rules=attrs.evolve(TASK, development=True), clock=lambda: clock[0]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.start()
        clock[0] = 1.0
        one.answered()
        assert one.performed({"first-1/1/step-1": Done(1)}) == Returned(None)


def test_constants_of_a_module_are_not_warned_about() -> None:
    def handler() -> Flow[bool]:
        unused = CONSTANT
        assert unused is not None
        return (yield from Confirm("Sure?"))

    assert warned(handler) == []


def test_effects_built_outside_of_a_run_are_not_noted() -> None:
    """Effects that an embedder builds between two calls are not the handler's."""
    one = run(lambda: ask(), rules=DEVELOPMENT)

    def ask() -> Flow[None]:
        yield from Confirm("Sure?")

    one.start()
    assert base.on_built is None
    Now()
    one.suspend()


def test_nothing_is_noted_unless_in_development() -> None:
    def handler() -> Flow[None]:
        Now()
        yield from Confirm("Sure?")

    assert warned(handler, rules=SCRIPT) == []


def test_handlers_that_raise_are_not_warned_about() -> None:
    """Their own exception is the news."""

    def handler() -> Flow[None]:
        Now()
        yield from Confirm("Sure?")
        raise ValueError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_script(handler, rules=DEVELOPMENT)


def test_hook_is_taken_off_after_a_failure_of_the_engine() -> None:
    def handler() -> Flow[None]:
        yield from Confirm("Sure?")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        by_script(handler, rules=DEVELOPMENT)
    assert base.on_built is None


def test_development_mode_does_not_change_results() -> None:
    def handler() -> Flow[bool]:
        yield from Gather(Now(), Confirm("Sure?"))
        return (yield from Confirm("Really?"))

    rules = attrs.evolve(SCRIPT, development=True)
    assert by_retry(handler, rules=rules) == by_retry(handler)
