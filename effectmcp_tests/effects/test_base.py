"""The base classes of all effects."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Generator
from typing import Any

import attrs
import pytest

import effectmcp
from effectmcp import (
    Caller,
    Checkpoint,
    ClientSupports,
    Confirm,
    Detach,
    Effect,
    Elicit,
    ElicitUrl,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    InputRequest,
    ListRoots,
    Log,
    Now,
    Outcome,
    Progress,
    Random,
    Restart,
    Sample,
    Sleep,
    Status,
    Step,
    UsageError,
    Uuid,
    Version,
    Within,
)
from effectmcp.effects import base


def charge(amount: int, *, key: str = "") -> str:
    """Charge a card."""
    return f"{amount} {key}"


def again(title: str) -> Flow[str]:
    yield from ()
    return title


QUESTIONS: list[Callable[..., InputRequest[Any]]] = [
    functools.partial(Elicit, "Who?", str),
    functools.partial(Confirm, "Sure?"),
    functools.partial(ElicitUrl, "Pay", "https://pay.example"),
    functools.partial(Sample, "Write"),
    ListRoots,
]


#: One of each kind, built again at each call.
EVERY: list[Callable[[], Effect[Any]]] = [
    *QUESTIONS,
    lambda: Outcome(Confirm("Sure?")),
    lambda: Gather(Now(), Confirm("Sure?")),
    lambda: Step(charge, 10, key="k"),
    Now,
    Uuid,
    Random,
    lambda: IdempotencyKey("charge"),
    lambda: ClientSupports(Elicit),
    Caller,
    Checkpoint,
    lambda: Progress(1, 2, "half"),
    lambda: Log("info", {"a": 1}),
    lambda: Version("fee", default=0, latest=1),
    lambda: Restart(again, "Dune"),
    lambda: Detach(ttl=60),
    lambda: Sleep(1),
    lambda: Status("working"),
    lambda: Within(1, Step(charge, 10)),
    lambda: FirstOf(Step(charge, 10), Sleep(1)),
]


def drive(running: Generator[Any, Any, Any], *answers: Any) -> tuple[list[Any], Any]:
    """The values that `running` yields when it is sent `answers`, and its result."""
    yielded = [next(running)]
    try:
        for answer in answers:
            yielded.append(running.send(answer))
    except StopIteration as stop:
        return yielded, stop.value
    raise AssertionError("it goes on")


def test_every_kind_is_here() -> None:
    """A new effect joins the list above, and with it these tests."""
    kinds = {
        value
        for name in effectmcp.__all__
        if isinstance(value := getattr(effectmcp, name), type)
        and issubclass(value, Effect)
    }
    here = {type(make()) for make in EVERY}
    assert not kinds - {Effect, InputRequest} - here, "add them to EVERY"
    assert not here - kinds, "export them from effectmcp"


@pytest.mark.parametrize("make", EVERY)
def test_effect_yields_itself_and_returns_the_answer(
    make: Callable[[], Effect[Any]],
) -> None:
    effect = make()
    yielded, value = drive(iter(effect), "an answer")
    assert yielded == [effect]
    assert yielded[0] is effect
    assert value == "an answer"


def test_effect_can_be_awaited() -> None:
    """`await` is `yield from`, for coroutines that await nothing but effects."""

    async def handler() -> str:
        return await Elicit("Who?", str)

    coroutine = handler()
    assert coroutine.send(None) == Elicit("Who?", str)
    with pytest.raises(StopIteration) as stop:
        coroutine.send("Ann")
    assert stop.value.value == "Ann"


def test_effect_can_be_yielded_bare() -> None:
    def handler() -> Any:
        name = yield Elicit("Who?", str)
        return name

    assert drive(handler(), "Ann") == ([Elicit("Who?", str)], "Ann")


@pytest.mark.parametrize("make", EVERY)
def test_effect_is_a_value(make: Callable[[], Effect[Any]]) -> None:
    assert make() == make()
    assert make() != Now() or type(make()) is Now
    assert make() != object()


@pytest.mark.parametrize("make", EVERY)
def test_effect_cannot_be_changed(make: Callable[[], Effect[Any]]) -> None:
    effect = make()
    names = [field.name for field in attrs.fields(type(effect))] or ["anything"]
    for name in names:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(effect, name, None)


@pytest.mark.parametrize("make", EVERY)
def test_effect_repr_names_its_class(make: Callable[[], Effect[Any]]) -> None:
    effect = make()
    assert repr(effect).startswith(f"{type(effect).__name__}(")


def test_effect_differs_by_each_field() -> None:
    assert Elicit("Who?", str) != Elicit("Who else?", str)
    assert Elicit("Who?", str) != Elicit("Who?", int)
    assert Elicit("Who?", str) != Elicit("Who?", str, key="who")
    assert Sleep(1) != Sleep(2)


def test_effect_hash_agrees_with_equality() -> None:
    assert len({Elicit("Who?", str), Elicit("Who?", str), Confirm("Who?")}) == 2


def test_effect_repr_leaves_out_defaults() -> None:
    assert repr(Confirm("Sure?")) == "Confirm(message='Sure?')"
    assert repr(Confirm("Sure?", key="k", otherwise=False)) == (
        "Confirm(message='Sure?', key='k', otherwise=False)"
    )
    assert repr(Now()) == "Now()"


def test_effect_subclasses_are_slotted() -> None:
    """A misspelt attribute is an error, and ten thousand effects are small."""
    assert not hasattr(Elicit("Who?", str), "__dict__")


@pytest.mark.parametrize("make", EVERY)
def test_built_hook_receives_each_effect_once(
    make: Callable[[], Effect[Any]],
) -> None:
    heard: list[Effect[Any]] = []
    base.on_built = heard.append
    try:
        effect = make()
    finally:
        base.on_built = None
    assert [one for one in heard if one is effect] == [effect]


@pytest.mark.parametrize("make", EVERY)
def test_effect_can_be_copied(make: Callable[[], Effect[Any]]) -> None:
    assert copy.copy(make()) == make()


@pytest.mark.parametrize("effect", [Confirm("Sure?"), Now()], ids=repr)
def test_effect_is_neither_true_nor_false(effect: Effect[Any]) -> None:
    """`if Confirm("Sure?"):` would ask no user and continue."""
    with pytest.raises(UsageError, match="a forgotten `yield from`"):
        bool(effect)


def test_building_calls_the_hook_in_development(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[Effect[Any]] = []
    monkeypatch.setattr(base, "on_built", built.append)
    made = [Progress(1, 2, "half"), Log("info", "x", "shop"), Confirm("Sure?")]
    assert built == made


def test_message_may_be_of_a_class_of_strings() -> None:
    class Translated(str):
        pass

    message = Translated("Sure?")
    for effect in (Confirm(message), Elicit(message, str)):
        assert effect.message == "Sure?"


@pytest.mark.parametrize(
    ("class_", "args", "words"),
    [
        (
            ElicitUrl,
            {"message": 5, "url": "https://a.example"},
            "the first argument is the message",
        ),
        (ElicitUrl, {"message": "a", "url": 5}, "ElicitUrl(url=5): give a text"),
        (
            Sample,
            {"messages": "a", "max_tokens": "5"},
            "(max_tokens='5'): give a whole",
        ),
        (Sample, {"messages": "a", "max_tokens": True}, "Sample(max_tokens=True)"),
        (Sample, {"messages": "a", "system": 5}, "Sample(system=5): give a text"),
        (Sample, {"messages": "a", "temperature": "x"}, "give a number"),
        (Progress, {"done": "half"}, "Progress(done='half'): give a number"),
        (Progress, {"done": 1, "total": "2"}, "Progress(total='2')"),
        (Progress, {"done": 1, "message": 3}, "Progress(message=3): give a text"),
        (Log, {"level": "loud", "data": "x"}, "the level is one of debug, info"),
        (Log, {"level": "info", "data": "x", "logger": 5}, "Log(logger=5)"),
    ],
)
def test_what_no_client_could_read_is_refused(
    class_: Any, args: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        class_(**args)
    assert words in str(caught.value)
