"""Idempotency keys that do their duty, and others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
from attrs import frozen

from effectmcp import (
    Checkpoint,
    Confirm,
    Detach,
    Elicit,
    FirstOf,
    Flow,
    Gather,
    IdempotencyKey,
    Now,
    Random,
    Sleep,
    Step,
    Uuid,
    Within,
    step,
)
from effectmcp.engine import Answer, Done, Failure, Want
from effectmcp.testing.effect_traces import TracedEffect, trace_effects
from effectmcp.testing.idempotency_keys import shared_key, unstable_key
from effectmcp.testing.subjects import subject_of

from .test_conversations import Obliging, had


@frozen
class Order:
    idempotency_key: str
    lines: list[str]


@step
def pay(cents: int, key: str) -> str:
    raise OSError("no test should get here")


@step
def send(cents: int, options: Any) -> str:
    raise OSError("no test should get here")


@step
def send_all(cents: int, tokens: Any) -> str:
    raise OSError("no test should get here")


@step
def write(id: str, text: str) -> str:
    raise OSError("no test should get here")


@step
def look(name: str) -> Any:
    raise OSError("no test should get here")


@step
def look_for_size(name: str) -> Literal["small", "large"]:
    raise OSError("no test should get here")


Unread = type("Unread", (), {"__signature__": "hidden", "__call__": lambda *_: None})
unread = Unread()


class World(Obliging):
    """A partner who returns the given value to each look."""

    def __init__(
        self, gives: Any, answers: Mapping[str, Answer | None] | None = None
    ) -> None:
        super().__init__(answers or {})
        self._gives = gives

    def perform(self, key: str, want: Want) -> Done | Failure:
        known = self._chance.outcome(want.effect)
        if known is not None:
            return known
        if isinstance(want.effect, FirstOf):
            return Done((1, "a"))
        is_asked_for = "look" in repr(want.effect)
        return Done(self._gives if is_asked_for else "a")


def trace_of(handler: Callable[..., Any]) -> list[TracedEffect]:
    transcript = had(handler, partner=World("a"))
    assert transcript.ending.how == "returned"
    return trace_effects(subject_of(handler), transcript).effects


def line(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


# ---- one key for two calls ----------------------------------------------------------


def pays_twice() -> Flow[str]:
    key = yield from IdempotencyKey("bill")
    yield from pay(1, key)
    return (yield from pay(2, key))


def pays_with_options() -> Flow[str]:
    key = yield from IdempotencyKey("bill")
    yield from send(1, {"retries": 3, "Once": [key]})
    return (yield from send(2, {"retries": 3, "Once": [key]}))


def pays_for_orders() -> Flow[str]:
    key = yield from IdempotencyKey("bill")
    yield from send(1, (Order(key, ["soup"]),))
    return (yield from send(1, (Order(key, ["bread"]),)))


def pays_in_time() -> Flow[str]:
    yield from Detach()
    key = yield from IdempotencyKey("bill")
    yield from FirstOf(Sleep(5), pay(1, key))
    yield from Within(5, pay(2, key))
    return "."


@pytest.mark.parametrize(
    ("handler", "offset", "calls"),
    [
        (pays_twice, 3, ("pay(1, ", "pay(2, ")),
        (pays_with_options, 3, ("send(1, ", "send(2, ")),
        (pays_for_orders, 3, ("send(1, ", "send(1, ")),
        (pays_in_time, 4, ("pay(1, ", "pay(2, ")),
    ],
)
def test_one_key_for_two_calls(
    handler: Any, offset: int, calls: tuple[str, str]
) -> None:
    shared = shared_key(trace_of(handler))
    assert shared is not None
    assert (shared.name, shared.where) == ("bill", line(handler, offset))
    assert shared.first.startswith(calls[0])
    assert shared.second.startswith(calls[1])


def pays_once_more() -> Flow[str]:
    """Pay twice with the same call, as after a failure."""
    key = yield from IdempotencyKey("bill")
    yield from pay(1, key)
    return (yield from pay(1, key))


def pays_with_two_keys() -> Flow[str]:
    first, second = yield from Gather(IdempotencyKey("bill", 1), IdempotencyKey("tip"))
    yield from pay(1, first)
    return (yield from pay(2, second))


def writes_under_an_id() -> Flow[str]:
    """A key that is the id of what is written may come twice."""
    key = yield from IdempotencyKey("note")
    yield from write(key, "a")
    return (yield from write(key, "b"))


def gives_it_to_what_cannot_be_read() -> Flow[str]:
    key = yield from IdempotencyKey("note")
    yield from Step(unread, 1, key)
    yield from Step(unread, 2, key)
    yield from send_all(1, len(key))
    yield from send_all(2, len(key))
    return "."


@pytest.mark.parametrize(
    "handler",
    [
        pays_once_more,
        pays_with_two_keys,
        writes_under_an_id,
        gives_it_to_what_cannot_be_read,
    ],
)
def test_keys_that_may_come_twice(handler: Any) -> None:
    assert shared_key(trace_of(handler)) is None


# ---- keys that differ when a round is had again -------------------------------------


def books_by(effect: Any) -> Callable[..., Any]:
    """Return a handler that makes a key of an effect's value of the same round."""

    def books() -> Flow[str]:
        yield from Confirm("Sure?")
        yield from Uuid()
        value = yield from effect
        key = yield from IdempotencyKey("booking", str(value))
        return (yield from pay(1, key))

    return books


def unstable(handler: Callable[..., Any], gives: Any = "a") -> Any:
    transcript = had(handler, partner=World(gives))
    assert transcript.ending.how == "returned"
    subject = subject_of(handler)
    return unstable_key(subject, transcript, trace_effects(subject, transcript))


@pytest.mark.parametrize("effect", [Now(), Random(), Uuid()], ids=repr)
def test_a_key_of_a_random_value(effect: Any) -> None:
    handler = books_by(effect)
    found = unstable(handler)
    assert (found.name, found.because) == ("booking", repr(effect))
    assert found.where == line(handler, 4)


GIVEN: Mapping[str, Any] = {
    "text": "a",
    "number": 3,
    "float": 2.5,
    "list": [{"a": 1}],
    "object": {"a": ["b"]},
}


@pytest.mark.parametrize("gives", GIVEN.values(), ids=GIVEN.keys())
def test_a_key_of_the_result_of_a_step(gives: Any) -> None:
    found = unstable(books_by(look("a")), gives)
    assert (found.name, found.because) == ("booking", "look('a')")


@pytest.mark.parametrize("gives", [True, None])
def test_values_without_another_value(gives: Any) -> None:
    assert unstable(books_by(look("a")), gives) is None


def test_classes_without_another_value() -> None:
    assert unstable(books_by(look_for_size("a")), "small") is None


def books_at_once() -> Flow[str]:
    """Before the first question each retry has another key anyway."""
    name = yield from look("a")
    key = yield from IdempotencyKey("booking", name)
    return (yield from pay(1, key))


def books_in_another_round() -> Flow[str]:
    name = yield from look("a")
    now = yield from Now()
    yield from Checkpoint()
    key = yield from IdempotencyKey("booking", name, f"{now:%H}")
    return (yield from pay(1, key))


def books_when_it_is_time() -> Flow[str]:
    yield from Confirm("Sure?")
    now = yield from Now()
    if now.second % 2 == dt.datetime.fromtimestamp(0, dt.UTC).second:
        key = yield from IdempotencyKey("even")
        return (yield from pay(1, key))
    return "."


def books_for_a_name() -> Flow[str]:
    name = yield from Elicit("Who?", str)
    key = yield from IdempotencyKey("booking", name)
    return (yield from pay(1, key))


@pytest.mark.parametrize(
    "handler",
    [books_at_once, books_in_another_round, books_when_it_is_time, books_for_a_name],
)
def test_keys_that_stay_as_they_are(handler: Any) -> None:
    assert unstable(handler) is None
