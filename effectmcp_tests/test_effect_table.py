"""Every effect is declared everywhere: a part that is forgotten is named here."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import find

import effectmcp
from effectmcp import (
    Accepted,
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
    Uuid,
    Version,
    Within,
    effects,
)
from effectmcp.drivers import asyncio, trio
from effectmcp.drivers.local import FUNCTIONS
from effectmcp.engine import outcomes, receiving
from effectmcp.engine.effect_table import KINDS, By, Kind, Wave
from effectmcp.engine.stops import Question
from effectmcp.exchange import rounds
from effectmcp.protocol.modern import lacking_of, request_of
from effectmcp.state import codec
from effectmcp.testing import idempotency_keys
from effectmcp.testing.chance import Chance
from effectmcp.testing.strategies import answers_for
from effectmcp.testing.values import content_of


def handler() -> Flow[str]:
    yield from Checkpoint()
    return "done"


def step() -> str:
    return "done"


#: One of each effect. Add yours here first: the tests below name what else it needs.
SAMPLES: dict[type[Effect[Any]], Effect[Any]] = {
    type(one): one
    for one in (
        Elicit("Who?", str),
        Confirm("Sure?"),
        ElicitUrl("Sign in", "https://shop.example"),
        Sample("Write."),
        ListRoots(),
        Gather(),
        Step(step),
        Within(5, Step(step)),
        FirstOf(Step(step)),
        Now(),
        Uuid(),
        Random(),
        Caller(),
        ClientSupports(Elicit),
        Checkpoint(),
        Detach(),
        Sleep(1),
        Restart(handler),
        IdempotencyKey("charge"),
        Version("fee", default=0, latest=1),
        Progress(1, 2),
        Log("info", "hello"),
        Status("working"),
    )
}
KNOWN = [pytest.param(one, id=one.__name__) for one in SAMPLES]
QUESTIONS = [
    pytest.param(one, id=type(one).__name__)
    for one in SAMPLES.values()
    if isinstance(one, InputRequest)
]
LOCAL = [
    pytest.param(one, id=type(one).__name__)
    for one in SAMPLES.values()
    if type(one) in KINDS and KINDS[type(one)].wave is Wave.LOCAL
]
DOCS = Path(__file__).parent.parent / "docs"
API = Path(__file__).parent / "typing" / "api.py"

#: Local effects whose value the client may know. All others say their tag.
KNOWN_TO_CLIENT = {Caller, ClientSupports, Detach, Sleep}
#: Effects that perform a step, or are allowed only in some places.
NOT_FREE = {Step, Within, FirstOf, Detach, Sleep, Restart, Gather, Status}


@contextmanager
def missing(advice: str) -> Iterator[None]:
    try:
        yield
    except Exception as exc:
        raise AssertionError(advice) from exc


def row_of(class_: type[Effect[Any]]) -> Kind:
    if class_ not in KINDS:
        pytest.skip("it has no row yet, which another test reports")
    return KINDS[class_]


def classes() -> list[type[Effect[Any]]]:
    """The effects that a handler can yield."""
    abstract = (Effect, InputRequest, Outcome)
    return [
        one
        for _, one in inspect.getmembers(effects, inspect.isclass)
        if issubclass(one, Effect) and one not in abstract
    ]


@pytest.mark.parametrize("class_", classes(), ids=lambda one: one.__name__)
def test_effect_has_a_sample_and_a_row(class_: type[Effect[Any]]) -> None:
    assert class_ in SAMPLES, "add it to SAMPLES"
    assert class_ in KINDS, "add its row to engine/effect_table.py"


@pytest.mark.parametrize("class_", KNOWN)
def test_effect_is_public_and_documented(class_: type[Effect[Any]]) -> None:
    name = class_.__name__
    assert name in effectmcp.__all__, "export it from effectmcp"
    listed = sys.modules[class_.__module__].__all__
    assert name in listed, f"add it to __all__ of {class_.__module__}"
    text = (DOCS / "effects.md").read_text()
    assert re.search(rf"\b{name}\b", text), "describe it in docs/effects.md"


@pytest.mark.parametrize("class_", KNOWN)
def test_type_at_the_yield_is_checked(class_: type[Effect[Any]]) -> None:
    row = row_of(class_)
    if row.by == "exchange" and row.wave is Wave.INLINE:
        return  # its value is None
    yielded = re.search(rf"(yield from|await) {class_.__name__}\b", API.read_text())
    assert yielded, "add the type of its value to effectmcp_tests/typing/api.py"


@pytest.mark.parametrize("class_", KNOWN)
def test_effect_with_entries_has_a_number_in_states(class_: type[Effect[Any]]) -> None:
    row = row_of(class_)
    is_numbered = row.number is not None
    assert is_numbered is (row.wave is not Wave.INLINE), (
        f"give number={len(codec.KINDS)} in its row; without entries, none"
    )
    if row.number is not None:
        assert codec.KINDS[row.number] == row.name


def test_numbers_leave_no_gap() -> None:
    """The numbers are part of the format of states: a new effect gets the next one."""
    numbers = [row.number for row in KINDS.values() if row.number is not None]
    free = min(set(range(len(numbers) + 1)).difference(numbers))
    assert sorted(numbers) == list(range(len(numbers))), f"the next number is {free}"


@pytest.mark.parametrize("effect", LOCAL)
def test_private_value_has_its_tag(effect: Effect[Any]) -> None:
    """`known` is the default, and would not hide what the server drew."""
    class_ = type(effect)
    assert (KINDS[class_].tag == "known") is (class_ in KNOWN_TO_CLIENT), (
        "say tag= in its row: 'chance' for a value that the client does not know. If the"
        " client may know it, add the effect to KNOWN_TO_CLIENT"
    )


@pytest.mark.parametrize("class_", KNOWN)
def test_effect_is_free_unless_it_is_restricted(class_: type[Effect[Any]]) -> None:
    assert row_of(class_).is_free is (class_ not in NOT_FREE), (
        "say is_free=True in its row; or add it to NOT_FREE, if it performs a step or is"
        " allowed only in some places"
    )


#: The modules that perform what no table does.
PERFORMERS = {
    "driver": (asyncio, trio),
    "engine": (outcomes, receiving),
    "exchange": (rounds,),
}


@pytest.mark.parametrize("class_", KNOWN)
def test_effect_is_performed(class_: type[Effect[Any]]) -> None:
    by = row_of(class_).by
    assert by in get_args(By)
    assert (by == "client") is issubclass(class_, InputRequest), (
        "questions, and only they, are performed by the client"
    )
    assert (by == "function") is (class_ in FUNCTIONS), (
        "what its row calls a function is in FUNCTIONS of drivers/local.py"
    )
    modules = PERFORMERS.get(by, ())
    knowing = [one for one in modules if hasattr(one, class_.__name__)]
    if by == "driver":
        assert knowing == list(modules), "perform it in drivers/"
    elif modules:
        assert knowing, f"perform it in {modules[0].__name__}"


@pytest.mark.parametrize("effect", LOCAL)
def test_local_effect_has_a_value_in_tests(effect: Effect[Any]) -> None:
    row = KINDS[type(effect)]
    if row.by == "engine" or isinstance(effect, (Step, Within, FirstOf)):
        return  # a test gives these, or the engine does
    outcome = Chance().outcome(effect)
    assert outcome is not None, "give sample= in its row"
    with missing("give write= in its row, and read= if the value is not JSON"):
        assert row.read(effect, row.write(effect, outcome.value)) == outcome.value


@pytest.mark.parametrize("effect", LOCAL)
def test_drawn_value_has_another(effect: Effect[Any]) -> None:
    """An idempotency key must not depend on a value that each round draws."""
    if KINDS[type(effect)].tag == "chance":
        outcome = Chance().outcome(effect)
        assert outcome is not None, "give sample= in its row"
        with missing("give another= in its row: another value that could be drawn"):
            other = idempotency_keys._another(effect, outcome.value)
            assert other != outcome.value


@pytest.mark.parametrize("effect", QUESTIONS)
def test_question_is_on_the_wire(effect: InputRequest[Any]) -> None:
    row_of(type(effect))
    with missing("write its request in protocol/modern.py"):
        asked = request_of(Question("key", effect))
        assert "/" in asked["method"]
    assert lacking_of(effect, {}), "give needs= in its row"


@pytest.mark.parametrize("effect", QUESTIONS)
def test_question_is_answered_by_the_kit(effect: InputRequest[Any]) -> None:
    row = row_of(type(effect))
    with missing("draw its answers in testing/strategies.py"):
        drawn = find(answers_for(effect), lambda answer: True)
        assert isinstance(drawn, Accepted)
        assert row.write(effect, drawn.value)
    values: dict[type, Any] = {
        Sample: "text",
        ListRoots: [],
        Elicit: "Ann",
        ElicitUrl: None,
    }
    with missing("write its content in testing/values.py"):
        content_of(effect, values.get(type(effect), True))
